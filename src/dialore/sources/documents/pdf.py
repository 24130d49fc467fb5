"""PDF as sections."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

from dialore.sources.documents.blocks import BLANK_LINES, Reject, library
from dialore.sources.documents.chunking import Paragraph, Section, Unreadable, joined
from dialore.text import SENTENCE_ENDS

_HYPHEN = re.compile(r"(?<=[a-z])-\n(?=[a-z])")
_FINISHED = re.compile(rf"[{re.escape(SENTENCE_ENDS)}:：][\"'”’」』)\]）]*$")


def read_pdf(data: bytes, reject: Reject) -> Iterator[Section]:
    """The one section of a PDF; `reject` is told of pages without text."""
    with library("PDF", "pypdf"):
        import pypdf

        reader = pypdf.PdfReader(io.BytesIO(data))
        try:
            if reader.is_encrypted and not reader.decrypt(""):
                raise Unreadable("it is encrypted with a password")
        except pypdf.errors.DependencyError as error:
            raise Unreadable("it is encrypted in a way that needs the package cryptography") from error
        pages = [page.extract_text() or "" for page in reader.pages]
        title = str((reader.metadata and reader.metadata.title) or "")
    paragraphs = list(_across_pages(pages))
    if not paragraphs:
        raise Unreadable("it has no text: are its pages scanned?")
    for number, page in enumerate(pages, start=1):
        if not page.strip():
            reject(f"page {number}", "it has no text: is it scanned, or blank?")
    yield Section(paragraphs, " ".join(title.split()))


def _across_pages(pages: list[str]) -> Iterator[Paragraph]:
    held: Paragraph | None = None
    for number, page in enumerate(pages, start=1):
        for text in BLANK_LINES.split(page):
            lines = joined([line.strip() for line in _HYPHEN.sub("", text).splitlines()])
            if not lines:
                continue
            if held is not None and held.page < number and not _FINISHED.search(held.text):
                held = Paragraph(joined([held.text, lines]), held.page)
                continue
            if held is not None:
                yield held
            held = Paragraph(lines, number)
    if held is not None:
        yield held

"""PDF by pypdf: one section, its paragraphs with their pages; a sentence that runs over a page's end stays whole."""

from __future__ import annotations

import io
import logging
import re
from typing import TYPE_CHECKING

from dialore.errors import MissingExtraError
from dialore.sources.documents.chunking import Paragraph, Section, joined
from dialore.sources.documents.rejects import Unreadable
from dialore.text import SENTENCE_ENDS

if TYPE_CHECKING:
    from collections.abc import Iterator

_HYPHEN = re.compile(r"(?<=[a-z])-\n(?=[a-z])")
_PARAGRAPHS = re.compile(r"\n\s*\n")
_FINISHED = re.compile(rf"[{SENTENCE_ENDS}:：][\"'”’」』)\]）]*$")


def read_pdf(data: bytes) -> Iterator[Section]:
    """The one section of a PDF.

    Raises:
        Unreadable: it is damaged, encrypted with a password, or has no text (scanned pages).
        MissingExtraError: the extra `documents` is not installed.
    """
    try:
        import pypdf
        from pypdf.errors import DependencyError, PyPdfError
    except ImportError as error:
        raise MissingExtraError("reading PDF", "documents") from error
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("it is encrypted with a password")
        pages = [page.extract_text() or "" for page in reader.pages]
        title = str((reader.metadata and reader.metadata.title) or "")
    except DependencyError as error:
        raise Unreadable("it is encrypted in a way that needs the package cryptography") from error
    except PyPdfError as error:
        raise Unreadable(f"it is a damaged PDF: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, ArithmeticError) as error:
        # What the library meets in files that break the format in ways that it does not know.
        raise Unreadable(f"it is a damaged PDF: {type(error).__name__}: {error}") from error
    paragraphs = list(_paragraphs(pages))
    if not paragraphs:
        raise Unreadable("it has no text: are its pages scanned?")
    yield Section(paragraphs, " ".join(title.split()))


def _paragraphs(pages: list[str]) -> Iterator[Paragraph]:
    held: Paragraph | None = None
    for number, page in enumerate(pages, start=1):
        for text in _PARAGRAPHS.split(page):
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

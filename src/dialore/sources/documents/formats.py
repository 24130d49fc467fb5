"""Markdown by markdown-it, HTML by trafilatura and PDF by pypdf, each as sections of text."""

from __future__ import annotations

import io
import logging
import re
from typing import TYPE_CHECKING

from dialore.errors import MissingExtraError
from dialore.sources.documents.chunking import Paragraph, Section, Unreadable, joined, unwrapped
from dialore.text import SENTENCE_ENDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it.token import Token

_FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)\n(?:---|\.\.\.)\s*(?:\n|\Z)", re.DOTALL)
_TITLE = re.compile(r"^title\s*:\s*[\"']?(.*?)[\"']?\s*$", re.MULTILINE)
_TAG = re.compile(r"<!--.*?-->|<[^>]+>", re.DOTALL)
_HYPHEN = re.compile(r"(?<=[a-z])-\n(?=[a-z])")
_PARAGRAPHS = re.compile(r"\n\s*\n")
_FINISHED = re.compile(rf"[{re.escape(SENTENCE_ENDS)}:：][\"'”’」』)\]）]*$")


def read_markdown(text: str, *, title: str = "", url: str = "") -> Iterator[Section]:
    """The sections of a Markdown text.

    Args:
        text: the text; front matter gives a title and is left out.
        title: of the document; the first heading of level one wins where there is none.
        url: where it can be read.
    """
    from markdown_it import MarkdownIt

    front = _FRONT_MATTER.match(text)
    if front:
        said = _TITLE.search(front[1])
        title = title or (said[1] if said else "")
        text = text[front.end() :]
    headings: list[tuple[int, str]] = []
    paragraphs: list[Paragraph] = []
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            if paragraphs:
                yield Section(paragraphs, _path(title, headings), url)
                paragraphs = []
            level = int(token.tag[1:])
            headings = [(depth, name) for depth, name in headings if depth < level]
            headings.append((level, _plain(tokens[place + 1])))
        elif _counts(tokens, place):
            paragraphs.extend(_block(tokens, place))
    if paragraphs:
        yield Section(paragraphs, _path(title, headings), url)


def _counts(tokens: Sequence[Token], place: int) -> bool:
    """Whether a token holds text of its own: a table's cells are read with their row."""
    token = tokens[place]
    if token.type == "inline":
        return tokens[place - 1].type not in {"heading_open", "th_open", "td_open"}
    return token.type in {"fence", "code_block", "html_block", "tr_open"}


def _block(tokens: Sequence[Token], place: int) -> Iterator[Paragraph]:
    token = tokens[place]
    if token.type == "inline":
        text = _plain(token)
    elif token.type == "tr_open":
        end = next(at for at in range(place, len(tokens)) if tokens[at].type == "tr_close")
        cells = (_plain(each) for each in tokens[place:end] if each.type == "inline")
        text = " | ".join(cell for cell in cells if cell)
    else:
        text = _TAG.sub(" ", token.content) if token.type == "html_block" else token.content
    if text.strip():
        yield Paragraph(text)


def _plain(token: Token) -> str:
    """The words of inline Markdown: marks, addresses and tags left out."""
    parts: list[str] = []
    for child in token.children or ():
        if child.type in {"text", "code_inline"}:
            parts.append(child.content)
        elif child.type in {"softbreak", "hardbreak"}:
            parts.append("\n")
        elif child.type == "image":
            parts.append(_plain(child))
    return unwrapped("".join(parts)).replace("\n", " ").strip()


def _path(title: str, headings: Sequence[tuple[int, str]]) -> str:
    names = [name for _, name in headings if name]
    if title and (not names or names[0] != title):
        names.insert(0, title)
    return " > ".join(names)


def read_html(html: str, *, url: str = "") -> Iterator[Section]:
    """The sections of a page.

    Args:
        html: the page.
        url: where it can be read; empty: the canonical address that it names itself.

    Raises:
        MissingExtraError: the extra `documents` is not installed.
    """
    try:
        import trafilatura
    except ImportError as error:
        raise MissingExtraError("reading HTML", "documents") from error
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    found: str | None = trafilatura.extract(
        html, url=url or None, output_format="markdown", include_comments=False, with_metadata=True
    )
    head, text = _front_of(found or "")
    if not text.strip():
        # Very short pages have nothing that looks like an article: then all of their text.
        text = str(trafilatura.html2txt(html) or "")
    title = " ".join(head.get("title", "").split())
    yield from read_markdown(text, title=title, url=url or head.get("url", ""))


def _front_of(markdown: str) -> tuple[dict[str, str], str]:
    """What the library says of a page before its text, and the text."""
    front = _FRONT_MATTER.match(markdown)
    if front is None:
        return {}, markdown
    pairs = (line.partition(": ") for line in front[1].splitlines())
    return {name: value.strip() for name, _, value in pairs}, markdown[front.end() :]


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
    paragraphs = list(_across_pages(pages))
    if not paragraphs:
        raise Unreadable("it has no text: are its pages scanned?")
    yield Section(paragraphs, " ".join(title.split()))


def _across_pages(pages: list[str]) -> Iterator[Paragraph]:
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

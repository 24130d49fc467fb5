"""HTML by trafilatura: the readable text, a section a heading, without menus and advertisements."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dialore.errors import MissingExtraError
from dialore.sources.documents.markdown import FRONT_MATTER, read_markdown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dialore.sources.documents.chunking import Section


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
    head, text = _apart(found or "")
    if not text.strip():
        # Very short pages have nothing that looks like an article: then all of their text.
        text = str(trafilatura.html2txt(html) or "")
    title = " ".join(head.get("title", "").split())
    yield from read_markdown(text, title=title, url=url or head.get("url", ""))


def _apart(markdown: str) -> tuple[dict[str, str], str]:
    """What the library says of a page before its text, and the text."""
    front = FRONT_MATTER.match(markdown)
    if front is None:
        return {}, markdown
    pairs = (line.partition(": ") for line in front[1].splitlines())
    return {name: value.strip() for name, _, value in pairs}, markdown[front.end() :]

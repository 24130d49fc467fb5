"""HTML by trafilatura: the readable text, a section a heading, without menus and advertisements."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from dialore.errors import MissingExtraError
from dialore.sources.documents.markdown import read_markdown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dialore.sources.documents.chunking import Section


def read_html(html: str, *, url: str = "") -> Iterator[Section]:
    """The sections of a page.

    Args:
        html: the page.
        url: where it can be read; None is the canonical address that it names itself.

    Raises:
        MissingExtraError: the extra `documents` is not installed.
    """
    try:
        import trafilatura
    except ImportError as error:
        raise MissingExtraError("reading HTML", "documents") from error
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    found: Any = trafilatura.bare_extraction(
        html, url=url or None, output_format="markdown", include_comments=False, with_metadata=True
    )
    text = str(found.text or "") if found is not None else ""
    if not text.strip():
        # Very short pages have nothing that looks like an article: then all of their text.
        text = trafilatura.html2txt(html) or ""
    title = str(found.title or "") if found is not None else ""
    address = url or (str(found.url or "") if found is not None else "")
    yield from read_markdown(text, title=" ".join(title.split()), url=address)

"""From a page's bytes to its readable text (trafilatura; Barbaresi, 2021)."""

from __future__ import annotations

import re
from typing import Any

from dialore.encodings import decode
from dialore.errors import import_optional
from dialore.knowledge import Passage
from dialore.sources.web.fetching import Fetched, PageError

_CONTROL = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\xad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f\ufeff"
    r"\ud800-\udfff\U000e0000-\U000e01ef]"
)


def read_page(fetched: Fetched) -> Passage:
    """Return the readable text of a whole page, without menus, advertisements and comments.

    Raises:
        PageError: there is none.
        MissingExtraError: trafilatura is not installed (extra `documents`).
    """
    text = decode(fetched.data, fetched.charset).text
    title = ""
    if fetched.kind != "text/plain":
        trafilatura = import_optional("trafilatura", "reading web pages", "documents")
        # Its default drops lists that stand in no <main> and no <article>.
        document: Any = trafilatura.bare_extraction(
            text, url=fetched.url, include_comments=False, with_metadata=True, favor_recall=True
        )
        title, text = (str(document.title or ""), str(document.text or "")) if document is not None else ("", "")
    text = without_controls(text).strip()
    if not text:
        raise PageError("no readable text")
    return Passage(text, " ".join(without_controls(title).split()), fetched.url)


def without_controls(text: str) -> str:
    """Return a text without control, zero-width and other unseen characters, in which words can be hidden.

    Halves of characters (lone surrogates), which JSON can spell and no file can hold, go too.
    """
    return _CONTROL.sub("", text)

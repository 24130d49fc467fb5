"""From a page's bytes to its readable text (trafilatura; Barbaresi, 2021)."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from dialore.errors import import_optional
from dialore.knowledge import Passage
from dialore.sources.web.fetching import Fetched, PageError

# Encodings whose bytes pass for ASCII or for nothing: only their label tells them.
_BY_LABEL = frozenset({"utf-16", "utf-16-le", "utf-16-be", "iso2022_jp", "iso2022_kr", "hz"})
_CONTROL = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\xad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f\ufeff"
    r"\ud800-\udfff\U000e0000-\U000e01ef]"
)


def read_page(fetched: Fetched) -> Passage:
    """The readable text of a whole page, without menus, advertisements and comments.

    Raises:
        PageError: there is none.
        MissingExtraError: trafilatura is not installed (extra `documents`).
    """
    text = decode(fetched.data, fetched.charset)
    title = ""
    if fetched.kind != "text/plain":
        trafilatura = import_optional("trafilatura", "reading web pages", "documents")
        found: Any = trafilatura.bare_extraction(text, url=fetched.url, include_comments=False, with_metadata=True)
        title, text = (str(found.title or ""), str(found.text or "")) if found is not None else ("", "")
    text = without_controls(text).strip()
    if not text:
        raise PageError("no readable text")
    return Passage(text, " ".join(without_controls(title).split()), fetched.url)


def without_controls(text: str) -> str:
    """A text without control, zero-width, direction-changing and other unseen characters, in which words can be hidden.

    Halves of characters (lone surrogates), which JSON can spell and no file can hold, go too.
    """
    return _CONTROL.sub("", text)


def decode(data: bytes, header: str = "") -> str:
    """The text of a page's bytes, whatever it says of its charset; never fails.

    A byte-order mark wins; then UTF-8 where the bytes are that, for hardly anything else passes for it; then what the
    header says, what the page says, GB18030 and Windows-1252.
    """
    from w3lib.encoding import html_body_declared_encoding, read_bom

    name, mark = read_bom(data)
    if name and mark:
        return data[len(mark) :].decode(name, "replace")
    labels = [codec for said in (header, html_body_declared_encoding(data)) if (codec := _codec(said or ""))]
    if labels and labels[0] in _BY_LABEL:
        return data.decode(labels[0], "replace")
    for label in ("utf-8", *labels, "gb18030"):
        with suppress(UnicodeDecodeError):
            return data.decode(label)
    return data.decode(labels[0] if labels else "cp1252", "replace")


def _codec(label: str) -> str | None:
    """The codec that a label means; None for what is no encoding of text, such as rot13."""
    from w3lib.encoding import resolve_encoding

    codec = resolve_encoding(label) or "rot13"
    try:
        "a".encode(codec)
    except LookupError:
        return None
    return codec

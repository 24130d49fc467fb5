"""The text of bytes from outside: their encoding by their mark, by what is said of it, and by what they hold."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

# UTF-32's before UTF-16's, with which they begin.
_BOMS = {
    codecs.BOM_UTF8: "utf-8-sig",
    **dict.fromkeys((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "utf-32"),
    **dict.fromkeys((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-16"),
}
# What is called so is, as browsers have it, what has more characters.
_LARGER = {
    **dict.fromkeys(("ascii", "iso8859-1"), "cp1252"),
    **dict.fromkeys(("iso8859-11", "tis-620"), "cp874"),
    **dict.fromkeys(("gb2312", "gbk"), "gb18030"),
    "iso8859-9": "cp1254",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
}
_ALIASES = dict.fromkeys(("x-sjis", "windows-31j"), "cp932")
_ALIASES |= {"windows-949": "cp949", "windows-874": "cp874", "x-gbk": "gb18030"}
_SEVEN_BITS = frozenset({"iso2022_jp", "iso2022_jp_2", "iso2022_kr", "hz"})
"""Encodings whose bytes pass for ASCII: only their label or their escape sequences tell them."""
_DECLARED = re.compile(
    rb"""<meta\b[^<>]{0,400}?charset\s*=\s*["']?\s*([\w.:-]+)|\A\s*<\?xml\b[^<>]{0,200}?encoding\s*=\s*["']([\w.:-]+)""",
    re.IGNORECASE,
)
_LATIN, _OTHERS = "A-Za-zÀ-ÖØ-öø-ɏ", "\u0370-\u0fff\u2070-\u209f\u2200-\u25ff÷"
_MIXED = re.compile(f"[{_LATIN}][{_OTHERS}]|[{_OTHERS}][{_LATIN}]|[\x80-\x9f]")
"""Letters of two scripts, or signs, in one word, and control characters: marks of a wrong guess."""
_CONTROLS = bytes({*range(32)} - {*b"\t\n\f\r\x1a\x1b"})
_HEAD, _SAMPLE = 65536, 32768
_FEW = 50  # one in so many is few


class Decoded(NamedTuple):
    """A text, the encoding that it was read in, and what was assumed of it or is replaced in it, if anything."""

    text: str
    encoding: str
    note: str = ""


def is_binary(data: bytes) -> bool:
    """Return whether bytes are no text in any encoding."""
    head = data[:_HEAD]
    if head.startswith(tuple(_BOMS)):
        text = decode(head).text
        return text.count("\ufffd") * 10 > len(text)
    controls = len(head) - len(head.translate(None, _CONTROLS))
    return controls * _FEW > len(head) and not _wide(data)


def decode(data: bytes, declared: str = "") -> Decoded:
    """Return the text of bytes; never fails.

    A byte-order mark wins; then UTF-8 where the bytes are that, for hardly anything else passes for it; then what is
    `declared` from without, what HTML or XML says of itself, and what chardet takes it for by its characters.
    """
    for mark, name in _BOMS.items():
        if data.startswith(mark):
            return _decode_lossy(data, name)
    if wide := _wide(data):
        return Decoded(data.decode(wide, "replace"), wide, f"it does not say its encoding: read as {wide}")
    own = _DECLARED.search(data[:4096])
    inner = _codec_of((own[1] or own[2]).decode("ascii")) if own else ""
    labels = [name for name in (_codec_of(declared), inner) if name]
    for name in (*labels[:1], *(("iso2022_jp_2", "iso2022_kr") if b"\x1b$" in data[:_HEAD] else ())):
        if name in _SEVEN_BITS or (name == _codec_of(declared) and name.startswith("utf-16")):
            return _decode_lossy(data, name)
    for name in ("utf-8", *labels):
        try:
            return Decoded(data.decode(name), name)
        except UnicodeDecodeError:
            continue
    for name in ("utf-8", *labels):
        decoded = _decode_lossy(data, name)
        # Few of the characters beyond ASCII are replaced ones.
        if decoded.text.count("\ufffd") * 2 < sum(1 for character in decoded.text if not character.isascii()):
            return decoded
    name = _guess(data)
    return Decoded(data.decode(name, "replace"), name, f"it does not say its encoding: read as {name}")


def _codec_of(label: str) -> str:
    """Return the codec that a label means; empty for what is no encoding of text, such as rot13."""
    label = label.strip().lower()
    try:
        name = codecs.lookup(_ALIASES.get(label, label)).name
        "a".encode(name)
    except (LookupError, ValueError):
        return ""
    return _LARGER.get(name, name)


def _decode_lossy(data: bytes, name: str) -> Decoded:
    text = data.decode(name, "replace")
    bad = text.count("\ufffd") - (data.count(b"\xef\xbf\xbd") if name.startswith("utf-8") else 0)
    return Decoded(text, name, f"not all of it is {name}: {bad:,} x \ufffd stands for the rest" if bad > 0 else "")


def _wide(data: bytes) -> str:
    """UTF-16 without its mark, told by the halves of its Latin letters and spaces that are zero."""
    head = data[: _HEAD & ~1]
    even, odd = head[::2].count(0), head[1::2].count(0)
    if len(data) % 2 or max(even, odd) * 20 <= len(head) or min(even, odd) * _FEW > max(even, odd):
        return ""
    name = "utf-16-le" if odd > even else "utf-16-be"
    text = head.decode(name, "replace")
    return "" if "\ufffd" in text[:-1] or any(character < "\t" for character in text) else name


def _guess(data: bytes) -> str:
    import chardet

    told = b"\n".join(line for line in data.splitlines() if not line.isascii())[:_SAMPLE]
    names = []
    for guess in chardet.detect_all(told, ignore_threshold=True):
        name = _codec_of(str(guess["encoding"] or ""))
        text = told.decode(name, "replace") if name else ""
        if text and text.count("\ufffd") * _FEW <= len(text):
            names.append(name)
            if not _MIXED.search(text):
                return name
    return names[0] if names else "cp1252"

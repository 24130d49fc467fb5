"""Messages (.eml) as sections: what their reader sees of the head, their text, and what is attached."""

from __future__ import annotations

import email
import email.policy
from collections.abc import Callable, Iterator
from email.message import MIMEPart
from itertools import chain

from dialore.encodings import decode
from dialore.retrieval.chunking import Paragraph, Section, Unreadable
from dialore.retrieval.loaders.blocks import Reject, paragraphs, row
from dialore.retrieval.loaders.hypertext import read_html

Read = Callable[[bytes, str], Iterator[Section]]
"""Reads an attachment by its bytes and its name."""
_SHOWN = ("From", "To", "Cc", "Date")


def read_mail(data: bytes, notice: Reject, read: Read) -> Iterator[Section]:
    """Yield the sections of a message, under its subject."""
    whole = decode(data)
    if whole.encoding.startswith(("utf-16", "utf-32")):
        data = whole.text.encode("utf-8", "replace")
    message = email.message_from_bytes(data.lstrip(), policy=email.policy.default)
    if not message.keys():
        raise Unreadable("it is no message: it has no head")
    yield from _sections(message, notice, read)


def _sections(message: MIMEPart, notice: Reject, read: Read) -> Iterator[Section]:
    title = _header(message, "Subject")
    head = row(f"{name}: {line}" for name in _SHOWN if (line := _header(message, name)))
    yield Section([Paragraph(head or title)], title)
    for part in _seen(message):
        name = _header(part, "", part.get_filename)
        if part.get_content_type() == "message/rfc822":
            for inner in part.iter_parts():
                yield from _sections(inner, notice, read)
            continue
        try:
            for section in _read(part, name, notice, read):
                names = [title, name if part.is_attachment() else "", section.title]
                yield Section(section.paragraphs, " > ".join(filter(None, names)), section.url, section.extra)
        except Unreadable as error:
            notice(name or part.get_content_type(), error)


def _header(message: MIMEPart, name: str, read: Callable[[], str | None] | None = None) -> str:
    """Return a head's line, as it stands there where the library fails on it."""
    try:
        text = read() if read else message[name]
    except Exception:  # noqa: BLE001 - its parser of heads fails in many ways on damaged ones
        text = dict(message.raw_items()).get(name, "")
    return " ".join(str(text or "").split())


def _seen(part: MIMEPart) -> Iterator[MIMEPart]:
    """Yield the parts that are shown or attached: of alternatives the one that says most."""
    if part.get_content_type() == "multipart/alternative":
        ways = [list(_seen(way)) for way in part.iter_parts()]
        yield from max(ways, key=lambda way: sum(map(_length, way)), default=[])
    elif part.is_multipart() and part.get_content_type() != "message/rfc822":
        yield from chain.from_iterable(_seen(inner) for inner in part.iter_parts())
    else:
        yield part


def _length(part: MIMEPart) -> int:
    """Letters of what a part shows."""
    if part.get_content_maintype() != "text":
        return 0
    sections = _read(part, "", lambda _where, _why: None, lambda _data, _name: iter(()))
    return sum(len("".join(paragraph.text.split())) for section in sections for paragraph in section.paragraphs)


def _read(part: MIMEPart, name: str, notice: Reject, read: Read) -> Iterator[Section]:
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    charset = str(part.get_content_charset() or "")
    if part.get_content_type() == "text/html" and not part.is_attachment():
        yield from read_html(data, notice, charset=charset)
    elif part.get_content_type() == "text/plain" and not part.is_attachment():
        text, _, note = decode(data, charset)
        if note:
            notice(name or "text", note)
        yield Section(paragraphs(text))
    elif part.get_content_maintype() != "image" or part.is_attachment():
        yield from read(data, name)

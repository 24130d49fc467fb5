"""Messages as sections: their heads, texts, invitations and delivery reports, and the files attached to them."""

from __future__ import annotations

import base64
import binascii
import email
import email.policy
import quopri
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from email.message import MIMEPart
from pathlib import Path

from dialore.encodings import decode
from dialore.retrieval.chunking import Paragraph, Reject, Section, Unreadable, row
from dialore.retrieval.groups import apply_groups, names_groups
from dialore.retrieval.loaders.calendar import read_calendar
from dialore.retrieval.loaders.hypertext import TAG, read_html
from dialore.retrieval.loaders.markup import read_text

ReadContent = Callable[[bytes, str, Reject], Iterator[Section]]
"""Reads the content of an attachment, given the ending of its name."""

_HEAD_NAMES = ("From", "To", "Cc", "Date")
_MAX_DEPTH = 20
_ALTERNATIVES = "multipart/alternative"
_MESSAGES = frozenset({"message/rfc822", "message/global", "message/news"})
_CALENDARS = frozenset({"text/calendar", "application/ics"})
_PAGES = frozenset({"text/html", "text/x-amp-html"})
_TAGGED = frozenset({"text/enriched", "text/richtext", "text/xml"})
_RESOURCES = frozenset({"text/css", "text/javascript", "application/javascript", "application/x-javascript"})
"""Types of what belongs to a page and holds no text for a reader."""
_ENDINGS_BY_TYPE = {
    "text/csv": ".csv",
    "text/tab-separated-values": ".tsv",
    "text/markdown": ".md",
    "text/rtf": ".rtf",
    "application/rtf": ".rtf",
    "application/json": ".json",
    "application/pdf": ".pdf",
}
_UNQUOTED_BOUNDARY = re.compile(
    rb"""^(content-type:[^\r\n]*(?:\r?\n[ \t][^\r\n]*?)*?;\s*boundary=)([^"\s;][^\r\n;]*?)(?=[ \t]*(?:;|\r?$))""",
    re.IGNORECASE | re.MULTILINE,
)
_NEEDS_QUOTES = re.compile(rb"[][()<>@,:\\/?= ]")
_BOUNDARY_LINE = re.compile(rb"^--(\S[^\r\n]*?)[ \t]*\r?\n(?=content-[a-z-]+:)", re.IGNORECASE | re.MULTILINE)
_MBOX_LINE = re.compile(rb"(?:\A|(?<=\n\n)|(?<=\n\r\n))From [^\r\n]*\d\d:\d\d[^\r\n]*\r?\n")
_QUOTED_FROM = re.compile(rb"^>(>*From )", re.MULTILINE)


def read_message(data: bytes, notice: Reject, read_content: ReadContent) -> Iterator[Section]:
    """Yield the sections of a message below its subject.

    Raises:
        Unreadable: It has no head.
    """
    yield from _Mail(notice, read_content).read(_parse(data))


def read_web_archive(data: bytes, notice: Reject, read_content: ReadContent) -> Iterator[Section]:
    """Yield the sections of a web page that a browser saved in one file (MHTML), without the head of a message."""
    message = _parse(data)
    url = _header(message, "Snapshot-Content-Location") or _header(message, "Content-Location")
    url = url if url.startswith(("http://", "https://")) else ""
    for section in _Mail(notice, read_content).read(message, has_head=False):
        yield replace(section, url=section.url or url)


def read_mbox(data: bytes, notice: Reject, read_content: ReadContent) -> Iterator[Section]:
    """Yield the sections of the messages of a mailbox; messages that cannot be read are reported.

    Raises:
        Unreadable: It does not begin with a message, or none can be read.
    """
    data = data.lstrip()
    starts = list(_MBOX_LINE.finditer(data))
    if not starts or starts[0].start():
        raise Unreadable("it is no mailbox: it does not begin with a line of the form From NAME DATE")
    read = 0
    error: Unreadable | None = None
    ends = [match.start() for match in starts[1:]] + [len(data)]
    for number, (match, end) in enumerate(zip(starts, ends, strict=True), start=1):
        content = _QUOTED_FROM.sub(rb"\1", data[match.end() : end])
        name = f"message {number}"

        def report(where: object, why: object, name: str = name) -> None:
            notice(f"{name}, {where}".rstrip(", "), why)

        try:
            yield from read_message(content, report, read_content)
            read += 1
        except Unreadable as failure:
            error = failure
            report("", failure)
    if error is not None and not read:
        raise type(error)(f"none of its messages can be read: {error}")


def _parse(data: bytes) -> MIMEPart:
    """Return a message whose boundaries are quoted as the standard wants it."""
    whole = decode(data)
    if whole.encoding.startswith(("utf-16", "utf-32")):
        data = whole.text.encode("utf-8", "replace")
    data = _UNQUOTED_BOUNDARY.sub(_quote_boundary, data.removeprefix(b"\xef\xbb\xbf").lstrip())
    message = email.message_from_bytes(data, policy=email.policy.default)
    if not message.keys():
        raise Unreadable("it is no message: it has no head")
    return message


def _quote_boundary(match: re.Match[bytes]) -> bytes:
    boundary = match[2].replace(b'"', b"")
    return match[1] + (b'"' + boundary + b'"' if _NEEDS_QUOTES.search(boundary) else match[2])


class _Mail:
    """Reads messages, and those inside them."""

    def __init__(self, notice: Reject, read_content: ReadContent) -> None:
        self._notice = notice
        self._read_content = read_content

    def read(self, message: MIMEPart, depth: int = 0, *, has_head: bool = True) -> Iterator[Section]:
        """Yield the sections of a message, restricted to the groups that its head names."""
        named = [(name, str(value)) for name, value in message.raw_items() if names_groups(name)]
        restriction = apply_groups(named)
        for section in self._sections(message, depth, has_head=has_head):
            metadata = section.metadata
            if restriction:
                metadata = apply_groups([*restriction.items(), *section.metadata.items()])
            yield replace(section, metadata=metadata)

    def _sections(self, message: MIMEPart, depth: int, *, has_head: bool) -> Iterator[Section]:
        title = _header(message, "Subject")
        if has_head:
            lines = [f"{name}: {line}" for name in _HEAD_NAMES if (line := _header(message, name))]
            yield Section([Paragraph(row(lines) or title)], title)
        calendars: list[list[str]] = []
        for part in self._shown_parts(message, depth):
            name = _file_name(part)
            try:
                for section in self._read_part(part, name, depth):
                    if part.get_content_type() in _CALENDARS:
                        # The same invitation often stands in a message and is attached to it.
                        texts = [paragraph.text for paragraph in section.paragraphs]
                        if texts in calendars:
                            continue
                        calendars.append(texts)
                    titles = [title, name if part.is_attachment() else "", section.title]
                    yield replace(section, title=" > ".join(dict.fromkeys(filter(None, titles))))
            except Unreadable as error:
                self._notice(name or part.get_content_type(), error)

    def _shown_parts(self, part: MIMEPart, depth: int) -> Iterator[MIMEPart]:
        """Yield the parts that are shown or attached: of alternatives the one with most text, and invitations."""
        if depth > _MAX_DEPTH:
            self._notice("", "its parts are nested too deeply: the innermost are left out")
            return
        is_multipart = part.get_content_maintype() == "multipart"
        if is_multipart and not part.is_multipart():
            part = self._split_by_lines(part)
        if not (is_multipart and part.is_multipart()):
            yield part
            return
        ways = [list(self._shown_parts(way, depth + 1)) for way in part.iter_parts()]
        if part.get_content_type() == _ALTERNATIVES:
            best = max(ways, key=lambda way: sum(map(self._count_letters, way)), default=[])
            others = [inner for way in ways if way is not best for inner in way]
            ways = [best, [inner for inner in others if inner.get_content_type() in _CALENDARS]]
        for way in ways:
            yield from way

    def _split_by_lines(self, part: MIMEPart) -> MIMEPart:
        """Return a part whose boundary is missing or wrong, split by the lines that look like boundaries."""
        content = _content(part)
        match = _BOUNDARY_LINE.search(content)
        if match is not None:
            head = b"Content-Type: " + part.get_content_type().encode("ascii", "replace")
            head += b'; boundary="' + match[1].replace(b'"', b"") + b'"\n\n'
            repaired = email.message_from_bytes(head + content, policy=email.policy.default)
            if repaired.is_multipart():
                self._notice("", "its head does not name the boundary of its parts: they are told by their lines")
                return repaired
        self._notice("", "its parts cannot be told from each other: it is read as plain text")
        return email.message_from_bytes(b"Content-Type: text/plain\n\n" + content, policy=email.policy.default)

    def _count_letters(self, part: MIMEPart) -> int:
        """Return how many letters a text shows; 0 for attachments and invitations."""
        kind = part.get_content_type()
        if part.get_content_maintype() != "text" or part.is_attachment() or kind in _CALENDARS | _RESOURCES:
            return 0
        silent = _Mail(lambda _where, _why: None, self._read_content)
        try:
            sections = list(silent._read_part(part, "", 0))
        except Unreadable:
            return 0
        texts = [paragraph.text for section in sections for paragraph in section.paragraphs]
        return len("".join("".join(texts).split()))

    def _read_part(self, part: MIMEPart, name: str, depth: int) -> Iterator[Section]:
        kind, main_kind = part.get_content_type(), part.get_content_maintype()
        is_attachment = part.is_attachment()
        if kind in _MESSAGES:
            yield from self._read_inner(part, depth)
            return
        if main_kind == "message":
            yield from _read_report(part)
            return
        if kind in _RESOURCES or main_kind == "font" or (main_kind == "image" and not is_attachment):
            return

        def report(where: object, why: object) -> None:
            self._notice(f"{name}, {where}".rstrip(", "), why)

        data, charset = _content(part), str(part.get_content_charset() or "")
        ending = Path(name).suffix.lower()
        if kind in _CALENDARS or ending == ".ics":
            yield from read_calendar(decode(data, charset).text)
        elif kind in _PAGES and not is_attachment:
            yield from read_html(data, report, charset=charset)
        elif kind == "text/plain" and not is_attachment:
            yield from _read_plain(data, charset, report)
        else:
            yield from self._read_attachment(part, data, ending, report)

    def _read_attachment(self, part: MIMEPart, data: bytes, ending: str, report: Reject) -> Iterator[Section]:
        """Read a part by the ending of its name, else by its type, else as text if its type is any kind of text."""
        kind, charset = part.get_content_type(), str(part.get_content_charset() or "")
        by_type = _ENDINGS_BY_TYPE.get(kind, "")
        for known in filter(None, (ending, by_type)):
            try:
                sections = self._read_content(data, known, report)
            except KeyError:
                continue
            yield from sections
            return
        if kind in _PAGES:
            yield from read_html(data, report, charset=charset)
        elif kind in _TAGGED:
            yield from _read_plain(TAG.sub(" ", decode(data, charset).text).encode(), "utf-8", report)
        elif part.get_content_maintype() == "text":
            yield from _read_plain(data, charset, report)
        else:
            raise Unreadable("an attachment whose name and type do not say how to read it")

    def _read_inner(self, part: MIMEPart, depth: int) -> Iterator[Section]:
        """Yield the sections of a message inside a message, which may be encoded although the standard forbids it."""
        encoding = str(part.get("Content-Transfer-Encoding") or "").strip().lower()
        inner = next(part.iter_parts(), None)
        if depth >= _MAX_DEPTH or inner is None:
            raise Unreadable("messages are nested too deeply" if inner else "the message in it is empty")
        if encoding == "base64" and not inner.keys():
            try:
                inner = _parse(base64.b64decode(_content(inner)))
            except binascii.Error as error:
                raise Unreadable(f"its base64 is damaged: {error}") from error
        elif encoding == "quoted-printable":
            inner = _parse(quopri.decodestring(inner.as_bytes(policy=email.policy.compat32)))
        if not inner.keys():
            yield from _read_plain(_content(inner), "", self._notice)
            return
        yield from self.read(inner, depth + 1)


def _read_plain(data: bytes, charset: str, notice: Reject) -> Iterator[Section]:
    text, _, note = decode(data, charset)
    if note:
        notice("text", note)
    yield from read_text(text, notice)


def _read_report(part: MIMEPart) -> Iterator[Section]:
    """Yield the fields of a delivery report or receipt, a paragraph for each block of them."""
    payload = part.get_payload()
    blocks = [block for block in payload if isinstance(block, MIMEPart)] if isinstance(payload, list) else []
    paragraphs = []
    for block in blocks:
        fields = [f"{name}: {' '.join(str(value).split())}" for name, value in block.raw_items()]
        body = decode(_content(block)).text
        paragraphs.append(Paragraph(row([*fields, " ".join(body.split())])))
    if not blocks:
        paragraphs = [Paragraph(decode(_content(part)).text)]
    yield Section([paragraph for paragraph in paragraphs if paragraph.text.strip()])


def _content(part: MIMEPart) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def _file_name(part: MIMEPart) -> str:
    try:
        name = part.get_filename()
    except Exception:  # noqa: BLE001 - the library fails in many ways on damaged heads
        return ""
    return " ".join(str(name or "").split())


def _header(message: MIMEPart, name: str) -> str:
    """Return a line of the head; as it stands there if the library fails on it."""
    try:
        text = message[name]
    except Exception:  # noqa: BLE001 - the library fails in many ways on damaged heads
        text = dict(message.raw_items()).get(name, "")
    return " ".join(str(text or "").split())

"""Files as sections of text: which are read, how each format is, messages with what is attached to them."""

from __future__ import annotations

import email
import email.policy
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from email.message import MIMEPart
from itertools import chain
from pathlib import Path
from typing import Literal, get_args

from dialore.encodings import decode, is_binary
from dialore.knowledge import GROUPS
from dialore.retrieval.chunking import Paragraph, Reject, Section, Unreadable, library, paragraphs, row
from dialore.retrieval.loaders.delimited import read_rows
from dialore.retrieval.loaders.excel import read_xlsx
from dialore.retrieval.loaders.front_matter import check_head
from dialore.retrieval.loaders.hypertext import read_epub, read_html
from dialore.retrieval.loaders.markup import read_jsonl, read_markdown, read_text
from dialore.retrieval.loaders.ooxml import property_groups
from dialore.retrieval.loaders.pdf import read_pdf
from dialore.retrieval.loaders.powerpoint import read_pptx
from dialore.retrieval.loaders.word import read_docx

FileFormat = Literal["text", "lines", "markdown", "html", "pdf", "docx", "pptx", "xlsx", "jsonl", "csv", "eml", "epub"]
FILE_FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)
BY_LINE = frozenset({"lines", "jsonl", "csv"})
"""Formats that are read line by line, however many lines there are."""
_ENDINGS: dict[FileFormat, str] = {
    "text": ".txt .text",
    "markdown": ".md .markdown",
    "html": ".html .htm .xhtml",
    "pdf": ".pdf",
    "docx": ".docx .docm .dotx",
    "pptx": ".pptx .pptm .ppsx .potx",
    "xlsx": ".xlsx .xlsm .xltx",
    "jsonl": ".jsonl .ndjson",
    "csv": ".csv .tsv .tab",
    "eml": ".eml",
    "epub": ".epub",
}
ENDINGS = {ending: file_format for file_format, endings in _ENDINGS.items() for ending in endings.split()}
"""How files are read, by how their names end."""


def format_of(path: Path) -> FileFormat | None:
    """Return how a file is read, by its name; None where that does not say."""
    ending = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    return ENDINGS.get(ending.lower())


def read_sections(
    path: Path,
    file_format: FileFormat,
    reject: Reject,
    notice: Reject | None = None,
    *,
    ocr: bool = False,
    include_hidden: bool = False,
) -> Iterator[Section]:
    """Yield the sections of a file, unpacked where its name ends in `.gz`; with `ocr` scanned pages are read, too.

    With `include_hidden` what Office files hide is read, too, such as sheets, rows, slides and text.
    `reject` is told of lines that are left out, `notice` (else `reject`, too) of other parts, and of what was assumed.
    Raises Unreadable, OSError, or MissingExtraError where the format needs the extra `documents`.
    """
    try:
        if file_format in BY_LINE:
            yield from _read_lines(path, file_format, reject, notice or reject)
        else:
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            yield from _read_whole(data, file_format, notice or reject, ocr=ocr, include_hidden=include_hidden)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise Unreadable("it is a damaged gzip file") from error


def _read_lines(path: Path, file_format: FileFormat, reject: Reject, notice: Reject) -> Iterator[Section]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as raw:
        head = raw.read(_HEAD)
        _, encoding, note = decode(head[: head.rfind(b"\n") + 1] if len(head) == _HEAD else head)
        if is_binary(head):
            raise Unreadable("it is a binary file")
        if note:
            notice("", note)
        start = head.decode(encoding, "replace")
        if file_format == "lines" or (file_format == "jsonl" and start.lstrip("\ufeff \t\r\n")[:1] not in {*'{["'}):
            check_head(start)
        raw.seek(0)
        bad = 0

        def whole_lines() -> Iterator[str]:
            nonlocal bad
            for line in text_file:
                bad += "\ufffd" in line
                yield line

        # Only "\n" ends lines: JSON may hold other line ends in its strings.
        text_file = io.TextIOWrapper(raw, encoding, "replace", newline="" if file_format == "csv" else "\n")
        if file_format == "jsonl":
            yield from read_jsonl(whole_lines(), reject)
        elif file_format == "csv":
            yield from read_rows(whole_lines(), reject, notice)
        else:
            yield from (
                Section([Paragraph(part)]) for line in whole_lines() for part in line.splitlines() if part.strip()
            )
        if bad and not note:
            notice("", f"{bad:,} lines hold \ufffd, for what is no {text_file.encoding}")


def _read_whole(
    data: bytes, file_format: FileFormat, notice: Reject, *, ocr: bool, include_hidden: bool
) -> Iterator[Section]:
    if file_format == "pdf":
        yield from read_pdf(data, notice, ocr=ocr)
    elif file_format in _OFFICE:
        yield from _read_office(data, file_format, notice, include_hidden=include_hidden)
    elif file_format == "epub":
        yield from read_epub(data, notice)
    elif is_binary(data):
        raise Unreadable("it is a binary file")
    elif file_format == "html":
        yield from read_html(data, notice)
    elif file_format == "eml":
        whole = decode(data)
        if whole.encoding.startswith(("utf-16", "utf-32")):
            data = whole.text.encode("utf-8", "replace")
        message = email.message_from_bytes(data.lstrip(), policy=email.policy.default)
        if not message.keys():
            raise Unreadable("it is no message: it has no head")
        yield from _message(message, notice, ocr=ocr, include_hidden=include_hidden)
    else:
        text, _, note = decode(data)
        if note:
            notice("", note)
        yield from read_markdown(text, notice) if file_format == "markdown" else read_text(text, notice)


_HEAD = 1 << 20  # bytes by which the encoding of lines is told
_OFFICE = {"docx": read_docx, "pptx": read_pptx, "xlsx": read_xlsx}


def _read_office(data: bytes, file_format: FileFormat, notice: Reject, *, include_hidden: bool) -> Iterator[Section]:
    """Yield the sections of an Office file, for the groups that its custom properties name."""
    with library("Office file", "lxml"):
        groups = property_groups(data)
    for section in _OFFICE[file_format](data, notice, include_hidden=include_hidden):
        extra = {**section.extra, GROUPS: groups} if groups else section.extra
        yield replace(section, extra=extra)


# --- messages

_SHOWN = ("From", "To", "Cc", "Date")


def _message(message: MIMEPart, notice: Reject, *, ocr: bool, include_hidden: bool) -> Iterator[Section]:
    """Yield the sections of a message, under its subject: what is seen of its head, its text, what is attached."""
    title = _header(message, "Subject")
    head = row(f"{name}: {line}" for name in _SHOWN if (line := _header(message, name)))
    yield Section([Paragraph(head or title)], title)
    for part in _shown_parts(message):
        name = _header(part, "", part.get_filename)
        if part.get_content_type() == "message/rfc822":
            for inner in part.iter_parts():
                yield from _message(inner, notice, ocr=ocr, include_hidden=include_hidden)
            continue
        try:
            for section in _read_part(part, name, notice, ocr=ocr, include_hidden=include_hidden):
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


def _shown_parts(part: MIMEPart) -> Iterator[MIMEPart]:
    """Yield the parts that are shown or attached: of alternatives the one that says most."""
    if part.get_content_type() == "multipart/alternative":
        ways = [list(_shown_parts(way)) for way in part.iter_parts()]
        yield from max(ways, key=lambda way: sum(map(_letters, way)), default=[])
    elif part.is_multipart() and part.get_content_type() != "message/rfc822":
        yield from chain.from_iterable(_shown_parts(inner) for inner in part.iter_parts())
    else:
        yield part


def _letters(part: MIMEPart) -> int:
    """Return how many letters a part shows."""
    if part.get_content_type() not in {"text/html", "text/plain"} or part.is_attachment():
        return 0
    sections = _read_part(part, "", lambda _where, _why: None, ocr=False, include_hidden=False)
    return sum(len("".join(paragraph.text.split())) for section in sections for paragraph in section.paragraphs)


def _read_part(part: MIMEPart, name: str, notice: Reject, *, ocr: bool, include_hidden: bool) -> Iterator[Section]:
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    charset, is_attachment = str(part.get_content_charset() or ""), part.is_attachment()
    file_format = ENDINGS.get(Path(name).suffix.lower())

    def told(where: object, why: object) -> None:
        notice(f"{name}, {where}".rstrip(", "), why)

    if part.get_content_type() == "text/html" and not is_attachment:
        yield from read_html(data, notice, charset=charset)
    elif part.get_content_type() == "text/plain" and not is_attachment:
        text, _, note = decode(data, charset)
        if note:
            notice(name or "text", note)
        yield Section(paragraphs(text))
    elif part.get_content_maintype() == "image" and not is_attachment:
        return
    elif file_format is None:
        raise Unreadable("an attachment whose name does not say how to read it")
    elif file_format in {"jsonl", "csv"}:
        lines = io.StringIO(decode(data).text, newline="")
        yield from read_rows(lines, told, told) if file_format == "csv" else read_jsonl(lines, told)
    else:
        yield from _read_whole(data, file_format, told, ocr=ocr, include_hidden=include_hidden)

"""Files as sections of text: which formats are read, and by which reader."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dialore.encodings import decode, is_binary
from dialore.files import load_json
from dialore.knowledge import GROUPS
from dialore.retrieval.chunking import Paragraph, Reject, Section, Unreadable, library
from dialore.retrieval.loaders.delimited import read_rows
from dialore.retrieval.loaders.excel import read_xlsx
from dialore.retrieval.loaders.formats import BY_LINE, ENDINGS, FileFormat
from dialore.retrieval.loaders.front_matter import check_head
from dialore.retrieval.loaders.hypertext import read_epub, read_html
from dialore.retrieval.loaders.mail import ReadContent, read_mbox, read_message, read_web_archive
from dialore.retrieval.loaders.markup import read_jsonl, read_markdown, read_text
from dialore.retrieval.loaders.ooxml import property_groups
from dialore.retrieval.loaders.opendocument import read_odt
from dialore.retrieval.loaders.pdf import read_pdf
from dialore.retrieval.loaders.powerpoint import read_pptx
from dialore.retrieval.loaders.rtf import RTF_START, read_rtf
from dialore.retrieval.loaders.structured import read_json, read_notebook
from dialore.retrieval.loaders.word import read_docx

_MBOX_START = re.compile(rb"From [^\r\n]*\d\d:\d\d[^\r\n]*\r?\n[A-Za-z-]+:")
_MAIL_START = re.compile(
    rb"(?:[A-Za-z-]+:[^\r\n]*\r?\n(?:[ \t][^\r\n]*\r?\n)*)*?(?:mime-version|message-id):", re.IGNORECASE
)
_HTML_START = re.compile(rb"(?:\s|<!--.*?-->)*<(?:!doctype html|html)\b", re.IGNORECASE | re.DOTALL)
_MHTML_TYPE = re.compile(rb"multipart/related\b[^:]*\btype=\"?text/html", re.IGNORECASE)
_JSON_STARTS = (b"{", b"[")
_MAX_JSON_BYTES = 50_000_000


def guess_format(path: Path) -> FileFormat:
    """Return how a file is read whose name does not say so, by how it begins; `text` if that says nothing either.

    Raises:
        OSError: It cannot be opened.
    """
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        head = file.read(_GUESS_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
        rest = file.read(_MAX_JSON_BYTES) if head.startswith(_JSON_STARTS) else b""
    if head.startswith(RTF_START):
        return "rtf"
    if head.startswith(b"%PDF-"):
        return "pdf"
    if _MBOX_START.match(head):
        return "mbox"
    if _MAIL_START.match(head):
        return "mhtml" if _MHTML_TYPE.search(head) else "eml"
    if _HTML_START.match(head):
        return "html"
    return _guess_json(head + rest) if head.startswith(_JSON_STARTS) else "text"


def _guess_json(data: bytes) -> FileFormat:
    try:
        value = load_json(data)
    except ValueError:
        return "text"  # a log, or text in brackets
    return "notebook" if isinstance(value, dict) and "nbformat" in value else "json"


_GUESS_BYTES = 1 << 14


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
            notice("", f"lines with bytes that are not {text_file.encoding}, which are read as \ufffd: {bad:,}")


def _read_whole(
    data: bytes, file_format: FileFormat, notice: Reject, *, ocr: bool, include_hidden: bool
) -> Iterator[Section]:
    if file_format == "text" and data.startswith(RTF_START):
        file_format = "rtf"
        notice("", "it is RTF, whatever its name says, and read as such")
    if file_format == "odt":
        yield from read_odt(data, notice, include_hidden=include_hidden)
    elif file_format == "pdf":
        yield from read_pdf(data, notice, ocr=ocr)
    elif file_format in _OFFICE:
        yield from _read_office(data, file_format, notice, include_hidden=include_hidden)
    elif file_format in _PACKED:
        yield from _PACKED[file_format](data, notice)
    elif is_binary(data):
        raise Unreadable("it is a binary file")
    elif file_format == "html":
        yield from read_html(data, notice)
    elif file_format in _MAIL:
        read_attachment = _attachment_reader(ocr=ocr, include_hidden=include_hidden)
        yield from _MAIL[file_format](data, notice, read_attachment)
    else:
        text, _, note = decode(data)
        if note:
            notice("", note)
        yield from _TEXTS[file_format](text, notice)


def _attachment_reader(*, ocr: bool, include_hidden: bool) -> ReadContent:
    """Return a function that reads attachments by the endings of their names, and raises KeyError for others."""

    def read(data: bytes, ending: str, notice: Reject) -> Iterator[Section]:
        file_format = ENDINGS[ending]
        if file_format == "csv":
            return read_rows(io.StringIO(decode(data).text, newline=""), notice, notice)
        if file_format == "jsonl":
            return read_jsonl(io.StringIO(decode(data).text, newline="\n"), notice)
        return _read_whole(data, file_format, notice, ocr=ocr, include_hidden=include_hidden)

    return read


_HEAD = 1 << 20  # bytes by which the encoding of lines is told
_OFFICE = {"docx": read_docx, "pptx": read_pptx, "xlsx": read_xlsx}
_PACKED = {"epub": read_epub, "rtf": read_rtf}
_MAIL = {"eml": read_message, "mbox": read_mbox, "mhtml": read_web_archive}
_TEXTS = {"text": read_text, "markdown": read_markdown, "json": read_json, "notebook": read_notebook}


def _read_office(data: bytes, file_format: FileFormat, notice: Reject, *, include_hidden: bool) -> Iterator[Section]:
    """Yield the sections of an Office file, for the groups that its custom properties name."""
    with library("Office file", "lxml"):
        groups = property_groups(data)
    for section in _OFFICE[file_format](data, notice, include_hidden=include_hidden):
        metadata = {**section.metadata, GROUPS: groups} if groups else section.metadata
        yield replace(section, metadata=metadata)

"""Files as sections of text: which are read, how each format is, and what could not be read.

Markdown is parsed by markdown-it; the extra `documents` reads HTML, EPUB, messages, Word, PowerPoint and
Excel by lxml, and PDF by PDFium.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

from dialore.encodings import decode, is_binary
from dialore.retrieval.chunking import Paragraph, Section, Unreadable
from dialore.retrieval.loaders.blocks import Reject, paragraphs
from dialore.retrieval.loaders.excel import read_xlsx
from dialore.retrieval.loaders.hypertext import read_epub, read_html
from dialore.retrieval.loaders.mail import read_mail
from dialore.retrieval.loaders.markup import read_jsonl, read_markdown, read_rows
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
    path: Path, file_format: FileFormat, reject: Reject, notice: Reject | None = None, *, ocr: bool = False
) -> Iterator[Section]:
    """Yield the sections of a file, unpacked where its name ends in `.gz`; with `ocr` scanned pages are read, too.

    `reject` is told of lines that are left out, `notice` (else `reject`, too) of other parts, and of what was assumed.

    Raises:
        Unreadable: it cannot be read that way.
        OSError: it cannot be opened.
        MissingExtraError: its format needs the extra `documents`.
    """
    try:
        if file_format in BY_LINE:
            yield from _read_lines(path, file_format, reject, notice or reject)
        else:
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            yield from _read_whole(data, file_format, notice or reject, ocr=ocr)
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
        raw.seek(0)
        # Only "\n" ends lines: JSON may hold other line ends in its strings.
        text_file = io.TextIOWrapper(raw, encoding, "replace", newline="" if file_format == "csv" else "\n")
        lines = text_file if note else _whole_lines(text_file, notice)
        if file_format == "jsonl":
            yield from read_jsonl(lines, reject)
        elif file_format == "csv":
            yield from read_rows(lines)
        else:
            yield from (Section([Paragraph(part)]) for line in lines for part in line.splitlines() if part.strip())


def _whole_lines(lines: io.TextIOWrapper, notice: Reject) -> Iterator[str]:
    """Yield the lines of a file; `notice` is told how many hold what is no text."""
    bad = 0
    for line in lines:
        bad += "\ufffd" in line
        yield line
    if bad:
        notice("", f"{bad:,} lines hold \ufffd, for what is no {lines.encoding}")


def _read_whole(data: bytes, file_format: FileFormat, notice: Reject, *, ocr: bool) -> Iterator[Section]:
    if file_format == "pdf":
        yield from read_pdf(data, notice, ocr=ocr)
    elif file_format in _BINARY:
        yield from _BINARY[file_format](data, notice)
    elif is_binary(data):
        raise Unreadable("it is a binary file")
    elif file_format == "html":
        yield from read_html(data, notice)
    elif file_format == "eml":
        yield from read_mail(data, notice, lambda attached, name: _read_attached(attached, name, notice, ocr=ocr))
    else:
        text, _, note = decode(data)
        if note:
            notice("", note)
        yield from read_markdown(text, notice) if file_format == "markdown" else [Section(paragraphs(text))]


def _read_attached(data: bytes, name: str, notice: Reject, *, ocr: bool) -> Iterator[Section]:
    """Yield the sections of what is inside another file, by its name."""
    file_format = ENDINGS.get(Path(name).suffix.lower())
    if file_format is None:
        raise Unreadable("an attachment whose name does not say how to read it")
    if file_format in {"jsonl", "csv"}:
        lines = io.StringIO(decode(data).text, newline="")
        yield from read_rows(lines) if file_format == "csv" else read_jsonl(lines, notice)
    else:

        def told(where: object, why: object) -> None:
            notice(f"{name}, {where}".rstrip(", "), why)

        yield from _read_whole(data, file_format, told, ocr=ocr)


_HEAD = 1 << 20
"""Bytes by which the encoding of lines is told."""
_BINARY = {"docx": read_docx, "pptx": read_pptx, "xlsx": read_xlsx, "epub": read_epub}

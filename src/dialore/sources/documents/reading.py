"""Files as sections of text: which format a file has, and how each is read."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from typing import TYPE_CHECKING, Any, Literal, get_args

from dialore.sources.documents.chunking import Paragraph, Section
from dialore.sources.documents.rejects import Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dialore.sources.documents.rejects import Rejects

FileFormat = Literal["text", "lines", "markdown", "html", "pdf", "jsonl"]
FILE_FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)
_ENDINGS: dict[str, FileFormat] = {
    ".txt": "text",
    ".text": "text",
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".pdf": "pdf",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
_BLANK_LINES = re.compile(r"\n\s*\n")
_TEXT_KEYS = ("text", "passage", "contents", "content", "sentence", "body")
_URL_KEYS = ("url", "link", "source_url")
_OURS = frozenset({"text", "title", "url", "file", "page", "index"})
"""Names that a passage's detail has for what is ours."""


def format_of(path: Path) -> FileFormat | None:
    """A file's format by the end of its name, `.gz` aside; None where that says nothing."""
    return _ENDINGS.get(path.with_suffix("").suffix.lower() if path.suffix == ".gz" else path.suffix.lower())


def read_sections(path: Path, data: bytes, file_format: FileFormat, rejects: Rejects) -> Iterator[Section]:
    """The sections of a file.

    Args:
        path: its name, for what is said of it.
        data: its bytes, packed where its name ends in `.gz`.
        file_format: how they are read.
        rejects: takes lines that are left out.

    Raises:
        Unreadable: it cannot be read that way.
        MissingExtraError: PDF or HTML without the extra `documents`.
    """
    if path.suffix == ".gz":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise Unreadable("it is a damaged gzip file") from error
    if file_format == "pdf":
        from dialore.sources.documents.pdf import read_pdf

        yield from read_pdf(data)
    elif file_format == "html":
        from dialore.sources.documents.html import read_html
        from dialore.sources.web.reading import decode

        _check_text(data)
        yield from read_html(decode(data))
    elif file_format == "markdown":
        from dialore.sources.documents.markdown import read_markdown

        yield from read_markdown(decoded(data))
    elif file_format == "jsonl":
        yield from _read_jsonl(path, decoded(data), rejects)
    elif file_format == "lines":
        lines = decoded(data).splitlines()
        yield from (Section([Paragraph(line.strip())]) for line in lines if line.strip())
    else:
        paragraphs = [Paragraph(_unwrapped(text)) for text in _BLANK_LINES.split(decoded(data)) if text.strip()]
        yield Section(paragraphs)


def decoded(data: bytes) -> str:
    """Bytes as text: UTF-8, or UTF-16 with its mark.

    Raises:
        Unreadable: they are neither.
    """
    if data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        encoding = "utf-16"
    else:
        _check_text(data)
        encoding = "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise Unreadable(f"it is not UTF-8 (byte {error.start:,}): convert it, e.g. with iconv") from error


def _check_text(data: bytes) -> None:
    if b"\0" in data[:65536] and data[:2] not in {b"\xff\xfe", b"\xfe\xff"}:
        raise Unreadable("it is a binary file")


def _unwrapped(text: str) -> str:
    """Hard-wrapped lines as one, without a space between Chinese characters."""
    return re.sub(r"(?<=[\u3000-\u9fff\uff00-\uffef])[ \t]*\r?\n\s*(?=[\u3000-\u9fff\uff00-\uffef])", "", text)


def _read_jsonl(path: Path, text: str, rejects: Rejects) -> Iterator[Section]:
    # Only "\n" parts lines: JSON may hold other line ends in its strings.
    taken = 0
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            section = _section(_decoded_line(line))
        except (ValueError, RecursionError) as error:
            rejects.line(str(path), number, f"not JSON: {error}")
        except Unreadable as error:
            rejects.line(str(path), number, error)
        else:
            taken += 1
            yield section
    if not taken and text.strip():
        raise Unreadable('none of its lines is a passage: wanted is {"text": ...} or a string a line')


def _decoded_line(line: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    """The JSON of a line; half a character (a lone surrogate), which JSON can spell, is a replacement character."""
    data = json.loads(line)
    if "\\ud" not in line and "\\uD" not in line:
        return data
    plain = json.dumps(data, ensure_ascii=False)
    return json.loads(plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _section(data: Any) -> Section:  # noqa: ANN401 - whatever JSON holds
    if isinstance(data, str):
        data = {"text": data}
    if not isinstance(data, dict):
        raise Unreadable("neither an object nor a string")
    key = next((key for key in _TEXT_KEYS if isinstance(data.get(key), str) and data[key].strip()), None)
    if key is None:
        raise Unreadable("no text in it")
    url_key = next((key for key in _URL_KEYS if isinstance(data.get(key), str)), "")
    title = data.get("title")
    extra = {name: value for name, value in data.items() if name not in {key, url_key, *_OURS}}
    if isinstance(title, str):
        title = " ".join(title.split())
    elif title is not None:
        extra["title_"] = title
    # A line's text is one passage's or one article's: blank lines part paragraphs.
    paragraphs = [Paragraph(_unwrapped(part)) for part in _BLANK_LINES.split(data[key]) if part.strip()]
    return Section(paragraphs, title if isinstance(title, str) else "", data.get(url_key, ""), extra)

"""Files as sections of text: which are read, what format each has, and what could not be read."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from dialore.errors import InputError
from dialore.sources.documents.chunking import Paragraph, Section, Unreadable, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
_SHOWN = 10
_BLANK_LINES = re.compile(r"\n\s*\n")
_TEXT_KEYS = ("text", "passage", "contents", "content", "sentence", "body")
_URL_KEYS = ("url", "link", "source_url")
_OURS = frozenset({"text", "title", "url", "file", "page", "index"})
"""Names that a passage's detail has for what is ours."""


def format_of(path: Path) -> FileFormat | None:
    """A file's format by the end of its name, `.gz` aside; None where that says nothing."""
    return _ENDINGS.get(path.with_suffix("").suffix.lower() if path.suffix == ".gz" else path.suffix.lower())


@dataclass
class Rejects:
    """Files and lines that were left out: how many, and the first of them, a sentence each."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, where: object, why: object) -> None:
        """Count one that was left out."""
        self.count += 1
        if len(self.first) < _SHOWN:
            self.first.append(f"{where}: {why}")


class Found(NamedTuple):
    """A file to be read, and how."""

    path: Path
    file_format: FileFormat


def find_files(paths: Sequence[Path], file_format: FileFormat | None = None) -> Iterator[Found]:
    """The files, and those in the folders and below, each once, by absolute path.

    In a folder only files count whose names say that they can be read; hidden ones do not. What
    is named itself is read whatever it is called, as text where its name says nothing.

    Args:
        paths: files and folders.
        file_format: how all of them are read, whatever their names.

    Raises:
        InputError: there is nothing of that name.
    """
    for path in paths:
        if not path.exists():
            raise InputError(f"no such file or folder: {path}", mend="check the name")
    seen: set[Path] = set()
    for path in paths:
        below = _below(path.resolve()) if path.is_dir() else [(path.resolve(), format_of(path) or "text")]
        for each, known in below:
            if each not in seen:
                seen.add(each)
                yield Found(each, file_format or known)


def _below(folder: Path) -> Iterator[tuple[Path, FileFormat]]:
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            known = format_of(Path(name))
            if known is not None and not name.startswith("."):
                yield Path(where) / name, known


def read_sections(path: Path, file_format: FileFormat, rejects: Rejects) -> Iterator[Section]:
    """The sections of a file; lines are read one by one.

    Args:
        path: the file, unpacked where its name ends in `.gz`.
        file_format: how it is read.
        rejects: takes lines that are left out.

    Raises:
        Unreadable: it cannot be read that way.
        OSError: it cannot be opened.
        MissingExtraError: PDF or HTML without the extra `documents`.
    """
    try:
        if file_format in {"lines", "jsonl"}:
            yield from _read_lines(path, file_format, rejects)
        else:
            data = path.read_bytes()
            yield from _read_whole(gzip.decompress(data) if path.suffix == ".gz" else data, file_format)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise Unreadable("it is a damaged gzip file") from error
    except UnicodeDecodeError as error:
        raise Unreadable(f"it is not UTF-8 (byte {error.start:,}): convert it, e.g. with iconv") from error
    except MemoryError as error:
        raise Unreadable("it is larger than the memory") from error


def _read_lines(path: Path, file_format: FileFormat, rejects: Rejects) -> Iterator[Section]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as raw:
        encoding = _encoding(raw.read(65536))
        raw.seek(0)
        # Only "\n" ends lines: JSON may hold other line ends in its strings.
        lines = io.TextIOWrapper(raw, encoding, newline="\n")
        if file_format == "jsonl":
            yield from _read_jsonl(path, lines, rejects)
        else:
            yield from (Section([Paragraph(part)]) for line in lines for part in line.splitlines() if part.strip())


def _read_whole(data: bytes, file_format: FileFormat) -> Iterator[Section]:
    from dialore.sources.documents import formats

    if file_format == "pdf":
        yield from formats.read_pdf(data)
    elif file_format == "html":
        from dialore.sources.web.reading import decode

        _encoding(data[:65536])
        yield from formats.read_html(decode(data))
    elif file_format == "markdown":
        yield from formats.read_markdown(data.decode(_encoding(data[:65536])))
    else:
        texts = _BLANK_LINES.split(data.decode(_encoding(data[:65536])))
        yield Section([Paragraph(unwrapped(text)) for text in texts if text.strip()])


def _encoding(head: bytes) -> str:
    """The encoding of text that begins so: UTF-8, or UTF-16 with its mark; raises Unreadable where it is no text."""
    if head[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        return "utf-16"
    if b"\0" in head:
        raise Unreadable("it is a binary file")
    return "utf-8-sig"


def _read_jsonl(path: Path, lines: Iterable[str], rejects: Rejects) -> Iterator[Section]:
    taken = number = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            section = _section(_decoded_line(line))
        except (ValueError, RecursionError) as error:
            rejects.add(f"{path}, line {number}", f"not JSON: {error}")
        except Unreadable as error:
            rejects.add(f"{path}, line {number}", error)
        else:
            taken += 1
            yield section
    if number and not taken:
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
    paragraphs = [Paragraph(unwrapped(part)) for part in _BLANK_LINES.split(data[key]) if part.strip()]
    return Section(paragraphs, title if isinstance(title, str) else "", data.get(url_key, ""), extra)

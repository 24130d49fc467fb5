"""Files as sections of text: which are read, how each format is, and what could not be read.

Markdown is parsed by markdown-it; the extra `documents` reads HTML by trafilatura, PDF by pypdf, and Word, PowerPoint
and Excel by python-docx, python-pptx and openpyxl.
"""

from __future__ import annotations

import gzip
import io
import json
import logging
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from dialore.errors import InputError, MissingExtraError, as_path, first_line
from dialore.llm.model import mend_surrogates
from dialore.sources.documents.chunking import Paragraph, Section, Unreadable, joined, unwrapped
from dialore.text import SENTENCE_ENDS

if TYPE_CHECKING:
    from markdown_it.token import Token

FileFormat = Literal["text", "lines", "markdown", "html", "pdf", "docx", "pptx", "xlsx", "jsonl"]
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
    ".docx": "docx",
    ".pptx": "pptx",
    ".xlsx": "xlsx",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
Reject = Callable[[object, object], None]
"""Told what is left out, a file or a line of it, and why."""
_BLANK_LINES = re.compile(r"\n\s*\n")
_TEXT_KEYS = ("text", "passage", "contents", "content", "sentence", "body")
_URL_KEYS = ("url", "link", "source_url")
_OURS = frozenset({"text", "title", "url", "file", "page", "index"})
"""Names that a passage's detail has for what is ours."""
_FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)\n(?:---|\.\.\.)\s*(?:\n|\Z)", re.DOTALL)
_TITLE = re.compile(r"^title\s*:\s*[\"']?(.*?)[\"']?\s*$", re.MULTILINE)
_TAG = re.compile(r"<!--.*?-->|<[^>]+>", re.DOTALL)
_HYPHEN = re.compile(r"(?<=[a-z])-\n(?=[a-z])")
_FINISHED = re.compile(rf"[{re.escape(SENTENCE_ENDS)}:：][\"'”’」』)\]）]*$")


def find_files(
    named: str | Path | Sequence[str | Path], file_format: FileFormat | None = None
) -> tuple[dict[Path, FileFormat], list[Path]]:
    """The files, and those in the folders and below, by absolute path, each with its format; and what was passed over.

    In a folder only files are read whose names say how; the others are passed over, hidden ones without a word. What
    is named itself is read whatever it is called, as text where its name says nothing. `file_format` says how all of
    them are read, whatever their names.

    Raises:
        InputError: there is nothing of that name.
    """
    found: dict[Path, FileFormat] = {}
    skipped: list[Path] = []
    paths = [as_path("a file", path) for path in ([named] if isinstance(named, str | Path) else named)]
    for path in paths:
        if not path.exists():
            raise InputError(f"no such file or folder: {path}", mend="check the name")
    for path in paths:
        for each in _below(path.resolve()) if path.is_dir() else [path.resolve()]:
            ending = each.with_suffix("").suffix if each.suffix == ".gz" else each.suffix
            known = _ENDINGS.get(ending.lower()) or ("text" if not path.is_dir() else None)
            if known is None:
                skipped.append(each)
            else:
                found.setdefault(each, file_format or known)
    return found, skipped


def _below(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(where) / name for name in sorted(names) if not name.startswith("."))


def read_sections(path: Path, file_format: FileFormat, reject: Reject) -> Iterator[Section]:
    """The sections of a file, unpacked where its name ends in `.gz`; `reject` is told of lines that are left out.

    Raises:
        Unreadable: it cannot be read that way.
        OSError: it cannot be opened.
        MissingExtraError: its format needs the extra `documents`.
    """
    try:
        if file_format in {"lines", "jsonl"}:
            yield from _read_lines(path, file_format, reject)
        else:
            data = path.read_bytes()
            yield from _read_whole(gzip.decompress(data) if path.suffix == ".gz" else data, file_format)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise Unreadable("it is a damaged gzip file") from error
    except UnicodeDecodeError as error:
        raise Unreadable(f"it is not UTF-8 (byte {error.start:,}): convert it, e.g. with iconv") from error
    except MemoryError as error:
        raise Unreadable("it is larger than the memory") from error


def _read_lines(path: Path, file_format: FileFormat, reject: Reject) -> Iterator[Section]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as raw:
        encoding = _encoding(raw.read(65536))
        raw.seek(0)
        # Only "\n" ends lines: JSON may hold other line ends in its strings.
        lines = io.TextIOWrapper(raw, encoding, newline="\n")
        if file_format == "jsonl":
            yield from _read_jsonl(path, lines, reject)
        else:
            yield from (Section([Paragraph(part)]) for line in lines for part in line.splitlines() if part.strip())


def _read_whole(data: bytes, file_format: FileFormat) -> Iterator[Section]:
    if file_format in _BINARY:
        yield from _BINARY[file_format](data)
        return
    encoding = _encoding(data[:65536])
    if file_format == "html":
        yield from _read_html(data)
    elif file_format == "markdown":
        yield from _read_markdown(data.decode(encoding))
    else:
        yield Section(_paragraphs(data.decode(encoding)))


def _paragraphs(text: str) -> list[Paragraph]:
    return [Paragraph(unwrapped(part)) for part in _BLANK_LINES.split(text) if part.strip()]


def _encoding(head: bytes) -> str:
    """The encoding of text that begins so: UTF-8, or UTF-16 with its mark; raises Unreadable where it is no text."""
    if head[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        return "utf-16"
    if b"\0" in head:
        raise Unreadable("it is a binary file")
    return "utf-8-sig"


def _read_jsonl(path: Path, lines: Iterable[str], reject: Reject) -> Iterator[Section]:
    taken = number = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
            if "\\ud" in line or "\\uD" in line:  # JSON can spell half a character, which no file can hold
                data = json.loads(mend_surrogates(json.dumps(data, ensure_ascii=False)))
            section = _section(data)
        except (ValueError, RecursionError) as error:
            reject(f"{path}, line {number}", f"not JSON: {error}")
        except Unreadable as error:
            reject(f"{path}, line {number}", error)
        else:
            taken += 1
            yield section
    if number and not taken:
        raise Unreadable('none of its lines is a passage: wanted is {"text": ...} or a string a line')


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
    if title is not None and not isinstance(title, str):
        extra["title_"], title = title, ""
    # A line's text is one passage's or one article's: blank lines part paragraphs.
    return Section(_paragraphs(data[key]), " ".join((title or "").split()), data.get(url_key, ""), extra)


# --- Markdown


def _read_markdown(text: str, *, title: str = "", url: str = "") -> Iterator[Section]:
    """The sections of a Markdown text; front matter gives a title where there is none, and is left out."""
    from markdown_it import MarkdownIt

    front = _FRONT_MATTER.match(text)
    if front:
        said = _TITLE.search(front[1])
        title = title or (said[1] if said else "")
        text = text[front.end() :]
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    blocks = (block for place in range(len(tokens)) for block in _blocks(tokens, place))
    yield from _by_headings(blocks, title, url)


def _by_headings(blocks: Iterable[tuple[int, Paragraph]], title: str, url: str = "") -> Iterator[Section]:
    """The sections of paragraphs (level 0) and headings (levels from 1); a heading that is the title counts once."""
    headings: list[tuple[int, str]] = []
    paragraphs: list[Paragraph] = []
    for level, paragraph in blocks:
        if not level:
            paragraphs.append(paragraph)
            continue
        if paragraphs:
            yield Section(paragraphs, _path(title, headings), url)
            paragraphs = []
        headings = [(depth, name) for depth, name in headings if depth < level] + [(level, paragraph.text)]
    if paragraphs:
        yield Section(paragraphs, _path(title, headings), url)


def _path(title: str, headings: Sequence[tuple[int, str]]) -> str:
    names = [name for _, name in headings if name]
    if title and (not names or names[0] != title):
        names.insert(0, title)
    return " > ".join(names)


def _blocks(tokens: Sequence[Token], place: int) -> Iterator[tuple[int, Paragraph]]:
    """The heading or paragraph that a token holds, if any: a table's cells are read with their row."""
    token = tokens[place]
    level, text = 0, ""
    if token.type == "heading_open":
        level, text = int(token.tag[1:]), _plain(tokens[place + 1])
    elif token.type == "inline" and tokens[place - 1].type not in {"heading_open", "th_open", "td_open"}:
        text = _plain(token)
    elif token.type == "tr_open":
        end = next(at for at in range(place, len(tokens)) if tokens[at].type == "tr_close")
        text = _row(_plain(each) for each in tokens[place:end] if each.type == "inline")
    elif token.type == "html_block":
        text = _TAG.sub(" ", token.content)
    elif token.type in {"fence", "code_block"}:
        text = token.content
    if level or text.strip():
        yield level, Paragraph(text)


def _row(cells: Iterable[str]) -> str:
    """A row of a table."""
    return " | ".join(cell for cell in cells if cell)


def _plain(token: Token) -> str:
    """The words of inline Markdown: marks, addresses and tags left out."""
    parts: list[str] = []
    for child in token.children or ():
        if child.type in {"text", "code_inline"}:
            parts.append(child.content)
        elif child.type in {"softbreak", "hardbreak"}:
            parts.append("\n")
        elif child.type == "image":
            parts.append(_plain(child))
    return unwrapped("".join(parts)).replace("\n", " ").strip()


# --- formats of the extra


@contextmanager
def _library(what: str, library: str) -> Iterator[None]:
    """Import and use a library of the extra: what it meets in damaged files, each of its own kind, is Unreadable."""
    logging.getLogger(library).setLevel(logging.CRITICAL)
    try:
        yield
    except (Unreadable, MemoryError, MissingExtraError):
        raise
    except ImportError as error:
        raise MissingExtraError(f"reading {what}", "documents") from error
    except Exception as error:
        raise Unreadable(f"it is a damaged {what}: {type(error).__name__}: {first_line(error)}") from error


def _read_html(data: bytes) -> Iterator[Section]:
    """The sections of a page, at the canonical address that it names itself."""
    try:
        import trafilatura

        from dialore.sources.web.reading import decode
    except ImportError as error:
        raise MissingExtraError("reading HTML", "documents") from error
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    tree = trafilatura.load_html(decode(data))
    if tree is None:
        return
    said = trafilatura.extract_metadata(tree)
    title = " ".join((said.title or "").split())
    for heading in tree.findall(".//h1"):
        if " ".join(heading.text_content().split()) == title:
            heading.drop_tree()  # else a short page's text begins with it
    for words in list(tree.iter("dl")):
        _define(words)
    for element in tree.iter("details", "summary"):
        element.tag = "div" if element.tag == "details" else "p"
    text = trafilatura.extract(tree, output_format="markdown", include_comments=False)
    # Very short pages have nothing that looks like an article: then all of their text.
    text = text or str(trafilatura.html2txt(tree) or "")
    yield from _read_markdown(text, title=title, url=said.url or "")


def _define(words: Any) -> None:  # noqa: ANN401 - lxml ships no types
    """Make of a list of definitions a paragraph for each, with its terms before it."""
    terms: list[str] = []
    defined = False
    for entry in list(words.iter("dt", "dd")):
        text = " ".join(entry.text_content().split())
        if entry.tag == "dt":
            terms, defined = [*([] if defined else terms), text], False
            entry.drop_tree()
        else:
            tail, defined = entry.tail, True
            entry.clear()
            entry.tag, entry.text, entry.tail = "p", f"{', '.join(terms)}: {text}" if terms else text, tail
    words.tag = "div"


def _read_pdf(data: bytes) -> Iterator[Section]:
    """The one section of a PDF."""
    with _library("PDF", "pypdf"):
        import pypdf

        reader = pypdf.PdfReader(io.BytesIO(data))
        try:
            if reader.is_encrypted and not reader.decrypt(""):
                raise Unreadable("it is encrypted with a password")
        except pypdf.errors.DependencyError as error:
            raise Unreadable("it is encrypted in a way that needs the package cryptography") from error
        pages = [page.extract_text() or "" for page in reader.pages]
        title = str((reader.metadata and reader.metadata.title) or "")
    paragraphs = list(_across_pages(pages))
    if not paragraphs:
        raise Unreadable("it has no text: are its pages scanned?")
    yield Section(paragraphs, " ".join(title.split()))


def _across_pages(pages: list[str]) -> Iterator[Paragraph]:
    held: Paragraph | None = None
    for number, page in enumerate(pages, start=1):
        for text in _BLANK_LINES.split(page):
            lines = joined([line.strip() for line in _HYPHEN.sub("", text).splitlines()])
            if not lines:
                continue
            if held is not None and held.page < number and not _FINISHED.search(held.text):
                held = Paragraph(joined([held.text, lines]), held.page)
                continue
            if held is not None:
                yield held
            held = Paragraph(lines, number)
    if held is not None:
        yield held


def _read_docx(data: bytes) -> Iterator[Section]:
    """A Word document by its headings."""
    with _library("Word document", "docx"):
        import docx
        from docx.table import Table

        document = docx.Document(io.BytesIO(data))
        blocks: list[tuple[int, Paragraph]] = []
        for block in document.iter_inner_content():
            if isinstance(block, Table):
                blocks += [(0, Paragraph(_row(cell.text.strip() for cell in row.cells))) for row in block.rows]
            elif block.text.strip():
                name = (block.style and block.style.name) or ""
                level = 1 if name == "Title" else int(name[-1]) if re.fullmatch(r"Heading \d", name) else 0
                blocks.append((level, Paragraph(block.text.strip())))
        title = document.core_properties.title or ""
    yield from _by_headings(blocks, title)


def _read_pptx(data: bytes) -> Iterator[Section]:
    """A presentation by its slides, whose numbers are pages."""
    with _library("presentation", "pptx"):
        import pptx

        presentation = pptx.Presentation(io.BytesIO(data))
        blocks: list[tuple[int, Paragraph]] = []
        for number, slide in enumerate(presentation.slides, start=1):
            title = slide.shapes.title
            blocks.append((1, Paragraph(title.text_frame.text.strip() if title is not None else "")))
            shapes = [shape for shape in slide.shapes if title is None or shape.shape_id != title.shape_id]
            texts = [shape.text_frame.text for shape in shapes if shape.has_text_frame]
            rows = (row for shape in shapes if shape.has_table for row in shape.table.rows)
            texts += [_row(cell.text.strip() for cell in row.cells) for row in rows]
            texts += [slide.notes_slide.notes_text_frame.text] if slide.has_notes_slide else []
            blocks += [(0, Paragraph(line, number)) for text in texts for line in text.splitlines() if line.strip()]
        name = presentation.core_properties.title or ""
    yield from _by_headings(blocks, "" if name == "PowerPoint Presentation" else name)


def _read_xlsx(data: bytes) -> Iterator[Section]:
    """A workbook by its sheets: a paragraph a row, each value after what the first row calls it."""
    with _library("workbook", "openpyxl"):
        import openpyxl

        workbook = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
        blocks: list[tuple[int, Paragraph]] = []
        for sheet in workbook.worksheets:
            blocks.append((1, Paragraph(sheet.title)))
            names: list[str] | None = None
            for row in sheet.iter_rows(values_only=True):
                cells = ["" if value is None else str(value).strip() for value in row]
                if any(cells) and names is None:
                    names = cells
                elif any(cells) and names is not None:
                    named = zip(names, cells, strict=False)
                    text = _row(f"{name}: {cell}" if name else cell for name, cell in named if cell)
                    blocks.append((0, Paragraph(text)))
    yield from _by_headings(blocks, "")


_BINARY = {"pdf": _read_pdf, "docx": _read_docx, "pptx": _read_pptx, "xlsx": _read_xlsx}

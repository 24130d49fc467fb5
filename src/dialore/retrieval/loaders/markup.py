"""JSON lines, tables in text, and Markdown as sections."""

from __future__ import annotations

import csv
import functools
import html
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dialore.errors import InputError
from dialore.files import parse_yaml, with_long_cells
from dialore.knowledge import GROUPS
from dialore.retrieval.chunking import (
    Paragraph,
    Reject,
    Section,
    Unreadable,
    fence_code,
    paragraphs,
    row,
    split_at_headings,
    unwrap,
)
from dialore.retrieval.loaders.tables import Cell, render_table

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_TEXT_KEYS = ("text", "passage", "contents", "content", "sentence", "body")
_URL_KEYS = ("url", "link", "source_url")
_OURS = frozenset({"text", "title", "url", "file", "page", "index"})
"""Names that a passage's detail has for what is ours."""
_FRONT_MATTER = re.compile(r"\A---[ \t\r]*\n(.*?)\n(?:---|\.\.\.)[ \t\r]*(?:\n|\Z)", re.DOTALL)
_TITLE = re.compile(r"^title[ \t]*:(.*)$", re.MULTILINE)
TAG = re.compile(r"<!--.*?(?:-->|\Z)|<(script|style)\b.*?(?:</\1\s*>|\Z)|<[^<>]+>", re.DOTALL | re.IGNORECASE)
_ALT = re.compile(r"\balt=[\"']([^\"'<>]+)", re.IGNORECASE)
_TARGET = re.compile(r"^\([\w./: -]+\)=[ \t]*$", re.MULTILINE)
_ROLE_TARGET = re.compile(r"(?<=\S)\s*<[^<>]*>$")
_DIRECTIVE = re.compile(
    r"\{(?:admonition|attention|card|caution|danger|deprecated|details|dropdown|epigraph|error|exercise|figure|grid|hint|"
    r"important|margin|note|proof|seealso|sidebar|solution|tab-|table|list-table|theorem|tip|topic|version|warning)[\w-]*\}"
)
"""MyST's fences that hold no code."""
_COLON_NAME = re.compile(r"\{[^{}]*\}")
_OPTIONS = re.compile(r"\A(?:---\n.*?\n---\n|(?::[\w-]+:[^\n]*\n)+)", re.DOTALL)
_DEEPEST, _DIRECTIVES = 200, 10


def read_jsonl(lines: Iterable[str], reject: Reject) -> Iterator[Section]:
    """Yield the sections of a JSONL file, one a line; `reject` is told of lines that are left out."""
    taken = number = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            section = _section(json.loads(line))
        except (ValueError, RecursionError) as error:
            reject(f"line {number}", f"not JSON: {error}")
        except Unreadable as error:
            reject(f"line {number}", error)
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
    return Section(paragraphs(data[key]), " ".join((title or "").split()), data[url_key] if url_key else "", extra)


# --- Tables in text


def read_rows(lines: Iterable[str]) -> Iterator[Section]:
    """Yield the sections of a CSV or TSV file, one a row, each value after what the first row calls it."""
    lines = iter(lines)
    sample = list(itertools.islice(lines, _SAMPLE))
    separator = _SEPARATOR.fullmatch(sample[0].strip()) if sample else None
    if separator:
        del sample[0]
    delimiter = separator[1] if separator else _delimiter(sample)
    rows = csv.reader(itertools.chain(sample, lines), delimiter=delimiter, **_quoting("".join(sample), delimiter))
    names: list[str] | None = None
    held: list[str] | None = None  # a first row is a passage of its own where no other follows
    for values in with_long_cells(rows):
        cells = [" ".join(value.split()) for value in values]
        if not any(cells):
            continue
        if names is None:
            cells = [GROUPS if cell.lower() == GROUPS else cell for cell in cells]
            named = all(cell and not _NUMBER.fullmatch(cell) for cell in cells)
            names, held = (cells, cells) if named else ([], None)
            if named:
                continue
        held = None
        named_cells = list(itertools.zip_longest(names[: len(cells)], cells, fillvalue=""))
        extra: dict[str, Any] = {name: cell for name, cell in named_cells if name and 0 < len(cell) <= _LONGEST_CELL}
        if GROUPS in names:
            column = names.index(GROUPS)
            of = cells[column] if column < len(cells) else ""
            extra[GROUPS] = [name.strip() for name in re.split("[,;|]", of) if name.strip()]
        told = (f"{name}: {cell}" if name and cell else cell for name, cell in named_cells if name != GROUPS)
        yield Section([Paragraph(row(told))], extra=extra)
    if held:
        yield Section([Paragraph(row(held))])


_LONGEST_CELL = 100
"""Characters of a cell up to which it is metadata, too, which passages are filtered by."""
_SAMPLE = 200  # lines by which a table's form is told
_SEPARATOR = re.compile(r"\ufeff?sep=(.)", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?[\d.,:/%€$£ -]+")


def _delimiter(sample: Sequence[str]) -> str:
    """Return the sign that parts the values of most lines into the same number of them, at least two."""
    best, delimiter = 0.0, ","
    for sign in ",;\t|":
        counts = Counter(len(values) for values in with_long_cells(csv.reader(sample, delimiter=sign)) if values)
        columns, lines = counts.most_common(1)[0] if counts else (1, 0)
        if columns > 1 and lines / counts.total() > best:
            best, delimiter = lines / counts.total(), sign
    return delimiter


def _quoting(sample: str, delimiter: str) -> dict[str, Any]:
    """Return how values that hold the delimiter are quoted: by double quotes, doubled inside or after a backslash."""
    sign = re.escape(delimiter)
    if '"' not in sample and re.search(rf"(?:^|{sign})'[^'\n{sign}]*{sign}[^'\n]*'", sample, re.MULTILINE):
        return {"quotechar": "'"}
    return {"escapechar": "\\"} if '\\"' in sample and '""' not in sample else {}


# --- Markdown


def read_markdown(text: str, notice: Reject) -> Iterator[Section]:
    """Yield the sections of a Markdown text; front matter gives a title and metadata."""
    title, extra = "", dict[str, Any]()
    if front := _FRONT_MATTER.match(text):
        titled = _TITLE.search(front[1])
        title = titled[1].strip().strip("\"'") if titled else ""
        text, extra = text[front.end() :], _metadata(front[1])
    for section in split_at_headings(_blocks(_TARGET.sub("", text), notice), title):
        yield replace(section, extra=extra)


def _metadata(front: str) -> dict[str, Any]:
    """Return what front matter says besides the title; nothing where it is no YAML, but Unreadable if it has groups."""
    try:
        fields = json.loads(json.dumps(parse_yaml(front, "front matter"), default=str))
    except (InputError, ValueError) as error:
        if re.search(rf"^\s*{GROUPS}\b", front, re.MULTILINE | re.IGNORECASE):
            raise Unreadable(f"its front matter names {GROUPS}, but is not valid YAML") from error
        return {}
    if not isinstance(fields, dict):
        return {}
    return {GROUPS if name.lower() == GROUPS else name: value for name, value in fields.items() if name != "title"}


@functools.cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt
    from mdit_py_plugins.colon_fence import colon_fence_plugin
    from mdit_py_plugins.footnote import footnote_plugin
    from mdit_py_plugins.myst_role import myst_role_plugin

    parser = MarkdownIt("commonmark", {"maxNesting": _DEEPEST}).enable(["table", "strikethrough"])
    parser.use(myst_role_plugin).use(colon_fence_plugin).use(footnote_plugin)
    return parser.disable(["footnote_tail", "footnote_inline"])  # notes stay where they are written


def _blocks(text: str, notice: Reject, scope: int = 0) -> Iterator[tuple[int, Paragraph]]:
    """Yield the headings and paragraphs of a Markdown text; `scope` counts the directives around it."""
    tokens: Sequence[Token] = ()
    with suppress(RecursionError):
        tokens = _parser().parse(text)
    if scope > _DIRECTIVES or (text and not tokens) or any(token.level >= _DEEPEST - 1 for token in tokens):
        # The parser leaves out what lies deeper.
        notice("", "lists, quotations or directives are nested too deep: they are read as plain text")
        yield from ((0, paragraph) for paragraph in paragraphs(text))
        return
    for position, token in enumerate(tokens):
        if token.type == "colon_fence" or (token.type == "fence" and _DIRECTIVE.match(token.info)):
            info = _COLON_NAME.sub("", token.info, count=1)
            yield from _blocks(f"{info}\n\n{_OPTIONS.sub('', token.content)}", notice, scope + 1)
        elif token.type == "html_block":
            words = html.unescape(TAG.sub(" ", _ALT.sub(r">\1<", token.content)))
            yield from [(0, Paragraph(words))] if words.strip() else ()
        elif token.type == "table_open":
            yield from ((0, Paragraph(text, is_row=True)) for text in _table(tokens, position))
        elif paragraph := _paragraph(tokens, position):
            yield (int(token.tag[1:]) if token.type == "heading_open" else 0), paragraph


def _paragraph(tokens: Sequence[Token], place: int) -> Paragraph | None:
    """Return what a token holds, if anything: a table's cells are read with the table."""
    token, text = tokens[place], ""
    if token.type == "heading_open":
        return Paragraph(_plain(tokens[place + 1]))
    if token.type == "inline" and tokens[place - 1].type not in {"heading_open", "th_open", "td_open"}:
        text = _plain(token)
    elif token.type in {"fence", "code_block"} and token.content.strip():
        return fence_code(token.content, token.info.strip())
    return Paragraph(text) if text.strip() else None


def _table(tokens: Sequence[Token], start: int) -> list[str]:
    """Return the rows of the table that begins at a token."""
    rows: list[list[Cell]] = []
    for place in range(start, len(tokens)):
        kind = tokens[place].type
        if kind == "table_close":
            break
        if kind == "tr_open":
            rows.append([])
        elif kind in {"th_open", "td_open"}:
            rows[-1].append(Cell(_plain(tokens[place + 1]), is_header=kind == "th_open"))
    return render_table(rows)


def _plain(token: Token) -> str:
    """Return the words of inline Markdown: marks, addresses and tags left out."""
    parts: list[str] = []
    for child in token.children or ():
        if child.type in {"text", "code_inline"}:
            parts.append(child.content)
        elif child.type == "myst_role":
            parts.append(_ROLE_TARGET.sub("", child.content).lstrip("~!"))
        elif child.type in {"softbreak", "hardbreak"} or child.content.startswith("<br"):
            parts.append("\n")
        elif child.type == "image":
            parts.append(_plain(child))
        elif child.type == "html_inline":
            parts += _ALT.findall(child.content)
    return unwrap("".join(parts)).replace("\n", " ").strip()

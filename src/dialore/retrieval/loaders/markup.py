"""JSON lines and Markdown as sections."""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dialore.errors import MissingExtraError
from dialore.knowledge import GROUPS
from dialore.retrieval.chunking import (
    Paragraph,
    Reject,
    Section,
    Unreadable,
    fence_code,
    paragraphs,
    split_at_headings,
    unwrap,
)
from dialore.retrieval.groups import RefusedGroups, apply_groups, lift_metadata, parse_json
from dialore.retrieval.loaders.front_matter import split_front_matter
from dialore.retrieval.loaders.hypertext import TAG, read_html_fragment
from dialore.retrieval.loaders.tables import Cell, render_table

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_TEXT_KEYS = ("text", "passage", "contents", "content", "page_content", "sentence", "body", "text_resource")
_URL_KEYS = ("url", "link", "source_url")
RESERVED_NAMES = frozenset({"text", "title", "url", "file", "page", "index"})
"""Names that a passage's detail has for what is ours."""
_ALT = re.compile(r"\balt=[\"']([^\"'<>]+)", re.IGNORECASE)
_TABLE_START = re.compile(r"<table\b", re.IGNORECASE)
_TABLE_END = re.compile(r"</table\s*>", re.IGNORECASE)
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
    taken = number = refused = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            section = section_of_object(parse_json(line))
        except ValueError as error:
            reject(f"line {number}", f"not JSON: {error}")
        except Unreadable as error:
            refused += isinstance(error, RefusedGroups)
            reject(f"line {number}", error)
        else:
            taken += 1
            yield replace(section, line=number)
    if refused and not taken:
        raise RefusedGroups(f"none of its lines is taken: {GROUPS} cannot be applied")
    if number and not taken:
        raise Unreadable('none of its lines is a passage: wanted is {"text": ...} or a string a line')


def section_of_object(data: Any) -> Section:  # noqa: ANN401 - whatever JSON holds
    """Return the section of an object of JSON, or of a string.

    Raises:
        Unreadable: It has no text, or its `groups` cannot be applied.
    """
    if isinstance(data, str):
        data = {"text": data}
    if not isinstance(data, dict):
        raise Unreadable("neither an object nor a string")
    if isinstance(data.get("kwargs"), dict) and "page_content" in data["kwargs"]:
        data = data["kwargs"]  # a serialised object of LangChain
    key, text = find_text(data)
    # The text itself is no metadata, whatever it says.
    fields = apply_groups(lift_metadata({name: value for name, value in data.items() if name != key}))
    url_key = next((name for name in _URL_KEYS if isinstance(fields.get(name), str)), "")
    title = fields.get("title")
    metadata = {name: value for name, value in fields.items() if name not in {url_key, *RESERVED_NAMES}}
    if title is not None and not isinstance(title, str):
        metadata["title_"], title = title, ""
    # A line's text is one passage's or one article's: blank lines part paragraphs.
    return Section(paragraphs(text), " ".join((title or "").split()), fields[url_key] if url_key else "", metadata)


def find_text(data: dict[str, Any]) -> tuple[str, str]:
    """Return the key of an object's text, and the text."""
    for key in _TEXT_KEYS:
        value = data.get(key)
        if key == "text_resource" and isinstance(value, dict):
            value = value.get("text")
        if isinstance(value, str) and value.strip():
            return key, value
    raise Unreadable("no text in it")


# --- Markdown


def read_markdown(text: str, notice: Reject) -> Iterator[Section]:
    """Yield the sections of a Markdown text; front matter gives a title and metadata."""
    front = split_front_matter(text, notice)
    for section in split_at_headings(_blocks(_TARGET.sub("", front.text), notice), front.title):
        yield replace(section, metadata=front.metadata)


def read_text(text: str, notice: Reject) -> Iterator[Section]:
    """Yield the one section of a plain text. It has no front matter, unless that names `groups`."""
    front = split_front_matter(text, notice, only_groups=True)
    yield Section(paragraphs(front.text), front.title, metadata=front.metadata)


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
    lines, table_ends = text.split("\n"), _find_table_ends(tokens)
    table_end = 0
    for position, token in enumerate(tokens):
        if token.map and token.map[0] < table_end:
            continue
        if token.type == "colon_fence" or (token.type == "fence" and _DIRECTIVE.match(token.info)):
            info = _COLON_NAME.sub("", token.info, count=1)
            yield from _blocks(f"{info}\n\n{_OPTIONS.sub('', token.content)}", notice, scope + 1)
        elif token.type == "html_block":
            markup = token.content
            if token.map and position in table_ends:
                table_end = table_ends[position]
                markup = "\n".join(lines[token.map[0] : table_end])
            yield from _read_html_block(markup, notice)
        elif token.type == "table_open":
            yield from ((0, Paragraph(text, is_row=True)) for text in _table(tokens, position))
        elif paragraph := _paragraph(tokens, position):
            yield (int(token.tag[1:]) if token.type == "heading_open" else 0), paragraph


def _find_table_ends(tokens: Sequence[Token]) -> dict[int, int]:
    """Return the line after each outermost HTML table, by the position of the token that it begins in.

    A blank line ends a block of HTML, so a table with blank lines inside is several blocks, and the text between them.
    """
    ends: dict[int, int] = {}
    start = depth = 0
    for position, token in enumerate(tokens):
        if token.type != "html_block" or token.level or not token.map:
            continue
        if not depth:
            start = position
        opened, closed = len(_TABLE_START.findall(token.content)), len(_TABLE_END.findall(token.content))
        depth = max(0, depth + opened - closed)
        if not depth:
            ends[start] = token.map[1]
    return ends


def _read_html_block(markup: str, notice: Reject) -> Iterator[tuple[int, Paragraph]]:
    """Yield the paragraphs of HTML in Markdown. HTML without a table is read as words."""
    if _TABLE_START.search(markup):
        try:
            yield from read_html_fragment(markup)
        except (MissingExtraError, Unreadable) as error:
            notice("", f"a table in HTML is read as plain text: {error}")
        else:
            return
    words = html.unescape(TAG.sub(" ", _ALT.sub(r">\1<", markup)))
    if words.strip():
        yield 0, Paragraph(words)


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

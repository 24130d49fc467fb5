"""Markdown by markdown-it: a section a heading, with the headings above it as its title."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dialore.sources.documents.chunking import Paragraph, Section

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it.token import Token

FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)\n(?:---|\.\.\.)\s*(?:\n|\Z)", re.DOTALL)
_TITLE = re.compile(r"^title\s*:\s*[\"']?(.*?)[\"']?\s*$", re.MULTILINE)
_TAG = re.compile(r"<!--.*?-->|<[^>]+>", re.DOTALL)
PATH = " > "


def read_markdown(text: str, *, title: str = "", url: str = "") -> Iterator[Section]:
    """The sections of a Markdown text.

    Args:
        text: the text; front matter gives a title and is left out.
        title: of the document; the first heading of level one wins where there is none.
        url: where it can be read.
    """
    from markdown_it import MarkdownIt

    front = FRONT_MATTER.match(text)
    if front:
        said = _TITLE.search(front[1])
        title = title or (said[1] if said else "")
        text = text[front.end() :]
    headings: list[tuple[int, str]] = []
    paragraphs: list[Paragraph] = []
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            if paragraphs:
                yield Section(paragraphs, _path(title, headings), url)
                paragraphs = []
            level = int(token.tag[1:])
            headings = [(depth, name) for depth, name in headings if depth < level]
            headings.append((level, _plain(tokens[place + 1])))
        elif _counts(tokens, place):
            paragraphs.extend(_paragraphs(tokens, place))
    if paragraphs:
        yield Section(paragraphs, _path(title, headings), url)


def _counts(tokens: Sequence[Token], place: int) -> bool:
    """Whether a token holds text of its own: a table's cells are read with their row."""
    token = tokens[place]
    if token.type == "inline":
        return tokens[place - 1].type not in {"heading_open", "th_open", "td_open"}
    return token.type in {"fence", "code_block", "html_block", "tr_open"}


def _paragraphs(tokens: Sequence[Token], place: int) -> Iterator[Paragraph]:
    token = tokens[place]
    if token.type == "inline":
        text = _plain(token)
    elif token.type == "tr_open":
        end = next(at for at in range(place, len(tokens)) if tokens[at].type == "tr_close")
        cells = (_plain(each) for each in tokens[place:end] if each.type == "inline")
        text = " | ".join(cell for cell in cells if cell)
    else:
        text = _TAG.sub(" ", token.content) if token.type == "html_block" else token.content
    if text.strip():
        yield Paragraph(text)


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
    return _unwrapped("".join(parts)).strip()


def _unwrapped(text: str) -> str:
    """Lines joined: with a space, but between Chinese characters with none."""
    return re.sub(r"(?<=[\u3000-\u9fff\uff00-\uffef])\s*\n\s*(?=[\u3000-\u9fff\uff00-\uffef])", "", text).replace(
        "\n", " "
    )


def _path(title: str, headings: Sequence[tuple[int, str]]) -> str:
    names = [name for _, name in headings if name]
    if title and (not names or names[0] != title):
        names.insert(0, title)
    return PATH.join(names)

"""Text, JSON lines, Markdown and HTML as sections."""

from __future__ import annotations

import functools
import html
import json
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dialore.errors import MissingExtraError
from dialore.llm.model import mend_surrogates
from dialore.sources.documents.blocks import Reject, by_headings, paragraphs, row
from dialore.sources.documents.chunking import Paragraph, Section, Unreadable, fenced, unwrapped

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_TEXT_KEYS = ("text", "passage", "contents", "content", "sentence", "body")
_URL_KEYS = ("url", "link", "source_url")
_OURS = frozenset({"text", "title", "url", "file", "page", "index"})
"""Names that a passage's detail has for what is ours."""
_FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)\n(?:---|\.\.\.)\s*(?:\n|\Z)", re.DOTALL)
_TITLE = re.compile(r"^title\s*:\s*[\"']?(.*?)[\"']?\s*$", re.MULTILINE)
_TAG = re.compile(r"<!--.*?-->|<(script|style)\b.*?</\1\s*>|<[^>]+>", re.DOTALL | re.IGNORECASE)
_ALT = re.compile(r"\balt=[\"']([^\"'<>]+)", re.IGNORECASE)
_TARGET = re.compile(r"^\([\w./: -]+\)=[ \t]*$", re.MULTILINE)
_ROLE_TARGET = re.compile(r"(?<=\S)\s*<[^<>]*>$")
_DIRECTIVE = re.compile(
    r"\{(?:admonition|attention|card|caution|danger|deprecated|details|dropdown|epigraph|error|exercise|figure|grid|hint|"
    r"important|margin|note|proof|seealso|sidebar|solution|tab-|table|list-table|theorem|tip|topic|version|warning)[\w-]*\}"
)
"""What MyST writes in fences that is no code."""
_COLON_NAME = re.compile(r"\{[^{}]*\}")
_OPTIONS = re.compile(r"\A(?:---\n.*?\n---\n|(?::[\w-]+:[^\n]*\n)+)", re.DOTALL)
_DEEPEST, _DIRECTIVES = 200, 10


def encoding_of(head: bytes) -> str:
    """The encoding of text that begins so: UTF-8, or UTF-16 with its mark; raises Unreadable where it is no text."""
    if head[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        return "utf-16"
    if b"\0" in head:
        raise Unreadable("it is a binary file")
    return "utf-8-sig"


def read_jsonl(lines: Iterable[str], reject: Reject) -> Iterator[Section]:
    """The sections of a JSONL file, one a line; `reject` is told of lines that are left out."""
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
    return Section(paragraphs(data[key]), " ".join((title or "").split()), data.get(url_key, ""), extra)


# --- Markdown


def read_markdown(text: str, notice: Reject, *, title: str = "", url: str = "") -> Iterator[Section]:
    """The sections of a Markdown text; front matter gives a title where there is none, and is left out."""
    front = _FRONT_MATTER.match(text)
    if front:
        said = _TITLE.search(front[1])
        title = title or (said[1] if said else "")
        text = text[front.end() :]
    yield from by_headings(_blocks(_TARGET.sub("", text), notice), title, url)


@functools.cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt
    from mdit_py_plugins.colon_fence import colon_fence_plugin
    from mdit_py_plugins.footnote import footnote_plugin
    from mdit_py_plugins.myst_role import myst_role_plugin

    parser = MarkdownIt("commonmark", {"maxNesting": _DEEPEST}).enable(["table", "strikethrough"])
    parser.use(myst_role_plugin).use(colon_fence_plugin).use(footnote_plugin)
    return parser.disable(["footnote_tail", "footnote_inline"])  # notes stay where they are written


def _blocks(text: str, notice: Reject, within: int = 0) -> Iterator[tuple[int, Paragraph]]:
    """The headings and paragraphs of a Markdown text; `within` counts the directives around it."""
    tokens: Sequence[Token] = ()
    with suppress(RecursionError):
        tokens = _parser().parse(text)
    if within > _DIRECTIVES or (text and not tokens) or any(token.level >= _DEEPEST - 1 for token in tokens):
        # The parser leaves out what lies deeper.
        notice("", "lists, quotations or directives are nested too deep: they are read as plain text")
        yield from ((0, paragraph) for paragraph in paragraphs(text))
        return
    for place, token in enumerate(tokens):
        if token.type == "colon_fence" or (token.type == "fence" and _DIRECTIVE.match(token.info)):
            said = _COLON_NAME.sub("", token.info, count=1)
            yield from _blocks(f"{said}\n\n{_OPTIONS.sub('', token.content)}", notice, within + 1)
        elif token.type == "html_block":
            yield from _html_blocks(token.content)
        elif paragraph := _paragraph(tokens, place):
            yield (int(token.tag[1:]) if token.type == "heading_open" else 0), paragraph


def _paragraph(tokens: Sequence[Token], place: int) -> Paragraph | None:
    """What a token holds, if anything: a table's cells are read with their row."""
    token = tokens[place]
    text = ""
    if token.type == "heading_open":
        return Paragraph(_plain(tokens[place + 1]))
    if token.type == "inline" and tokens[place - 1].type not in {"heading_open", "th_open", "td_open"}:
        text = _plain(token)
    elif token.type == "tr_open":
        end = next(at for at in range(place, len(tokens)) if tokens[at].type == "tr_close")
        text = row(_plain(each) for each in tokens[place:end] if each.type == "inline")
    elif token.type in {"fence", "code_block"} and token.content.strip():
        return fenced(token.content, token.info.strip())
    return Paragraph(text) if text.strip() else None


def _plain(token: Token) -> str:
    """The words of inline Markdown: marks, addresses and tags left out."""
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
    return unwrapped("".join(parts)).replace("\n", " ").strip()


def _html_blocks(source: str) -> Iterator[tuple[int, Paragraph]]:
    text = html.unescape(_TAG.sub(" ", _ALT.sub(r">\1<", source)))
    if text.strip():
        yield 0, Paragraph(text)


# --- HTML


def read_html(data: bytes, reject: Reject) -> Iterator[Section]:
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
    yield from read_markdown(text, reject, title=title, url=said.url or "")


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

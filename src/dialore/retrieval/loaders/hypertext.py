"""HTML and EPUB as sections: all that a person sees, in its order, what is marked as the main content first."""

from __future__ import annotations

import posixpath
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from io import BytesIO
from typing import Any
from urllib.parse import unquote

from dialore.encodings import decode, is_binary
from dialore.knowledge import GROUPS
from dialore.retrieval.chunking import (
    Paragraph,
    Reject,
    Section,
    Unreadable,
    fence_code,
    library,
    split_at_headings,
)
from dialore.retrieval.groups import apply_groups, names_groups
from dialore.retrieval.loaders.formulas import formula_text
from dialore.retrieval.loaders.front_matter import split_front_matter
from dialore.retrieval.loaders.tables import Cell, render_table


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


TAG = re.compile(r"<!--.*?(?:-->|\Z)|<(script|style)\b.*?(?:</\1\s*>|\Z)|<[^<>]+>", re.DOTALL | re.IGNORECASE)
_UNSEEN = _set(
    "annotation annotation-xml audio canvas datalist head iframe nav noscript rp script style template video"
)
"""Menus, what no browser shows, and what it shows only where it can show nothing better."""
_BLOCKS = _set(
    "address article aside blockquote body button caption center dd details dialog dir div dl dt fieldset figcaption "
    "figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr legend li main menu ol optgroup option p pre search section "
    "select summary table tbody td textarea tfoot th thead tr ul"
)
_HEADINGS = _set("h1 h2 h3 h4 h5 h6")
_CELLS = _set("td th")
_LAYOUT = f"boolean(.//table | .//{' | .//'.join(sorted(_HEADINGS))})"
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_PICTURES = _set(".avif .bmp .gif .jpeg .jpg .png .webp")
_PERMALINK = "¶\uf0c1 "
_LANGUAGE = re.compile(r"\b(?:language|lang|highlight|highlight-source|sourceCode)[- ](\w[\w+#-]*)")
_SELF_CLOSED = re.compile(
    r"<((?!(?:area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr)\b)[\w-]++)([^<>]*)/>"
)


def read_html(data: bytes, notice: Reject, title: str = "", charset: str = "") -> Iterator[Section]:
    """Yield the sections of a page, at the canonical address that it names itself; below `title` where one is given."""
    with library("HTML page", "lxml"):
        from lxml import etree

        text, _, note = decode(data, charset)
        if note:
            notice("", note)
        front = split_front_matter(text, notice, only_groups=True)
        if GROUPS in front.metadata:
            text = front.text
        if "<?xml" in text[:200] or "/xhtml" in text[:1000].lower():
            text = _SELF_CLOSED.sub(r"<\1\2></\1>", text)
        text = text.replace("\0", "")
        if not text.strip():
            return
        parser = etree.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True)
        tree = etree.fromstring(text.encode("utf-8", "replace"), parser)
        groups = [] if tree is None else _meta_groups(tree)
        if any(error.level_name == "FATAL" for error in parser.error_log):
            notice("", f"it is read as plain text: {parser.error_log.last_error.message.strip()}")
            tree = etree.fromstring(TAG.sub(" ", text).encode("utf-8", "replace") or b" ", parser)
    if tree is None:
        return
    metadata = apply_groups([*front.metadata.items(), *groups])
    own = " ".join(tree.xpath("string(//title[not(ancestor::svg)])").split())
    title = " > ".join(dict.fromkeys(name for name in (title, own) if name))
    addresses = tree.xpath("//link[@rel='canonical']/@href | //meta[@property='og:url']/@content")
    url = next((address for address in addresses if address.startswith(("http://", "https://"))), "")
    main = tree.xpath("//main | //*[@role='main']") or tree.xpath("//article[count(//article) = 1]")
    for blocks in [_blocks(main[0]), _blocks(tree, main[0])] if main else [_blocks(tree)]:
        for section in split_at_headings(_drop_repeated_title(blocks, title), title, url):
            yield replace(section, metadata=metadata)


def read_html_fragment(text: str) -> list[tuple[int, Paragraph]]:
    """Return the headings and paragraphs of a piece of HTML inside another format."""
    with library("HTML fragment", "lxml"):
        from lxml import html

        root = html.fragment_fromstring(text, create_parent="div")
        for comment in root.xpath(".//comment() | .//processing-instruction()"):
            comment.drop_tree()
        return _blocks(root)


def _meta_groups(tree: Any) -> list[tuple[str, Any]]:  # noqa: ANN401
    """Return what `<meta name="groups" content="...">` says in a page or a book, as metadata."""
    keys = ("name", "property", "itemprop", "http-equiv")
    named = [element for element in tree.iter("{*}meta") if any(names_groups(element.get(key)) for key in keys)]
    return [(GROUPS, element.get("content") or element.text or "") for element in named]


def _drop_repeated_title(blocks: Iterable[tuple[int, Paragraph]], title: str) -> Iterator[tuple[int, Paragraph]]:
    """Yield the blocks, a first heading that is said in the title as the title itself."""
    first = True
    for level, paragraph in blocks:
        yield level, Paragraph(title) if first and level == 1 and paragraph.text in title else paragraph
        first = first and not level


def _blocks(root: Any, passed_over: Any = None) -> list[tuple[int, Paragraph]]:  # noqa: ANN401
    """Return the headings and paragraphs of an element, but for another inside it."""
    from lxml import etree

    page = _Page()
    walk = etree.iterwalk(root, events=("start", "end"))
    for event, element in walk:
        if event == "start":
            if element is passed_over or page.begin(element):
                walk.skip_subtree()
        else:
            page.end(element)
            if element is not root:
                page.parts.append(element.tail or "")
    page.flush()
    return page.blocks


class _Page:
    """The state of reading a page: the words of the block at hand, and the blocks before it."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.blocks: list[tuple[int, Paragraph]] = []
        self._heading = False
        self._rows: list[list[Cell]] = []  # of the table at hand, and the blocks of its cell
        self._row: list[Cell] | None = None
        self._cell: list[str] | None = None
        self._layouts: list[bool] = []  # of each table around, whether it only puts blocks beside each other
        self._terms: list[list[str]] = []  # of each list of definitions around, the terms to be defined
        self._defined, self._prefix = False, ""
        self._reading: tuple[int, list[str]] = 0, []  # of ruby: where one begins, and those of the word

    def flush(self, level: int = 0) -> None:
        """End a block; inside a heading, a word."""
        if self._heading and not level:
            self.parts.append(" ")
            return
        text, self.parts = " ".join("".join(self.parts).split()), []
        if not text:
            return
        text, self._prefix = self._prefix + text, ""
        if self._cell is not None:
            self._cell.append(text)
        else:
            self.blocks.append((level, Paragraph(text.rstrip(_PERMALINK) if level else text)))

    def begin(self, element: Any) -> bool:  # noqa: ANN401
        """Take in an element's start; whether what is inside is passed over."""
        tag, get = element.tag, element.get
        if _is_passed_over(element):
            return True
        formula = formula_text(element)
        if formula is not None:
            is_display = "display" in (get("type") or "")
            self.parts.append(f" {formula} " if is_display else formula)
            return True
        if tag in _UNSEEN:
            return True
        if tag in _BLOCKS:
            self.flush()
        if tag == "pre" and self._cell is None and not self._heading:
            return self._code(element)
        if tag in _HEADINGS:
            self._heading = True
        elif tag in {"img", "area"} or (tag == "input" and get("type") != "hidden"):
            self.parts.append(f" {get('alt') or get('value') or get('placeholder') or ''} ")
        elif tag == "br" or (tag == "sup" and element.find(".//a") is not None):
            self.parts.append(" ")
        elif tag == "rt":
            self._reading = len(self.parts), self._reading[1]
        else:
            self._begin_list_or_table(tag, element)
        self.parts.append(element.text or "")
        return False

    def _begin_list_or_table(self, tag: str, element: Any) -> None:  # noqa: ANN401
        if tag == "table":
            is_layout = element.get("role") in {"presentation", "none"} or bool(element.xpath(_LAYOUT))
            self._layouts.append(self._cell is None and is_layout)
        elif tag == "tr":
            self._row = None
        elif tag in _CELLS and self._layouts and not self._layouts[-1] and self._cell is None:
            self._cell = []
        elif tag == "dl":
            self._terms.append([])
        elif tag == "dd" and self._terms and self._terms[-1]:
            self._prefix = f"{', '.join(self._terms[-1])}: "

    def _code(self, element: Any) -> bool:  # noqa: ANN401
        for line_end in element.iter("br"):
            line_end.tail = f"\n{line_end.tail or ''}"
        text = element.xpath("string()").expandtabs()
        above = [element, *element.iterancestors("div")][:3] + list(element.iter("code"))
        language = _LANGUAGE.search(" ".join(ancestor.get("class") or "" for ancestor in above))
        if text.strip():
            self.blocks.append((0, fence_code(text, language[1] if language else "")))
        return True

    def end(self, element: Any) -> None:  # noqa: ANN401
        """Take in an element's end."""
        tag = element.tag
        if tag in _HEADINGS and self._heading:
            self._heading = False
            self.flush(int(tag[1]))
        elif tag == "dt" and self._terms:
            text, self.parts = " ".join("".join(self.parts).split()), []
            self._terms[-1] = [*([] if self._defined else self._terms[-1]), *([text] if text else [])]
            self._defined = False
        elif tag == "rt":
            start, readings = self._reading
            readings += self.parts[start:]
            del self.parts[start:]
        elif tag == "ruby" and self._reading[1]:
            self.parts.append(f" ({''.join(self._reading[1])}) ")
            self._reading = 0, []
        elif tag in _BLOCKS:
            self.flush()
            self._end_list_or_table(tag, element)

    def _end_cell(self, tag: str, element: Any) -> None:  # noqa: ANN401
        """Add the cell to its row; a table may have cells in no row."""
        if self._row is None:
            self._row = []
            self._rows.append(self._row)
        is_header = tag == "th" or next(element.iterancestors("thead", "table")).tag == "thead"
        columns = max(1, _span(element, "colspan"))
        self._row.append(Cell(" ".join(self._cell or ()), columns, _span(element, "rowspan"), is_header=is_header))
        self._cell = None

    def _end_list_or_table(self, tag: str, element: Any) -> None:  # noqa: ANN401
        if tag in _CELLS and self._cell is not None:
            self._end_cell(tag, element)
        elif tag == "tr":
            self._row = None
        elif tag == "table":
            rows, self._rows, self._row = self._rows, [], None
            self.blocks += ((0, Paragraph(text, is_row=True)) for text in render_table(rows))
            del self._layouts[-1:]
        elif tag == "dd":
            self._defined, self._prefix = not self._prefix, ""
        elif tag == "dl" and self._terms:
            terms = self._terms.pop()
            self.parts = [] if self._defined else [", ".join(terms)]
            self.flush()
            self._defined = False


def _is_passed_over(element: Any) -> bool:  # noqa: ANN401
    """Return whether an element is hidden or a menu."""
    if element.get("hidden") not in {None, "until-found"} or element.get("role") == "navigation":
        return True
    return _HIDDEN.search(element.get("style") or "") is not None


def _span(element: Any, name: str, default: int = 1) -> int:  # noqa: ANN401
    """Return how many rows or columns a cell spans."""
    value = (element.get(name) or "").strip()
    return int(value) if value.isascii() and value.isdigit() and len(value) < 6 else default


# --- EPUB


def read_epub(data: bytes, notice: Reject) -> Iterator[Section]:
    """Yield the sections of a book, in the order of its spine."""
    with library("EPUB file", "lxml"):
        from lxml import etree

        parser = etree.XMLParser(resolve_entities=False, no_network=True, recover=True)
        book = zipfile.ZipFile(BytesIO(data))
        package = etree.fromstring(book.read("META-INF/container.xml"), parser).xpath("string(//@full-path)")
        tree = etree.fromstring(book.read(package), parser)
        title = " ".join(tree.xpath("string(//*[local-name()='title'])").split())
        groups = apply_groups(_meta_groups(tree))
        items = tree.xpath("//*[local-name()='item']")
        files = {item.get("id"): item.get("href") for item in items}
        kinds = {item.get("href"): item.get("media-type") or "" for item in items}
        chapters = [files.get(item.get("idref")) or "" for item in tree.xpath("//*[local-name()='itemref']")]
    pictures = [chapter for chapter in chapters if _is_picture(chapter, kinds.get(chapter, ""))]
    if pictures:
        notice("", f"{len(pictures):,} of its pages are pictures, which are not read: {', '.join(pictures[:3])}")
    for chapter in chapters:
        if chapter in pictures:
            continue
        name = posixpath.normpath(posixpath.join(posixpath.dirname(package), unquote(chapter)))
        try:
            with library("EPUB file", "lxml"):
                page = book.read(name)
            if is_binary(page):
                raise Unreadable("it is encrypted, or no text")  # noqa: TRY301
            for section in read_html(page, lambda _, why, name=name: notice(name, why), title):  # type: ignore[misc]
                yield replace(section, metadata=apply_groups([*groups.items(), *section.metadata.items()]))
        except Unreadable as error:
            notice(name, error)


def _is_picture(name: str, media_type: str) -> bool:
    """Return whether an entry of a book's spine is a picture; one in SVG may hold text."""
    if media_type:
        return media_type.startswith("image/") and media_type != "image/svg+xml"
    return posixpath.splitext(name)[1].lower() in _PICTURES

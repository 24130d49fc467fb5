"""OpenDocument texts as sections: paragraphs with their notes and comments, lists, tables, page headers."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dialore.knowledge import GROUPS
from dialore.retrieval.chunking import Paragraph, Reject, Section, Unreadable, library, split_at_headings
from dialore.retrieval.groups import apply_groups, names_groups
from dialore.retrieval.loaders.ooxml import Block, attribute, local
from dialore.retrieval.loaders.tables import Cell, render_table
from dialore.text import count_noun

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

_OPTIONS: dict[str, Any] = {"resolve_entities": False, "no_network": True, "remove_comments": True, "remove_pis": True}
_MAX_XML_BYTES = 500_000_000
_MAX_REPEATED_CELLS = 50
_ENCRYPTED = re.compile(rb"<(?:\w+:)?encryption-data\b")
_UNSEEN = frozenset(
    [
        "tracked-changes",
        "sequence-decls",
        "variable-decls",
        "user-field-decls",
        "forms",
        "table-of-content",
        "alphabetical-index",
        "illustration-index",
        "table-index",
        "object-index",
        "user-index",
        "annotation-end",
        "page-number",
        "page-count",
        "note-citation",
        "title-source",
    ]
)
"""Elements without text of their own: deletions, declarations, generated indexes, and numbers of pages."""
_ASIDES = frozenset({"note", "annotation", "text-box", "table"})
"""Elements inside a line of text that are read after its paragraph."""
_SPACES = frozenset({"s", "tab", "line-break"})


def read_odt(data: bytes, notice: Reject, *, include_hidden: bool = False) -> Iterator[Section]:
    """Yield the sections of an OpenDocument text.

    Raises:
        RefusedGroups: Its properties name `groups` in a form that cannot be applied.
        Unreadable: It is damaged or encrypted.
    """
    with library("OpenDocument text", "lxml"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if _ENCRYPTED.search(_part(archive, "META-INF/manifest.xml")):
                raise Unreadable("it is encrypted: save it without a password")
            content, styles, meta = (_root(archive, f"{name}.xml") for name in ("content", "styles", "meta"))
        body = None if content is None else content.find("{*}body/{*}text")
        if content is None or body is None:
            raise Unreadable("it is no OpenDocument text: its content is missing")
        reader = _Text([root for root in (content, styles) if root is not None], include_hidden=include_hidden)
        blocks = list(reader.blocks(body))
        if styles is not None:
            blocks += reader.page_headers(styles)
        reader.report(content, notice)
        title = "" if meta is None else " ".join((meta.findtext("{*}meta/{*}title") or "").split())
        groups = apply_groups([] if meta is None else _named_groups(meta)).get(GROUPS)
    for section in split_at_headings(blocks, title):
        yield replace(section, metadata={} if groups is None else {GROUPS: groups})


def _part(archive: zipfile.ZipFile, name: str) -> bytes:
    if name not in archive.namelist():
        return b""
    if archive.getinfo(name).file_size > _MAX_XML_BYTES:
        raise Unreadable(f"its {name} has more than {_MAX_XML_BYTES:,} bytes")
    return archive.read(name)


def _root(archive: zipfile.ZipFile, name: str) -> Element | None:
    from lxml import etree

    data = _part(archive, name)
    return etree.fromstring(data, etree.XMLParser(**_OPTIONS)) if data else None


def _named_groups(meta: Element) -> list[tuple[str, str]]:
    named = (element for element in meta.iter("{*}user-defined") if names_groups(attribute(element, "name")))
    return [(GROUPS, "".join(element.itertext()).strip()) for element in named]


class _Text:
    """Reads the text of a document.

    Args:
        roots: The parts that may define styles.
        include_hidden: Read what the program does not show.
    """

    def __init__(self, roots: list[Element], *, include_hidden: bool) -> None:
        self._include_hidden = include_hidden
        self._hidden_styles = {
            attribute(style, "name")
            for root in roots
            for style in root.iter("{*}style")
            if any(attribute(properties, "display") == "none" for properties in style.iterfind("{*}text-properties"))
        }
        self._hidden_characters = 0

    def blocks(self, parent: Element) -> Iterator[Block]:
        """Yield the headings and paragraphs of an element."""
        for child in parent:
            name = local(child)
            if name in _UNSEEN or self._is_left_out(child):
                continue
            if name in {"p", "h"}:
                yield from self._paragraph(child)
            elif name == "table":
                yield from ((0, Paragraph(text, is_row=True)) for text in self._table(child))
            else:
                yield from self.blocks(child)

    def page_headers(self, styles: Element) -> Iterator[Block]:
        """Yield the texts of page headers and footers, each once."""
        texts: dict[str, None] = {}
        for page in styles.iter("{*}master-page"):
            for part in page:
                texts |= dict.fromkeys(paragraph.text for _, paragraph in self.blocks(part))
        yield from ((0, Paragraph(text)) for text in texts)

    def report(self, content: Element, notice: Reject) -> None:
        """Say what is left out."""
        if self._hidden_characters:
            count = count_noun(self._hidden_characters, "characters")
            notice("", f"hidden content is left out: {count}; include_hidden reads it")
        objects = sum(1 for _ in content.iter("{*}object", "{*}object-ole"))
        if objects:
            notice("", f"{objects:,} embedded objects, such as charts and formulas, are not read")

    def _is_left_out(self, element: Element) -> bool:
        """Return whether an element is hidden, and count its characters."""
        is_hidden = attribute(element, "style-name") in self._hidden_styles
        is_hidden = is_hidden or (local(element) == "section" and attribute(element, "display") == "none")
        is_hidden = is_hidden or local(element) in {"hidden-text", "hidden-paragraph"}
        if not is_hidden or self._include_hidden:
            return False
        self._hidden_characters += len("".join("".join(element.itertext()).split()))
        return True

    def _paragraph(self, element: Element) -> Iterator[Block]:
        """Yield a paragraph or heading, then the notes, comments and boxes in it."""
        asides: list[Element] = []
        text = " ".join(self._inline(element, asides).split())
        level = 0
        if local(element) == "h":
            number = attribute(element, "outline-level")
            level = min(6, max(1, int(number))) if number.isdecimal() else 1
        if text:
            yield level, Paragraph(text)
        for aside in asides:
            yield from self._aside(aside)

    def _aside(self, element: Element) -> Iterator[Block]:
        if local(element) == "table":
            yield from ((0, Paragraph(text, is_row=True)) for text in self._table(element))
        elif local(element) == "annotation":
            creator = " ".join((element.findtext("{*}creator") or "").split())
            texts = [paragraph.text for _, paragraph in self.blocks(element)]
            yield 0, Paragraph(f"{f'Comment by {creator}' if creator else 'Comment'}: {' '.join(texts)}")
        else:
            yield from ((0, paragraph) for _, paragraph in self.blocks(element))

    def _inline(self, element: Element, asides: list[Element]) -> str:
        """Return the text of an element, and add what is read after its paragraph to `asides`."""
        parts = [element.text or ""]
        for child in element:
            name = local(child)
            if name in _SPACES:
                parts.append(" ")
            elif name in _ASIDES:
                asides.append(child)
            elif name in {"desc", "title"}:  # of a picture
                parts.append(f" {child.text or ''} ")
            elif name == "ruby-text":
                parts.append(f" ({self._inline(child, asides)}) ")
            elif name not in _UNSEEN and not self._is_left_out(child):
                parts.append(self._inline(child, asides))
            parts.append(child.tail or "")
        return "".join(parts)

    def _table(self, table: Element) -> list[str]:
        return render_table([self._cells(row, is_header=is_header) for row, is_header in _table_rows(table)])

    def _cells(self, row: Element, *, is_header: bool) -> list[Cell]:
        cells = []
        for element in row:
            if local(element) != "table-cell":
                continue  # covered by another
            text = " ".join(paragraph.text for _, paragraph in self.blocks(element))
            columns, rows = _number(element, "number-columns-spanned"), _number(element, "number-rows-spanned")
            cell = Cell(text, columns, rows, is_header=is_header)
            cells += [cell] * min(_number(element, "number-columns-repeated"), _MAX_REPEATED_CELLS)
        return cells


def _table_rows(parent: Element, *, is_header: bool = False) -> Iterator[tuple[Element, bool]]:
    """Yield the rows of a table, and whether each is marked as a header."""
    for child in parent:
        name = local(child)
        if name == "table-row":
            yield child, is_header
        elif name in {"table-header-rows", "table-rows", "table-row-group"}:
            yield from _table_rows(child, is_header=is_header or name == "table-header-rows")


def _number(element: Element, name: str) -> int:
    value = attribute(element, name)
    return max(1, int(value)) if value.isascii() and value.isdigit() and len(value) < 6 else 1

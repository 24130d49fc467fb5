"""Word documents as sections: their XML in its own order, so that whatever holds text is met."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from dialore.retrieval.chunking import Paragraph, Reject, Section, library, split_at_headings
from dialore.retrieval.loaders.ooxml import Block, Package, alternative, attribute, inline, is_true, local, remove
from dialore.retrieval.loaders.tables import Cell, render_table

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

_FULL_WIDTH, _FIRST_ROW_BIT = 1000, 0x20
_Value = TypeVar("_Value")
_UNSEEN = {"del", "moveFrom", "pPr", "rPr", "sdtPr", "sectPr", "tblPr", "trPr", "tcPr", "instrText", "delText"}
_CHARACTERS = {"tab": " ", "ptab": " ", "br": " ", "cr": " ", "noBreakHyphen": "-"}
_NOTES = {"footnoteReference": "footnotes", "endnoteReference": "endnotes", "commentReference": "comments"}
_HANGING = {"txbxContent", "chart", "relIds", *_NOTES}
_HEADING = re.compile(r"heading (\d)", re.IGNORECASE)


def read_docx(data: bytes, notice: Reject, *, include_hidden: bool = False) -> Iterator[Section]:
    """Yield a Word document by headings; notes and comments after their paragraphs, headers at the end."""
    with library("Word document", "lxml"):
        package = Package(data, notice, include_hidden=include_hidden)
        blocks = list(_Word(package).blocks())
        package.report_hidden()
        title = package.title()
    yield from split_at_headings(blocks, title)


class _Word:
    """A document that is being read."""

    def __init__(self, package: Package) -> None:
        self._package = package
        self._part = package.main
        self._initial = ""  # the large first letter of the next paragraph, which is a paragraph of its own
        styles = (style for style in self._parts("styles") if local(style) == "style")
        self._styles = {attribute(style, "styleId"): style for style in styles}
        self._levels = self._inherited(_level_of_style)
        self._header_styles = self._inherited(_styles_first_row)
        self._hiding_styles = {name for name, is_hidden in self._inherited(_hides_text).items() if is_hidden}
        self._notes = {(kind, attribute(note, "id")): note for kind in _NOTES.values() for note in self._parts(kind)}

    def blocks(self) -> Iterator[Block]:
        """Yield all of it."""
        self._leave_out_hidden(self._package.document)
        for note in list(self._notes.values()):
            self._leave_out_hidden(note)
        yield from self._blocks(self._package.document)
        if self._initial:
            yield 0, Paragraph(self._initial)
        yield from (block for kind, key in list(self._notes) for block in self._note(kind, key))
        ends = [part for kind in ("header", "footer") for part in self._parts(kind)]
        texts = dict.fromkeys(paragraph.text for _, paragraph in self._blocks(ends))
        if texts:
            yield 1, Paragraph("")
            yield from ((0, Paragraph(text)) for text in texts)

    def _parts(self, kind: str) -> Iterator[Element]:
        for part, root in self._package.roots(self._package.main, kind):
            self._part = part
            if kind in {"header", "footer"}:
                self._leave_out_hidden(root)
            yield from root
        self._part = self._package.main

    def _inherited(self, read: Callable[[Element], _Value | None]) -> dict[str, _Value]:
        """Return a property of each style that has it, itself or by the style that it is based on."""
        values = {}
        for identifier in self._styles:
            style, tried = self._styles.get(identifier), set()
            while style is not None and style not in tried:
                tried.add(style)
                value = read(style)
                if value is not None:
                    values[identifier] = value
                    break
                style = self._styles.get(attribute(style.find("{*}basedOn"), "val"))
        return values

    def _leave_out_hidden(self, root: Element) -> None:
        """Remove the runs and rows of a part that Word does not show, with the notes that hang on them."""
        if self._package.include_hidden:
            return
        rows = [mark.getparent().getparent() for mark in root.iter("{*}hidden") if local(mark.getparent()) == "trPr"]
        for hidden_row in rows:
            if is_true(attribute(hidden_row.find("{*}trPr/{*}hidden"), "val")):
                self._package.leave_out("table rows")
                self._leave_out_notes(hidden_row)
                remove(hidden_row)
        if not self._hiding_styles and next(root.iter("{*}vanish"), None) is None:
            return
        for run in list(root.iter("{*}r")):
            if self._is_hidden(run):
                letters = sum(len("".join((text.text or "").split())) for text in run.iter("{*}t"))
                self._package.leave_out("characters of text", count=letters)
                self._leave_out_notes(run)
                remove(run)

    def _is_hidden(self, run: Element) -> bool:
        """Return whether a run is hidden, by its own mark or by its styles, each of which turns that around."""
        own = run.find("{*}rPr/{*}vanish")
        if own is not None:
            return is_true(attribute(own, "val"))
        if not self._hiding_styles:
            return False
        paragraph = next(run.iterancestors("{*}p"), None)
        style = paragraph.find("{*}pPr/{*}pStyle") if paragraph is not None else None
        table = next(run.iterancestors("{*}tbl"), None)
        names = [
            attribute(style, "val") if style is not None else self._default_style,
            attribute(run.find("{*}rPr/{*}rStyle"), "val"),
            attribute(table.find("{*}tblPr/{*}tblStyle"), "val") if table is not None else "",
        ]
        return sum(name in self._hiding_styles for name in names) % 2 == 1

    @property
    def _default_style(self) -> str:
        """The style of paragraphs that name none."""
        for identifier, style in self._styles.items():
            if attribute(style, "type") == "paragraph" and attribute(style, "default") in {"1", "true", "on"}:
                return identifier
        return ""

    def _leave_out_notes(self, element: Element) -> None:
        """Drop the notes and comments whose marks are in an element that is left out."""
        for name, kind in _NOTES.items():
            for mark in element.iter(f"{{*}}{name}"):
                if self._notes.pop((kind, attribute(mark, "id")), None) is not None:
                    self._package.leave_out(kind)

    def _blocks(self, elements: Iterable[Element]) -> Iterator[Block]:
        for element in elements:
            name = local(element)
            if name == "p":
                yield from self._paragraph(element)
            elif name == "tbl":
                yield from self._table(element)
            elif name == "altChunk":
                self._package.notice("an embedded document", "it is not read: save the document anew in Word")
            elif name == "AlternateContent":
                yield from self._blocks(alternative(element))
            elif name not in _UNSEEN:
                yield from self._blocks(element)

    def _paragraph(self, element: Element) -> Iterator[Block]:
        """Yield a paragraph, and after it what hangs on it: text boxes, charts, notes."""
        hanging: list[Block] = []
        text = self._initial + " ".join(self._inline(element, hanging).split())
        self._initial = ""
        if attribute(element.find("{*}pPr/{*}framePr"), "dropCap") in {"drop", "margin"}:
            self._initial = text
        elif text:
            outline, style = element.find("{*}pPr/{*}outlineLvl"), element.find("{*}pPr/{*}pStyle")
            of_style = self._levels.get(attribute(style, "val"), 0)
            yield of_style if outline is None else _outline(outline), Paragraph(text)
        yield from hanging

    def _table(self, table: Element) -> Iterator[Block]:
        """Yield a table by rows; a row of which one cell holds several blocks, or a heading, is a page's layout."""
        rows: list[list[Cell]] = []
        is_first_styled = self._is_first_row_styled(table)
        for element in _below(table, "tr"):
            elements = list(_below(element, "tc"))
            contents = [list(self._blocks(cell)) for cell in elements]
            full = [blocks for blocks in contents if blocks]
            if len(full) == 1 and (len(full[0]) > 1 or full[0][0][0]):
                yield from _row_blocks(rows, is_first_styled=is_first_styled)
                rows = []
                yield from full[0]
                continue
            is_header = _is_on(element.find("{*}trPr/{*}tblHeader"))
            before = _whole_number(element.find("{*}trPr/{*}gridBefore"))
            cells = [Cell("", before)] if before else []
            for cell, blocks in zip(elements, contents, strict=True):
                text = " ".join(paragraph.text for _, paragraph in blocks)
                columns = _whole_number(cell.find("{*}tcPr/{*}gridSpan")) or 1
                merged = cell.find("{*}tcPr/{*}vMerge")
                continues = merged is not None and attribute(merged, "val") != "restart"
                cells.append(Cell(text, columns, is_header=is_header, continues=continues))
            if len(cells) == 1:  # the row's only cell is as wide as the table
                cells = [cells[0]._replace(columns=_FULL_WIDTH)]
            rows.append(cells)
        yield from _row_blocks(rows, is_first_styled=is_first_styled)

    def _is_first_row_styled(self, table: Element) -> bool:
        """Return whether the first row is set off: by the table's style, or as the only one in bold."""
        look = table.find("{*}tblPr/{*}tblLook")
        style = attribute(table.find("{*}tblPr/{*}tblStyle"), "val")
        bits = attribute(look, "val")
        has_bit = re.fullmatch("[0-9A-Fa-f]{4}", bits) is not None and bool(int(bits, 16) & _FIRST_ROW_BIT)
        is_first_special = attribute(look, "firstRow") in {"1", "true", "on"} or has_bit
        if is_first_special and self._header_styles.get(style):
            return True
        rows = list(_below(table, "tr"))[:2]
        return len(rows) == 2 and _is_bold(rows[0]) and not _is_bold(rows[1])

    def _inline(self, element: Element, hanging: list[Block]) -> str:
        """Return the text of a paragraph or a part of it; what does not stand in its lines goes to `hanging`."""
        parts = []
        for child in element:
            name = local(child)
            if name in _CHARACTERS:
                parts.append(_CHARACTERS[name])
            elif name == "t":
                parts.append(child.text or "")
            elif name == "ddList":
                parts.append(_chosen(child))
            elif name in {"oMath", "oMathPara"}:
                parts.append(inline(child))
            elif name == "rt":  # how a word of Chinese characters is spoken, which stands before it in the file
                hanging.append((0, Paragraph(self._inline(child, hanging))))
            elif name == "AlternateContent":
                parts += [self._inline(choice, hanging) for choice in alternative(child)]
            elif name in _HANGING:
                hanging += self._hanging(child, name)
            elif name not in _UNSEEN:
                parts.append(self._inline(child, hanging))
        return "".join(parts)

    def _hanging(self, element: Element, name: str) -> Iterator[Block]:
        """Yield the blocks of a text box, a chart or diagram, a note."""
        if name == "txbxContent":
            yield from self._blocks(element)
        elif name in _NOTES:
            yield from self._note(_NOTES[name], attribute(element, "id"))
        else:
            yield from ((0, Paragraph(text)) for text in self._package.drawn(self._part, element))

    def _note(self, kind: str, key: str) -> Iterator[Block]:
        """Yield a note or comment, where it is first met."""
        note = self._notes.pop((kind, key), None)
        if note is None or "eparator" in attribute(note, "type"):
            return
        for _, paragraph in self._blocks(note):
            yield 0, Paragraph(f"Comment: {paragraph.text}") if kind == "comments" else paragraph


def _chosen(element: Element) -> str:
    """Return the entry that a drop-down list of a form shows: the chosen one, else its default, else the first."""
    entries = [attribute(entry, "val") for entry in element.iterfind("{*}listEntry")]
    chosen = [*element.iterfind("{*}result"), *element.iterfind("{*}default")]
    number = attribute(chosen[0], "val") if chosen else "0"
    return entries[int(number)] if number.isdigit() and int(number) < len(entries) else ""


def _below(element: Element, name: str) -> Iterator[Element]:
    """Yield the rows of a table or the cells of a row, those in content controls and changes too."""
    for child in element:
        if local(child) == name:
            yield child
        elif local(child) not in _UNSEEN:
            yield from _below(child, name)


def _row_blocks(rows: list[list[Cell]], *, is_first_styled: bool) -> Iterator[Block]:
    for text in render_table(rows, is_first_styled=is_first_styled):
        yield 0, Paragraph(text, is_row=True)


def _is_bold(element: Element) -> bool:
    """Return whether all text below an element is marked as bold."""
    runs = [run for run in element.iter("{*}r") if next(run.iter("{*}t"), None) is not None]
    return bool(runs) and all(_is_on(run.find("{*}rPr/{*}b")) for run in runs)


def _is_on(mark: Element | None) -> bool:
    return mark is not None and is_true(attribute(mark, "val"))


def _whole_number(element: Element | None) -> int:
    """Return the value of an element that is a number; 0 without one."""
    value = attribute(element, "val")
    return int(value) if value.isdecimal() else 0


def _level_of_style(style: Element) -> int | None:
    name = attribute(style.find("{*}name"), "val")
    heading = _HEADING.fullmatch(name)
    if name.lower() == "title" or heading:
        return int(heading[1]) + 1 if heading else 1
    outline = style.find("{*}pPr/{*}outlineLvl")
    return _outline(outline) if outline is not None else None


def _styles_first_row(style: Element) -> bool | None:
    """Return whether a style formats the first row of tables; None if it does not say."""
    kinds = {attribute(part, "type") for part in style.iterfind("{*}tblStylePr")}
    return "firstRow" in kinds or None


def _hides_text(style: Element) -> bool | None:
    """Return whether a style hides text; None if it does not say."""
    mark = style.find("{*}rPr/{*}vanish")
    return None if mark is None else is_true(attribute(mark, "val"))


def _outline(element: Element) -> int:
    """Return the level of an outline's 0 to 8; 9 is the text."""
    level = attribute(element, "val")
    return int(level) + 2 if level.isdigit() and int(level) < 9 else 0

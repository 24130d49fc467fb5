"""Word documents as sections: their XML in its own order, so that whatever holds text is met."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dialore.retrieval.chunking import Paragraph, Reject, Section, library, row, split_at_headings
from dialore.retrieval.loaders.ooxml import Block, Package, alternative, attribute, inline, local

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

_UNSEEN = {"del", "moveFrom", "pPr", "rPr", "sdtPr", "sectPr", "tblPr", "trPr", "tcPr", "instrText", "delText"}
_CHARACTERS = {"tab": " ", "ptab": " ", "br": " ", "cr": " ", "noBreakHyphen": "-"}
_NOTES = {"footnoteReference": "footnotes", "endnoteReference": "endnotes", "commentReference": "comments"}
_HANGING = {"txbxContent", "chart", "relIds", *_NOTES}
_HEADING = re.compile(r"heading (\d)", re.IGNORECASE)


def read_docx(data: bytes, notice: Reject) -> Iterator[Section]:
    """Yield a Word document by headings; notes and comments after their paragraphs, headers at the end."""
    with library("Word document", "lxml"):
        package = Package(data, notice)
        blocks = list(_Word(package).blocks())
        title = package.title()
    yield from split_at_headings(blocks, title)


class _Word:
    """A document that is being read."""

    def __init__(self, package: Package) -> None:
        self._package = package
        self._part = package.main
        self._initial = ""  # the large first letter of the next paragraph, which is a paragraph of its own
        self._levels = self._levels_of_styles()
        self._notes = {(kind, attribute(note, "id")): note for kind in _NOTES.values() for note in self._parts(kind)}

    def blocks(self) -> Iterator[Block]:
        """Yield all of it."""
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
            yield from root
        self._part = self._package.main

    def _levels_of_styles(self) -> dict[str, int]:
        """Return the level of each style that is a heading's, by name, outline or the style that it is based on."""
        styles = {attribute(style, "styleId"): style for style in self._parts("styles") if local(style) == "style"}
        levels = {}
        for identifier in styles:
            style, tried = styles.get(identifier), set()
            while style is not None and style not in tried:
                tried.add(style)
                level = _level_of_style(style)
                if level is not None:
                    levels[identifier] = level
                    break
                style = styles.get(attribute(style.find("{*}basedOn"), "val"))
        return levels

    def _blocks(self, elements: Iterable[Element]) -> Iterator[Block]:
        for element in elements:
            name = local(element)
            if name == "p":
                yield from self._paragraph(element)
            elif name == "tr":
                yield from self._row(element)
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

    def _row(self, element: Element) -> Iterator[Block]:
        """Yield a row: one paragraph, unless one cell holds all (a page's layout); inner tables after it."""
        cells = [list(self._blocks(cell)) for cell in _cells(element)]
        full = [cell for cell in cells if cell]
        if len(full) == 1:
            yield from full[0]
        elif full:
            yield 0, Paragraph(row(" ".join(paragraph.text for _, paragraph in cell) for cell in full))

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


def _cells(element: Element) -> Iterator[Element]:
    """Yield the cells of a row, those in content controls and changes too."""
    for child in element:
        if local(child) == "tc":
            yield child
        elif local(child) not in _UNSEEN:
            yield from _cells(child)


def _level_of_style(style: Element) -> int | None:
    name = attribute(style.find("{*}name"), "val")
    heading = _HEADING.fullmatch(name)
    if name.lower() == "title" or heading:
        return int(heading[1]) + 1 if heading else 1
    outline = style.find("{*}pPr/{*}outlineLvl")
    return _outline(outline) if outline is not None else None


def _outline(element: Element) -> int:
    """Return the level of an outline's 0 to 8; 9 is the text."""
    level = attribute(element, "val")
    return int(level) + 2 if level.isdigit() and int(level) < 9 else 0

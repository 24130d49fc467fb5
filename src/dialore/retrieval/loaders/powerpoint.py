"""Presentations as sections: the shapes of each slide in their order, also in groups; tables, charts and diagrams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dialore.retrieval.chunking import Paragraph, Reject, Section, library, split_at_headings
from dialore.retrieval.loaders.ooxml import Block, Package, alternative, inline, is_true, local, texts_of
from dialore.retrieval.loaders.tables import Cell, render_table

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

_TITLES = {"title", "ctrTitle"}
_REPEATED = {"hdr", "ftr", "dt", "sldNum"}
_TABLE = "tbl"
"""The kind of shape of a table's rows."""
_UNTITLED = "PowerPoint Presentation"


def read_pptx(data: bytes, notice: Reject, *, include_hidden: bool = False) -> Iterator[Section]:
    """Yield a presentation by slides, numbered as pages; notes and comments after each, footers at the end."""
    with library("presentation", "lxml"):
        package = Package(data, notice, include_hidden=include_hidden)
        reader = _Presentation(package)
        blocks = list(reader.blocks())
        package.report_hidden()
        title = package.title()
    yield from split_at_headings(blocks, "" if title == _UNTITLED else title)


class _Presentation:
    """A presentation that is being read."""

    def __init__(self, package: Package) -> None:
        self._package = package
        self._repeated: dict[str, None] = {}
        self._layouts: set[str] = set()

    def blocks(self) -> Iterator[Block]:
        """Yield all of it; what stands on many slides comes once, at the end."""
        slides = self._package.related(self._package.main, "slide")
        for number, listed in enumerate(self._package.document.iterfind("{*}sldIdLst/{*}sldId"), start=1):
            # The relation's id has a namespace, the slide's own has none.
            part = next((slides[value] for key, value in listed.items() if key != "id" and value in slides), "")
            root = self._package.root(part)
            if root is None:
                self._package.notice(f"slide {number}", "it is missing or damaged")
            elif not is_true(root.get("show", "1")) and self._package.leave_out("slides", str(number)):
                continue
            for level, text, is_row in self._slide(part):
                yield level, Paragraph(text, number, is_row=is_row)
        yield 1, Paragraph("")
        yield from ((0, Paragraph(text)) for text in self._repeated)

    def _slide(self, part: str) -> Iterator[tuple[int, str, bool]]:
        """Yield the texts of a slide, each with its level and whether it is a row of a table."""
        shapes = list(self._shapes(part))
        yield 1, " ".join(text for kind, text in shapes if kind in _TITLES), False
        for notes in self._package.related(part, "notesSlide").values():
            shapes += self._shapes(notes)
        yield from ((0, text, kind == _TABLE) for kind, text in shapes if kind not in _TITLES | _REPEATED)
        for _, root in self._package.roots(part, "comments"):
            texts = [" ".join((text.text or "").split()) for text in root.iter("{*}text")]
            yield from ((0, f"Comment: {text}", False) for text in texts + texts_of(root) if text)
        self._repeated.update(dict.fromkeys(text for kind, text in shapes if kind in _REPEATED))
        for layout in self._package.related(part, "slideLayout").values():
            for design in {layout, *self._package.related(layout, "slideMaster").values()} - self._layouts:
                self._layouts.add(design)
                self._repeated.update(dict.fromkeys(text for kind, text in self._shapes(design) if kind is None))

    def _shapes(self, part: str) -> Iterator[tuple[str | None, str]]:
        """Yield the paragraphs and rows of a part's shapes, each with what its shape is a placeholder of, if any."""
        root = self._package.root(part)
        tree = root.find("{*}cSld/{*}spTree") if root is not None else None
        for kind, text in self._texts(part, tree, None) if tree is not None else ():
            if text.strip():
                yield kind, " ".join(text.split())

    def _texts(self, part: str, element: Element, kind: str | None) -> Iterator[tuple[str | None, str]]:
        for child in element:
            name = local(child)
            if name in {"sp", "graphicFrame"}:
                holder = child.find("*/{*}nvPr/{*}ph")
                yield from self._texts(part, child, holder.get("type", "obj") if holder is not None else None)
            elif name == "p":
                yield kind, inline(child)
            elif name == "tbl":
                yield from ((_TABLE, text) for text in _table(child))
            elif name in {"chart", "relIds"}:
                yield from ((kind, text) for text in self._package.drawn(part, child))
            elif name == "AlternateContent":
                yield from (text for choice in alternative(child) for text in self._texts(part, choice, kind))
            else:
                yield from self._texts(part, child, kind)


def _table(table: Element) -> list[str]:
    """Return the rows of a table; PowerPoint says whether the first is a header, and draws it as one."""
    rows = []
    for element in table.iterfind("{*}tr"):
        cells = []
        for cell in element.iterfind("{*}tc"):
            if is_true(cell.get("hMerge", "0")):
                continue
            span = cell.get("gridSpan", "1")
            columns = int(span) if span.isdecimal() else 1
            continues = is_true(cell.get("vMerge", "0"))
            cells.append(Cell(" ".join(texts_of(cell)), columns, continues=continues))
        rows.append(cells)
    properties = table.find("{*}tblPr")
    is_first_styled = properties is not None and is_true(properties.get("firstRow", "0"))
    return render_table(rows, is_first_styled=is_first_styled)

"""Workbooks as sections: the cells of each sheet as a person sees them, a paragraph a row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from dialore.retrieval.chunking import Paragraph, Section
from dialore.retrieval.loaders.blocks import Reject, by_headings, library, row
from dialore.retrieval.loaders.number_formats import Shown, code_of, shown
from dialore.retrieval.loaders.ooxml import Block, Package, local, texts_of

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

_LONGEST_NAME = 60
"""Letters that a column is called by; a longer text is no name."""
_PRINT_CODE = re.compile(r'&(?:"[^"]*"|K[0-9A-Fa-f]{6}|\d+|[A-Za-z])')
"""Codes in a print header: fonts, colours, sizes, places, and what the printer fills in, such as the page's number."""


def read_xlsx(data: bytes, notice: Reject) -> Iterator[Section]:
    """Yield a workbook by sheets: a paragraph a row, values after their columns' names; comments and charts."""
    with library("workbook", "lxml"):
        package = Package(data, notice)
        reader = _Workbook(package)
        blocks: list[Block] = []
        for sheet in package.document.iterfind("{*}sheets/{*}sheet"):
            texts = [(0, Paragraph(text)) for text in reader.sheet(sheet)]
            blocks += [(1, Paragraph(sheet.get("name") or "")), *texts] if texts else []
        title = package.title()
    yield from by_headings(blocks, title)


class _Workbook:
    """A workbook that is being read."""

    def __init__(self, package: Package) -> None:
        self._package = package
        self._parts = package.related(package.main, "worksheet") | package.related(package.main, "chartsheet")
        self._strings = [_string(item) for item in self._of("sharedStrings") if local(item) == "si"]
        settings = package.document.find("{*}workbookPr")
        self._since_1904 = settings is not None and settings.get("date1904") in {"1", "true"}
        styles = {local(group): group for group in self._of("styles")}
        codes = {element.get("numFmtId"): element.get("formatCode") or "" for element in styles.get("numFmts", ())}
        self._formats = [code_of(element.get("numFmtId") or "", codes) for element in styles.get("cellXfs", ())]

    def _of(self, kind: str) -> Iterator[Element]:
        for _, root in self._package.roots(self._package.main, kind):
            yield from root

    def sheet(self, sheet: Element) -> Iterator[str]:
        """Yield the texts of a sheet."""
        part = next((self._parts[value] for value in reversed(sheet.values()) if value in self._parts), "")
        where = f"sheet {sheet.get('name')}"
        if not self._package.has(part):
            self._package.notice(where, "it is missing in the file")
        self._unknown = self._lost = 0
        self._printed: dict[str, None] = {}
        yield from _table(self._rows(part))
        if self._unknown:
            why = f"{self._unknown:,} formulas without a value stand as they are: save it in Excel"
            self._package.notice(where, why)
        if self._lost:
            self._package.notice(where, f"the texts of {self._lost:,} cells are missing in the file")
        yield from self._comments(part)
        yield from self._printed
        for target, root in self._package.roots(part, "drawing"):
            yield from texts_of(root)
            for chart in root.iter("{*}chart", "{*}relIds"):
                yield from self._package.drawn(target, chart)

    def _comments(self, part: str) -> Iterator[str]:
        """Yield the comments on cells; threads that newer versions do not keep as a comment, too."""
        known = []
        for _, root in self._package.roots(part, "comments"):
            for comment in root.iter("{*}comment"):
                known.append(" ".join(_string(comment.find("{*}text")).split()))
                yield f"Comment on {comment.get('ref')}: {known[-1]}"
        for _, root in self._package.roots(part, "threadedComment"):
            for comment in root.iter("{*}threadedComment"):
                text = " ".join((comment.findtext("{*}text") or "").split())
                if text and not any(text in other for other in known):
                    yield f"Comment on {comment.get('ref')}: {text}"

    def _rows(self, part: str) -> Iterator[dict[int, Shown]]:
        """Yield the cells of each row, by column; an empty row where rows are left out."""
        last = 0
        for element in self._package.rows(part):
            if local(element) == "headerFooter":
                self._printed |= dict.fromkeys(filter(None, map(_printed, element)))
                continue
            number = int(element.get("r") or last + 1)
            if number > last + 1:
                yield {}
            last, column, cells = number, 0, {}
            for cell in element.iterfind("{*}c"):
                column = _column(cell.get("r") or "") or column + 1
                text, is_name = self._cell(cell)
                text = " ".join(text.split())
                if text:
                    is_name = is_name and len(text) <= _LONGEST_NAME and text[-1] not in ".?!。？！"
                    cells[column] = Shown(text, is_name)
            yield cells

    def _cell(self, cell: Element) -> Shown:
        """Return what a cell shows, and whether it may be the name of a column."""
        kind, value = cell.get("t") or "n", cell.findtext("{*}v") or ""
        formula = cell.find("{*}f")
        if kind == "inlineStr":
            value = _string(cell.find("{*}is"))
        elif not value and formula is not None and kind != "str":
            self._unknown += 1
            return Shown(f"={formula.text or '?'}", is_name=False)
        elif kind == "s" and value:
            known = int(value) < len(self._strings)
            self._lost += not known
            value = self._strings[int(value)] if known else ""
        elif kind == "b":
            value = "TRUE" if value == "1" else "FALSE"
        elif kind == "n" and value:
            style = int(cell.get("s") or 0)
            code = self._formats[style] if style < len(self._formats) else "General"
            return shown(value, code, since_1904=self._since_1904)
        return Shown(value, is_name=kind in {"s", "str", "inlineStr"})


def _string(item: Element | None) -> str:
    """Return the text of a string, without its phonetic guide."""
    if item is None:
        return ""
    return "".join(text.text or "" for text in item.iterfind(".//{*}t") if local(text.getparent()) != "rPh")


def _printed(element: Element) -> str:
    """Return the text of a print header or footer, without its codes."""
    parts = (element.text or "").split("&&")
    return " ".join("&".join(_PRINT_CODE.sub(" ", part) for part in parts).split())


def _column(reference: str) -> int:
    """Return the number of the column in a reference such as `AB12`; 0 where there is none."""
    number = 0
    for letter in reference.rstrip("0123456789"):
        number = number * 26 + ord(letter.upper()) - ord("A") + 1
    return number


def _table(rows: Iterable[dict[int, Shown]]) -> Iterator[str]:
    """Rows as texts, under the names of their columns, which may stand below titles and change after an empty row."""
    names: dict[int, Shown] = {}
    used: set[int] = set()
    fresh = True
    for cells, following in pairwise(chain(rows, [{}])):
        if fresh and _are_names(cells, following, names):
            yield from _unused(names, used)
            names, used, fresh = cells, set(), False
        elif cells:
            if fresh and not cells.keys() <= names.keys():  # another table, whose columns have no names yet
                yield from _unused(names, used)
                names = {}
            fresh = fresh and (len(cells) == 1 or len(cells) < len(following))
            used |= cells.keys()
            yield row(f"{names[at].text}: {cell.text}" if at in names else cell.text for at, cell in cells.items())
        else:
            fresh = True
    yield from _unused(names, used)


def _are_names(cells: dict[int, Shown], following: dict[int, Shown], names: dict[int, Shown]) -> bool:
    """Return whether a row names the columns of the next: short texts, and not more rows of a table that has names."""
    if len(cells) < 2 or not following or not all(cell.is_name for cell in cells.values()):
        return False
    unnamed = following.keys() - cells.keys()
    if len(unnamed) > 1 or (
        unnamed != {min(following)} and unnamed and all(cell.is_name for cell in following.values())
    ):
        return False
    return cells.keys() != names.keys() or any(at in cells and not cell.is_name for at, cell in following.items())


def _unused(names: dict[int, Shown], used: set[int]) -> Iterator[str]:
    """Yield the names of columns that hold nothing, which stand before no value."""
    text = row(name.text for at, name in names.items() if at not in used)
    if text:
        yield text

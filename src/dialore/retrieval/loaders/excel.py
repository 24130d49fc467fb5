"""Workbooks as sections: the cells of each sheet as a person sees them, a paragraph a row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from dialore.retrieval.chunking import Paragraph, Reject, Section, library, row, split_at_headings
from dialore.retrieval.loaders.headers import YEARS, GroupsCheck, are_names, may_be_name
from dialore.retrieval.loaders.headers import Cell as _Shown
from dialore.retrieval.loaders.ooxml import Block, Package, is_true, local, texts_of
from dialore.retrieval.loaders.tables import MAX_LABEL_LENGTH, name_values

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

_LONGEST_CODE = 255
_LETTERS = "$ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_HIDDEN_CODE = re.compile(r"\s*;;;?\s*")
"""A format that shows nothing of numbers; with three signs also nothing of texts."""
_PRINT_CODE = re.compile(r'&(?:"[^"]*"|K[0-9A-Fa-f]{6}|\d+|[A-Za-z])')
"""Codes in a print header: fonts, colours, sizes, places, and what the printer fills in, such as the page's number."""


def read_xlsx(data: bytes, notice: Reject, *, include_hidden: bool = False) -> Iterator[Section]:
    """Yield a workbook by sheets: a paragraph a row, values after their columns' names; comments and charts."""
    with library("workbook", "lxml"):
        package = Package(data, notice, include_hidden=include_hidden)
        reader = _Workbook(package)
        blocks: list[Block] = []
        for sheet in package.document.iterfind("{*}sheets/{*}sheet"):
            name, state = sheet.get("name") or "", sheet.get("state", "visible")
            if state != "visible" and package.leave_out("sheets", name):
                continue
            texts = [(0, Paragraph(text, is_row=True)) for text in reader.sheet(sheet)]
            blocks += [(1, Paragraph(name)), *texts] if texts else []
        package.report_hidden()
        title = package.title()
    yield from split_at_headings(blocks, title)


class _Workbook:
    """A workbook that is being read."""

    def __init__(self, package: Package) -> None:
        self._package = package
        self._parts = package.related(package.main, "worksheet") | package.related(package.main, "chartsheet")
        self._strings = [_string(item) for item in self._of("sharedStrings") if local(item) == "si"]
        settings = package.document.find("{*}workbookPr")
        self._since_1904 = settings is not None and settings.get("date1904") in {"1", "true"}
        styles = {local(group): group for group in self._of("styles")}
        own = ((element.get("numFmtId"), element.get("formatCode")) for element in styles.get("numFmts", ()))
        codes = CODES | {identifier: code[:_LONGEST_CODE] for identifier, code in own if identifier and code}
        identifiers = (element.get("numFmtId") or "" for element in styles.get("cellXfs", ()))
        self._formats = [codes.get(identifier, "General") for identifier in identifiers]

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
        self._are_rows_hidden = False
        self._hidden_columns: list[range] = []
        self._left_out_rows: set[int] = set()
        self._left_out_columns: set[int] = set()
        yield from _table(_join_header_rows(self._rows(part, where)))
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
                if self._is_left_out(comment):
                    continue
                known.append(" ".join(_string(comment.find("{*}text")).split()))
                yield f"Comment on {comment.get('ref')}: {known[-1]}"
        for _, root in self._package.roots(part, "threadedComment"):
            for comment in root.iter("{*}threadedComment"):
                if self._is_left_out(comment):
                    continue
                text = " ".join((comment.findtext("{*}text") or "").split())
                if text and not any(text in other for other in known):
                    yield f"Comment on {comment.get('ref')}: {text}"

    def _rows(self, part: str, name: str) -> Iterator[dict[int, _Shown]]:
        """Yield the cells of each row that are shown, by column; an empty row where rows are left out.

        Raises:
            RefusedGroups: The sheet names `groups`, be it in a hidden row, column or cell.
        """
        last = 0
        check = GroupsCheck(name)
        merged = _MergedCells(self._package.merged_ranges(part))
        for element in self._package.rows(part):
            if local(element) != "row":
                self._take_settings(element)
                continue
            number = int(element.get("r") or last + 1)
            if number > last + 1:
                check.see({})
                if not merged.cover(range(last + 1, number)):
                    yield {}
            last = number
            own = self._cells(element)
            check.see(own)
            own = self._without_hidden_cells(own)
            cells = merged.fill(number, own)
            if self._is_hidden_row(element) and not self._package.include_hidden:
                if own:
                    self._package.leave_out("rows")
                    self._left_out_rows.add(number)
            elif own:
                yield self._without_hidden_columns(cells)
            elif not cells:
                yield {}
        for _ in self._left_out_columns:
            self._package.leave_out("columns")

    def _take_settings(self, element: Element) -> None:
        """Take in what a sheet says of its columns, rows and printed pages."""
        if local(element) == "headerFooter":
            self._printed |= dict.fromkeys(filter(None, map(_print_text, element)))
        elif local(element) == "cols":
            self._hidden_columns = list(_hidden_columns(element))
        elif local(element) == "sheetFormatPr":
            self._are_rows_hidden = is_true(element.get("zeroHeight", "0"))

    def _cells(self, element: Element) -> dict[int, _Shown]:
        """Return the cells of a row that hold something, by column."""
        column = 0
        cells: dict[int, _Shown] = {}
        for cell in element.iterfind("{*}c"):
            column = _column(cell.get("r") or "") or column + 1
            shown = self._cell(cell)
            text = " ".join(shown.text.split())
            if text:
                cells[column] = shown._replace(text=text, is_name=shown.is_name and may_be_name(text))
        return cells

    def _without_hidden_cells(self, cells: dict[int, _Shown]) -> dict[int, _Shown]:
        """Return the cells of a row whose format shows them."""
        return {
            column: cell
            for column, cell in cells.items()
            if not cell.is_hidden or not self._package.leave_out("cells by their format")
        }

    def _is_hidden_row(self, element: Element) -> bool:
        """Return whether a row is hidden, also by a filter, or has no height; one of a folded group can be opened."""
        if (element.get("outlineLevel") or "0") != "0":
            return False
        hidden = element.get("hidden")
        if hidden is None and element.get("ht") is None:
            return self._are_rows_hidden
        return is_true(hidden or "0") or _is_zero(element.get("ht"))

    def _without_hidden_columns(self, cells: dict[int, _Shown]) -> dict[int, _Shown]:
        """Return the cells of a row of which at least one column is shown; at the first of those."""
        if not self._hidden_columns or self._package.include_hidden:
            return cells
        shown = {}
        for column, cell in cells.items():
            columns = [
                at
                for at in range(column, column + cell.columns)
                if not any(at in hidden for hidden in self._hidden_columns)
            ]
            if columns:
                shown[columns[0]] = cell._replace(columns=columns[-1] - columns[0] + 1)
            else:
                self._left_out_columns.add(column)
        return shown

    def _is_left_out(self, comment: Element) -> bool:
        """Return whether a comment is on a cell that is hidden, and count it."""
        reference = (comment.get("ref") or "").partition(":")[0]
        column, digits = _column(reference), reference.lstrip(_LETTERS)
        is_hidden = any(column in hidden for hidden in self._hidden_columns)
        is_hidden = is_hidden or (digits.isdecimal() and int(digits) in self._left_out_rows)
        return is_hidden and self._package.leave_out("comments")

    def _cell(self, cell: Element) -> _Shown:
        """Return what a cell holds, and whether it is shown and may be the name of a column."""
        kind, value = cell.get("t") or "n", cell.findtext("{*}v") or ""
        formula = cell.find("{*}f")
        style = int(cell.get("s") or 0)
        code = self._formats[style] if style < len(self._formats) else "General"
        if _HIDDEN_CODE.fullmatch(code) and (kind == "n" or code.strip() == ";;;"):
            # Its value is read for the check of groups, and because hidden content may be included.
            plain_cell = self._value(cell, kind, value, formula, "General")
            return plain_cell._replace(is_hidden=True)
        return self._value(cell, kind, value, formula, code)

    def _value(self, cell: Element, kind: str, value: str, formula: Element | None, code: str) -> _Shown:
        if kind == "inlineStr":
            value = _string(cell.find("{*}is"))
        elif not value and formula is not None and kind != "str":
            self._unknown += 1
            return _Shown(f"={formula.text or '?'}", is_name=False)
        elif kind == "s" and value:
            known = int(value) < len(self._strings)
            self._lost += not known
            value = self._strings[int(value)] if known else ""
        elif kind == "b":
            value = "TRUE" if value == "1" else "FALSE"
        elif kind == "n" and value:
            return format_number(value, code, since_1904=self._since_1904)
        return _Shown(value, is_name=kind in {"s", "str", "inlineStr"})


class _MergedCells:
    """The merged cells of a sheet, filled in row by row: only the first row and column of each has a value."""

    def __init__(self, references: Iterable[str]) -> None:
        self._starts: dict[int, list[tuple[int, int, int]]] = {}
        self._open: dict[int, tuple[_Shown, int]] = {}
        for reference in references:
            first, _, last = reference.partition(":")
            rows = [int(digits) for cell in (first, last) if (digits := cell.lstrip(_LETTERS)).isdecimal()]
            left, right = _column(first), _column(last)
            if len(rows) == 2 and 0 < left <= right:
                self._starts.setdefault(rows[0], []).append((left, right - left + 1, rows[1]))

    def fill(self, number: int, cells: dict[int, _Shown]) -> dict[int, _Shown]:
        """Return the cells of a row with their widths, and those that go on from rows above."""
        if not self._starts and not self._open:
            return cells
        filled = dict(cells)
        for column, columns, last in self._starts.pop(number, ()):
            cell = cells.get(column)
            if cell is None:
                continue
            filled[column] = cell._replace(columns=columns)
            if last > number and len(cell.text) <= MAX_LABEL_LENGTH:
                self._open[column] = filled[column], last
        for column, (cell, last) in list(self._open.items()):
            if number > last:
                del self._open[column]
            else:
                filled.setdefault(column, cell)
        return dict(sorted(filled.items()))

    def cover(self, rows: range) -> bool:
        """Return whether a merged cell lies over all of some rows, so that they do not part tables."""
        return any(last >= rows[-1] for _, last in self._open.values())


def _hidden_columns(columns: Element) -> Iterator[range]:
    """Yield the columns that are hidden or have no width; a group that is folded can be opened, and is read."""
    for column in columns.iterfind("{*}col"):
        is_folded = (column.get("outlineLevel") or "0") != "0"
        is_hidden = is_true(column.get("hidden", "0")) and not is_folded
        if is_hidden or _is_zero(column.get("width")):
            yield range(int(column.get("min") or 1), int(column.get("max") or 1) + 1)


def _is_zero(size: str | None) -> bool:
    try:
        return size is not None and float(size) == 0
    except ValueError:
        return False


def _join_header_rows(rows: Iterable[dict[int, _Shown]]) -> Iterator[dict[int, _Shown]]:
    """Yield the rows, those of a header of several rows as one: "summer, weekday" for the names below each other."""
    header: dict[int, _Shown] = {}
    for cells in rows:
        joined = _join_names(header, cells)
        if joined:
            header = joined
            continue
        if header:
            yield header
        header = cells if _can_have_second_row(cells) else {}
        if not header:
            yield cells
    if header:
        yield header


def _can_have_second_row(cells: dict[int, _Shown]) -> bool:
    """Return whether a row holds names of which some span columns, or have empty cells after them."""
    if len(cells) < 2 or not all(cell.is_name for cell in cells.values()):
        return False
    last = max(cells)
    return any(cell.columns > 1 for cell in cells.values()) or last - min(cells) >= len(cells)


def _join_names(upper: dict[int, _Shown], lower: dict[int, _Shown]) -> dict[int, _Shown]:
    """Return the names of two rows as those of one header; nothing if the second is not part of the header.

    It has to name the columns that a name of the first spans. Names without merged cells belong together only if the
    second row has a name more than once, as weekday below summer and winter.
    """
    if not upper or len(lower) < 2 or not all(cell.is_name for cell in lower.values()):
        return {}
    spans = _spans(upper, lower)
    named = {at for column, cell in lower.items() for at in range(column, column + cell.columns)}
    wide = {at for column, columns in spans.items() if columns > 1 for at in range(column, column + columns)}
    if not wide or not wide <= named:
        return {}
    names = {at: upper[column] for column, columns in spans.items() for at in range(column, column + columns)}
    for column, cell in lower.items():
        above = names.get(column)
        if above is None or above.text == cell.text:
            names[column] = cell
        elif column in wide:
            names[column] = cell._replace(text=f"{above.text}, {cell.text}")
        else:  # a value below a name of its own
            return {}
        for at in range(column + 1, column + cell.columns):
            names.pop(at, None)
    return dict(sorted(names.items()))


def _spans(upper: dict[int, _Shown], lower: dict[int, _Shown]) -> dict[int, int]:
    """Return how many columns each name of a row spans, by merged cells or, without any, by the empty cells after."""
    spans = {column: cell.columns for column, cell in upper.items()}
    texts = [cell.text for cell in lower.values()]
    if max(spans.values()) > 1 or len(set(texts)) == len(texts):
        return spans
    starts = [*upper, max(*upper, *lower) + 1]
    for column, following in pairwise(starts):
        if column in lower:
            spans[column] = following - column
    return spans


def _string(item: Element | None) -> str:
    """Return the text of a string, without its phonetic guide."""
    texts = item.iterfind(".//{*}t") if item is not None else ()
    return "".join(text.text or "" for text in texts if local(text.getparent()) != "rPh")


def _print_text(element: Element) -> str:
    """Return the text of a print header or footer, without its codes."""
    parts = (element.text or "").split("&&")
    return " ".join("&".join(_PRINT_CODE.sub(" ", part) for part in parts).split())


def _column(reference: str) -> int:
    """Return the number of the column in a reference such as `AB12`; 0 where there is none."""
    number = 0
    for letter in reference.rstrip("0123456789"):
        number = number * 26 + ord(letter.upper()) - ord("A") + 1
    return number


def _table(rows: Iterable[dict[int, _Shown]]) -> Iterator[str]:
    """Rows as texts, under the names of their columns, which may stand below titles and change after an empty row."""
    names: dict[int, _Shown] = {}
    used: set[int] = set()
    fresh = True
    for cells, following in pairwise(chain(rows, [{}])):
        if fresh and are_names(cells, following, names):
            yield from _empty_columns(names, used)
            names, used, fresh = cells, set(), False
        elif cells:
            if fresh and not cells.keys() <= names.keys():  # another table, whose columns have no names yet
                yield from _empty_columns(names, used)
                names = {}
            fresh = fresh and (len(cells) == 1 or len(cells) < len(following))
            used |= {at for start, cell in cells.items() for at in range(start, start + cell.columns)}
            texts = {at: name.text for at, name in names.items()}
            yield name_values(texts, ((at, cell.columns, cell.text) for at, cell in cells.items()))
        else:
            fresh = True
    yield from _empty_columns(names, used)


def _empty_columns(names: dict[int, _Shown], used: set[int]) -> Iterator[str]:
    """Yield the names of columns that hold nothing, which stand before no value."""
    yield from filter(None, [row(name.text for at, name in names.items() if at not in used)])


# --- numbers as a spreadsheet shows them: dates, per cents, currencies, thousands

CODES = {
    "1": "0", "2": "0.00", "3": "#,##0", "4": "#,##0.00", "9": "0%", "10": "0.00%", "11": "0.00E+00",
    "14": "yyyy-mm-dd", "15": "d-mmm-yy", "16": "d-mmm", "17": "mmm-yy", "18": "h:mm AM/PM", "19": "h:mm:ss AM/PM",
    "20": "h:mm", "21": "h:mm:ss", "22": "yyyy-mm-dd h:mm", "37": "#,##0;(#,##0)", "38": "#,##0;(#,##0)",
    "39": "#,##0.00;(#,##0.00)", "40": "#,##0.00;(#,##0.00)", "45": "mm:ss", "46": "[h]:mm:ss", "47": "mm:ss.0",
    "48": "0.0E+0",
}  # fmt: skip
CODES |= dict.fromkeys(map(str, (*range(27, 32), 36, *range(50, 55), 57, 58)), "yyyy-mm-dd")
"""The meaning of the standard's own numbers of formats; local short dates are written as ISO has them."""
_SECTION = re.compile(r'(?:"[^"]*"|\\.|[^;"])+')
_ASIDE = re.compile(r'("[^"]*"|\\.)|\[\$([^][-]*)(?:-[^][]*)?]|\[(?!h+]|m+]|s+])[^][]*]|_.|\*.', re.IGNORECASE)
"""Currencies with their locale, colours, blanks as wide as a letter, fill; but not in what is literal."""
_LITERAL = re.compile(r'"([^"]*)"|\\(.)')
_NUMBER = re.compile(r"(?:[#0?](?:[#0?,]*[#0?])?(?:\.[#0?]*)?|\.[#0?]+)(,*)")
_TOKEN = re.compile(r'"[^"]*"|\\.|AM/PM|A/P|\[h+\]|\[m+\]|\[s+\]|y+|m+|d+|h+|s+|.', re.IGNORECASE)
_DATE = re.compile(r"AM/PM|A/P|\[[hms]+\]|y+|m+|d+|h+|s+", re.IGNORECASE)
_EXACT = 10**15  # whole numbers below are exact


def format_number(value: str, code: str, *, since_1904: bool = False) -> _Shown:
    """Return a number of a file as its format shows it; plainly where the format says what is not known here."""
    try:
        number = float(value)
    except ValueError:
        return _Shown(value, is_name=False)
    sections = [_ASIDE.sub(lambda match: match[1] or match[2] or "", part) for part in _SECTION.findall(code)] or [""]
    if number >= 0 and _DATE.search(_LITERAL.sub("", sections[0].lower().replace("general", ""))):
        return _Shown(_date(number, sections[0], since_1904=since_1904), is_name=True)
    section, sign = sections[0], "-" if number < 0 else ""
    if number < 0 and len(sections) > 1:
        section, sign = sections[1], ""
    text = None if "[<" in code or "[>" in code or "[=" in code else _number(abs(number), section)
    return _Shown(plain(number) if text is None else sign + text, is_name=number in YEARS)


def plain(number: float) -> str:
    """Return a number without a format."""
    return str(int(number)) if number.is_integer() and abs(number) < _EXACT else f"{number:.10g}"


def _number(number: float, section: str) -> str | None:
    """Return a number that is not negative in a section of a format; None where it has what is not known here."""
    literals = iter([match[1] or match[2] or "" for match in _LITERAL.finditer(section)])
    kept = _LITERAL.sub("\0", section)
    digits = _NUMBER.search(kept)
    if digits is None or "/" in kept or "E" in kept.upper() or _NUMBER.search(kept, digits.end()):
        return None
    whole, _, decimals = digits[0].rstrip(",").partition(".")
    number *= 100.0 ** kept.count("%") / 1000.0 ** len(digits[1])
    text = f"{number:{',' if ',' in whole else ''}.{len(decimals)}f}"
    for _ in range(len(decimals) - len(decimals.rstrip("#?"))):
        text = text.removesuffix("0")
    before, point, after = text.partition(".")
    text = before.zfill(whole.count("0")) + (point + after if after else "")
    return re.sub("\0", lambda _: next(literals), kept[: digits.start()] + text + kept[digits.end() :]).strip()


def _date(number: float, section: str, *, since_1904: bool) -> str:
    """Return a date or time, which is a number of days."""
    # The first calendar has a 29 February 1900 that never was.
    start = datetime(1904, 1, 1) if since_1904 else datetime(1899, 12, 30 if number >= 60 else 31)  # noqa: DTZ001
    seconds = round(number * 86400)
    try:
        moment = start + timedelta(seconds=seconds)
    except OverflowError:
        return plain(number)
    tokens = _TOKEN.findall(section)
    units = [token.lower().lstrip("[")[0] if _DATE.fullmatch(token) else "" for token in tokens]
    halves = "a" in units
    parts = []
    for at, (token, unit) in enumerate(zip(tokens, units, strict=True)):
        before = next(filter(None, reversed(units[:at])), "")
        after = next(filter(None, units[at + 1 :]), "")
        if unit == "m" and (before == "h" or after == "s"):
            unit = "minute"  # noqa: PLW2901 - the same letter says month and minute
        if token.startswith("["):
            parts.append(str(seconds // {"h": 3600, "minute": 60, "m": 60}.get(unit, 1)))
        elif unit:
            parts.append(_unit(moment, unit, len(token), halves=halves))
        else:
            parts.append(token[1:-1] if len(token) > 1 and token[0] == '"' else token.removeprefix("\\"))
    return "".join(parts).strip()


def _unit(moment: datetime, unit: str, letters: int, *, halves: bool) -> str:
    """One unit of a moment, written in so many letters."""
    if unit == "a":
        return f"{moment:%p}"
    if unit == "y":
        return f"{moment.year:04}" if letters > 2 else f"{moment:%y}"
    if unit in "md" and letters > 2:
        name = f"{moment:%B}" if unit == "m" else f"{moment:%A}"
        return name[:3] if letters == 3 else name
    hour = (moment.hour % 12 or 12) if halves else moment.hour
    value = {"m": moment.month, "d": moment.day, "h": hour, "minute": moment.minute, "s": moment.second}[unit]
    return f"{value:0{min(letters, 2)}}"

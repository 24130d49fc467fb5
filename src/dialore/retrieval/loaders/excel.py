"""Workbooks as sections: the cells of each sheet as a person sees them, a paragraph a row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from dialore.retrieval.chunking import Paragraph, Reject, Section, library, row, split_at_headings
from dialore.retrieval.loaders.headers import YEARS, are_names, may_be_name, refuse_groups
from dialore.retrieval.loaders.headers import Cell as _Shown
from dialore.retrieval.loaders.ooxml import Block, Package, local, texts_of

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

_LONGEST_CODE = 255
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
        yield from _table(refuse_groups(self._rows(part), where))
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

    def _rows(self, part: str) -> Iterator[dict[int, _Shown]]:
        """Yield the cells of each row, by column; an empty row where rows are left out."""
        last = 0
        for element in self._package.rows(part):
            if local(element) == "headerFooter":
                self._printed |= dict.fromkeys(filter(None, map(_print_text, element)))
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
                    cells[column] = _Shown(text, is_name and may_be_name(text))
            yield cells

    def _cell(self, cell: Element) -> _Shown:
        """Return what a cell shows, and whether it may be the name of a column."""
        kind, value = cell.get("t") or "n", cell.findtext("{*}v") or ""
        formula = cell.find("{*}f")
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
            style = int(cell.get("s") or 0)
            code = self._formats[style] if style < len(self._formats) else "General"
            return format_number(value, code, since_1904=self._since_1904)
        return _Shown(value, is_name=kind in {"s", "str", "inlineStr"})


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
            used |= cells.keys()
            yield row(f"{names[at].text}: {cell.text}" if at in names else cell.text for at, cell in cells.items())
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

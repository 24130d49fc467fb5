"""Tables in text, CSV and TSV, as sections: a row each, with the names of its columns."""

from __future__ import annotations

import csv
import itertools
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from dialore.files import with_long_cells
from dialore.knowledge import GROUPS
from dialore.retrieval.chunking import Paragraph, Reject, Section, row
from dialore.retrieval.groups import RefusedGroups, combine_groups, holds_groups, names_groups, split_groups
from dialore.retrieval.loaders.front_matter import check_head
from dialore.retrieval.loaders.headers import HEAD_ROWS, Cell, Row, find_header, has_groups, text_cell

MAX_METADATA_CELL = 100
"""Characters of a cell up to which it is metadata, too, which passages are filtered by."""
_SAMPLE_LINES = 200
"""Lines by which the form of a table is recognised."""
_MAX_NOTICES = 20
_SURE_SIZE = 4
"""Lines and columns of a quoted text that looks like rows; two lines with one comma each are no proof."""
_DELIMITERS = ",;\t|"
_SEPARATOR = re.compile(r"\ufeff?sep=(.)", re.IGNORECASE)


def read_rows(lines: Iterable[str], reject: Reject, notice: Reject) -> Iterator[Section]:
    """Yield the sections of a CSV or TSV file, one a row, each value after the name of its column.

    The names may stand below titles and comments. A column `groups` says who may read each row.

    Args:
        lines: The lines of the file, with their ends.
        reject: Called for rows that are left out.
        notice: Called for quotes that are not closed, and for lines above a restricted table.

    Raises:
        RefusedGroups: The file names `groups` in a form that cannot be applied.
    """
    lines = iter(lines)
    sample = list(itertools.islice(lines, _SAMPLE_LINES))
    check_head("".join(sample))
    separator = _SEPARATOR.fullmatch(sample[0].strip()) if sample else None
    skipped = int(separator is not None)
    sample = sample[skipped:]
    delimiter = separator[1] if separator else _find_delimiter(sample)
    form = {"delimiter": delimiter, **_find_quoting("".join(sample), delimiter)}
    columns = _count_columns([len(_cells_of(values)) for values in _split_each(sample, form)])
    records = _Records(itertools.chain(sample, lines), form, columns, notice, skipped)
    head = _take_head(records)
    header = _find_header(head, columns)
    if header is None:
        for record in itertools.chain(head, records):
            yield from _read_unnamed(record)
        return
    records.is_head = False
    table = _Table(head[header])
    if not table.is_restricted:
        for record in head[:header]:
            yield from _read_unnamed(record)
    elif any(record.cells for record in head[:header]):
        why = f"what stands above line {head[header].line} is left out: it has no {GROUPS}, and the table has"
        notice("", why)
    yield from _read_table(table, itertools.chain(head[header + 1 :], records), reject)


def _read_table(table: _Table, records: Iterable[_Record], reject: Reject) -> Iterator[Section]:
    is_below_empty = False
    taken = refused = 0
    for record in records:
        if is_below_empty and not table.is_restricted and has_groups(record.cells):
            raise RefusedGroups(f"its line {record.line} names {GROUPS} below another table (make two files of them)")
        is_below_empty = not record.cells
        try:
            section = table.read(record)
        except RefusedGroups as error:
            refused += 1
            reject(f"line {record.line}", error)
            continue
        if section is not None:
            taken += 1
            yield section
    if refused and not taken:
        raise RefusedGroups(f"none of its rows is taken: {GROUPS} cannot be applied")


class _Record(NamedTuple):
    """A row as it stands in the file.

    Attributes:
        line: The number of its first line.
        values: All of its values.
        cells: Those that are not empty, by column.
        is_doubtful: It has several lines, whose quotes are not closed properly.
    """

    line: int
    values: list[str]
    cells: Row
    is_doubtful: bool


class _Table:
    """A table whose columns have names."""

    def __init__(self, header: _Record) -> None:
        self._names = {column: cell.text for column, cell in header.cells.items()}
        self._width = len(header.values)
        self._groups = [column for column, name in self._names.items() if names_groups(name)]

    @property
    def is_restricted(self) -> bool:
        """True if a column says who may read each row."""
        return bool(self._groups)

    def read(self, record: _Record) -> Section | None:
        """Return the section of a row, or None if it has no text.

        Raises:
            RefusedGroups: Nobody knows who may read it.
        """
        metadata: dict[str, Any] = {}
        parts = []
        for column, cell in record.cells.items():
            if holds_groups(cell.text):
                raise RefusedGroups(f"{GROUPS} is named inside a value: name it in a column of its own")
            if column in self._groups:
                continue
            name = self._names.get(column, "")
            parts.append(f"{name}: {cell.text}" if name else cell.text)
            if name and len(cell.text) <= MAX_METADATA_CELL:
                metadata[name] = cell.text
        if not parts:
            return None
        if self._groups:
            metadata[GROUPS] = self._groups_of(record)
        return Section([Paragraph(row(parts), is_row=True)], metadata=metadata)

    def _groups_of(self, record: _Record) -> list[str]:
        if record.is_doubtful:
            raise RefusedGroups(f"its quotes are not closed, so that its {GROUPS} are unknown")
        has_more = any(place >= self._width for place in record.cells)
        if has_more or len(record.values) <= max(self._groups):
            count = f"{len(record.values)} values for {self._width} columns"
            raise RefusedGroups(f"it has {count}, so that its {GROUPS} are unknown")
        cells = [(self._names[column], record.cells.get(column)) for column in self._groups]
        return combine_groups((name, split_groups(cell.text)) for name, cell in cells if cell)


def _read_unnamed(record: _Record) -> Iterator[Section]:
    if record.cells:
        text = row(cell.text for cell in record.cells.values())
        yield Section([Paragraph(text, is_row=True)])


def _cells_of(values: Sequence[str], *, is_head: bool = True) -> dict[int, Cell]:
    """Return the cells that are not empty, by column; whether they may be names matters in the head only."""
    texts = {column: " ".join(value.split()) for column, value in enumerate(values)}
    if not is_head:
        return {column: Cell(text, is_name=False) for column, text in texts.items() if text}
    return {column: text_cell(text) for column, text in texts.items() if text}


def _count_columns(counts: Sequence[int]) -> int:
    """Return how many values most lines have, from those of each; titles and comments at the beginning do not count."""
    table = list(itertools.dropwhile(lambda count: count <= 1, counts)) or counts
    shares = Counter(filter(None, table))
    return max(shares, key=lambda count: (shares[count], count > 1), default=0)


def _take_head(records: Iterator[_Record]) -> list[_Record]:
    """Return the first records, among them as many that are not empty as a header is looked for in."""
    head: list[_Record] = []
    filled = 0
    for record in records:
        head.append(record)
        filled += bool(record.cells)
        if filled > HEAD_ROWS or len(head) > _SAMPLE_LINES:
            break
    return head


def _find_header(head: Sequence[_Record], columns: int) -> int | None:
    """Return the index of the record that names the columns; of a single column the first text does."""
    header = find_header([record.cells for record in head], columns)
    filled = [index for index, record in enumerate(head) if record.cells]
    if header is not None or columns != 1 or len(filled) < 2:
        return header
    first = head[filled[0]].cells
    return filled[0] if len(first) == 1 and all(cell.is_name for cell in first.values()) else None


# --- records, and quotes that are not closed


class _Lines(Iterator[str]):
    """Lines that can be given back; it keeps those of the current record."""

    def __init__(self, lines: Iterable[str], skipped: int) -> None:
        self._lines = iter(lines)
        self._returned = deque[str]()
        self._record: list[str] = []
        self.number = skipped

    def __next__(self) -> str:
        line = self._returned.popleft() if self._returned else next(self._lines)
        self.number += 1
        self._record.append(line)
        return line

    def take_record(self) -> list[str]:
        """Return the lines read since the last call."""
        record, self._record = self._record, []
        return record

    def give_back(self, lines: Sequence[str]) -> None:
        """Have lines be read again."""
        self._returned.extendleft(reversed(lines))
        self.number -= len(lines)


class _Records(Iterator[_Record]):
    """The records of a table. A quote that is opened and not closed does not take in the lines that follow it."""

    def __init__(self, lines: Iterable[str], form: dict[str, Any], columns: int, notice: Reject, skipped: int) -> None:
        self._lines = _Lines(lines, skipped)
        self._form, self._columns, self._notice = form, columns, notice
        self._rows = with_long_cells(csv.reader(self._lines, **form))
        self._unclosed = 0
        self.is_head = True

    def __next__(self) -> _Record:
        try:
            values = next(self._rows)
        except StopIteration:
            if self._unclosed > _MAX_NOTICES:
                self._notice("", f"{self._unclosed - _MAX_NOTICES:,} more lines open a quote that is not closed")
                self._unclosed = 0
            raise
        lines = self._lines.take_record()
        first = self._lines.number - len(lines) + 1
        problem = self._quoting_problem(lines)
        if problem and self._took_in_rows(lines, problem):
            self._lines.give_back(lines[1:])
            values, problem = self._split_plainly(lines[0]), ""
            self._unclosed += 1
            if self._unclosed <= _MAX_NOTICES:
                self._notice(f"line {first}", "it opens a quote that is not closed: it is read without quoting")
        is_doubtful = problem in {_OPEN, _MALFORMED}
        return _Record(first, values, _cells_of(values, is_head=self.is_head), is_doubtful)

    def _quoting_problem(self, lines: Sequence[str]) -> str:
        """Return what may be wrong with the quotes of a record; empty for a single line that is closed."""
        if self._form.get("quotechar", '"') not in lines[0]:
            return ""
        try:
            list(with_long_cells(csv.reader(lines, **self._form, strict=True)))
        except csv.Error as error:
            is_open = "end of data" in str(error)
            return _OPEN if is_open else _MALFORMED if len(lines) > 1 else ""
        return _NONE if len(lines) > 1 else ""

    def _took_in_rows(self, lines: Sequence[str], problem: str) -> bool:
        """Return whether lines of a record are rows of their own."""
        are_rows = (len(self._split_plainly(line)) == self._columns for line in lines)
        if self._columns < 2:
            return False
        if problem != _NONE:
            is_first_row = next(are_rows)
            return any(are_rows) or (len(lines) == 1 and is_first_row)
        # Properly closed: by the quote of a later row only if each line alone is a whole row.
        return self._columns + len(lines) > _SURE_SIZE and all(are_rows)

    def _split_plainly(self, line: str) -> list[str]:
        """Return the values of a line that is read without quoting, without quotes around them."""
        reader = csv.reader([line], delimiter=self._form["delimiter"], quoting=csv.QUOTE_NONE)
        values = next(with_long_cells(reader), [])
        quote = self._form.get("quotechar", '"')
        return [value[1:].removesuffix(quote) if value.startswith(quote) else value for value in values]


_NONE, _OPEN, _MALFORMED = "none", "open", "malformed"


# --- the form of a table


def _find_delimiter(sample: Sequence[str]) -> str:
    """Return the sign that parts the values of most lines into the same number of them, at least two.

    A sign by which one of the first lines names `groups` wins.
    """
    shares: dict[str, float] = {}
    for sign in _DELIMITERS:
        rows = with_long_cells(csv.reader(sample, delimiter=sign))
        counts = Counter(len(values) for values in rows if values)
        columns, lines = counts.most_common(1)[0] if counts else (1, 0)
        shares[sign] = lines / counts.total() if columns > 1 else 0.0
    best = max(shares, key=lambda sign: shares[sign])
    if _names_groups_early(sample, best):
        return best
    return next((sign for sign in _DELIMITERS if _names_groups_early(sample, sign)), best)


_FIRST_LINES = 3


def _names_groups_early(sample: Sequence[str], delimiter: str) -> bool:
    first = [line for line in sample if line.strip()][:_FIRST_LINES]
    rows = _split_each(first, {"delimiter": delimiter})
    return any(len(values) > 1 and any(map(names_groups, values)) for values in rows)


def _split_each(lines: Iterable[str], form: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the values of each line, read by itself."""
    for line in lines:
        yield from itertools.islice(with_long_cells(csv.reader([line], **form)), 1)


def _find_quoting(sample: str, delimiter: str) -> dict[str, Any]:
    """Return how values that hold the delimiter are quoted: by double quotes, doubled inside or after a backslash."""
    sign = re.escape(delimiter)
    if '"' not in sample and re.search(rf"(?:^|{sign})'[^'\n{sign}]*{sign}[^'\n]*'", sample, re.MULTILINE):
        return {"quotechar": "'"}
    return {"escapechar": "\\"} if '\\"' in sample and '""' not in sample else {}

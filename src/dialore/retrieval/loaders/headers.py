"""How the row that names a table's columns is recognised, in workbooks and in tables of text alike."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from dialore.knowledge import GROUPS
from dialore.retrieval.groups import RefusedGroups, assigns_groups, names_groups

MAX_NAME_LENGTH = 60
"""Characters of a column's name; a longer text is no name."""
MAX_QUESTION_LENGTH = 200
HEAD_ROWS = 20
"""Rows that are not empty among which a header is looked for, below titles and comments."""
YEARS = range(1900, 2100)
_NUMBER = re.compile(r"[-+]?[\d.,:/%€$£ -]+")
_DATE = re.compile(r"\d{4}-\d\d(?:-\d\d)?|\d\d?[./]\d\d?[./](?:\d\d)?\d\d|\d{4}[/-]\d\d(?:\d\d)?")
_SENTENCE_ENDS = ".?!。？！"


class Cell(NamedTuple):
    """A cell of a table.

    Attributes:
        text: What it holds.
        is_name: Whether a column may be called so: by a text, a year, a date.
        columns: How many columns it spans.
        is_hidden: Whether its format shows nothing of it.
    """

    text: str
    is_name: bool
    columns: int = 1
    is_hidden: bool = False


Row = Mapping[int, Cell]
"""The cells of a row that are not empty, by column."""


def text_cell(text: str) -> Cell:
    """Return a cell of a table in text, where a number looks like any other text."""
    if _NUMBER.fullmatch(text):
        is_year = text.isdecimal() and len(text) == 4 and int(text) in YEARS
        return Cell(text, is_name=is_year or bool(_DATE.fullmatch(text)))
    is_question = text[-1:] in {"?", "？"} and len(text) <= MAX_QUESTION_LENGTH  # columns of forms are called so
    return Cell(text, is_name=is_question or may_be_name(text))


def may_be_name(text: str) -> bool:
    """Return whether a text is short enough for a column's name, and no sentence."""
    return 0 < len(text) <= MAX_NAME_LENGTH and text[-1] not in _SENTENCE_ENDS


def are_names(cells: Row, following: Row, names: Row) -> bool:
    """Return whether a row names the columns of the next: short texts, and not more rows of a table that has names."""
    if len(cells) < 2 or not following or not all(cell.is_name for cell in cells.values()):
        return False
    unnamed = following.keys() - cells.keys()
    if len(unnamed) > 1 or (
        unnamed != {min(following)} and unnamed and all(cell.is_name for cell in following.values())
    ):
        return False
    return cells.keys() != names.keys() or any(at in cells and not cell.is_name for at, cell in following.items())


def has_groups(cells: Row) -> bool:
    """Return whether a row has a cell that means `groups`, as the header of a restricted table does.

    A row whose only cell is its first is the title of a table, or a list of words.
    """
    return cells.keys() != {0} and any(names_groups(cell.text) for cell in cells.values())


class GroupsCheck:
    """Refuses a sheet that names `groups`, which workbooks cannot apply.

    Looked at are the first rows, and those that may begin another table below an empty row.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._filled = 0
        self._is_below_empty = False

    def see(self, cells: Row) -> None:
        """Take in the next row, with all that is hidden in it.

        Raises:
            RefusedGroups: It names `groups`.
        """
        self._filled += bool(cells)
        if has_groups(cells) and (self._filled <= HEAD_ROWS or self._is_below_empty):
            raise RefusedGroups(f"its {self._name} names {GROUPS} (save the sheet as CSV, where the column is applied)")
        self._is_below_empty = not cells


def find_header(rows: Sequence[Row], columns: int) -> int | None:
    """Return the index of the row that names the columns of a table, or None.

    Args:
        rows: The first rows of the table, empty ones included.
        columns: How many values most rows have. Titles and comments above the header have fewer.

    Raises:
        RefusedGroups: `groups` is named in a row that may just as well be data, or in a line above the table.
    """
    first, is_header = _find_first_full(rows, columns)
    for index, cells in enumerate(rows):
        if has_groups(cells):
            above = [row for row in rows[:index] if len(row) >= len(cells)]
            if len(above) > 1:
                raise RefusedGroups(
                    f"its row {index + 1} names {GROUPS} below others that look like data (make it the first row)"
                )
            return index
        text = cells[min(cells)].text if cells else ""
        if (index < first or text.startswith("#")) and assigns_groups(text):
            raise RefusedGroups(f"it names {GROUPS} in a line above its table (add a column {GROUPS} instead)")
    return first if is_header else None


def _find_first_full(rows: Sequence[Row], columns: int) -> tuple[int, bool]:
    """Return the index of the first row that has as many cells as most, and whether it names the columns."""
    filled = [index for index, cells in enumerate(rows) if cells]
    for index, following in pairwise([*filled, None]):
        cells = rows[index] if index is not None else {}
        # The first column of a table that a program numbered has no name.
        if len(cells) >= columns or (len(cells) == columns - 1 and 0 not in cells):
            below = rows[following] if following is not None else {}
            return index or 0, are_names(cells, below, {})
    return len(rows), False

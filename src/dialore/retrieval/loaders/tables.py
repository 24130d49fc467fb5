"""Tables of all formats as rows in which each value stands after the name of its column."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dialore.retrieval.chunking import row
from dialore.text import SENTENCE_ENDS

MAX_NAME_LENGTH = 60
"""Characters of a text that can be the name of a column where the file does not mark it as one."""
MAX_LABEL_LENGTH = 100
"""Characters of a cell that is repeated in each row that it spans; a longer one stands in the first row only."""
_MAX_MARKED_NAME_LENGTH = 150
_MAX_COLUMNS, _MAX_HEADER_ROWS = 1000, 5
_SAME_SHAPE = 0.8
_NUMBER = re.compile(r"[-+]?[\W\d_]*\d[\W\d_]*")


class Cell(NamedTuple):
    """A cell as it stands in the file.

    Attributes:
        text: What it shows.
        columns: How many columns it spans.
        rows: How many rows it spans; 0 for all that follow.
        is_header: Whether the file marks it as the name of a column or row.
        continues: Whether it is part of the cell above, as Word and PowerPoint store merged cells.
    """

    text: str
    columns: int = 1
    rows: int = 1
    is_header: bool = False
    continues: bool = False


class _Placed(NamedTuple):
    """A cell at its column; it is repeated if it spans rows and this is not its first."""

    cell: Cell
    is_repeated: bool = False


_Row = dict[int, _Placed]


def render_table(rows: Sequence[Sequence[Cell]], *, is_first_styled: bool = False) -> list[str]:
    """Return a text for each row of a table, and for names of columns that hold nothing.

    Rows that the file marks as headers name the columns, as does a first row that differs from the others as headers
    do. Names of several header rows are joined by commas. Cells that span rows are repeated in each of them; a short
    text over the whole width is repeated before the rows below it. The rows of a table without a header stay bare.

    Args:
        rows: The cells of each row, without those that a cell above or beside covers, or with `continues`.
        is_first_styled: The file sets off the first row, but that may be decoration.
    """
    grid = _resolve_spans(rows)
    width = _width(grid)
    grid = [cells for cells in grid if any(placed.cell.text and not placed.is_repeated for placed in cells.values())]
    texts: list[str] = []
    names: dict[int, str] = {}
    used: set[int] = set()
    group, has_names = "", False
    header_end = 0
    for index, cells in enumerate(grid):
        if index < header_end:
            continue
        is_top = not has_names and not group
        size = _header_size(grid, index, width, may_guess=is_top, is_styled=is_first_styled)
        if size:
            texts += _unused_names(names, used)
            header = grid[index : index + size]
            names, used, group, has_names = _column_names(header), set(), "", True
            header_end = index + size
            if any(len(placed.cell.text) > _MAX_MARKED_NAME_LENGTH for cells in header for placed in cells.values()):
                texts += [_render(header_row, {}) for header_row in header]
            continue
        label = _full_width_text(cells, width)
        if label is not None:
            is_group = has_names or any(_full_width_text(other, width) for other in grid[index + 1 :])
            has_rows = index + 1 < len(grid) and _full_width_text(grid[index + 1], width) is None
            group = label if is_group and has_rows and is_name_like(label) else ""
            if not group:
                texts.append(label)
            continue
        used |= {at for column, placed in cells.items() if placed.cell.text for at in _columns(column, placed)}
        texts.append(row([group, _render(cells, names)]))
    return [text for text in [*texts, *_unused_names(names, used)] if text]


def name_values(names: Mapping[int, str], cells: Iterable[tuple[int, int, str]]) -> str:
    """Return a row whose values stand after the names of their columns.

    Args:
        names: Names by column.
        cells: The first column, the number of columns and the text of each cell.
    """
    texts = []
    for column, columns, text in cells:
        own = dict.fromkeys(names[at] for at in range(column, column + columns) if names.get(at))
        texts.append(f"{' / '.join(own)}: {text}" if own and text else text)
    return row(texts)


def is_name_like(text: str) -> bool:
    """Return whether a text can name a column: it is short, no sentence and no number."""
    if not text or len(text) > MAX_NAME_LENGTH or text[-1] in SENTENCE_ENDS:
        return False
    return _NUMBER.fullmatch(text) is None and any(map(str.isalpha, text))


# --- Merged cells


def _resolve_spans(rows: Sequence[Sequence[Cell]]) -> list[_Row]:
    """Place the cells at their columns, those that span rows in each of them."""
    grid: list[_Row] = []
    spanning: dict[int, tuple[Cell, int]] = {}  # by column, with the index after the last row
    for index, cells in enumerate(rows):
        placed: _Row = {}
        occupied: set[int] = set()
        for column, (cell, end) in list(spanning.items()):
            if index >= end:
                del spanning[column]
            else:
                placed[column] = _repeat(cell)
                occupied |= set(_columns(column, placed[column]))
        column = 0
        for cell in cells:
            while column in occupied:
                column += 1
            if column >= _MAX_COLUMNS:
                break
            limited = cell._replace(columns=max(1, min(cell.columns, _MAX_COLUMNS - column)))
            above = grid[-1].get(column) if grid else None
            if cell.continues and above is not None:
                placed[column] = _repeat(above.cell)
            elif not cell.continues:
                placed[column] = _Placed(limited)
                if cell.rows != 1:
                    spanning[column] = limited, index + cell.rows if cell.rows else len(rows)
            column += limited.columns
        grid.append(dict(sorted(placed.items())))
    return grid


def _repeat(cell: Cell) -> _Placed:
    text = cell.text if len(cell.text) <= MAX_LABEL_LENGTH else ""
    return _Placed(cell._replace(text=text), is_repeated=True)


def _width(grid: Sequence[_Row]) -> int:
    """Return the number of columns, by the rows of several cells: a title may span more columns than there are."""
    widths = {False: 0, True: 0}
    for cells in grid:
        end = max((column + placed.cell.columns for column, placed in cells.items() if placed.cell.text), default=0)
        has_several = len(cells) > 1
        widths[has_several] = max(widths[has_several], end)
    return widths[True] or widths[False]


def _columns(column: int, placed: _Placed) -> range:
    return range(column, column + placed.cell.columns)


def _full_width_text(cells: _Row, width: int) -> str | None:
    """Return the text of a row that is one cell over the whole width of a table of several columns."""
    filled = [(column, placed) for column, placed in cells.items() if placed.cell.text]
    if width < 2 or len(filled) != 1:
        return None
    column, placed = filled[0]
    return placed.cell.text if column == 0 and placed.cell.columns >= width else None


# --- Headers


def _header_size(grid: Sequence[_Row], start: int, width: int, *, may_guess: bool, is_styled: bool) -> int:
    """Return how many rows from `start` on are a header; 0 if that row is none, or if no row follows them."""
    if _full_width_text(grid[start], width) is not None:
        return 0
    end = start
    while end < len(grid) and _is_marked(grid[end], width) and _full_width_text(grid[end], width) is None:
        end += 1
    if end == start and may_guess and _looks_like_header(grid[start], grid[start + 1 :], is_styled=is_styled):
        end += 1
    if end == start:
        return 0
    while end < len(grid) - 1 and _has_second_row(grid[end - 1], grid[end]):
        end += 1
    return end - start if end < len(grid) and end - start <= _MAX_HEADER_ROWS else 0


def _is_marked(cells: _Row, width: int) -> bool:
    """Return whether the file marks all cells as headers; of several columns more than one has to be named."""
    own = [placed.cell for placed in cells.values() if placed.cell.text]
    named = sum(cell.columns for cell in own)
    return named >= min(width, 2) and bool(own) and all(cell.is_header for cell in own)


def _has_second_row(header: _Row, following: _Row) -> bool:
    """Return whether the row below a header is part of it: it says more of cells that span columns, or rows."""
    wide = {at for column, placed in header.items() if placed.cell.columns > 1 for at in _columns(column, placed)}
    own = {column: placed.cell for column, placed in following.items() if placed.cell.text and not placed.is_repeated}
    if not wide or not own or not wide & own.keys():
        return False
    outside = own.keys() - wide
    return all(is_name_like(cell.text) for cell in own.values()) and not any(
        at in header and header[at].cell.text for at in outside
    )


def _looks_like_header(cells: _Row, body: Sequence[_Row], *, is_styled: bool) -> bool:
    """Return whether a row that is not marked names the columns of the rows below it.

    All its cells are different names. If the file sets the row off, that is enough for a table of at least three
    columns, in which no name is a value as well; else a column below must hold numbers, dates or the like. A table of
    two columns may be a list of names and values: the values of such a column must look alike.
    """
    texts = {column: placed.cell.text for column, placed in cells.items()}
    named = {column: text for column, text in texts.items() if text or column > 0}
    if not body or not named or not all(map(is_name_like, named.values())):
        return False
    is_spanned = any(placed.cell.columns > 1 for placed in cells.values())
    if len(set(named.values())) < len(named) or len(named) + (len(named) < len(texts)) < 2:
        return False
    columns = [_own_texts(body, column) for column in texts]
    if is_styled and (is_spanned or len(texts) > 2):
        return not any(text in column for text, column in zip(texts.values(), columns, strict=True))
    if len(body) < 2 or any(map(_has_digit, named.values())):
        return False
    if len(texts) > 2:
        return any(values and all(map(_has_digit, values)) for values in columns)
    return len(body) > 2 and _are_alike(columns[-1])


def _own_texts(rows: Sequence[_Row], column: int) -> list[str]:
    """Return the texts that begin in a column."""
    placed = [cells[column] for cells in rows if column in cells]
    return [own.cell.text for own in placed if own.cell.text and not own.is_repeated]


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def _are_alike(values: Sequence[str]) -> bool:
    """Return whether most values have digits and the same shape, such as 18:35 and 9:20."""
    shapes = [re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "9", value)) for value in values if _has_digit(value)]
    return bool(shapes) and max(map(shapes.count, set(shapes))) >= _SAME_SHAPE * len(values)


def _column_names(header: Sequence[_Row]) -> dict[int, str]:
    """Return the name of each column: what the rows of the header say of it, from the top."""
    names: dict[int, list[str]] = {}
    for cells in header:
        for column, placed in cells.items():
            text = placed.cell.text
            if len(text) > _MAX_MARKED_NAME_LENGTH:
                text = text[:MAX_NAME_LENGTH].rpartition(" ")[0] + "…"
            for at in _columns(column, placed):
                own = names.setdefault(at, [])
                if text and text not in own:
                    own.append(text)
    return {column: ", ".join(own) for column, own in names.items() if own}


def _unused_names(names: Mapping[int, str], used: set[int]) -> Iterator[str]:
    """Yield the names of columns without a value, which stand in no row."""
    unused = row(name for column, name in sorted(names.items()) if column not in used)
    if unused:
        yield unused


def _render(cells: _Row, names: Mapping[int, str]) -> str:
    return name_values(names, ((column, placed.cell.columns, placed.cell.text) for column, placed in cells.items()))

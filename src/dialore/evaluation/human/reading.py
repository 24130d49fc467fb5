"""Filled-in sheets read back, CSV or XLSX: checked, unblinded by their key, without batches that failed a control."""

from __future__ import annotations

import csv
import io
import unicodedata
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from dialore.errors import InputError
from dialore.evaluation.human.sheets import (
    CONTROL,
    LETTERS,
    SIDES,
    Form,
    Key,
    Keyed,
    answer_columns,
    criteria_set,
    openpyxl_for,
)

_SHOWN = 5
_SIDES = {side.lower(): side for side in SIDES} | {"平局": "tie", "平": "tie", "t": "tie"}


class Annotation(BaseModel):
    """One annotator's answer to one question about one item, unblinded.

    Attributes:
        criteria: the name of the set of criteria.
        systems: the systems of the item, in the order of its letters.
        winner: of a pair: the system that won; None for a tie.
        values: the system's score, or every system's rank, by system; empty for a pair.
        asked: whether the annotator was asked; else it is a tie of two equal texts.
    """

    model_config = ConfigDict(frozen=True)

    annotator: str
    item: str
    dialogue: str
    criteria: str
    criterion: str
    form: Form
    systems: tuple[str, ...]
    winner: str | None = None
    values: dict[str, float] = {}
    asked: bool = True

    @property
    def is_wrong(self) -> bool:
        """Whether it takes a control case for something that a system said."""
        if CONTROL not in self.systems or not self.asked:
            return False
        if self.form == "pairwise":
            return self.winner in {None, CONTROL}
        if self.form == "ranking":
            return self.values[CONTROL] < max(self.values.values())
        return self.values[CONTROL] > sum(criteria_set(self.criteria).criteria[self.criterion].scale) / 2


class Sheet(NamedTuple):
    """A sheet that was read.

    Attributes:
        annotations: its answers; of a batch whose control case is judged wrongly there are none.
        empty: how many fields were left empty.
        dropped: how many batches were left out.
    """

    annotations: list[Annotation]
    empty: int
    dropped: int


def read_key(path: Path) -> Key:
    """The key of an export; raises InputError where the file is missing or is no key."""
    try:
        return Key.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", mend="name the key that the export wrote") from error
    except (ValidationError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no key of an export", mend="name the key that `annotate export` wrote") from error


def read_sheet(path: Path, key: Key, annotator: str) -> Sheet:
    """The answers in a filled-in sheet, without those of batches whose control case is judged wrongly.

    Raises:
        InputError: a column is missing, an item is not of this export or stands twice, or an answer is none of those
            that the question allows; row and column are named, several at once.
        MissingExtraError: it is XLSX, and openpyxl is not installed.
    """
    rows = read_xlsx(path) if path.suffix.lower() == ".xlsx" else _csv(path)
    chosen = criteria_set(key.criteria)
    letters = max((len(each.systems) for each in key.items.values()), default=2)
    wanted = answer_columns(chosen, key.form, letters)
    # Somebody may have put a line of their own above.
    top = next((number for number, row in enumerate(rows) if "item" in map(str.strip, row)), 0)
    head = [name.strip() for name in rows[top]] if rows else []
    missing = [name for name in ["item", *wanted] if name not in head]
    if missing:
        raise InputError(
            f"{path.name}: no column {', '.join(missing)}", mend="keep the names of the sheet's columns as they were"
        )
    reader = _Reader(path.name, key, annotator)
    for number, row in enumerate(rows[top + 1 :], start=top + 2):
        fields = dict(zip(head, [field.strip() for field in row], strict=False))
        if any(fields.values()):
            reader.read(number, fields)
    if reader.wrong:
        more = f"; and {len(reader.wrong) - _SHOWN} more" if len(reader.wrong) > _SHOWN else ""
        raise InputError("; ".join(reader.wrong[:_SHOWN]) + more, mend="mend these fields and import again")
    failed = {key.items[each.item].batch for each in reader.found if each.is_wrong}
    kept = [each for each in reader.found if key.items[each.item].batch not in failed and CONTROL not in each.systems]
    if chosen.minimum:
        kept += _least(kept, chosen.minimum)
    if kept or not key.items:
        kept += [
            Annotation(**reader.known(f"same {number}", criterion, keyed), asked=False)
            for number, keyed in enumerate(key.same)
            for criterion in chosen.criteria
        ]
    return Sheet(kept, reader.empty, len(failed))


def _least(annotations: Sequence[Annotation], name: str) -> list[Annotation]:
    """A score that is the least of an item's (MSDP, Section 3.5)."""
    by_item: dict[str, list[Annotation]] = {}
    for each in annotations:
        by_item.setdefault(each.item, []).append(each)
    return [
        some[0].model_copy(
            update={"criterion": name, "values": {s: min(each.values[s] for each in some) for s in some[0].values}}
        )
        for some in by_item.values()
    ]


class _Reader:
    """Reads rows, and goes on after what is wrong, so that all of it is reported at once."""

    def __init__(self, name: str, key: Key, annotator: str) -> None:
        self._name, self._key, self._annotator = name, key, annotator
        self._chosen = criteria_set(key.criteria)
        self._seen: set[str] = set()
        self.found: list[Annotation] = []
        self.wrong: list[str] = []
        self.empty = 0

    def read(self, number: int, fields: dict[str, str]) -> None:
        item = fields.get("item", "")
        if item not in self._key.items:
            self._complain(number, "item", f"{item!r} is no item of this export")
        elif item in self._seen:
            self._complain(number, "item", f"{item} stands twice")
        else:
            self._seen.add(item)
            skips = self._key.items[item].skips
            for criterion in (name for name in self._chosen.criteria if name not in skips):
                made = self._answer(number, item, criterion, fields)
                self.found += [made] if made is not None else []

    def _answer(self, number: int, item: str, criterion: str, fields: dict[str, str]) -> Annotation | None:
        systems = self._key.items[item].systems
        ranks = self._key.form == "ranking"
        columns = [f"{criterion} {letter}" for letter in LETTERS[: len(systems)]] if ranks else [criterion]
        # Chinese keyboards write letters and digits of full width.
        given = [unicodedata.normalize("NFKC", fields.get(column, "")) for column in columns]
        if not all(given):
            self.empty += given.count("")
            if any(given):
                self._complain(number, columns[given.index("")], "is empty, where other ranks are given")
            return None
        known = self.known(item, criterion, self._key.items[item])
        if self._key.form == "pairwise":
            side = _SIDES.get(given[0].lower())
            if side is None:
                self._complain(number, criterion, f"{given[0]!r} is none of {', '.join(SIDES)}")
                return None
            return Annotation(**known, winner=None if side == "tie" else systems[SIDES.index(side)])
        low, high = (1, len(systems)) if ranks else self._chosen.criteria[criterion].scale
        values = [self._number(number, column, text, low, high) for column, text in zip(columns, given, strict=True)]
        if any(value is None for value in values):
            return None
        return Annotation(**known, values={s: float(v) for s, v in zip(systems, values, strict=True) if v is not None})

    def known(self, item: str, criterion: str, keyed: Keyed) -> dict[str, Any]:
        """What an annotation says besides its answer."""
        known = {"annotator": self._annotator, "item": item, "criterion": criterion, "systems": keyed.systems}
        return known | {"criteria": self._key.criteria, "form": self._key.form, "dialogue": keyed.dialogue}

    def _number(self, number: int, column: str, text: str, low: int, high: int) -> int | None:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not (low <= value <= high and value == int(value)):
            self._complain(number, column, f"{text!r} is no whole number from {low} to {high}")
            return None
        return int(value)

    def _complain(self, number: int, column: str, what: str) -> None:
        self.wrong.append(f"{self._name}, row {number}, column {column}: {what}")


def _csv(path: Path) -> list[list[str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        head = text.split("\n", 1)[0]
        # Spreadsheets of some countries write semicolons or tabs.
        delimiter = max(",;\t", key=head.count)
        return list(csv.reader(io.StringIO(text), delimiter=delimiter))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path.name} is no CSV in UTF-8", mend="save it as CSV UTF-8") from error


def read_xlsx(path: Path) -> list[list[str]]:
    """The rows of the one sheet that has a column `item`, wherever it stands; of the first where none has.

    Raises:
        MissingExtraError: openpyxl is not installed.
        InputError: the file cannot be read, is no XLSX, or several of its sheets have such a column.
    """
    openpyxl = openpyxl_for(f"reading {path.name}")
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            # It warns of what spreadsheets add and it does not know.
            warnings.simplefilter("ignore")
            book = openpyxl.load_workbook(file, data_only=True)
            sheets = [
                [["" if cell is None else str(cell) for cell in row] for row in sheet.iter_rows(values_only=True)]
                for sheet in book.worksheets
            ]
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:  # a damaged file fails wherever openpyxl or zipfile stumbles over it
        raise InputError(f"{path.name} is no XLSX", mend="save it as XLSX or CSV UTF-8") from error
    found = [rows for rows in sheets if any("item" in map(str.strip, row) for row in rows)]
    if len(found) > 1:
        raise InputError(f"{path.name}: {len(found)} sheets have a column item", mend="keep the one that counts")
    return next(iter([*found, *sheets]), [])

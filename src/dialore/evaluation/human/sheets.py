"""Sheets for annotators as CSV and as a page to print; filled-in ones read back, checked and unblinded by their key."""

from __future__ import annotations

import csv
import io
import unicodedata
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from dialore.errors import InputError
from dialore.evaluation.human.items import (
    LETTERS,
    SIDES,
    Form,
    Key,
    answer_columns,
    columns_of,
    criteria_set,
    rows_of,
    sheet_words,
)
from dialore.evaluation.human.workbook import read_xlsx
from dialore.pages import asset, environment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dialore.evaluation.human.items import CriteriaSet, Item
    from dialore.text import Language

_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
_SHOWN = 5
_SIDES = {side.lower(): side for side in SIDES} | {"平局": "tie", "平": "tie", "t": "tie"}


def render_csv(items: Sequence[Item], chosen: CriteriaSet, form: Form) -> str:
    """A sheet as CSV, with a byte-order mark, so that spreadsheets read it as UTF-8."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns_of(items, chosen, form))
    writer.writerows([_inert(text) for text in row] for row in rows_of(items, chosen, form))
    return "\ufeff" + text.getvalue()


def render_page(items: Sequence[Item], chosen: CriteriaSet, form: Form, language: Language, annotator: int) -> str:
    """A sheet as one page to be printed and filled in by hand."""
    template = environment().get_template("report/sheet.html.j2")
    return template.render(
        items=items,
        chosen=chosen,
        form=form,
        language=language,
        annotator=annotator,
        words=sheet_words(language),
        letters=LETTERS,
        style=asset("report/sheet.css"),
    )


def _inert(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


class Annotation(BaseModel):
    """One annotator's answer to one question about one item, unblinded.

    Attributes:
        criteria: the name of the set of criteria.
        systems: the systems of the item, in the order of its letters.
        winner: of a pair: the system that won; None for a tie.
        values: the system's score, or every system's rank, by system; empty for a pair.
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


def read_key(path: Path) -> Key:
    """The key of an export.

    Raises:
        InputError: the file is missing or is no key.
    """
    try:
        return Key.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", mend="name the key that the export wrote") from error
    except (ValidationError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no key of an export", mend="name the key that `annotate export` wrote") from error


def read_sheet(path: Path, key: Key, annotator: str) -> tuple[list[Annotation], int]:
    """The answers in a filled-in sheet, and how many fields were left empty.

    Raises:
        InputError: a column is missing, an item is not of this export or stands twice, or an answer is none of those
            that the question allows; row and column are named, several at once.
        MissingExtraError: it is XLSX, and openpyxl is not installed.
    """
    rows = read_xlsx(path) if path.suffix.lower() == ".xlsx" else _csv(path)
    chosen = criteria_set(key.criteria)
    letters = max(len(each.systems) for each in key.items.values())
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
    return reader.found, reader.empty


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
            for criterion in self._chosen.criteria:
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
        known: dict[str, Any] = {"annotator": self._annotator, "item": item, "criterion": criterion, "systems": systems}
        known |= {"criteria": self._key.criteria, "form": self._key.form, "dialogue": self._key.items[item].dialogue}
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

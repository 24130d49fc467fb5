"""Filled-in sheets read back, CSV or XLSX: checked, unblinded by their key, without batches that failed a control."""

from __future__ import annotations

import csv
import io
import statistics
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from dialore.datasets.files import read_entries
from dialore.errors import InputError, import_optional
from dialore.evaluation.human.sheets import (
    CONTROL,
    CriteriaSet,
    Criterion,
    Form,
    Key,
    Keyed,
    answer_columns,
    criteria_set,
    key_of,
)
from dialore.files import read_text

MAX_LISTED = 5
SIDES = ("A", "B", "tie")
_SIDES = {side.lower(): side for side in SIDES} | {"平局": "tie", "平": "tie", "t": "tie"}


class Annotation(BaseModel):
    """One annotator's answer to one question about one item, unblinded.

    It is a pair's winner, None for a tie, or values: the system's score, or every system's rank. Equal texts are a tie
    that nobody was `asked` about.
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
        """True where it takes a control case for something that a system said."""
        if CONTROL not in self.systems or not self.asked:
            return False
        if self.form == "pairwise":
            return self.winner in {None, CONTROL}
        if self.form == "ranking":
            return self.values[CONTROL] < max(self.values.values())
        return self.values[CONTROL] > sum(criteria_set(self.criteria).criteria[self.criterion].scale) / 2


def read_key(path: Path) -> Key:
    """Return the key of an export; raise InputError where the file is missing or is no key."""
    try:
        return Key.model_validate_json(read_text(path))
    except ValidationError as error:
        raise InputError(f"{path} is no key of an export", hint="name the key that `annotate export` wrote") from error


def read_sheet(path: Path, key: Key, annotator: str) -> Answers:
    """Return the answers in a filled-in sheet, without those of batches whose control case is judged wrongly.

    Raises:
        InputError: Fields are wrong; names their rows and columns.
    """
    criteria = criteria_set(key.criteria)
    letters = max((len(keyed.systems) for keyed in key.items.values()), default=2)
    shared: dict[str, Any] = {"annotator": annotator, "criteria": key.criteria, "form": key.form}
    answers: list[Annotation] = []
    seen: set[str] = set()
    wrong: list[str] = []
    empty = 0
    for number, fields in _rows(path, ["item", *answer_columns(criteria.criteria, key.form, letters)]):
        item = fields.get("item", "")
        problems: dict[str, str] = {}
        if item not in key.items:
            problems["item"] = f"{item!r} is no item of this export"
        elif item in seen:
            problems["item"] = f"{item} stands twice"
        else:
            item_answers, problems, item_empty = _item_answers(item, key.items[item], fields, criteria, shared)
            answers += item_answers
            empty += item_empty
        seen.add(item)
        wrong += [f"{path.name}, row {number}, column {column}: {problem}" for column, problem in problems.items()]
    if wrong:
        more = f"; and {len(wrong) - MAX_LISTED} more" if len(wrong) > MAX_LISTED else ""
        raise InputError("; ".join(wrong[:MAX_LISTED]) + more, hint="mend these fields and import again")
    failed = {key.items[answer.item].batch for answer in answers if answer.is_wrong}
    kept = [it for it in answers if key.items[it.item].batch not in failed and CONTROL not in it.systems]
    if key.form == "likert":
        kept += _join_score(kept, criteria.minimum, min) + _join_score(kept, criteria.mean, statistics.fmean)
    if kept or not key.items:
        for number, keyed in enumerate(key.same):
            kept += [
                _annotation(f"same {number}", keyed, name, shared | {"asked": False}) for name in criteria.criteria
            ]
    return Answers(path, key.criteria, key.form, kept, empty, len(failed))


def _item_answers(
    item: str, keyed: Keyed, fields: Mapping[str, str], criteria: CriteriaSet, shared: Mapping[str, Any]
) -> tuple[list[Annotation], dict[str, str], int]:
    """Return the answers about an item, what is wrong by column, and how many fields are empty."""
    answers: list[Annotation] = []
    problems: dict[str, str] = {}
    empty = 0
    form: Form = shared["form"]
    for name, criterion in criteria.criteria.items():
        if name in keyed.skips:
            continue
        columns = answer_columns([name], form, len(keyed.systems))
        # Chinese keyboards write letters and digits of full width.
        texts = {column: unicodedata.normalize("NFKC", fields.get(column, "")) for column in columns}
        empty += list(texts.values()).count("")
        wrong = answer_problems(texts, form, criterion)
        problems |= wrong
        if not wrong and all(texts.values()):
            answer = _answer([*texts.values()], form, keyed.systems)
            answers.append(_annotation(item, keyed, name, {**shared, **answer}))
    return answers, problems, empty


def _annotation(item: str, keyed: Keyed, criterion: str, fields: Mapping[str, Any]) -> Annotation:
    return Annotation(item=item, dialogue=keyed.dialogue, systems=keyed.systems, criterion=criterion, **fields)


class Answers(NamedTuple):
    """The answers of one export's annotators, or in one sheet; how many fields were left empty, and batches dropped."""

    place: Path
    criteria: str
    form: Form
    annotations: list[Annotation]
    empty: int = 0
    dropped: int = 0


def read_answers(place: Path) -> Answers:
    """Return the answers in a folder of sheets whose key lies beside it, or in a file that `annotate import` wrote."""
    if place.is_dir():
        paths = (path for path in place.iterdir() if path.suffix.lower() in {".csv", ".xlsx"})
        # Spreadsheets keep hidden files beside those that are open.
        shown = sorted(path for path in paths if path.stem[0] not in ".~")
        return read_filled(shown, read_key(key_of(place)), place)
    form = "name a folder of sheets, or what `annotate import` wrote"
    notes = [entry for _, entry in read_entries(place, Annotation, form)]
    exports = {(note.criteria, note.form) for note in notes}
    if len(exports) != 1:
        raise InputError(f"{place} holds annotations of {len(exports)} exports", hint="analyse each on its own")
    return Answers(place, *exports.pop(), notes)


def read_filled(paths: Sequence[Path], key: Key, place: Path) -> Answers:
    """Return the answers in sheets, one an annotator, who is called as the file is; empty sheets count for nothing."""
    read: dict[str, Answers] = {}
    for path in paths if key.items else paths[:1]:  # where all pairs are of equal texts, there is no question
        sheet = read_sheet(path, key, path.stem)
        if sheet.annotations or sheet.dropped:
            if path.stem in read:
                raise InputError(f"two sheets are called {path.stem}", hint="give one of each annotator, named by them")
            read[path.stem] = sheet
    annotations = [annotation for sheet in read.values() for annotation in sheet.annotations]
    empty, dropped = (sum(getattr(sheet, name) for sheet in read.values()) for name in ("empty", "dropped"))
    return Answers(place, key.criteria, key.form, annotations, empty, dropped)


def _rows(path: Path, wanted: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows of a sheet that are not empty, by column, each with its number."""
    rows = _read_xlsx(path) if path.suffix.lower() == ".xlsx" else read_csv(path)
    # An annotator may have added a line above.
    top = next((number for number, row in enumerate(rows) if "item" in map(str.strip, row)), 0)
    head = [name.strip() for name in rows[top]] if rows else []
    if missing := [name for name in wanted if name not in head]:
        hint = "keep the names of the sheet's columns as they were"
        raise InputError(f"{path.name}: no column {', '.join(missing)}", hint=hint)
    for number, row in enumerate(rows[top + 1 :], start=top + 2):
        fields = dict(zip(head, [field.strip() for field in row], strict=False))
        if any(fields.values()):
            yield number, fields


def answer_problems(given: Mapping[str, str], form: Form, criterion: Criterion) -> dict[str, str]:
    """Return what is wrong with the fields of one answer, by column; nothing where all are empty."""
    if not any(given.values()):
        return {}
    if not all(given.values()):
        return {next(column for column, text in given.items() if not text): "is empty, where other ranks are given"}
    if form == "pairwise":
        return {c: f"{text!r} is none of {', '.join(SIDES)}" for c, text in given.items() if text.lower() not in _SIDES}
    low, high = (1, len(given)) if form == "ranking" else criterion.scale
    wrong = f"is no whole number from {low} to {high}"
    return {column: f"{text!r} {wrong}" for column, text in given.items() if not _is_whole(text, low, high)}


def _is_whole(text: str, low: int, high: int) -> bool:
    try:
        return float(text) in range(low, high + 1)
    except ValueError:
        return False


def _answer(given: Sequence[str], form: Form, systems: Sequence[str]) -> dict[str, Any]:
    """Return what an annotation says of the systems."""
    if form != "pairwise":
        return {"values": {system: float(text) for system, text in zip(systems, given, strict=True)}}
    side = _SIDES[given[0].lower()]
    return {"winner": None if side == "tie" else systems[SIDES.index(side)]}


def _join_score(annotations: Sequence[Annotation], name: str, join: Callable[[list[float]], float]) -> list[Annotation]:
    """Return a score of each item that is joined of all its others; none where it has no name."""
    by_item: dict[str, list[Annotation]] = {}
    for note in annotations if name else ():
        by_item.setdefault(note.item, []).append(note)
    joined = []
    for some in by_item.values():
        values = {system: join([note.values[system] for note in some]) for system in some[0].values}
        joined.append(some[0].model_copy(update={"criterion": name, "values": values}))
    return joined


def read_csv(path: Path) -> list[list[str]]:
    """Return the rows of a CSV, as spreadsheets write it; raise InputError where it cannot be read."""
    text = read_text(path)
    # Spreadsheets of some countries write semicolons or tabs.
    delimiter = max(",;\t", key=text.split("\n", 1)[0].count)
    try:
        return list(csv.reader(io.StringIO(text), delimiter=delimiter))
    except csv.Error as error:
        raise InputError(f"{path.name} is no CSV", hint="save it as CSV UTF-8") from error


def _read_xlsx(path: Path) -> list[list[str]]:
    """Return the rows of the one sheet that has a column `item`, wherever it stands; of the first where none has."""
    openpyxl = import_optional("openpyxl", f"reading {path.name}", "evaluation")
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
        raise InputError(f"{path.name} is no XLSX", hint="save it as XLSX or CSV UTF-8") from error
    with_items = [rows for rows in sheets if any("item" in map(str.strip, row) for row in rows)]
    if len(with_items) > 1:
        raise InputError(f"{path.name}: {len(with_items)} sheets have a column item", hint="keep the one that counts")
    return next(iter([*with_items, *sheets]), [])

"""Human evaluation on the page: annotators fill in the sheets of `dialore annotate export` by codes: `/v1/annotate`.

Answers are written into the sheets, CSV files, as they come; nothing of the key that lies beside their folder goes to
annotators but which questions are asked, how, and in which language.
"""

from __future__ import annotations

import csv
import hmac
import io
import json
import secrets
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi import Response as Reply
from pydantic import Field, StringConstraints

from dialore.errors import MissingExtraError
from dialore.evaluation.human.reading import answer_problems, read_answers, read_csv, read_key
from dialore.evaluation.human.sheets import LETTERS, NOT_ASKED, answer_columns, criteria_set, inert, key_of
from dialore.evaluation.report.people import READING, people_of
from dialore.files import folder_lock
from dialore.server.common import EXPLAINED, Body, JsonRoute
from dialore.server.errors import ServiceError, reply
from dialore.server.knowledge import may_change

router = APIRouter(prefix="/v1/annotate", route_class=JsonRoute, dependencies=[EXPLAINED])
Value = Annotated[str, StringConstraints(max_length=2000)]


class Desk:
    """A folder of sheets, and the codes by which annotators get theirs; InputError where no key lies beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.key = read_key(key_of(self.folder))
        self.chosen = criteria_set(self.key.criteria)
        self._codes = self.folder.with_name(f"{self.folder.name}.codes.json")

    def codes(self) -> dict[str, str]:
        """Return every annotator's code, made for new sheets, and kept beside the folder, as the key is."""
        with folder_lock(self.folder):
            known: dict[str, str] = json.loads(self._codes.read_text("utf-8")) if self._codes.exists() else {}
            names = sorted(path.stem for path in self.folder.glob("*.csv") if path.stem[0] not in ".~")
            codes_now = {name: known.get(name) or secrets.token_hex(8) for name in names}
            if codes_now != known:
                _write(self._codes, json.dumps(codes_now, indent=1))
        return codes_now

    def annotator(self, code: str) -> str:
        """Return the name of a code's annotator; raise ServiceError for an unknown code."""
        given = code.strip().lower().encode()
        same = [name for name, own in self.codes().items() if hmac.compare_digest(own.encode(), given)]
        if not same:
            raise ServiceError(403, "there is no such code", code="invalid_code")
        return same[0]

    def items(self, annotator: str) -> list[dict[str, Any]]:
        """Return what an annotator is asked, in the order of their sheet, with what they have answered."""
        head, rows = self._read(annotator)
        return [self._item(dict(zip(head, row, strict=False))) for row in rows if any(row)]

    def _item(self, fields: dict[str, str]) -> dict[str, Any]:
        chosen, form = self.chosen, self.key.form
        names = [chosen.judges] if form == "likert" else [f"{chosen.judges} {letter}" for letter in LETTERS]
        texts = [_active(fields[name]) for name in names if fields.get(name)]
        asked = (name for name in chosen.criteria if fields.get(name, "") != NOT_ASKED)
        columns = {name: answer_columns([name], form, len(texts)) for name in asked}
        return {
            "id": fields["item"],
            "dialogue": _active(fields["dialogue"]),
            "shown": {name: _active(fields[name]) for name in chosen.shows if fields.get(name)},
            "texts": texts,
            "columns": columns,
            "answers": {column: fields[column] for some in columns.values() for column in some if fields.get(column)},
            "comment": _active(fields.get("comment", "")),
        }

    def answer(self, annotator: str, item: str, answers: dict[str, str], comment: str | None) -> None:
        """Fill in answers by columns, all of a question's or none; empty ones take them back. Raises ServiceError."""
        with folder_lock(self.folder):
            head, rows = self._read(annotator)
            item_column = head.index("item")
            row = next((row for row in rows if row[item_column : item_column + 1] == [item]), None)
            if row is None:
                raise ServiceError(404, "there is no such item", code="item_not_found")
            asked = self._item(dict(zip(head, row, strict=False)))["columns"]
            for criterion, columns in asked.items():
                given = {column: answers.pop(column).strip() for column in columns if column in answers}
                whole = {column: given.get(column, "") for column in columns} if given else {}
                for column, what in answer_problems(whole, self.key.form, self.chosen.criteria[criterion]).items():
                    raise ServiceError(400, f"{column}: {what}", code="invalid_answer", param="answers")
                for column, text in whole.items():
                    row[head.index(column)] = text
            if answers:
                raise ServiceError(400, "it is not asked that", code="invalid_answer", param="answers")
            if comment is not None:
                row[head.index("comment")] = inert(comment)
            lines = io.StringIO()
            csv.writer(lines, lineterminator="\n").writerows([head, *rows])
            _write(self.folder / f"{annotator}.csv", "\ufeff" + lines.getvalue())

    def _read(self, annotator: str) -> tuple[list[str], list[list[str]]]:
        head, *rows = read_csv(self.folder / f"{annotator}.csv")
        return head, [[*row, *[""] * (len(head) - len(row))] for row in rows]

    def overview(self) -> dict[str, Any]:
        """For the owner: every annotator's code and progress, and what they say so far."""
        people = []
        for name, code in self.codes().items():
            items = self.items(name)
            done = sum(len(item["answers"]) == sum(map(len, item["columns"].values())) for item in items)
            people.append({"name": name, "code": code, "done": done, "total": len(items)})
        try:
            answers = people_of(read_answers(self.folder))
            counts = {"counted": answers.counted, "tables": [table._asdict() for table in answers.tables]}
        except MissingExtraError as error:
            counts = {"counted": str(error), "tables": []}
        about = {"criteria": self.key.criteria, "paper": self.chosen.paper, "form": self.key.form}
        return {**about, "annotators": people, **counts, "reading": READING}


def _active(text: str) -> str:
    """Return a text as it was before it was made inert for spreadsheets."""
    return text[1:] if text.startswith("'") and inert(text[1:]) == text else text


def _write(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}.new")
    fresh.touch(mode=0o600)
    fresh.write_text(text, "utf-8")
    fresh.replace(path)


def _desk(request: Request) -> Desk:
    desk: Desk | None = request.app.state.desk
    if desk is None:
        message = "there is nothing to annotate ([server] annotate = FOLDER of `dialore annotate export`)"
        raise ServiceError(404, message, code="not_configured")
    return desk


class Coded(Body):
    """An annotator."""

    code: str = Field(min_length=1, max_length=64)


class Given(Coded):
    """Answers to questions about one item, by the sheet's columns."""

    item: str = Field(max_length=64)
    answers: dict[str, Value] = Field(default_factory=dict, max_length=500)
    comment: Value | None = None


@router.post("/sheet")
def show_sheet(request: Request, body: Coded) -> Reply:
    """Return the annotator's own sheet: what is asked, every item in their order, and what they have answered."""
    desk = _desk(request)
    items = desk.items(desk.annotator(body.code))
    about = desk.chosen.model_dump(include={"title", "guide", "judges", "criteria"})
    return reply({"form": desk.key.form, "language": desk.key.language, **about, "items": items})


@router.post("/answers")
def take_answers(request: Request, body: Given) -> Reply:
    """Write answers into the annotator's own sheet."""
    desk = _desk(request)
    desk.answer(desk.annotator(body.code), body.item, dict(body.answers), body.comment)
    return reply({"saved": True})


@router.get("", dependencies=[Depends(may_change)])
def show_overview(request: Request) -> Reply:
    """For the owner: the annotators, their codes and progress, agreement and who wins."""
    return reply(_desk(request).overview())

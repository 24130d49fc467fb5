"""LoCoMo (Maharana et al., ACL 2024): questions about conversations of two people over many months."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from dialore.datasets.base import DataSet, Entry, LeftOut, Talk
from dialore.datasets.files import Place, read_entries
from dialore.errors import describe

_KINDS = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_ADVERSARIAL = 5
_ERRORS_FORM = "a JSON list of {`question_id`}"
_TURN = re.compile(r"D\d+:\d+")


class _Turn(BaseModel):
    speaker: str
    dia_id: str
    text: str = ""
    blip_caption: str = ""

    @property
    def said(self) -> str:
        """The text, and what is to be seen on the picture that came with it."""
        return f"{self.text} [shares a picture: {self.blip_caption}]".lstrip() if self.blip_caption else self.text


class _Question(BaseModel):
    question: str
    answer: str | int | float | None = None
    evidence: list[str] = []
    category: int


class _Error(BaseModel):
    question_id: str


class _Sample(BaseModel):
    sample_id: str
    conversation: dict[str, Any]
    qa: list[_Question]


class LoCoMo(DataSet):
    """Each question is a dialogue of one turn, whose memory is all turns of the conversation, with their times.

    `knowledge` has the turns that hold the answer, with `turn` and `session`. `extra` has `memory` (see
    `dialore.sources.statements.Statement`), `category` (multi-hop, temporal, open-domain, single-hop) and
    `conversation`.
    Questions whose answers an audit found wrong are left out where a file `errors*.json` beside it lists them, as
    `[{"question_id": "locomo_0_qa1", ...}, ...]`.
    """

    name = "locomo"
    languages = ("en",)
    paper = "LoCoMo (Maharana et al., ACL 2024)"
    licence = "CC BY-NC 4.0"
    where = "github.com/snap-research/locomo, data/locomo10.json"
    form = "a JSON list of {`sample_id`, `conversation`, `qa`}"
    has = ("knowledge",)
    _adversarial = False

    def entries(self, path: Path) -> Iterator[Entry]:
        """Yield the questions of each conversation."""
        wrong: set[str] = set()
        for audit in sorted(path.parent.glob("errors*.json*")):
            wrong.update(entry.question_id for _, entry in read_entries(audit, _Error, _ERRORS_FORM))
        for place, entry in read_entries(path, _Sample, self.published, unused=self.report.unused_keys):
            yield from self._questions(entry, place, wrong)

    def _questions(self, sample: _Sample, place: Place, wrong: set[str]) -> Iterator[Entry]:
        name = f"locomo_{place.number - 1}"
        memory: list[dict[str, object]] = []
        texts = {}
        for moment, turn in _timed_turns(sample.conversation, place):
            texts[turn.dia_id] = turn.said
            if turn.said.strip():
                told = {"text": turn.said, "said": moment.isoformat(), "speaker": turn.speaker, "turn": turn.dia_id}
                memory.append(told | {"is_turn": True})
        for number, asked in enumerate(sample.qa):
            if (asked.category == _ADVERSARIAL) != self._adversarial:
                continue
            if f"{name}_qa{number}" in wrong:
                yield LeftOut(f"{name}_qa{number}", "an audit found its answer wrong")
                continue
            if asked.category not in _KINDS:
                raise place.error(f"unknown category {asked.category}", f"qa[{number}].category")
            if asked.answer is None and not self._adversarial:
                yield LeftOut(f"{self.name}-{sample.sample_id}-{number}", "its question has no answer")
                continue
            turn_ids = [turn for evidence in asked.evidence for turn in _TURN.findall(evidence) if turn in texts]
            if any(not texts[turn].strip() for turn in turn_ids):
                yield LeftOut(f"{self.name}-{sample.sample_id}-{number}", "a turn of its evidence has no text")
                continue
            extra = {"category": _KINDS[asked.category], "conversation": sample.sample_id, "memory": memory}
            talk = Talk(f"{self.name}-{sample.sample_id}-{number}", "en", **extra)
            talk.say("user", asked.question)
            gold = [{"text": texts[turn], "turn": turn, "session": turn.partition(":")[0]} for turn in turn_ids]
            talk.answer("system", "not mentioned" if self._adversarial else str(asked.answer), gold)
            yield from talk.whole()


class LoCoMoAdversarial(LoCoMo):
    """The questions whose premise is wrong, and whose answer is that it is not mentioned; see `LoCoMo`."""

    name = "locomo-adversarial"
    _adversarial = True


def _timed_turns(conversation: dict[str, Any], place: Place) -> Iterator[tuple[datetime, _Turn]]:
    """Yield the turns of all sessions in order, those of one a second apart, so that their order is kept."""
    numbers = sorted(int(name.removeprefix("session_")) for name in conversation if re.fullmatch(r"session_\d+", name))
    for number in numbers:
        name = f"session_{number}"
        if not conversation[name]:
            continue
        begins = _read_date(conversation.get(f"{name}_date_time"), f"conversation.{name}_date_time", place)
        try:
            turns = _TURNS.validate_python({"conversation": {name: conversation[name]}})["conversation"][name]
        except ValidationError as error:
            raise place.error(describe(error)) from error
        for position, turn in enumerate(turns):
            yield begins + timedelta(seconds=position), turn


_TURNS = TypeAdapter(dict[str, dict[str, list[_Turn]]])
_DATE_FORMATS = ("%I:%M %p on %d %B %Y", "%Y/%m/%d (%a) %H:%M", "%Y/%m/%d %H:%M", "%Y/%m/%d")
"""LoCoMo's own, without commas ("1:56 pm on 8 May, 2023"; some have none), and LongMemEval's. ISO is read as well."""


def _read_date(heading: object, field: str, place: Place) -> datetime:
    """Return when a session begins; raise InputError if that is missing or in an unknown form."""
    text = heading.replace(",", "").strip() if isinstance(heading, str) else ""
    if not text:
        raise place.error("missing or empty", field)
    for date_format in _DATE_FORMATS:
        with suppress(ValueError):
            return datetime.strptime(text, date_format).replace(tzinfo=UTC)
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    raise place.error(f"{heading!r} is no date; e.g. '1:56 pm on 8 May, 2023' or '2023-05-08 13:56'", field)

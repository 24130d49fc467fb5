"""LoCoMo (Maharana et al., ACL 2024): questions about conversations of two people over many months."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from dialore.datasets.base import DataSet, Talk, WholeDialogue
from dialore.datasets.files import read_forms

_KINDS = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_TURN = re.compile(r"D\d+:\d+")
_DATES = ("%I:%M %p on %d %B, %Y", "%I:%M %p on %d %B %Y")


class _Turn(BaseModel):
    speaker: str
    dia_id: str
    text: str = ""
    blip_caption: str = ""

    @property
    def said(self) -> str:
        """The text, and what is to be seen on the picture that came with it."""
        return f"{self.text} [shares a picture: {self.blip_caption}]" if self.blip_caption else self.text


class _Question(BaseModel):
    question: str
    answer: str | int | float | None = None
    adversarial_answer: str | None = None
    evidence: list[str] = []
    category: int


class _Sample(BaseModel):
    sample_id: str
    conversation: dict[str, Any]
    qa: list[_Question]


class LoCoMo(DataSet):
    """Each question is a dialogue of one turn, whose memory is all turns of the conversation, with their times.

    `knowledge` has the turns that hold the answer, with `turn` and `session`. `extra` has `memory` (see
    `dialore.sources.memory.Statement`), `category` (multi-hop, temporal, open-domain, single-hop, adversarial),
    `conversation` and `question`, its id in the audit of the answers. An adversarial question has no answer: the
    reference is "not mentioned".
    """

    name = "locomo"
    languages = ("en",)
    paper = "LoCoMo (Maharana et al., ACL 2024)"
    licence = "CC BY-NC 4.0"
    where = "github.com/snap-research/locomo, data/locomo10.json"
    form = "a JSON list of {`sample_id`, `conversation`, `qa`}"
    has = ("knowledge",)

    def read(self, path: Path) -> Iterator[WholeDialogue]:
        """Yield the questions of each conversation."""
        for place, entry in read_forms(path, {"conversation": _Sample}, self.published):
            if not isinstance(entry, _Sample):
                continue
            sessions = _sessions(entry.conversation)
            memory = [
                {"text": turn.said, "said": said.isoformat(), "speaker": turn.speaker, "turn": turn.dia_id}
                | {"is_turn": True}
                for begins, turns in sessions.values()
                for said, turn in _timed(begins, turns)
                if turn.said.strip()
            ]
            texts = {turn.dia_id: turn.said for _, turns in sessions.values() for turn in turns}
            for number, asked in enumerate(entry.qa):
                told = {"category": _KINDS[asked.category], "conversation": entry.sample_id, "memory": memory}
                name = f"locomo_{place.number - 1}_qa{number}"
                talk = Talk(f"{self.name}-{entry.sample_id}-{number}", "en", question=name, **told)
                talk.say("user", asked.question)
                turns = [turn for evidence in asked.evidence for turn in _TURN.findall(evidence) if turn in texts]
                gold = [{"text": texts[turn], "turn": turn, "session": turn.partition(":")[0]} for turn in turns]
                answer = "not mentioned" if asked.category == 5 else str(asked.answer)
                talk.answer("system", answer, gold)
                yield from talk.whole()


def _sessions(conversation: dict[str, Any]) -> dict[int, tuple[datetime, list[_Turn]]]:
    """Return the sessions by their numbers, each with when it began."""
    numbers = sorted(int(name.removeprefix("session_")) for name in conversation if re.fullmatch(r"session_\d+", name))
    return {
        number: (
            _moment(conversation[f"session_{number}_date_time"]),
            [_Turn.model_validate(turn) for turn in conversation[f"session_{number}"]],
        )
        for number in numbers
    }


def _moment(text: str) -> datetime:
    """Return the time that a session's heading says: "1:56 pm on 8 May, 2023"."""
    for form in _DATES:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    raise ValueError(f"{text!r} is no date of LoCoMo")


def _timed(begins: datetime, turns: list[_Turn]) -> Iterator[tuple[datetime, _Turn]]:
    """Yield a session's turns, a second apart, so that their order is kept."""
    for number, turn in enumerate(turns):
        yield begins + timedelta(seconds=number), turn

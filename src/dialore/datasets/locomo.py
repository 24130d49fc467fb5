"""LoCoMo (Maharana et al., ACL 2024): questions about conversations of two people over many months."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from dialore.datasets.base import DataSet, Talk, WholeDialogue
from dialore.datasets.files import read_entries
from dialore.files import read_text

_KINDS = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_ADVERSARIAL = 5
_TURN = re.compile(r"D\d+:\d+")


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
    evidence: list[str] = []
    category: int


class _Sample(BaseModel):
    sample_id: str
    conversation: dict[str, Any]
    qa: list[_Question]


class LoCoMo(DataSet):
    """Each question is a dialogue of one turn, whose memory is all turns of the conversation, with their times.

    `knowledge` has the turns that hold the answer, with `turn` and `session`. `extra` has `memory` (see
    `dialore.sources.memory.Statement`), `category` (multi-hop, temporal, open-domain, single-hop) and `conversation`.
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

    def read(self, path: Path) -> Iterator[WholeDialogue]:
        """Yield the questions of each conversation."""
        wrong: set[str] = set()
        for audit in path.parent.glob("errors*.json*"):
            wrong.update(entry["question_id"] for entry in json.loads(read_text(audit)))
        for place, entry in read_entries(path, _Sample, self.published):
            yield from self._questions(entry, f"locomo_{place.number - 1}", wrong)

    def _questions(self, sample: _Sample, name: str, wrong: set[str]) -> Iterator[WholeDialogue]:
        memory: list[dict[str, object]] = []
        texts = {}
        for moment, turn in _timed_turns(sample.conversation):
            texts[turn.dia_id] = turn.said
            if turn.said.strip():
                told = {"text": turn.said, "said": moment.isoformat(), "speaker": turn.speaker, "turn": turn.dia_id}
                memory.append(told | {"is_turn": True})
        for number, asked in enumerate(sample.qa):
            if f"{name}_qa{number}" in wrong or (asked.category == _ADVERSARIAL) != self._adversarial:
                continue
            extra = {"category": _KINDS[asked.category], "conversation": sample.sample_id, "memory": memory}
            talk = Talk(f"{self.name}-{sample.sample_id}-{number}", "en", **extra)
            talk.say("user", asked.question)
            turn_ids = [turn for evidence in asked.evidence for turn in _TURN.findall(evidence) if turn in texts]
            gold = [{"text": texts[turn], "turn": turn, "session": turn.partition(":")[0]} for turn in turn_ids]
            talk.answer("system", "not mentioned" if self._adversarial else str(asked.answer), gold)
            yield from talk.whole()


class LoCoMoAdversarial(LoCoMo):
    """The questions whose premise is wrong, and whose answer is that it is not mentioned; see `LoCoMo`."""

    name = "locomo-adversarial"
    _adversarial = True


def _timed_turns(conversation: dict[str, Any]) -> Iterator[tuple[datetime, _Turn]]:
    """Yield the turns of all sessions in order, those of one a second apart, so that their order is kept."""
    numbers = sorted(int(name.removeprefix("session_")) for name in conversation if re.fullmatch(r"session_\d+", name))
    for number in numbers:
        # "1:56 pm on 8 May, 2023"; some headings have no comma.
        heading = conversation[f"session_{number}_date_time"].replace(",", "")
        begins = datetime.strptime(heading, "%I:%M %p on %d %B %Y").replace(tzinfo=UTC)
        for place, turn in enumerate(conversation[f"session_{number}"]):
            yield begins + timedelta(seconds=place), _Turn.model_validate(turn)

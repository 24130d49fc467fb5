"""One sample: what a dialogue was about, what was said, what was known, and what was answered (MSDP, Section 2)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic_core import from_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dialore.dialogue import Dialogue, Utterance
    from dialore.text import Language

Side = Literal["user", "system"]
UNUSED = frozenset({"no_passages_used", "no passages used"})
"""What Wizard of Wikipedia and its readers write where a turn used no knowledge."""


@dataclass(frozen=True, slots=True)
class SampleTurn:
    """One turn, by side: the response is the system's."""

    side: Side
    text: str


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of MSDP's database: topic, history, knowledge and response (Section 2), each text on one line.

    Attributes:
        id: the history's id in its data set.
        language: of all its texts.
        topic: what the dialogue is about; empty where nobody said.
        turns: the history, oldest first.
        knowledge: what the response was written from.
        response: the response; empty where there is none, which leaves the sample to knowledge generation.
    """

    id: str
    language: Language
    topic: str
    turns: tuple[SampleTurn, ...]
    knowledge: str
    response: str

    @property
    def dialogue(self) -> str:
        """The id of the dialogue that the history was cut from."""
        return whole_id(self.id)

    @property
    def last_turn(self) -> str:
        """The turn that is answered."""
        return self.turns[-1].text

    def line(self) -> str:
        """The sample as JSON."""
        turns = [[turn.side, turn.text] for turn in self.turns]
        data = [self.id, self.language, self.topic, turns, self.knowledge, self.response]
        return json.dumps(data, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def of_line(cls, line: bytes) -> Sample:
        """The sample that `line` wrote; raises ValueError for anything else."""
        identifier, language, topic, turns, knowledge, response = from_json(line)
        return cls(
            identifier, language, topic, tuple(SampleTurn(side, text) for side, text in turns), knowledge, response
        )

    @classmethod
    def of_dialogue(cls, dialogue: Dialogue, knowledge: str | None = None) -> Sample | None:
        """The sample that a history with its reference and gold knowledge is.

        Args:
            dialogue: the history.
            knowledge: in place of the dialogue's own, several pieces of which are put one after the other.

        Returns:
            The sample; None where nothing was known.
        """
        known = " ".join(_text(piece) for piece in dialogue.knowledge) if knowledge is None else knowledge
        known = one_line(known)
        if not known or known in UNUSED:
            return None
        return cls(
            dialogue.id,
            dialogue.language,
            topic_of(dialogue),
            sided(dialogue.turns, dialogue.responder),
            known,
            one_line(dialogue.reference or ""),
        )


def samples_of(dialogues: Iterable[Dialogue]) -> Iterator[Sample]:
    """The samples in histories with gold knowledge; those without any are passed over."""
    for dialogue in dialogues:
        sample = Sample.of_dialogue(dialogue)
        if sample is not None:
            yield sample


def topic_of(dialogue: Dialogue) -> str:
    """A dialogue's topic; where it has none, the query that was searched for its reply, as MSDP takes it (Section 3.1).

    The query is `extra["query"]`, where data sets of dialogues with search have it.
    """
    query = dialogue.extra.get("query")
    return one_line(dialogue.topic or (query if isinstance(query, str) else ""))


def sided(turns: Sequence[Utterance], responder: str) -> tuple[SampleTurn, ...]:
    """Turns by side: the responder's are the system's, everybody else's the user's."""
    return tuple(SampleTurn("system" if turn.speaker == responder else "user", one_line(turn.text)) for turn in turns)


def context_text(topic: str, texts: Sequence[str], turns: int) -> str:
    """What is encoded of a sample or a query: its topic, then the last turns of its history (Section 2.1)."""
    return " ".join([topic, *texts[-turns:]] if topic else texts[-turns:])


def whole_id(identifier: str) -> str:
    """The id of the whole dialogue that a history of this id was cut from."""
    return identifier.rpartition("@")[0] or identifier


def one_line(text: str) -> str:
    """The text on one line."""
    return " ".join(text.split())


def _text(piece: str | dict[str, Any]) -> str:
    if isinstance(piece, str):
        return piece
    if "text" in piece:
        return str(piece["text"])
    return f"({', '.join(str(piece[key]) for key in ('head', 'relation', 'tail') if key in piece)})"

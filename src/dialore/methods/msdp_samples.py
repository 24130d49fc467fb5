"""Selection of the samples that MSDP prompts with, and their form in its prompts (Sections 2.1 and 2.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from dialore.errors import InputError
from dialore.methods.base import check_least, check_word
from dialore.sources.samples.sample import Sample, sided, topic_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.dialogue import Dialogue
    from dialore.methods.stages import Stages
    from dialore.response import StageTrace

SELECTIONS = ("query", "perplexity", "random")
RESPONSE_SELECTIONS = ("overlap", "random")


class SampleSource(Protocol):
    """A database of samples as methods use it; see `dialore.sources.samples.SampleDatabase`."""

    @property
    def name(self) -> str:
        """The database's name."""
        ...

    def nearest(
        self, dialogue: Dialogue, top: int = 10, *, topic: bool = True, fit: bool = True
    ) -> list[tuple[Sample, float]]:
        """The samples most like a dialogue, the best first."""
        ...

    def clearest(self, dialogue: Dialogue, top: int = 10, *, fit: bool = True) -> list[Sample]:
        """The samples of the lowest perplexity."""
        ...

    def sampled(
        self, dialogue: Dialogue, count: int, seed: int = 0, overlap: tuple[float, float] | None = None
    ) -> list[Sample]:
        """Samples with a response, at random."""
        ...

    def sampled_for_knowledge(self, dialogue: Dialogue, count: int, seed: int = 0, *, fit: bool = True) -> list[Sample]:
        """Samples for knowledge generation, at random."""
        ...


@dataclass(frozen=True, slots=True)
class KnowledgeShots:
    """The selection of the knowledge generator's samples.

    Attributes:
        selection: `query`, `perplexity` or `random`.
        shots: how many.
        seed: by which random ones are sampled.
        topic: whether prompts have topics.
        fit: only samples whose knowledge shows well what is wanted.
    """

    selection: str
    shots: int
    seed: int
    topic: bool
    fit: bool

    def __post_init__(self) -> None:
        """Check the selection and the number; raises InputError."""
        check_word("selection", self.selection, SELECTIONS)
        check_least("shots", self.shots, 0)

    def select(self, samples: SampleSource, dialogue: Dialogue, stage: Stages) -> list[Sample]:
        """The samples in the order of the prompt: the nearest stands last, beside the dialogue."""
        scores: list[float] = []
        with stage.step("knowledge-samples") as step:
            if self.selection == "query":
                nearest = samples.nearest(dialogue, self.shots, topic=self.topic, fit=self.fit)
                found, scores = [sample for sample, _ in nearest][::-1], [score for _, score in nearest][::-1]
            elif self.selection == "perplexity":
                found = samples.clearest(dialogue, self.shots, fit=self.fit)
            else:
                found = samples.sampled_for_knowledge(dialogue, self.shots, self.seed, fit=self.fit)
            _record(step, samples, found, self.shots, dialogue)
            step.summary = f"Samples: {len(found)}"
            if scores:
                step.output["scores"] = [round(score, 4) for score in scores]
                step.summary += f", the nearest {found[-1].id} ({scores[-1]:.2f})"
        return found


@dataclass(frozen=True, slots=True)
class ResponseShots:
    """The selection of the dialogue generator's samples: the same for every dialogue.

    Attributes:
        selection: `overlap`, or `random` for any.
        shots: how many.
        seed: by which they are sampled.
        least: the least overlap of a response with its knowledge.
        most: the most.
    """

    selection: str
    shots: int
    seed: int
    least: float
    most: float

    def __post_init__(self) -> None:
        """Check the selection and the numbers; raises InputError."""
        check_word("response_selection", self.selection, RESPONSE_SELECTIONS)
        check_least("response_shots", self.shots, 0)
        if not 0 <= self.least <= self.most <= 1:
            raise InputError(f"an overlap from {self.least} to {self.most} is none", mend="0 <= least <= most <= 1")

    def select(self, samples: SampleSource, dialogue: Dialogue, stage: Stages) -> list[Sample]:
        """The samples, in the order in which they were sampled."""
        with stage.step("response-samples") as step:
            bounds = (self.least, self.most) if self.selection == "overlap" else None
            found = samples.sampled(dialogue, self.shots, self.seed, bounds)
            _record(step, samples, found, self.shots, dialogue)
        return found


def current(dialogue: Dialogue, *, topic: bool, knowledge: str = "") -> Sample:
    """The dialogue in the form of a sample, its response still to be written."""
    turns = sided(dialogue.turns, dialogue.responder)
    return Sample(dialogue.id, dialogue.language, topic_of(dialogue) if topic else "", turns, knowledge, "")


def prompted(samples: Sequence[Sample], now: Sample, turns: int = 0) -> dict[str, Any]:
    """Samples and dialogue as prompts are given them.

    Args:
        samples: the samples; where the dialogue has no topic they lose theirs, so that all follow one pattern.
        now: the dialogue (see `current`).
        turns: how many last turns of each history are kept; 0 for all.
    """
    shown = [
        replace(sample, topic=sample.topic if now.topic else "", turns=sample.turns[-turns:]) for sample in samples
    ]
    return {"samples": shown, "current": replace(now, turns=now.turns[-turns:])}


def _record(step: StageTrace, samples: SampleSource, found: Sequence[Sample], wanted: int, dialogue: Dialogue) -> None:
    step.output = {"samples": samples.name, "found": [sample.id for sample in found]}
    if len(found) < wanted:
        step.notes = [f"only {len(found)} of {wanted} samples are there for {dialogue.language}"]

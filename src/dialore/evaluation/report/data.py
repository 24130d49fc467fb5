"""What a report is made of: systems, their scores, and their responses, read one at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dialore.dialogue import Dialogue
    from dialore.evaluation.base import About, Measure, Score
    from dialore.evaluation.judges.comparing import Preference
    from dialore.response import Response


@dataclass(frozen=True, slots=True)
class ScoredResponse:
    """A response with its dialogue and its measures by metric."""

    dialogue: Dialogue
    response: Response
    measures: dict[str, Measure] = field(default_factory=dict)
    repetition: int = 0


@dataclass(frozen=True, slots=True)
class SystemScores:
    """One system on one data set: a method with its options, on a model.

    Attributes:
        name: its name in tables: `dcrag`, `dcrag (cross_revision=false)`.
        method: the method's name.
        options: what was set beside the defaults; a system with options of another one's method is its ablation.
        model: the model's name, or `lexical responder`.
        dataset: the data set's name, with split and limit.
        run: the run's name.
        scores: by metric, over all its responses.
        counts: responses by outcome: `ok`, `failed`; stages by outcome: `stage ok`, `stage repaired`, `stage unparsed`.
        totals: calls, prompt_tokens, completion_tokens, cached, retries, seconds, over all its responses.
    """

    name: str
    method: str
    options: dict[str, Any]
    model: str
    dataset: str
    run: str
    scores: dict[str, Score] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    totals: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judged:
    """What one judge prefers of two systems by one criterion.

    Attributes:
        run: the run's name.
        dataset: the data set's name, with split and limit.
        judge: the judge's identity: its model, then its prompts.
        judged: what it was shown: `responses` or `queries`.
        first: a system's name.
        second: the other's.
        criterion: what was compared.
        preferences: one a dialogue and repetition.
        stale: how many more are of responses that changed since, and do not count.
    """

    run: str
    dataset: str
    judge: str
    judged: str
    first: str
    second: str
    criterion: str
    preferences: Sequence[Preference]
    stale: int = 0


class Results(Protocol):
    """Scored runs, as a report reads them; nothing is held in memory that grows with the number of dialogues."""

    @property
    def title(self) -> str:
        """The report's title."""
        ...

    @property
    def facts(self) -> dict[str, Any]:
        """What the runs keep of themselves: configuration, versions, prompt hashes, seeds, fingerprints."""
        ...

    def systems(self) -> Sequence[SystemScores]:
        """Every system, in the order in which the runs name them."""
        ...

    def metrics(self) -> Sequence[About]:
        """Every metric that was scored, in the order of the tables."""
        ...

    def measures(self, system: SystemScores, metric: str) -> dict[tuple[str, int], tuple[float, ...]]:
        """A system's measures of a metric by dialogue id and repetition: for significance, paired by key, and plots."""
        ...

    def judged(self) -> Sequence[Judged]:
        """What judges prefer of two systems; nothing where none was asked."""
        ...

    def responses(self, system: SystemScores, limit: int | None = None) -> Iterator[ScoredResponse]:
        """A system's responses with their measures, in the data set's order."""
        ...

"""The input of a report: systems, their scores, and their responses one at a time; and counts of these in one pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dialore.evaluation.report.numbers import duration, share, three

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dialore.dialogue import Dialogue
    from dialore.evaluation.base import About, Measure, Score
    from dialore.evaluation.judges.comparing import Preference
    from dialore.response import Response

_OUTCOMES = ("ok", "repaired", "unparsed", "failed")


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
        options: what was set beside the defaults; a system with options of another one's method is its ablation.
        model: the model's name, or `no model`.
        dataset: the data set's name, with split and limit.
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
        judge: the judge's identity: its model, then its prompts.
        judged: what it was shown: `responses` or `queries`.
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

    def responses(self, system: SystemScores) -> Iterator[ScoredResponse]:
        """A system's responses with their measures, in the data set's order."""
        ...


@dataclass(slots=True)
class Survey:
    """Counts of one system's responses; it grows by a few numbers a response.

    Attributes:
        seconds: wall-clock time of each response that did not fail, from the start of its first stage.
        waited: what each waited for that before.
        given: how much knowledge each response was given, by dialogue id and repetition.
        stages: outcomes by stage, in the order in which stages were first seen.
        failures: why responses failed.
    """

    system: SystemScores
    seconds: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    given: dict[tuple[str, int], int] = field(default_factory=dict)
    stages: dict[str, Counter[str]] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)

    def add(self, scored: ScoredResponse) -> None:
        """Count one response."""
        response = scored.response
        for stage in response.trace:
            self.stages.setdefault(stage.stage, Counter())[stage.outcome] += 1
        if response.status == "failed":
            self.failures[response.error or "no reason was recorded"] += 1
            return
        self.seconds.append(response.seconds)
        self.waited.append(response.waited)
        self.given[scored.dialogue.id, scored.repetition] = len(response.knowledge)

    @property
    def failed(self) -> int:
        """Responses that failed."""
        return self.failures.total()

    @property
    def responses(self) -> int:
        """All responses."""
        return len(self.seconds) + self.failed

    @property
    def costs(self) -> dict[str, str]:
        """Calls and tokens of one response on average, and how long responses took, by the heads of a table."""
        totals = self.system.totals
        calls, count = totals.get("calls", 0.0), self.responses or 1
        names = ("calls", "prompt tokens", "completion tokens")
        means = {name: totals.get(name.replace(" ", "_"), 0.0) / count for name in names}
        times = np.quantile(self.seconds, [0.5, 0.95]) if self.seconds else ()
        p50, p95 = map(duration, times) if self.seconds else ("–", "–")
        whole = duration(float(np.median(np.add(self.seconds, self.waited)))) if self.seconds else "–"
        return {
            "responses": f"{self.responses:,}",
            **{name: _mean(value) for name, value in means.items()},
            "cached calls": share(totals.get("cached", 0.0), calls),
            "retries": f"{totals.get('retries', 0.0):,.0f}",
            "p50": p50,
            "p95": p95,
            "p50 with its wait": whole,
        }

    @property
    def outcomes(self) -> dict[str, str]:
        """Responses and stages by outcome, by the heads of a table."""
        counts = sum(self.stages.values(), Counter[str]())
        stages = counts.total()
        shares = (share(counts[outcome], stages) for outcome in _OUTCOMES)
        named = zip(("parsed at once", "repaired", "unparsed", "failed stages"), shares, strict=True)
        return {
            "ok": f"{len(self.seconds):,}",
            "failed": f"{self.failed:,}",
            "stages": f"{stages:,}",
            **dict(named),
        }

    @property
    def by_stage(self) -> list[tuple[str, list[str]]]:
        """How often each stage had each outcome."""
        return [(stage, [f"{counts[outcome]:,}" for outcome in _OUTCOMES]) for stage, counts in self.stages.items()]


def _mean(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else three(value)

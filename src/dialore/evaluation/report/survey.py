"""What a report counts in one pass over a system's responses: time, tokens, knowledge, outcomes of stages, failures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dialore.evaluation.report.data import ScoredResponse, SystemScores

_OUTCOMES = ("ok", "repaired", "unparsed", "failed")


@dataclass(slots=True)
class Survey:
    """Counts of one system's responses; it grows by a few numbers a response.

    Attributes:
        system: whose they are.
        seconds: wall-clock time of each response that did not fail.
        given: how much knowledge each response was given, by dialogue id and repetition.
        used: how much of it they draw on, in all.
        stages: outcomes by stage, in the order in which stages were first seen.
        failures: why responses failed.
    """

    system: SystemScores
    seconds: list[float] = field(default_factory=list)
    given: dict[tuple[str, int], int] = field(default_factory=dict)
    used: int = 0
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
        self.given[scored.dialogue.id, scored.repetition] = len(response.knowledge)
        self.used += sum(item.used for item in response.knowledge)

    def over(self, responses: Iterable[ScoredResponse]) -> Iterator[ScoredResponse]:
        """The same responses, counted as they pass."""
        for scored in responses:
            self.add(scored)
            yield scored

    @property
    def ok(self) -> int:
        """Responses that did not fail."""
        return len(self.seconds)

    @property
    def failed(self) -> int:
        """Responses that failed."""
        return self.failures.total()

    @property
    def responses(self) -> int:
        """All responses."""
        return self.ok + self.failed

    @property
    def mean_given(self) -> float:
        """Knowledge given to a response on average; 0 without responses."""
        return sum(self.given.values()) / len(self.given) if self.given else 0.0

    @property
    def outcomes(self) -> dict[str, int]:
        """All stages by outcome."""
        summed: Counter[str] = Counter()
        for counts in self.stages.values():
            summed.update(counts)
        return {outcome: summed[outcome] for outcome in _OUTCOMES}

    def quantile(self, share: float) -> float | None:
        """A quantile of the seconds a response took; None without responses."""
        return float(np.quantile(self.seconds, share)) if self.seconds else None

    def per_response(self, total: str) -> float:
        """One of the system's totals (calls, tokens), shared out over its responses."""
        return self.system.totals.get(total, 0.0) / self.responses if self.responses else 0.0

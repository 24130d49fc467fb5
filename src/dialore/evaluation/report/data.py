"""The input of a report, counts of its responses in one pass, and numbers as tables show them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.evaluation.base import MetricInfo, SampleScore, Score
    from dialore.evaluation.judges.comparing import Preference
    from dialore.response import Response

MINUS = "−"
_NOTHING = 1e-9  # figures that are nearer to zero are what rounding leaves over of it
_OUTCOMES = ("ok", "repaired", "unparsed", "failed")
_SIZE = re.compile(r"(?<![\w.])(?:(\d+)x)?(\d+(?:\.\d+)?)\s?([bm])(?![a-z0-9])", re.IGNORECASE)


def decimals(value: float, figures: int = 3) -> int:
    """Return how many decimals show so many significant figures; negative where some stand before the point."""
    if abs(value) < _NOTHING or not math.isfinite(value):
        return figures - 1
    return figures - 1 - math.floor(math.log10(abs(float(f"{value:.{figures - 1}e}"))))


def three(value: float) -> str:
    """Three significant figures, with trailing zeros: `0.0120`, `68.7`, `1,230`; a dash where there is no figure."""
    return "–" if math.isnan(value) else _format_fixed(value, decimals(value))


def _format_fixed(value: float, places: int) -> str:
    """So many decimals; with a negative number, rounded before the point. Never a negative zero."""
    text = f"{round(value, places):,.{max(places, 0)}f}"
    return (
        MINUS + text[1:] if text.startswith("-") and any(digit in text for digit in "123456789") else text.lstrip("-")
    )


def format_signed(value: float) -> str:
    """Return a difference, with its sign; no sign where it is nothing."""
    text = three(value)
    return f"+{text}" if value >= _NOTHING else text


def spread(low: float | None, high: float | None, places: int) -> str:
    """Half the width of an interval, with the decimals of its figure; empty without an interval."""
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return ""
    half = (high - low) / 2
    # An interval that its figure's decimals would round to nothing keeps one figure of its own.
    return _format_fixed(half, places if half == 0 or round(half, places) else decimals(half, 1))


def p_value(p: float | None) -> str:
    """Return a p-value in words: `0.012`, `< 0.001`; a dash where there is none."""
    if p is None or math.isnan(p):
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _duration(seconds: float) -> str:
    """Return a time in milliseconds, seconds or minutes."""
    if seconds >= 100:
        return f"{seconds / 60:,.1f} min"
    return f"{three(seconds)} s" if seconds >= 1 else f"{three(seconds * 1000)} ms" if seconds > 0 else "0 ms"


def share(part: float, whole: float) -> str:
    """Return a share in per cent; a dash of nothing."""
    return f"{100 * part / whole:.1f}%" if whole and not math.isnan(part) else "–"


def size_of(model: str) -> float | None:
    """Return a model's size in billions of parameters where its name says it: `7B`, `0.5b`, `8x7B`, `770M`."""
    match = _SIZE.search(model.replace("_", "-"))
    if match is None:
        return None
    times, number, unit = match.groups()
    return int(times or 1) * float(number) / (1 if unit in "bB" else 1000)


def arrow(about: MetricInfo) -> str:
    """Return which way is better."""
    return "↑" if about.higher_is_better else "↓"


def unit(about: MetricInfo) -> str:
    """Return the unit of a metric's displayed figures: `%`, or nothing."""
    return "%" if about.scale in {1, 100} else ""


def display_factor(about: MetricInfo) -> float:
    """Return the factor from a metric's values to the figures in tables and plots.

    Shares from 0 to 1 are displayed in per cent, as papers print them. JSON, CSV and Python have the values.
    """
    return 100.0 if about.scale == 1 else 1.0


@dataclass(frozen=True, slots=True)
class ScoredResponse:
    """A response with its dialogue and its measures by metric."""

    dialogue: Dialogue
    response: Response
    measures: dict[str, SampleScore] = field(default_factory=dict)
    repetition: int = 0


@dataclass(frozen=True, slots=True)
class SystemScores:
    """One system on one data set: a method with its options, on a model.

    Attributes:
        name: its name in tables: `dcrag`, `dcrag (cross_revision=false)`.
        options: what was set beside the defaults, `stages` with the models of stages among them.
        dataset: the data set's name, with split and limit.
        counts: responses by outcome (`ok`, `failed`) and stages by outcome (`stage ok`, `stage repaired`, ...).
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
    """One judge's preferences between two systems by one criterion, of their `responses` or `queries`.

    `judge` is its identity: its model, then its prompts.
    """

    run: str
    dataset: str
    judge: str
    judged: str
    first: str
    second: str
    criterion: str
    preferences: Sequence[Preference]


class Results(Protocol):
    """Scored runs, as a report reads them; nothing is held in memory that grows with the number of dialogues."""

    title: str
    facts: dict[str, Any]
    """The runs' own records: configuration, versions, prompt hashes, seeds, fingerprints."""

    def systems(self) -> Sequence[SystemScores]:
        """Return every system, in the order in which the runs name them."""

    def metrics(self) -> Sequence[MetricInfo]:
        """Return every metric that was scored, in the order of the tables."""

    def measures(self, system: SystemScores, metric: str) -> dict[tuple[str, int], tuple[float, ...]]:
        """Return a system's measures of a metric by dialogue id and repetition, to be paired and plotted."""

    def judged(self) -> Sequence[Judged]:
        """Return what judges prefer of two systems; nothing where none was asked."""

    def responses(self, system: SystemScores) -> Iterator[ScoredResponse]:
        """Return a system's responses with their measures, in the data set's order."""


@dataclass(slots=True)
class Survey:
    """Counts of one system's responses; it grows by a few numbers a response.

    `seconds` are those of each response that did not fail, from the start of its first stage, and `queued_s` those that
    it waited before; `given` is how much knowledge each was given, by dialogue id and repetition.
    """

    system: SystemScores
    seconds: list[float] = field(default_factory=list)
    queued_s: list[float] = field(default_factory=list)
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
        self.queued_s.append(response.queued_s)
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
        means = [totals.get(name.replace(" ", "_"), 0.0) / count for name in names]
        shown = (f"{mean:,.0f}" if mean >= 100 or mean == int(mean) else three(mean) for mean in means)
        times = np.quantile(self.seconds, [0.5, 0.95]) if self.seconds else ()
        p50, p95 = map(_duration, times) if self.seconds else ("–", "–")
        whole = _duration(float(np.median(np.add(self.seconds, self.queued_s)))) if self.seconds else "–"
        return {
            "responses": f"{self.responses:,}",
            **dict(zip(names, shown, strict=True)),
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
        return {"ok": f"{len(self.seconds):,}", "failed": f"{self.failed:,}", "stages": f"{stages:,}", **dict(named)}

    @property
    def by_stage(self) -> list[tuple[str, list[str]]]:
        """How often each stage had each outcome."""
        return [(stage, [f"{counts[outcome]:,}" for outcome in _OUTCOMES]) for stage, counts in self.stages.items()]

"""The form of a metric: small measures of single responses, which a combination makes into a figure with an error bar.

A measure is a short vector of numbers. Most metrics combine by addition (matches and totals of BLEU, a value and a one
for a mean), so that measures of parts can be merged, resampled and stored, and a run is never held in memory.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import yaml

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.response import Response

Problem = Literal["unavailable", "unparsed", "refused", "failed"]
"""Why a response has no measure: something it needs is not there; a judge answered, but with no score; a judge
declined; the judge, or the model or the data behind it, failed, and is asked again the next time."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A response and the dialogue that it answers (with reference, gold knowledge and gold plan, where there are)."""

    dialogue: Dialogue
    response: Response


@dataclass(frozen=True, slots=True)
class SampleScore:
    """A metric's measure of one response: the numbers that the metric combines, or the problem with its reason.

    `detail` is what one would want to see beside it, e.g. a judge's words; short.
    """

    values: tuple[float, ...] = ()
    problem: Problem | None = None
    reason: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """A metric's description, for tables and reports.

    Attributes:
        name: its name in tables, on the command line and in files: `bleu-1`, `cdp`, `meep`.
        paper: where it is defined or used: paper and section, equation or table.
        definition: what it measures, in a sentence or two, with its unit.
        needs: what it cannot do without: `reference`, `knowledge`, `plan`, `graph`, `nli`, `language-model`, `judge`.
        higher_is_better: which way is better.
        scale: the largest value: 1, 5, 10 or 100; 0 if there is none. Tables show values of scale 1 in per cent.
        level: `response` where a single response has a meaningful value, `corpus` where only all together have.
        counts_failed: a response that failed is measured as one that says nothing, rather than left out.
    """

    name: str
    paper: str
    definition: str
    needs: tuple[str, ...] = ()
    higher_is_better: bool = True
    scale: float = 0.0
    level: Literal["response", "corpus"] = "response"
    counts_failed: bool = False


@functools.cache
def own_metrics() -> dict[str, tuple[str, MetricInfo]]:
    """Our own metrics by name, in the order of tables: the class or function that makes each, and what it is."""
    text = (resources.files("dialore") / "data" / "metrics.yaml").read_text(encoding="utf-8")
    entries = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - a safe one, seven times as fast
    return {
        name: (fields.pop("maker"), MetricInfo(name, needs=tuple(fields.pop("needs", ())), **{"scale": 1.0, **fields}))
        for name, fields in entries.items()
    }


def about_of(name: str) -> MetricInfo:
    """Return what one of our own metrics is."""
    return own_metrics()[name][1]


@runtime_checkable
class Metric(Protocol):
    """One metric. `measure` is asked a response at a time, many at once; `combine` is asked of any set of measures."""

    @property
    def about(self) -> MetricInfo:
        """The metric's description."""

    async def measure(self, sample: Sample) -> SampleScore:
        """Measure one response; never raises for what a response or dialogue lacks: that is a score's `problem`."""

    def combine(self, values: NDArray[np.float64]) -> float:
        """One figure from the measures' values: a row a response, short ones filled with NaN."""


@runtime_checkable
class Additive(Protocol):
    """A metric that combines by addition: its figure depends on the sums of its measures' columns alone.

    Resampling then costs one matrix product, where any other metric is combined anew for each resample.
    """

    def of_sums(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Figures, shape (...), from the sums of each column, shape (..., columns)."""


@runtime_checkable
class Jackknifed(Protocol):
    """A metric whose figure falls when a response is repeated, so that resampling with repeats would be biased.

    Its error bars come from leaving each response out in turn (Efron and Stein, 1981).
    """

    def without_each(self, values: NDArray[np.float64], dialogues: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the figures without each dialogue in turn; `dialogues` are the numbers of those that rows answer."""

    def of_subsets(self, values: NDArray[np.float64], subsets: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the figure of each subset of rows; `subsets` has shape (subsets, rows)."""


class Mean:
    """For a metric whose measure is one value a response: the figure is the mean."""

    def combine(self, values: NDArray[np.float64]) -> float:
        """Return the mean of the first column."""
        return float(values[:, 0].mean())

    def of_sums(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean, from the sums of the values and of the ones beside them."""
        quotient: NDArray[np.float64] = sums[..., 0] / sums[..., 1]
        return quotient


class Summed(ABC):
    """For a metric whose figure is of the sums of its measures' columns."""

    def combine(self, values: NDArray[np.float64]) -> float:
        """Return the figure of all responses together."""
        return float(self.of_sums(values.sum(axis=0)))

    @abstractmethod
    def of_sums(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return figures, shape (...), from the sums of each column; those of no response are NaN."""


class Proportion(Mean):
    """A mean of zeros and ones, whose interval is Wilson's: that of 0 of 20 is not 0 to 0."""


@dataclass(frozen=True, slots=True)
class Score:
    """A metric's figure for `n` responses, with its 95% interval over dialogues; None where it could not be computed.

    Attributes:
        problems: how many responses had no measure, by problem.
        reason: why there is no figure, or none for some, in words.
    """

    metric: str
    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    problems: dict[str, int] = field(default_factory=dict)
    reason: str = ""


def unavailable(reason: str) -> SampleScore:
    """Return the measure of a response that lacks what the metric needs: "the dialogue has no reference"."""
    return SampleScore(problem="unavailable", reason=reason)

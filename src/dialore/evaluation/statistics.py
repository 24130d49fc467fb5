"""Statistics of scores, by the libraries of the `evaluation` extra: intervals, tests, agreement, Holm's correction."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dialore.errors import InputError, import_optional
from dialore.evaluation.base import Additive, Jackknifed, Mean, Metric, Proportion

Kind = Literal["spearman", "kendall", "pearson"]
RESAMPLES = 1000
_Z = 1.959964  # standard errors on each side of a figure that hold 95%
_BLOCK = 64


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Rate:
    """Wins, losses and ties, the sign test on what is decided, and Wilson's 95% interval of the share of wins."""

    wins: int
    losses: int
    ties: int
    p: float
    low: float
    high: float

    @property
    def n(self) -> int:
        """All comparisons."""
        return self.wins + self.losses + self.ties

    @property
    def share(self) -> float:
        """Wins, ties counted as half, among all; NaN where there are none."""
        return (self.wins + self.ties / 2) / self.n if self.n else math.nan


def bootstrap(
    metric: Metric | Mean,
    values: NDArray[np.float64],
    *,
    dialogues: Sequence[object] | None = None,
    resamples: int = RESAMPLES,
) -> Interval:
    """Return a metric's figure with its 95% percentile bootstrap interval over dialogues.

    Several responses to a dialogue are sampled together, as they are not independent: `dialogues` says which one each
    row of the values answers. The interval of a `Proportion` of single responses is Wilson's. Where a metric is
    `Jackknifed` it is normal, by the jackknife's standard error.
    """
    if not len(values):
        raise InputError("no measures to make a figure of", hint="score the run first")
    value = metric.combine(values)
    of = np.arange(len(values)) if dialogues is None else np.unique(np.asarray(dialogues), return_inverse=True)[1]
    count = int(of.max()) + 1
    if isinstance(metric, Proportion) and count == len(values):
        return Interval(value, *wilson(value * count, count))
    if count == 1 or math.isnan(value):
        return Interval(value, math.nan, math.nan)
    if isinstance(metric, Jackknifed):
        half = _Z * _jackknife_error(metric.without_each(values, of))
        return Interval(value, value - half, value + half)
    weights = resample_weights(count, resamples, seed=0)
    sampled = resample_figures(metric, values, weights if count == len(values) else weights[:, of])
    low, high = np.nanpercentile(sampled, [2.5, 97.5])
    return Interval(value, float(low), float(high))


def paired_bootstrap(
    metric: Metric | Mean,
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    *,
    dialogues: Sequence[object] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[Interval, float]:
    """Return the difference of two systems' figures on the same responses, its interval and p-value (Koehn, 2004).

    The p-value is twice the share of resamples on the far side of no difference, never below one resample's worth.
    Where a metric is `Jackknifed` both come from leaving out each pair in turn. Rows of one of the `dialogues` are
    sampled, or left out, together. Where one of the two has no figure, neither the difference nor its p-value is a
    number.
    """
    first, second = _pair(first, second)
    difference = metric.combine(first) - metric.combine(second)
    of = np.arange(len(first)) if dialogues is None else np.unique(np.asarray(dialogues), return_inverse=True)[1]
    count = int(of.max()) + 1
    if count < 2 and (dialogues is not None or isinstance(metric, Jackknifed)):
        return Interval(difference, math.nan, math.nan), math.nan
    if isinstance(metric, Jackknifed):
        error = _jackknife_error(metric.without_each(first, of) - metric.without_each(second, of))
        p = float(2 * library("scipy.stats").norm.sf(abs(difference) / error)) if error else float(difference == 0)
        return Interval(difference, difference - _Z * error, difference + _Z * error), p
    weights = resample_weights(count, resamples, seed)
    weights = weights if count == len(first) else weights[:, of]
    sampled = resample_figures(metric, first, weights) - resample_figures(metric, second, weights)
    # A resample without a figure says nothing for either side.
    sampled = sampled[~np.isnan(sampled)]
    if math.isnan(difference) or not len(sampled):
        return Interval(difference, math.nan, math.nan), math.nan
    if not sampled.any():
        return Interval(difference, 0.0, 0.0), 1.0
    low, high = np.percentile(sampled, [2.5, 97.5])
    far = min(np.mean(sampled <= 0), np.mean(sampled >= 0))
    return Interval(difference, float(low), float(high)), min(1.0, 2 * max(float(far), 1 / resamples))


def _jackknife_error(without: NDArray[np.float64]) -> float:
    """Return the standard error of a figure from the figures without each response."""
    n = len(without)
    return math.sqrt((n - 1) / n * float(np.sum((without - without.mean()) ** 2)))


@functools.lru_cache(maxsize=1)
def resample_weights(rows: int, resamples: int, seed: int) -> NDArray[np.uint16]:
    """Return how often each row is sampled in each resample, shape (resamples, rows); kept for the next metric."""
    draw = np.random.default_rng(seed)
    weights = np.empty((resamples, rows), dtype=np.uint16)
    for sample in range(resamples):
        weights[sample] = np.bincount(draw.integers(rows, size=rows), minlength=rows)
    weights.flags.writeable = False
    return weights


def resample_figures(metric: Metric | Mean, values: NDArray[np.float64], weights: NDArray[Any]) -> NDArray[np.float64]:
    """Return a metric's figure in each resample; NaN where it has no response."""
    if isinstance(metric, Additive):
        summed = np.hstack([values, np.ones((len(values), 1))]) if values.shape[1] == 1 else values
        # In blocks: as floats all weights would take four times their memory.
        blocks = (weights[begin : begin + _BLOCK] for begin in range(0, len(weights), _BLOCK))
        with np.errstate(invalid="ignore", divide="ignore"):
            return metric.of_sums(np.concatenate([block.astype(np.float64) @ summed for block in blocks]))
    rows = np.arange(len(values))
    return np.array([metric.combine(values[np.repeat(rows, w)]) if w.any() else math.nan for w in weights])


def as_table(rows: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Rows as an array, short ones filled with NaN."""
    table = np.full((len(rows), max(map(len, rows), default=0)), np.nan)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return table


def wilcoxon(first: ArrayLike, second: ArrayLike) -> float:
    """Return the p-value of Wilcoxon's signed-rank test of paired values, two-sided; two equal samples have 1."""
    a, b = _pair(first, second)
    return 1.0 if np.array_equal(a, b) else float(library("scipy.stats").wilcoxon(a, b).pvalue)


def paired_t(differences: Sequence[float]) -> float:
    """Return the p-value of the paired t-test of differences, two-sided; NaN where they do not vary."""
    if len(differences) < 2 or np.ptp(differences) == 0:
        return math.nan
    return float(library("scipy.stats").ttest_1samp(differences, 0.0).pvalue)


def correlation(first: ArrayLike, second: ArrayLike, kind: Kind) -> tuple[float, float]:
    """Spearman's rho, Kendall's tau-b or Pearson's r with its two-sided p-value; NaN where a series does not vary."""
    a, b = _pair(first, second)
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return math.nan, math.nan
    function = {"spearman": "spearmanr", "kendall": "kendalltau", "pearson": "pearsonr"}[kind]
    result = getattr(library("scipy.stats"), function)(a, b)
    return float(result.statistic), float(result.pvalue)


def win_rate(outcomes: Sequence[Literal["win", "loss", "tie"]], dialogues: Sequence[object] | None = None) -> Rate:
    """Return wins, losses and ties, the sign test, and an interval of the share of wins.

    Outcomes of one of the `dialogues` are not independent: the test counts them as one, won where more of them are won
    than lost, and the interval is of as many comparisons as there are dialogues.
    """
    wins, losses, ties = (outcomes.count(kind) for kind in ("win", "loss", "tie"))
    n = wins + losses + ties
    if not n:
        return Rate(0, 0, 0, 1.0, math.nan, math.nan)
    leads = Counter[object]()
    for dialogue, outcome in zip(dialogues or range(n), outcomes, strict=True):
        leads[dialogue] += (outcome == "win") - (outcome == "loss")
    won, lost = sum(lead > 0 for lead in leads.values()), sum(lead < 0 for lead in leads.values())
    p = float(library("scipy.stats").binomtest(won, won + lost).pvalue) if won + lost else 1.0
    return Rate(wins, losses, ties, p, *wilson(wins * len(leads) / n, len(leads)))


def wilson(hits: float, n: int) -> tuple[float, float]:
    """Return the 95% Wilson interval of the share of hits among `n`, at least one."""
    middle, half = hits + _Z**2 / 2, _Z * math.sqrt(hits * (n - hits) / n + _Z**2 / 4)
    return (middle - half) / (n + _Z**2), (middle + half) / (n + _Z**2)


def cohen_kappa(first: Sequence[str], second: Sequence[str]) -> float:
    """Cohen's kappa of two raters' labels of the same items; NaN where chance agreement is complete."""
    labels, numbers = np.unique([first, second], return_inverse=True)
    if len(labels) < 2:
        return math.nan
    table = np.zeros((len(labels), len(labels)))
    np.add.at(table, tuple(numbers.reshape(2, -1)), 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(library("statsmodels.stats.inter_rater").cohens_kappa(table).kappa)


def fleiss_kappa(ratings: Sequence[Sequence[str]]) -> float:
    """Fleiss' kappa: a row an item, as many labels in each; NaN where only one label was ever given."""
    inter_rater = library("statsmodels.stats.inter_rater")
    table, labels = inter_rater.aggregate_raters(np.asarray(ratings))
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(inter_rater.fleiss_kappa(table)) if len(labels) > 1 else math.nan


def krippendorff_alpha(
    ratings: Sequence[Sequence[float | None]], level: Literal["nominal", "ordinal", "interval"] = "ordinal"
) -> float:
    """Krippendorff's alpha: a row a rater, an entry an item, None where one was not rated; NaN without variation."""
    table = np.array([[math.nan if value is None else float(value) for value in row] for row in ratings])
    if len(np.unique(table[~np.isnan(table)])) < 2:
        return math.nan
    return float(library("krippendorff").alpha(reliability_data=table, level_of_measurement=level))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of one family of comparisons, corrected by Holm (1979); those that are NaN stay so and do not count."""
    # statsmodels' function collects garbage at each call, which takes longer than a whole table.
    given = np.asarray(p_values, dtype=np.float64)
    known = np.flatnonzero(~np.isnan(given))
    order = known[np.argsort(given[known], kind="stable")]
    corrected = given.copy()
    corrected[order] = np.minimum(np.maximum.accumulate(given[order] * np.arange(len(order), 0, -1)), 1.0)
    return [float(p) for p in corrected]


def _pair(first: ArrayLike, second: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if len(a) != len(b) or not len(a):
        raise InputError(f"not pairs: {len(a)} and {len(b)} values", hint="compare the same items, at least one")
    return a, b


def library(name: str) -> Any:  # noqa: ANN401 - the libraries are untyped
    """Return a module of the `evaluation` extra."""
    return import_optional(name, "statistics", "evaluation")

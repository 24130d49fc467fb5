"""Statistics of scores, by the libraries of the `evaluation` extra: intervals, tests, agreement, Holm's correction."""

from __future__ import annotations

import functools
import itertools
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
RANDOMISATIONS = 9999
SLOW_RANDOMISATIONS = 1999  # of metrics that do not combine by addition
EXACT_SWAPS = 4096  # all swaps are tried for up to 13 dialogues
MIN_PAIRS = 6  # the fewest pairs whose exact two-sided test can give p < 0.05
_Z = 1.959964  # standard errors on each side of a figure that hold 95%
_BLOCK = 64
_EXACT_PERMUTATIONS = 7


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


def compare_paired(
    metric: Metric | Mean,
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    *,
    dialogues: Sequence[object] | None = None,
    resamples: int = RESAMPLES,
    randomisations: int = RANDOMISATIONS,
    seed: int = 0,
) -> tuple[Interval, float]:
    """Return the difference of two systems' figures on the same responses, its 95% interval and its p-value.

    The p-value is that of a paired randomisation test, two-sided (see `randomisation_test`). The interval is a
    percentile bootstrap interval, or a normal one by the jackknife if the metric is `Jackknifed`. It is NaN for fewer
    than `MIN_PAIRS` dialogues, which cannot support a 95% interval. Rows of one dialogue are swapped, sampled and left
    out together. If one of the systems has no figure, the difference and the p-value are NaN.
    """
    first, second = _pair(first, second)
    difference = metric.combine(first) - metric.combine(second)
    of = np.arange(len(first)) if dialogues is None else np.unique(np.asarray(dialogues), return_inverse=True)[1]
    count = int(of.max()) + 1
    if count < 2 or math.isnan(difference):
        return Interval(difference, math.nan, math.nan), math.nan
    p = randomisation_test(metric, first, second, of, randomisations=randomisations, seed=seed)
    if count < MIN_PAIRS:
        return Interval(difference, math.nan, math.nan), p
    if isinstance(metric, Jackknifed):
        error = _jackknife_error(metric.without_each(first, of) - metric.without_each(second, of))
        return Interval(difference, difference - _Z * error, difference + _Z * error), p
    weights = resample_weights(count, resamples, seed)
    weights = weights if count == len(first) else weights[:, of]
    sampled = resample_figures(metric, first, weights) - resample_figures(metric, second, weights)
    sampled = sampled[~np.isnan(sampled)]
    if not len(sampled):
        return Interval(difference, math.nan, math.nan), p
    low, high = np.percentile(sampled, [2.5, 97.5])
    return Interval(difference, float(low), float(high)), p


def randomisation_test(
    metric: Metric | Mean,
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    dialogues: NDArray[np.intp],
    *,
    randomisations: int = RANDOMISATIONS,
    seed: int = 0,
) -> float:
    """Return the two-sided p-value of the paired randomisation test (Fisher, 1935; Noreen, 1989).

    If two systems are equal, the outputs for each dialogue can be swapped between them. The p-value is the share of
    such swaps whose difference is at least as large as the observed one. All swaps are tried if they are few, so that p
    is never below 2 / 2**n for n dialogues with different measures. Otherwise random swaps are drawn, and p is
    (k + 1) / (m + 1) for k of m swaps. Swaps without a figure count as large differences.

    Args:
        metric: Metric that combines the rows into a figure.
        first: Measures of the first system, shape (responses, columns).
        second: Measures of the second system for the same responses.
        dialogues: Index of each row's dialogue.
        randomisations: Number of random swaps if not all of them are tried.
        seed: Seed of the random swaps.
    """
    width = max(first.shape[1], second.shape[1])
    first, second = (
        np.pad(rows, ((0, 0), (0, width - rows.shape[1])), constant_values=np.nan) for rows in (first, second)
    )
    changed_rows = ((first != second) & ~(np.isnan(first) & np.isnan(second))).any(axis=1)
    changed = np.unique(dialogues[changed_rows])
    if not len(changed):
        return 1.0
    is_exact = 2 ** (len(changed) - 1) <= EXACT_SWAPS
    if is_exact:
        # The swap of all dialogues only turns the sign: the first dialogue is never swapped. Row 0 swaps nothing.
        numbers = np.arange(2 ** (len(changed) - 1))
        swaps = (numbers[:, None] >> np.arange(len(changed) - 1) & 1).astype(bool)
        swaps = np.hstack([np.zeros((len(swaps), 1), dtype=bool), swaps])
    else:
        swaps = np.zeros((randomisations + 1, len(changed)), dtype=bool)
        swaps[1:] = np.random.default_rng(seed).random((randomisations, len(changed)), dtype=np.float32) < 0.5
    # Column of each row's dialogue among the swapped ones; the last column, never swapped, is for all others.
    columns = np.full(int(dialogues.max()) + 1, len(changed))
    columns[changed] = np.arange(len(changed))
    rows = columns[dialogues]
    values = np.vstack([first, second])
    differences = []
    for begin in range(0, len(swaps), _BLOCK):
        block = np.pad(swaps[begin : begin + _BLOCK], ((0, 0), (0, 1)))[:, rows]
        first_figures = subset_figures(metric, values, np.hstack([~block, block]))
        other = subset_figures(metric, values, np.hstack([block, ~block]))
        differences.append(np.abs(first_figures - other))
    sizes = np.concatenate(differences)
    # Sums of the same numbers in another order differ in the last digits.
    is_large = ~(sizes < sizes[0] - 1e-9 * max(1.0, float(sizes[0])))
    return float(is_large.mean())


def subset_figures(
    metric: Metric | Mean, values: NDArray[np.float64], subsets: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return a metric's figure of each subset of rows; `subsets` has shape (subsets, rows)."""
    if isinstance(metric, Jackknifed):
        return metric.of_subsets(values, subsets)
    return resample_figures(metric, values, subsets)


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
    """Return the two-sided p-value of Wilcoxon's signed-rank test of paired values; 1 for two equal samples.

    Pairs without a difference are dropped. Few pairs are tested exactly, with ties too: the normal approximation would
    give p < 0.05 for four equal differences, where 2 / 2**4 is the least possible.
    """
    a, b = _pair(first, second)
    differences = (a - b)[a != b]
    if not len(differences):
        return 1.0
    ranks = library("scipy.stats").rankdata(np.abs(differences).round(12))
    if 2 ** len(differences) > 2 * EXACT_SWAPS:
        return float(library("scipy.stats").wilcoxon(differences).pvalue)
    signs = 1 - 2 * (np.arange(2 ** len(differences))[:, None] >> np.arange(len(differences)) & 1)
    observed = abs(float(ranks @ np.sign(differences)))
    return float(np.mean(np.abs(signs @ ranks) >= observed - 1e-9))


def paired_t(differences: Sequence[float]) -> float:
    """Return the p-value of the paired t-test of differences, two-sided; NaN where they do not vary."""
    if len(differences) < 2 or np.ptp(differences) == 0:
        return math.nan
    return float(library("scipy.stats").ttest_1samp(differences, 0.0).pvalue)


def correlation(first: ArrayLike, second: ArrayLike, kind: Kind) -> tuple[float, float]:
    """Spearman's rho, Kendall's tau-b or Pearson's r with its two-sided p-value; NaN where a series does not vary.

    The p-value of fewer than eight pairs is that of the exact permutation test: the usual approximation of Spearman's
    gives p = 0 for three pairs in order.
    """
    a, b = _pair(first, second)
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return math.nan, math.nan
    name = {"spearman": "spearmanr", "kendall": "kendalltau", "pearson": "pearsonr"}[kind]
    function = getattr(library("scipy.stats"), name)
    result = function(a, b)
    if len(a) > _EXACT_PERMUTATIONS:
        return float(result.statistic), float(result.pvalue)
    return float(result.statistic), _permutation_p(a, b, kind)


def _permutation_p(a: NDArray[np.float64], b: NDArray[np.float64], kind: Kind) -> float:
    """Return the share of orders of `b` whose correlation with `a` is at least as far from zero."""
    if kind == "spearman":
        a, b = (library("scipy.stats").rankdata(series) for series in (a, b))
    orders = np.array(list(itertools.permutations(range(len(b)))))
    if kind == "kendall":
        left, right = np.triu_indices(len(a), 1)
        products = np.sign(b[orders][:, left] - b[orders][:, right]) @ np.sign(a[left] - a[right])
    else:
        products = (b - b.mean())[orders] @ (a - a.mean())
    sizes = np.abs(products)
    return float(np.mean(sizes >= sizes[0] - 1e-9 * max(1.0, float(sizes[0]))))


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
    ratings: Sequence[Sequence[float | None]],
    level: Literal["nominal", "ordinal", "interval", "ratio"] = "ordinal",
) -> float:
    """Return Krippendorff's alpha (Krippendorff, 2011); NaN if the ratings do not vary.

    Args:
        ratings: A row for each rater, with an entry for each item; None if the rater did not rate the item.
        level: Level of measurement, which determines the distance of two ratings.
    """
    table = np.array([[math.nan if value is None else float(value) for value in row] for row in ratings])
    categories = np.unique(table[~np.isnan(table)])
    # How often each category was given to each item: shape (items, categories). A single rating pairs with nothing.
    counts = (table[:, :, None] == categories).sum(axis=0).astype(np.float64)
    counts = counts[counts.sum(axis=1) > 1]
    totals = counts.sum(axis=0)
    counts, categories, totals = counts[:, totals > 0], categories[totals > 0], totals[totals > 0]
    if len(categories) < 2:
        return math.nan
    per_item = counts.sum(axis=1, keepdims=True)
    coincidences = (counts / (per_item - 1)).T @ counts - np.diag((counts / (per_item - 1)).sum(axis=0))
    expected = (np.outer(totals, totals) - np.diag(totals)) / (totals.sum() - 1)
    distances = _squared_distances(categories, totals, level)
    return float(1 - (coincidences * distances).sum() / (expected * distances).sum())


def _squared_distances(categories: NDArray[np.float64], totals: NDArray[np.float64], level: str) -> NDArray[np.float64]:
    """Return Krippendorff's squared distance of every two categories, which are sorted."""
    gaps: NDArray[np.float64] = np.subtract.outer(categories, categories)
    if level == "nominal":
        differs: NDArray[np.float64] = (gaps != 0).astype(np.float64)
        return differs
    if level == "ordinal":  # the ratings from one category to the other, both of which count half
        middles = np.cumsum(totals) - totals / 2
        gaps = np.subtract.outer(middles, middles)
    if level == "ratio":
        sums = np.add.outer(categories, categories)
        gaps = np.divide(gaps, sums, out=np.zeros_like(gaps), where=sums != 0)
    squared: NDArray[np.float64] = gaps**2
    return squared


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of one family of comparisons, corrected by Holm (1979); those that are NaN stay so and do not count."""
    # statsmodels' function collects garbage at each call, which takes longer than a whole table.
    given = np.asarray(p_values, dtype=np.float64)
    known = np.flatnonzero(~np.isnan(given))
    order = known[np.argsort(given[known], kind="stable")]
    corrected = given.copy()
    corrected[order] = np.minimum(np.maximum.accumulate(given[order] * np.arange(len(order), 0, -1)), 1.0)
    return [float(p) for p in corrected]


def correct_p_values(comparisons: Sequence[object], attribute: str) -> None:
    """Replace the p-values of one family of comparisons by Holm's. Those that are None are left out."""
    tested = [comparison for comparison in comparisons if getattr(comparison, attribute) is not None]
    corrected = holm([getattr(comparison, attribute) for comparison in tested])
    for comparison, p in zip(tested, corrected, strict=True):
        setattr(comparison, attribute, p)


def _pair(first: ArrayLike, second: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if len(a) != len(b) or not len(a):
        raise InputError(f"not pairs: {len(a)} and {len(b)} values", hint="compare the same items, at least one")
    return a, b


def library(name: str) -> Any:  # noqa: ANN401 - the libraries are untyped
    """Return a module of the `evaluation` extra."""
    return import_optional(name, "statistics", "evaluation")

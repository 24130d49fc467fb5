"""Agreement of metrics with people's ratings, with intervals that resample whole contexts.

Several responses to one history are not independent, so histories are resampled, with all their responses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dialore.evaluation.statistics import (
    RESAMPLES,
    Interval,
    Kind,
    as_table,
    correlation,
    library,
    resample_figures,
    resample_weights,
)

if TYPE_CHECKING:
    from dialore.evaluation.base import Metric, SampleScore

    Floats = NDArray[np.float64]

KINDS: tuple[Kind, ...] = get_args(Kind)
MIN_ITEMS = 3


@dataclass(frozen=True, slots=True)
class Rated:
    """People's ratings of a response by criterion, or their yes or no; more is better.

    Attributes:
        context: What the response answers. Responses to one context are resampled together.
        system: Who made the response, if it is known.
    """

    context: str
    system: str
    ratings: Mapping[str, float | bool]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of a metric with people by one criterion, over `n` responses or systems.

    Attributes:
        figures: Each coefficient of `KINDS` with its interval. For yes or no `auc`, the probability that a yes has
            the better value than a no. Positive is agreement, also if lower values of the metric are better.
        p: The p-value of each figure.
        reason: Why there are no figures.
    """

    metric: str
    criterion: str
    level: Literal["response", "system"]
    n: int
    figures: dict[str, Interval] = field(default_factory=dict)
    p: dict[str, float] = field(default_factory=dict)
    reason: str = ""


def agreements(
    metric: Metric, rated: Sequence[Rated], measures: Sequence[SampleScore], *, resamples: int = RESAMPLES
) -> list[Agreement]:
    """Return the agreement of a metric with people by every criterion, over responses and over named systems.

    A metric of level `corpus` has figures of systems only.

    Args:
        metric: The metric.
        rated: People's ratings of responses.
        measures: The metric's measure of each of these responses. Those with a problem are left out.
        resamples: Number of bootstrap resamples.
    """
    results: list[Agreement] = []
    for criterion in dict.fromkeys(name for item in rated for name in item.ratings):
        known = [
            (item, measure)
            for item, measure in zip(rated, measures, strict=True)
            if criterion in item.ratings and measure.problem is None
        ]
        ratings = [item.ratings[criterion] for item, _ in known]
        # Sums of the same numbers in another order must not be ranked apart.
        people = np.array(ratings, np.float64).round(9)
        table = as_table([measure.values for _, measure in known])
        weights = context_weights([item.context for item, _ in known], resamples)
        if metric.about.level == "response":
            sign = 1.0 if metric.about.higher_is_better else -1.0
            values = sign * np.round([metric.combine(row[None, :]) for row in table], 9)
            is_label = any(isinstance(rating, bool) for rating in ratings)
            results.append(_over_responses(metric.about.name, criterion, values, people, weights, is_label=is_label))
        systems = [item.system for item, _ in known]
        if len(set(systems) - {""}) >= MIN_ITEMS:
            results.append(_over_systems(metric, criterion, table, people, systems, weights))
    return results


def _over_responses(
    metric: str, criterion: str, values: Floats, people: Floats, weights: NDArray[Any], *, is_label: bool
) -> Agreement:
    n = len(people)
    if n < MIN_ITEMS:
        return Agreement(metric, criterion, "response", n, reason="too few responses")
    if np.ptp(values) == 0 or np.ptp(people) == 0:
        return Agreement(metric, criterion, "response", n, reason="one of the two does not vary")
    if is_label:
        area, p = area_under_curve(values, people > 0, weights)
        return Agreement(metric, criterion, "response", n, {"auc": area}, {"auc": p})
    resampled = resample_correlations(values, people, weights)
    return Agreement(metric, criterion, "response", n, *_correlate(values, people, resampled))


def _over_systems(
    metric: Metric, criterion: str, table: Floats, people: Floats, systems: Sequence[str], weights: NDArray[Any]
) -> Agreement:
    names = sorted(set(systems) - {""})
    rows = [np.flatnonzero(np.array(systems) == name) for name in names]
    sign = 1.0 if metric.about.higher_is_better else -1.0
    ours = sign * np.array([metric.combine(table[row]) for row in rows])
    theirs = np.array([people[row].mean() for row in rows])
    if np.ptp(ours) == 0 or np.isnan(ours).any() or np.ptp(theirs) == 0:
        return Agreement(metric.about.name, criterion, "system", len(names), reason="systems do not differ")
    figures = [sign * resample_figures(metric, table[row], weights[:, row]) for row in rows]
    with np.errstate(invalid="ignore", divide="ignore"):
        means = [weights[:, row] @ people[row] / weights[:, row].sum(axis=1) for row in rows]
    resampled: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
    unweighted = np.ones((1, len(rows)))
    for first, second in zip(np.stack(figures, axis=1), np.stack(means, axis=1), strict=True):
        if np.ptp(first) > 0 and np.ptp(second) > 0:  # neither NaN nor all the same
            for kind, values in resample_correlations(first, second, unweighted).items():
                resampled[kind].append(float(values[0]))
    known = {kind: np.array(values) for kind, values in resampled.items()}
    return Agreement(metric.about.name, criterion, "system", len(names), *_correlate(ours, theirs, known))


def _correlate(
    first: Floats, second: Floats, resampled: Mapping[Kind, Floats]
) -> tuple[dict[str, Interval], dict[str, float]]:
    """Return every coefficient with its interval, and their p-values."""
    tests = {kind: correlation(first, second, kind) for kind in KINDS}
    figures: dict[str, Interval] = {kind: _interval(value, resampled[kind]) for kind, (value, _) in tests.items()}
    return figures, {kind: p for kind, (_, p) in tests.items()}


def _interval(value: float, resampled: Floats) -> Interval:
    """Return a figure with the 95% interval of its resamples. Those that are NaN are left out."""
    known = resampled[~np.isnan(resampled)]
    low, high = np.percentile(known, [2.5, 97.5]) if len(known) else (math.nan, math.nan)
    return Interval(value, float(low), float(high))


def context_weights(contexts: Sequence[str], resamples: int) -> NDArray[Any]:
    """Return how often each response counts in each resample of contexts, shape (resamples, responses)."""
    numbers = {context: number for number, context in enumerate(dict.fromkeys(contexts))}
    if not numbers:
        return np.zeros((resamples, 0))
    weights = resample_weights(len(numbers), resamples, seed=0)
    return weights[:, [numbers[context] for context in contexts]]


def resample_correlations(first: Floats, second: Floats, weights: NDArray[Any]) -> dict[Kind, Floats]:
    """Return each coefficient in each resample; NaN where a resample does not vary.

    A resample is given by how often each item counts, shape (resamples, items), so that its ranks and its concordant
    pairs are matrix products.
    """
    small = weights.astype(np.float32)
    signs = [np.sign(values[:, None] - values[None, :]).astype(np.float32) for values in (first, second)]
    # The rank of an item in the resample, ties counted as half, up to a constant.
    ranks = [(small @ (0.5 * (1 + sign)).T).astype(np.float64) for sign in signs]
    pairs = [signs[0] * signs[1], np.abs(signs[0]), np.abs(signs[1])]
    concordant, untied, also_untied = (((small @ pair).astype(np.float64) * weights).sum(axis=1) for pair in pairs)
    with np.errstate(invalid="ignore", divide="ignore"):
        kendall = concordant / np.sqrt(untied * also_untied)
    return {
        "spearman": _weighted_pearson(ranks[0], ranks[1], weights),
        "kendall": kendall,
        "pearson": _weighted_pearson(first[None, :], second[None, :], weights),
    }


def _weighted_pearson(first: Floats, second: Floats, weights: NDArray[Any]) -> Floats:
    total = weights.sum(axis=1, keepdims=True)
    a, b = (values - (weights * values).sum(axis=1, keepdims=True) / total for values in (first, second))
    with np.errstate(invalid="ignore", divide="ignore"):
        spreads = (weights * a * a).sum(axis=1) * (weights * b * b).sum(axis=1)
        correlations: Floats = (weights * a * b).sum(axis=1) / np.sqrt(spreads)
    return correlations


def area_under_curve(values: Floats, truth: NDArray[np.bool_], weights: NDArray[Any]) -> tuple[Interval, float]:
    """Return the area under the ROC curve with its interval, and the p-value of Mann and Whitney's test."""
    yes, no = values[truth], values[~truth]
    test = library("scipy.stats").mannwhitneyu(yes, no)
    better = 0.5 * (1 + np.sign(yes[:, None] - no[None, :]))
    of_yes, of_no = weights[:, truth], weights[:, ~truth]
    with np.errstate(invalid="ignore", divide="ignore"):
        resampled = ((of_yes @ better) * of_no).sum(axis=1) / (of_yes.sum(axis=1) * of_no.sum(axis=1))
    return _interval(float(test.statistic) / (len(yes) * len(no)), resampled), float(test.pvalue)

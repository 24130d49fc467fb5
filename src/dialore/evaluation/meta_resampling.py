"""Correlations and areas under curves in many resamples at once, given by how often each item counts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dialore.errors import MissingExtraError
from dialore.evaluation.base import Additive
from dialore.evaluation.statistics import Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dialore.evaluation.base import Metric

Kind = Literal["spearman", "kendall", "pearson"]
KINDS: tuple[Kind, ...] = ("spearman", "kendall", "pearson")
_FOLDS = 5


def interval(value: float, drawn: NDArray[np.float64]) -> Interval:
    """A figure with the 95% interval of its resamples, those that are NaN left out."""
    known = drawn[~np.isnan(drawn)]
    if not len(known):
        return Interval(value, math.nan, math.nan)
    low, high = np.percentile(known, [2.5, 97.5])
    return Interval(value, float(low), float(high))


def context_weights(contexts: Sequence[str], resamples: int, seed: int) -> NDArray[np.float64]:
    """How often each response counts in each resample of contexts, shape (resamples, responses)."""
    places = {context: place for place, context in enumerate(dict.fromkeys(contexts))}
    of = np.array([places[context] for context in contexts])
    draw = np.random.default_rng(seed)
    drawn = np.stack(
        [np.bincount(draw.integers(len(places), size=len(places)), minlength=len(places)) for _ in range(resamples)]
    )
    weights: NDArray[np.float64] = drawn[:, of].astype(np.float64)
    return weights


def resampled_correlations(
    first: NDArray[np.float64], second: NDArray[np.float64], weights: NDArray[np.float64]
) -> dict[Kind, NDArray[np.float64]]:
    """Each coefficient in each resample; NaN where a resample does not vary.

    A resample is given by how often each item counts, so that its ranks and its concordant pairs are matrix products.

    Args:
        first: values, shape (items,).
        second: values, shape (items,).
        weights: shape (resamples, items).
    """
    small = weights.astype(np.float32)
    signs = [np.sign(values[:, None] - values[None, :]).astype(np.float32) for values in (first, second)]
    # The rank of an item among those drawn, ties counted as half, up to a constant.
    ranks = [(small @ (0.5 * (1 + sign)).T).astype(np.float64) for sign in signs]
    concordant = _quadratic(weights, small, signs[0] * signs[1])
    untied = [_quadratic(weights, small, np.abs(sign)) for sign in signs]
    with np.errstate(invalid="ignore", divide="ignore"):
        kendall = concordant / np.sqrt(untied[0] * untied[1])
    return {
        "spearman": _weighted_pearson(ranks[0], ranks[1], weights),
        "kendall": kendall,
        "pearson": _weighted_pearson(first[None, :], second[None, :], weights),
    }


def _quadratic(weights: NDArray[np.float64], small: NDArray[Any], matrix: NDArray[Any]) -> NDArray[np.float64]:
    summed: NDArray[np.float64] = ((small @ matrix).astype(np.float64) * weights).sum(axis=1)
    return summed


def _weighted_pearson(
    first: NDArray[np.float64], second: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    total = weights.sum(axis=1, keepdims=True)
    a = first - (weights * first).sum(axis=1, keepdims=True) / total
    b = second - (weights * second).sum(axis=1, keepdims=True) / total
    with np.errstate(invalid="ignore", divide="ignore"):
        found: NDArray[np.float64] = (weights * a * b).sum(axis=1) / np.sqrt(
            (weights * a * a).sum(axis=1) * (weights * b * b).sum(axis=1)
        )
    return found


def row_by_row(first: NDArray[np.float64], second: NDArray[np.float64]) -> dict[Kind, NDArray[np.float64]]:
    """Each coefficient of each row of two tables; there are few columns."""
    found: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
    for a, b in zip(first, second, strict=True):
        if np.isnan(a).any() or np.isnan(b).any() or np.ptp(a) == 0 or np.ptp(b) == 0:
            continue
        one = resampled_correlations(a, b, np.ones((1, len(a))))
        for kind in KINDS:
            found[kind].append(float(one[kind][0]))
    return {kind: np.array(values) for kind, values in found.items()}


def resampled_figures(metric: Metric, values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """A metric's figure in each resample; NaN where it drew no response."""
    if isinstance(metric, Additive):
        summed = np.hstack([values, np.ones((len(values), 1))]) if values.shape[1] == 1 else values
        with np.errstate(invalid="ignore", divide="ignore"):
            return metric.of_sums(weights @ summed)
    rows = np.arange(len(values))
    return np.array([metric.combine(values[np.repeat(rows, w.astype(int))]) if w.any() else np.nan for w in weights])


def area_under_curve(
    values: NDArray[np.float64], truth: NDArray[np.bool_], weights: NDArray[np.float64]
) -> tuple[Interval, float]:
    """The area under the ROC curve with its interval, and the p-value of Mann and Whitney's test.

    Args:
        values: higher for a yes, if the metric is any good.
        truth: yes or no.
        weights: shape (resamples, items).
    """
    try:
        from scipy.stats import mannwhitneyu
    except ImportError:
        raise MissingExtraError("statistics", "evaluation") from None
    yes, no = values[truth], values[~truth]
    test = mannwhitneyu(yes, no)
    better = 0.5 * (1 + np.sign(yes[:, None] - no[None, :]))
    of_yes, of_no = weights[:, truth], weights[:, ~truth]
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = ((of_yes @ better) * of_no).sum(axis=1) / (of_yes.sum(axis=1) * of_no.sum(axis=1))
    return interval(float(test.statistic) / (len(yes) * len(no)), drawn), float(test.pvalue)


def threshold_accuracy(
    values: NDArray[np.float64], truth: NDArray[np.bool_], contexts: Sequence[str], *, seed: int = 0
) -> float | None:
    """Accuracy of saying yes from a threshold on, each fold's threshold being the best on the other folds.

    None where there are too few contexts for folds.
    """
    names = list(dict.fromkeys(contexts))
    if len(names) < _FOLDS:
        return None
    folds = dict(zip(names, np.random.default_rng(seed).permutation(len(names)) % _FOLDS, strict=True))
    fold_of = np.array([folds[context] for context in contexts])
    right = 0
    for fold in range(_FOLDS):
        held = fold_of == fold
        threshold = _best_threshold(values[~held], truth[~held])
        right += int(((values[held] >= threshold) == truth[held]).sum())
    return right / len(values)


def _best_threshold(values: NDArray[np.float64], truth: NDArray[np.bool_]) -> float:
    levels = np.unique(values)
    # Between neighbouring values, and beyond both ends.
    thresholds = np.concatenate([[-np.inf], (levels[1:] + levels[:-1]) / 2, [np.inf]])
    order = np.argsort(values)
    ordered, yes = values[order], truth[order]
    below = np.searchsorted(ordered, thresholds)
    no_before = np.concatenate([[0], np.cumsum(~yes)])[below]
    yes_after = yes.sum() - np.concatenate([[0], np.cumsum(yes)])[below]
    return float(thresholds[int(np.argmax(no_before + yes_after))])

"""Judging metrics and judges: how far they agree with people, with intervals that resample whole contexts.

Several responses to one history are not independent, so what is drawn is histories, with all their responses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from dialore.evaluation.meta_resampling import (
    KINDS,
    area_under_curve,
    context_weights,
    interval,
    resampled_correlations,
    resampled_figures,
    row_by_row,
    threshold_accuracy,
)
from dialore.evaluation.statistics import RESAMPLES, Interval, correlation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dialore.evaluation.base import Measure, Metric
    from dialore.evaluation.judgements import Judgement

_FEWEST = 3


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far a metric agrees with people's judgement by one criterion.

    Attributes:
        metric: the metric's name.
        criterion: what people judged.
        level: over responses, or over systems' figures.
        n: responses, or systems.
        correlations: each coefficient with its interval, for ratings and at system level; the sign is turned where
            lower is better, so that positive is agreement.
        p: each coefficient's p-value.
        auc: the probability that a yes has the better value than a no, for yes-or-no labels.
        accuracy: of the best threshold, found on other contexts (five folds).
        majority: the accuracy of always saying the commoner label.
        reason: why there is no figure.
    """

    metric: str
    criterion: str
    level: Literal["response", "system"]
    n: int
    correlations: dict[str, Interval]
    p: dict[str, float]
    auc: Interval | None = None
    accuracy: float | None = None
    majority: float | None = None
    reason: str = ""


def agreements(
    metric: Metric,
    judgements: Sequence[Judgement],
    measures: Mapping[str, Measure],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Agreement]:
    """How far a metric agrees with people, by every criterion, over responses and, where they are named, systems.

    Args:
        metric: the metric; one whose level is `corpus` has figures of systems alone.
        judgements: a set's.
        measures: the metric's, by judgement id; those with a problem are left out.
        resamples: of the bootstrap.
        seed: of the bootstrap and the folds.
    """
    known = [one for one in judgements if one.id in measures and measures[one.id].problem is None]
    found: list[Agreement] = []
    criteria = dict.fromkeys(name for one in judgements for name in (*one.ratings, *one.labels))
    for criterion in criteria:
        some = [one for one in known if criterion in one.ratings or criterion in one.labels]
        human = np.array([one.ratings.get(criterion, one.labels.get(criterion, 0)) for one in some], dtype=np.float64)
        is_label = any(criterion in one.labels for one in some)
        table = _table([measures[one.id].values for one in some])
        weights = context_weights([one.context for one in some], resamples, seed) if some else np.zeros((0, 0))
        if metric.about.level == "response":
            values = np.array([metric.combine(row[None, :]) for row in table])
            found.append(_over_responses(metric, criterion, values, human, some, weights, is_label, seed))
        systems = [one.system for one in some]
        if len(set(systems) - {""}) >= _FEWEST:
            found.append(_over_systems(metric, criterion, table, human, systems, weights))
    return found


def _table(rows: Sequence[tuple[float, ...]]) -> NDArray[np.float64]:
    table = np.full((len(rows), max((len(row) for row in rows), default=0)), np.nan)
    for place, row in enumerate(rows):
        table[place, : len(row)] = row
    return table


def _over_responses(
    metric: Metric,
    criterion: str,
    values: NDArray[np.float64],
    human: NDArray[np.float64],
    some: Sequence[Judgement],
    weights: NDArray[np.float64],
    is_label: bool,
    seed: int,
) -> Agreement:
    name, n = metric.about.name, len(some)
    if n < _FEWEST or np.ptp(values) == 0 or np.ptp(human) == 0:
        what = "too few responses" if n < _FEWEST else "one of the two does not vary"
        return Agreement(name, criterion, "response", n, {}, {}, reason=what)
    signed = values if metric.about.higher_is_better else -values
    if is_label:
        truth = human > 0
        accuracy = threshold_accuracy(signed, truth, [one.context for one in some], seed=seed)
        majority = float(max(truth.mean(), 1 - truth.mean()))
        area, p = area_under_curve(signed, truth, weights)
        return Agreement(name, criterion, "response", n, {}, {"auc": p}, area, accuracy, majority)
    drawn = resampled_correlations(signed, human, weights)
    correlations: dict[str, Interval] = {}
    p_values: dict[str, float] = {}
    for kind in KINDS:
        test = correlation(signed, human, kind)
        correlations[kind] = interval(test.statistic, drawn[kind])
        p_values[kind] = test.p
    return Agreement(name, criterion, "response", n, correlations, p_values)


def _over_systems(
    metric: Metric,
    criterion: str,
    table: NDArray[np.float64],
    human: NDArray[np.float64],
    systems: Sequence[str],
    weights: NDArray[np.float64],
) -> Agreement:
    names = sorted(set(systems) - {""})
    which = np.array(systems)
    sign = 1.0 if metric.about.higher_is_better else -1.0
    rows = [np.flatnonzero(which == name) for name in names]
    figures = sign * np.array([metric.combine(table[row]) for row in rows])
    people = np.array([human[row].mean() for row in rows])
    if np.ptp(figures) == 0 or np.isnan(figures).any() or np.ptp(people) == 0:
        reason = "systems do not differ"
        return Agreement(metric.about.name, criterion, "system", len(names), {}, {}, reason=reason)
    drawn_figures = sign * np.stack([resampled_figures(metric, table[row], weights[:, row]) for row in rows], axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn_people = np.stack([weights[:, row] @ human[row] / weights[:, row].sum(axis=1) for row in rows], axis=1)
    drawn = row_by_row(drawn_figures, drawn_people)
    tests = {kind: correlation(figures, people, kind) for kind in KINDS}
    correlations: dict[str, Interval] = {kind: interval(tests[kind].statistic, drawn[kind]) for kind in KINDS}
    p_values: dict[str, float] = {kind: tests[kind].p for kind in KINDS}
    return Agreement(metric.about.name, criterion, "system", len(names), correlations, p_values)

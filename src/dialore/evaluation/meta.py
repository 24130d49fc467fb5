"""Agreement of metrics and judges with people, with intervals that resample whole contexts.

Several responses to one history are not independent, so what is resampled is histories, with all their responses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dialore.datasets.base import Gold, gold_text
from dialore.dialogue import Dialogue, read_dialogues
from dialore.errors import InputError, describe
from dialore.evaluation import statistics
from dialore.evaluation.statistics import RESAMPLES, Interval, Kind, as_table, correlation, library
from dialore.knowledge import Knowledge, Passage
from dialore.response import Demands, Response

if TYPE_CHECKING:
    from dialore.evaluation.base import Metric, SampleScore

    Floats = NDArray[np.float64]

KINDS: tuple[Kind, ...] = get_args(Kind)
_FEWEST = 3
_KEYS = 6
_FOLDS = 5
_SHAPE = 'a judged response is {"turns": [...], "response": "...", "ratings": {"overall": 4}, "labels": {"good": true}}'


@dataclass(frozen=True, slots=True)
class Judgement:
    """A response that people judged by criteria: ratings on the set's own scales, or yes or no; more is better."""

    dialogue: Dialogue
    response: Response
    system: str = ""
    ratings: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, bool] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Its name in its set."""
        return self.dialogue.id


class _Judged(BaseModel):
    """The keys of a judged response beside those of a dialogue."""

    model_config = ConfigDict(strict=True)

    response: str = Field(min_length=1)
    system: str = ""
    queries: list[str] = []
    given: list[str] | None = None
    ratings: dict[str, float] = {}
    labels: dict[str, bool] = {}


def read_judgements(path: Path) -> list[Judgement]:
    """Read a set of judged responses: a dialogue file whose entries have some keys more.

    `response` is the text that was judged, `ratings` and `labels` are people's scores and their yes or no by criterion,
    `system` names who made the response, `queries` are what it asked for, and `given` is the knowledge that it was
    given, the dialogue's own where it is not said. `reference` and `knowledge` are the dialogue's.
    """
    judgements = []
    for dialogue in read_dialogues(path):
        try:
            judged = _Judged.model_validate(dialogue.extra)
        except ValidationError as error:
            raise InputError(f"{path.name}, {dialogue.id}: {describe(error)}", hint=_SHAPE) from error
        pieces = [read_knowledge(item) for item in (dialogue.knowledge if judged.given is None else judged.given)]
        made: dict[str, Any] = {"method": judged.system or "unknown", "knowledge": pieces}
        if judged.queries:
            made["demands"] = Demands(explicit=judged.queries)
        response = Response(id=dialogue.id, text=judged.response, **made)
        judgements.append(Judgement(dialogue, response, judged.system, judged.ratings, judged.labels))
    if not any(judgement.ratings or judgement.labels for judgement in judgements):
        raise InputError(f"{path}: nobody judged a response: no ratings, no labels", hint=_SHAPE)
    return judgements


def read_knowledge(item: Gold) -> Knowledge:
    """Return knowledge that a response from elsewhere was given: a text, or an object with one or of a fact."""
    text = gold_text(item)
    if not text.strip():
        keys = ", ".join([*item][:_KEYS]) if isinstance(item, dict) else "none"
        raise InputError(f"knowledge without text (its keys: {keys})", hint="give texts, or objects with a `text`")
    return Knowledge(id=Passage(text).id, kind="passage", text=text, source="documents", used=True)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of a metric with people's judgement by one criterion, over `n` responses or systems.

    Attributes:
        figures: each coefficient of `KINDS` with its interval, for ratings and at system level; for yes-or-no labels
            `auc`, the probability that a yes has the better value than a no. The sign is turned where lower is better,
            so that positive is agreement.
        accuracy: of the best threshold, found on other contexts (five folds), for labels.
        majority: the accuracy of always saying the commoner label.
    """

    metric: str
    criterion: str
    level: Literal["response", "system"]
    n: int
    figures: dict[str, Interval] = field(default_factory=dict)
    p: dict[str, float] = field(default_factory=dict)
    accuracy: float | None = None
    majority: float | None = None
    reason: str = ""


def agreements(
    metric: Metric,
    judgements: Sequence[Judgement],
    measures: Mapping[str, SampleScore],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Agreement]:
    """Return how far a metric agrees with people, by every criterion, over responses and over named systems.

    A metric whose level is `corpus` has figures of systems alone; `measures`, by judgement id, with a problem are left
    out. The seed is the bootstrap's and the folds'.
    """
    known = [given for given in judgements if given.id in measures and measures[given.id].problem is None]
    rows: list[Agreement] = []
    for criterion in dict.fromkeys(name for given in judgements for name in (*given.ratings, *given.labels)):
        some = [judgement for judgement in known if criterion in judgement.ratings or criterion in judgement.labels]
        given = [judgement.ratings.get(criterion, judgement.labels.get(criterion, 0)) for judgement in some]
        people = np.array(given, np.float64).round(9)  # as sums of the same numbers in another order would rank apart
        table = as_table([measures[judgement.id].values for judgement in some])
        weights = context_weights([judgement.dialogue.history for judgement in some], resamples, seed)
        if metric.about.level == "response":
            values = np.round([metric.combine(row[None, :]) for row in table], 9)
            signed = values if metric.about.higher_is_better else -values
            rows.append(_over_responses(metric.about.name, criterion, signed, people, some, weights, seed))
        systems = [judgement.system for judgement in some]
        if len(set(systems) - {""}) >= _FEWEST:
            rows.append(_over_systems(metric, criterion, table, people, systems, weights))
    return rows


def _over_responses(
    metric: str,
    criterion: str,
    values: Floats,
    people: Floats,
    some: Sequence[Judgement],
    weights: NDArray[Any],
    seed: int,
) -> Agreement:
    n = len(some)
    if n < _FEWEST or np.ptp(values) == 0 or np.ptp(people) == 0:
        reason = "too few responses" if n < _FEWEST else "one of the two does not vary"
        return Agreement(metric, criterion, "response", n, reason=reason)
    if any(criterion in judgement.labels for judgement in some):
        truth = people > 0
        accuracy = threshold_accuracy(values, truth, [judgement.dialogue.history for judgement in some], seed=seed)
        majority = float(max(truth.mean(), 1 - truth.mean()))
        area, p = area_under_curve(values, truth, weights)
        return Agreement(metric, criterion, "response", n, {"auc": area}, {"auc": p}, accuracy, majority)
    resampled = resample_correlations(values, people, weights)
    tests = {kind: correlation(values, people, kind) for kind in KINDS}
    figures = {str(kind): _interval(figure, resampled[kind]) for kind, (figure, _) in tests.items()}
    return Agreement(metric, criterion, "response", n, figures, {kind: p for kind, (_, p) in tests.items()})


def _over_systems(
    metric: Metric, criterion: str, table: Floats, people: Floats, systems: Sequence[str], weights: NDArray[Any]
) -> Agreement:
    names = sorted(set(systems) - {""})
    sign = 1.0 if metric.about.higher_is_better else -1.0
    rows = [np.flatnonzero(np.array(systems) == name) for name in names]
    ours = sign * np.array([metric.combine(table[row]) for row in rows])
    theirs = np.array([people[row].mean() for row in rows])
    if np.ptp(ours) == 0 or np.isnan(ours).any() or np.ptp(theirs) == 0:
        return Agreement(metric.about.name, criterion, "system", len(names), reason="systems do not differ")
    resamples = [statistics.resample_figures(metric, table[row], weights[:, row]) for row in rows]
    our_resamples = sign * np.stack(resamples, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        their_resamples = [weights[:, row] @ people[row] / weights[:, row].sum(axis=1) for row in rows]
    unweighted = np.ones((1, len(rows)))
    resampled: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
    for a, b in zip(our_resamples, np.stack(their_resamples, axis=1), strict=True):
        if not (np.isnan(a).any() or np.isnan(b).any() or np.ptp(a) == 0 or np.ptp(b) == 0):
            for kind, values in resample_correlations(a, b, unweighted).items():
                resampled[kind].append(float(values[0]))
    tests = {kind: correlation(ours, theirs, kind) for kind in KINDS}
    figures = {str(kind): _interval(figure, np.array(resampled[kind])) for kind, (figure, _) in tests.items()}
    return Agreement(metric.about.name, criterion, "system", len(names), figures, {k: p for k, (_, p) in tests.items()})


def _interval(value: float, resampled: Floats) -> Interval:
    """Return a figure with the 95% interval of its resamples, those that are NaN left out."""
    known = resampled[~np.isnan(resampled)]
    low, high = np.percentile(known, [2.5, 97.5]) if len(known) else (math.nan, math.nan)
    return Interval(value, float(low), float(high))


def context_weights(contexts: Sequence[str], resamples: int, seed: int) -> NDArray[Any]:
    """Return how often each response counts in each resample of contexts, shape (resamples, responses)."""
    if not contexts:
        return np.zeros((0, 0))
    count, of = _number_contexts(contexts)
    return statistics.resample_weights(count, resamples, seed)[:, of]


def _number_contexts(contexts: Sequence[str]) -> tuple[int, NDArray[np.int64]]:
    """Return how many contexts there are, and the number of each response's, in the order of their first."""
    numbers = {context: number for number, context in enumerate(dict.fromkeys(contexts))}
    return len(numbers), np.array([numbers[context] for context in contexts])


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
    concordant, untied, also = (((small @ pair).astype(np.float64) * weights).sum(axis=1) for pair in pairs)
    with np.errstate(invalid="ignore", divide="ignore"):
        kendall = concordant / np.sqrt(untied * also)
    return {
        "spearman": _weighted_pearson(ranks[0], ranks[1], weights),
        "kendall": kendall,
        "pearson": _weighted_pearson(first[None, :], second[None, :], weights),
    }


def _weighted_pearson(first: Floats, second: Floats, weights: NDArray[Any]) -> Floats:
    total = weights.sum(axis=1, keepdims=True)
    a = first - (weights * first).sum(axis=1, keepdims=True) / total
    b = second - (weights * second).sum(axis=1, keepdims=True) / total
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


def threshold_accuracy(
    values: Floats, truth: NDArray[np.bool_], contexts: Sequence[str], *, seed: int = 0
) -> float | None:
    """Accuracy of saying yes from a threshold on, each fold's threshold being the best on the other folds.

    None where there are too few contexts for folds.
    """
    count, of = _number_contexts(contexts)
    if count < _FOLDS:
        return None
    folds = (np.random.default_rng(seed).permutation(count) % _FOLDS)[of]
    right = 0
    for fold in range(_FOLDS):
        held = folds == fold
        levels = np.unique(values[~held])
        # Between neighbouring values, and beyond both ends.
        thresholds = np.concatenate([[-np.inf], (levels[1:] + levels[:-1]) / 2, [np.inf]])
        yes, no = np.sort(values[~held & truth]), np.sort(values[~held & ~truth])
        best = np.argmax(np.searchsorted(no, thresholds) + len(yes) - np.searchsorted(yes, thresholds))
        right += int(((values[held] >= thresholds[best]) == truth[held]).sum())
    return right / len(values)

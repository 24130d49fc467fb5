"""Findings of human evaluation: how far annotators agree, who wins, and whether it is significant.

Annotators of one item are not independent: tests are over items; shares are over all judgements, as papers give them.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from dialore.evaluation import statistics
from dialore.evaluation.base import Mean
from dialore.evaluation.statistics import Rate, correct_p_values, wilcoxon, win_rate

if TYPE_CHECKING:
    from dialore.evaluation.human.reading import Annotation

Outcome = Literal["win", "loss", "tie"]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of annotators on one question, over items that two of them answered; NaN where there is none.

    Attributes:
        same: share of pairs of answers that are the same.
        cohen: Cohen's kappa, the mean over pairs of annotators.
        fleiss: Fleiss' kappa, over the items that all annotators answered.
        alpha: Krippendorff's alpha: nominal for pairs, ordinal for scores and ranks.
    """

    criterion: str
    annotators: int
    items: int
    same: float
    cohen: float
    fleiss: float
    alpha: float


@dataclass(slots=True)
class Contest:
    """Two systems on one question.

    Attributes:
        rate: wins, losses and ties of the first over all judgements.
        p: Wilcoxon's signed-rank over items, Holm-corrected over all contests; NaN where it cannot be had.
        sign: the sign test over items by majority, corrected alike.
        mcnemar: McNemar's exact test over items of scores that are 0 or 1, each by majority, corrected over such
            contests; None for any other. (SCG-QP's two-proportion z-test takes annotators of one item for independent.)
        t: the paired t-test over items of scores of more values (MSDP, Table 2), corrected alike; None for any other.
    """

    criterion: str
    first: str
    second: str
    rate: Rate
    items: int
    p: float
    sign: float
    mcnemar: float | None = None
    t: float | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """A system's mean score on one question, with its 95% bootstrap interval over items.

    A rank counts reversed, as SCG-QP's Table 1 prints it: of five systems the best has 5, and all have 15 together.
    """

    criterion: str
    system: str
    mean: float
    low: float
    high: float
    items: int


@dataclass(slots=True)
class AnnotationResults:
    """Everything that annotations say."""

    form: str
    agreement: list[Agreement] = field(default_factory=list)
    contests: list[Contest] = field(default_factory=list)
    standings: list[Standing] = field(default_factory=list)


def analyse(annotations: Sequence[Annotation]) -> AnnotationResults:
    """Return agreement, mean scores and contests, question by question."""
    results = AnnotationResults(annotations[0].form if annotations else "")
    by_criterion: dict[str, list[Annotation]] = {}
    for annotation in annotations:
        by_criterion.setdefault(annotation.criterion, []).append(annotation)
    for criterion, answers in by_criterion.items():
        asked = [annotation for annotation in answers if annotation.asked]
        # If an annotator always gives the same answer, the libraries divide by zero on the way and return NaN.
        with np.errstate(divide="ignore", invalid="ignore"):
            results.agreement.append(_agreement(criterion, asked, results.form))
        if results.form != "pairwise":
            results.standings += _standings(criterion, answers)
        results.contests += _contests(criterion, answers, results.form)
    for test in ("p", "sign", "mcnemar", "t"):
        correct_p_values(results.contests, test)
    return results


def _agreement(criterion: str, answers: Sequence[Annotation], form: str) -> Agreement:
    """Return how far annotators agree on items; for scores and ranks, on each system of an item."""
    labels: dict[tuple[str, str], dict[str, str]] = {}
    for annotation in answers:
        given = {system: f"{value:g}" for system, value in annotation.values.items()}
        if form == "pairwise":
            given = {"": annotation.winner or "tie"}
        for system, label in given.items():
            labels.setdefault((annotation.item, system), {})[annotation.annotator] = label
    annotators = list(dict.fromkeys(annotation.annotator for annotation in answers))
    shared = {unit: by_annotator for unit, by_annotator in labels.items() if len(by_annotator) > 1}
    units = list(shared.values())
    same = [a == b for unit in units for a, b in itertools.combinations(unit.values(), 2)]
    complete = [[unit[name] for name in annotators] for unit in units if len(unit) == len(annotators)]
    # For nominal labels any numbering gives the same alpha.
    names = sorted({label for unit in units for label in unit.values()})
    numbers = {name: float(names.index(name) if form == "pairwise" else name) for name in names}
    table = [[numbers[unit[name]] if name in unit else None for unit in units] for name in annotators]
    level: Literal["nominal", "ordinal"] = "nominal" if form == "pairwise" else "ordinal"
    return Agreement(
        criterion,
        annotators=len(annotators),
        items=len({item for item, _ in shared}),
        same=sum(same) / len(same) if same else math.nan,
        cohen=_mean_kappa(units, annotators),
        fleiss=statistics.fleiss_kappa(complete) if complete else math.nan,
        alpha=statistics.krippendorff_alpha(table, level) if units else math.nan,
    )


def _mean_kappa(units: Sequence[Mapping[str, str]], annotators: Sequence[str]) -> float:
    """Return the mean of Cohen's kappa over the pairs of annotators that have one."""
    kappas = []
    for a, b in itertools.combinations(annotators, 2):
        both = [(unit[a], unit[b]) for unit in units if a in unit and b in unit]
        if both:
            kappas.append(statistics.cohen_kappa(*zip(*both, strict=True)))
    known = [kappa for kappa in kappas if not math.isnan(kappa)]
    return sum(known) / len(known) if known else math.nan


def _standings(criterion: str, answers: Sequence[Annotation]) -> list[Standing]:
    scores: dict[str, dict[str, list[float]]] = {}
    for annotation in answers:
        for system, value in _higher_is_better(annotation).items():
            scores.setdefault(system, {}).setdefault(annotation.dialogue, []).append(value)
    standings = []
    for system, by_dialogue in sorted(scores.items()):
        means = np.array([[np.mean(values)] for values in by_dialogue.values()])
        figure = statistics.bootstrap(Mean(), means)
        standings.append(Standing(criterion, system, figure.value, figure.low, figure.high, len(means)))
    return standings


def _contests(criterion: str, answers: Sequence[Annotation], form: str) -> list[Contest]:
    """Return the contests of every two systems that one annotator judged: as a pair, or on one dialogue."""
    scores: dict[tuple[str, str], dict[str, float]] = {}
    for annotation in answers:
        unit = annotation.item if form == "pairwise" else annotation.dialogue
        scores.setdefault((unit, annotation.annotator), {}).update(_higher_is_better(annotation))
    systems = sorted({system for values in scores.values() for system in values})
    is_binary = all(set(annotation.values.values()) <= {0.0, 1.0} for annotation in answers)
    contests = []
    for first, second in itertools.combinations(systems, 2):
        by_item: dict[str, list[tuple[float, float]]] = {}
        for (unit, _), values in scores.items():
            if first in values and second in values:
                by_item.setdefault(unit, []).append((values[first], values[second]))
        if not by_item:
            continue
        differences = [[a - b for a, b in pairs] for pairs in by_item.values()]
        means = [float(np.mean(values)) for values in differences]
        rate = win_rate([_outcome(value) for values in differences for value in values])
        p = wilcoxon(means, [0.0] * len(means)) if len(means) > 1 else math.nan
        contest = Contest(criterion, first, second, rate, len(means), p, win_rate([*map(_majority, differences)]).p)
        if form == "likert" and is_binary:
            # The majority on each system, half if annotators are divided. The exact test counts items that differ.
            votes = [np.sign(np.mean(pairs, axis=0) - 0.5) for pairs in by_item.values()]
            contest.mcnemar = win_rate([_outcome(a - b) for a, b in votes]).p
        elif form == "likert":
            contest.t = statistics.paired_t(means)
        contests.append(contest)
    return contests


def _outcome(value: float) -> Outcome:
    if value == 0:
        return "tie"
    return "win" if value > 0 else "loss"


def _majority(differences: list[float]) -> Outcome:
    """Return the outcome of most annotators; a tie if no outcome is the most frequent."""
    counts = Counter(map(_outcome, differences)).most_common(2)
    return counts[0][0] if len(counts) == 1 or counts[0][1] > counts[1][1] else "tie"


def mean_ratings(annotations: Sequence[Annotation]) -> dict[tuple[str, str], dict[str, float | bool]]:
    """Return the mean ratings of annotators by dialogue and system, then by criterion; higher is better.

    A rating is a score, one more than the number of systems less a rank, or 1 for a win and a half for a tie. If there
    are several criteria, `average` is their mean (SCG-QP, Section 3.3).
    """
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for annotation in annotations:
        for system, value in _higher_is_better(annotation).items():
            by_criterion = values.setdefault((annotation.dialogue, system), {})
            by_criterion.setdefault(annotation.criterion, []).append(value)
    ratings: dict[tuple[str, str], dict[str, float | bool]] = {}
    for key, by_criterion in values.items():
        ratings[key] = {criterion: float(np.mean(some)) for criterion, some in by_criterion.items()}
        if len(by_criterion) > 1:
            ratings[key]["average"] = float(np.mean([*ratings[key].values()]))
    return ratings


def _higher_is_better(each: Annotation) -> dict[str, float]:
    if each.form == "pairwise":
        return {system: 0.5 if each.winner is None else float(each.winner == system) for system in each.systems}
    return {system: len(each.systems) + 1 - v if each.form == "ranking" else v for system, v in each.values.items()}

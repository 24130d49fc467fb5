"""Findings of human evaluation: how far annotators agree, who wins, and whether it is significant.

Annotators of one item are not independent: tests are over items; shares are over all judgements, as papers give them.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from dialore.evaluation import statistics
from dialore.evaluation.base import Mean
from dialore.evaluation.statistics import Rate, holm, wilcoxon, win_rate

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
    """Agreement, win rates and significance, question by question."""
    findings = AnnotationResults(annotations[0].form if annotations else "")
    for criterion in dict.fromkeys(entry.criterion for entry in annotations):
        some = [entry for entry in annotations if entry.criterion == criterion]
        # Where an annotator always gives the same answer, the libraries divide by zero on the way and return NaN.
        with np.errstate(divide="ignore", invalid="ignore"):
            findings.agreement.append(_agreement(criterion, [entry for entry in some if entry.asked], findings.form))
        scores: dict[str, dict[str, list[float]]] = {}
        for note in some if findings.form != "pairwise" else ():
            for system, value in _higher_is_better(note).items():
                scores.setdefault(system, {}).setdefault(note.dialogue, []).append(value)
        for system in sorted(scores):
            means = np.array([[np.mean(values)] for values in scores[system].values()])
            figure = statistics.bootstrap(Mean(), means)
            standing = Standing(criterion, system, figure.value, figure.low, figure.high, len(means))
            findings.standings.append(standing)
        findings.contests += _contests(criterion, some)
    for test in ("p", "sign", "mcnemar", "t"):
        made = [entry for entry in findings.contests if getattr(entry, test) is not None]
        for entry, corrected in zip(made, holm([getattr(entry, test) for entry in made]), strict=True):
            setattr(entry, test, corrected)
    return findings


def _agreement(criterion: str, some: Sequence[Annotation], form: str) -> Agreement:
    """Return how far annotators agree on items; of scores and ranks, on each system of an item."""
    units: dict[tuple[str, str], dict[str, str]] = {}
    for note in some:
        given_labels = {system: f"{value:g}" for system, value in note.values.items()}
        for system, label in given_labels.items() if form != "pairwise" else [("", note.winner or "tie")]:
            units.setdefault((note.item, system), {})[note.annotator] = label
    annotators = list(dict.fromkeys(note.annotator for note in some))
    shared = {unit: labels for unit, labels in units.items() if len(labels) > 1}
    judged = list(shared.values())
    pairs = [pair for labels in judged for pair in itertools.combinations(labels.values(), 2)]
    complete = [[labels[who] for who in annotators] for labels in judged if len(labels) == len(annotators)]
    kappas = []
    for a, b in itertools.combinations(annotators, 2):
        both = [(labels[a], labels[b]) for labels in judged if a in labels and b in labels]
        if both and not math.isnan(kappa := statistics.cohen_kappa(*zip(*both, strict=True))):
            kappas.append(kappa)
    # Nominal: any numbering of the labels gives the same.
    level: Literal["nominal", "ordinal"] = "nominal" if form == "pairwise" else "ordinal"
    known = sorted({label for labels in judged for label in labels.values()})
    numbers = {label: float(n if form == "pairwise" else label) for n, label in enumerate(known)}
    table = [[numbers[labels[who]] if who in labels else None for labels in judged] for who in annotators]
    return Agreement(
        criterion,
        annotators=len(annotators),
        items=len({item for item, _ in shared}),
        same=sum(a == b for a, b in pairs) / len(pairs) if pairs else math.nan,
        cohen=sum(kappas) / len(kappas) if kappas else math.nan,
        fleiss=statistics.fleiss_kappa(complete) if complete else math.nan,
        alpha=statistics.krippendorff_alpha(table, level) if judged else math.nan,
    )


def _contests(criterion: str, some: Sequence[Annotation]) -> list[Contest]:
    """Return every two systems that the same annotator judged: of a pair, or on one dialogue."""
    scores: dict[tuple[str, str], dict[str, float]] = {}
    for note in some:
        unit = note.item if note.form == "pairwise" else note.dialogue
        scores.setdefault((unit, note.annotator), {}).update(_higher_is_better(note))
    is_likert = some[0].form == "likert"
    is_binary = is_likert and all(set(note.values.values()) <= {0.0, 1.0} for note in some)
    contests = []
    for first, second in itertools.combinations(sorted({system for values in scores.values() for system in values}), 2):
        by_item: dict[str, list[tuple[float, float]]] = {}
        for (unit, _), values in scores.items():
            if first in values and second in values:
                by_item.setdefault(unit, []).append((values[first], values[second]))
        if not by_item:
            continue
        differences = [[a - b for a, b in pairs] for pairs in by_item.values()]
        means = [float(np.mean(some)) for some in differences]
        made = Contest(
            criterion,
            first,
            second,
            rate=win_rate([_outcome(value) for some in differences for value in some]),
            items=len(means),
            p=wilcoxon(means, [0.0] * len(means)) if len(means) > 1 else math.nan,
            sign=win_rate([_majority(differs) for differs in differences]).p,
        )
        if is_binary:
            # Each system's majority, half where annotators are divided: the exact test goes by items that differ.
            votes = [np.sign(np.mean(pairs, axis=0) - 0.5) for pairs in by_item.values()]
            made.mcnemar = win_rate([_outcome(a - b) for a, b in votes]).p
        elif is_likert:
            made.t = statistics.paired_t(means)
        contests.append(made)
    return contests


def _outcome(value: float) -> Outcome:
    return "win" if value > 0 else "loss" if value < 0 else "tie"


def _majority(differences: list[float]) -> Outcome:
    """Return the outcome of the most annotators; a tie where no outcome has the most."""
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

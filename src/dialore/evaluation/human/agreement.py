"""Findings of human evaluation: how far annotators agree, who wins, and whether it is significant.

Annotators who judge the same item are no independent observations: tests are over items, each with the mean of its
annotators; shares are over all judgements, as the papers give them.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from dialore.evaluation.statistics import (
    Rate,
    cohen_kappa,
    fleiss_kappa,
    holm,
    krippendorff_alpha,
    two_proportions,
    wilcoxon,
    win_rate,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.evaluation.human.sheets import Annotation

Outcome = Literal["win", "loss", "tie"]
_RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far annotators agree on one question; NaN where a figure cannot be had.

    Attributes:
        items: items that at least two of them answered.
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


@dataclass(frozen=True, slots=True)
class Contest:
    """Two systems on one question.

    Attributes:
        rate: wins, losses and ties of the first over all judgements.
        items: over how many items the tests are.
        p: Wilcoxon's signed-rank over items, Holm-corrected over all contests; NaN where it cannot be had.
        sign: the sign test over items by majority, corrected alike.
        proportions: the two-proportion z-test of scores that are 0 or 1, over all judgements; None for any other.
    """

    criterion: str
    first: str
    second: str
    rate: Rate
    items: int
    p: float
    sign: float
    proportions: float | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """A system's mean score or rank on one question, with its 95% bootstrap interval over items."""

    criterion: str
    system: str
    mean: float
    low: float
    high: float
    items: int


@dataclass(slots=True)
class Findings:
    """Everything that annotations say."""

    form: str
    agreement: list[Agreement] = field(default_factory=list)
    contests: list[Contest] = field(default_factory=list)
    standings: list[Standing] = field(default_factory=list)


def analyse(annotations: Sequence[Annotation], *, seed: int = 0) -> Findings:
    """Agreement, win rates and significance, question by question."""
    found = Findings(annotations[0].form if annotations else "")
    for criterion in dict.fromkeys(each.criterion for each in annotations):
        some = [each for each in annotations if each.criterion == criterion]
        # Where somebody always says the same, the libraries divide by nothing on the way, and give NaN where it shows.
        with np.errstate(divide="ignore", invalid="ignore"):
            found.agreement.append(_agreement(criterion, some, found.form))
        if found.form == "pairwise":
            found.contests += _pair_contests(criterion, some)
        else:
            found.standings += _standings(criterion, some, seed)
            found.contests += _score_contests(criterion, some, lower_is_better=found.form == "ranking")
    tests, signs = holm([each.p for each in found.contests]), holm([each.sign for each in found.contests])
    corrected = zip(found.contests, tests, signs, strict=True)
    found.contests = [replace(each, p=p, sign=sign) for each, p, sign in corrected]
    return found


def _agreement(criterion: str, some: Sequence[Annotation], form: str) -> Agreement:
    """Every judgement is a unit: an item, or of rankings a system of an item."""
    units: dict[tuple[str, str], dict[str, str]] = {}
    for each in some:
        for unit, label in _labels(each):
            units.setdefault(unit, {})[each.annotator] = label
    annotators = list(dict.fromkeys(each.annotator for each in some))
    shared = {unit: labels for unit, labels in units.items() if len(labels) > 1}
    judged = list(shared.values())
    pairs = [pair for labels in judged for pair in itertools.combinations(labels.values(), 2)]
    complete = [[labels[who] for who in annotators] for labels in judged if len(labels) == len(annotators)]
    return Agreement(
        criterion,
        annotators=len(annotators),
        items=len({item for item, _ in shared}),
        same=sum(a == b for a, b in pairs) / len(pairs) if pairs else math.nan,
        cohen=_cohen(judged, annotators),
        fleiss=fleiss_kappa(complete) if complete else math.nan,
        alpha=_alpha(judged, annotators, form),
    )


def _labels(each: Annotation) -> list[tuple[tuple[str, str], str]]:
    if each.form == "pairwise":
        return [((each.item, ""), each.winner or "tie")]
    return [((each.item, system), f"{value:g}") for system, value in each.values.items()]


def _cohen(units: Sequence[dict[str, str]], annotators: Sequence[str]) -> float:
    kappas = []
    for a, b in itertools.combinations(annotators, 2):
        both = [(labels[a], labels[b]) for labels in units if a in labels and b in labels]
        kappas += [cohen_kappa(*zip(*both, strict=True))] if both else []
    kappas = [kappa for kappa in kappas if not math.isnan(kappa)]
    return sum(kappas) / len(kappas) if kappas else math.nan


def _alpha(units: Sequence[dict[str, str]], annotators: Sequence[str], form: str) -> float:
    if not units:
        return math.nan
    labels = sorted({label for unit in units for label in unit.values()})
    # Nominal: any numbering of the labels gives the same.
    numbers = {label: float(n if form == "pairwise" else label) for n, label in enumerate(labels)}
    table = [[numbers[unit[who]] if who in unit else None for unit in units] for who in annotators]
    return krippendorff_alpha(table, "nominal" if form == "pairwise" else "ordinal")


def _pair_contests(criterion: str, some: Sequence[Annotation]) -> list[Contest]:
    by_pair: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for each in some:
        pair = tuple(sorted(each.systems))
        sign = 0.0 if each.winner is None else 1.0 if each.winner == pair[0] else -1.0
        by_pair.setdefault(pair, {}).setdefault(each.item, []).append(sign)
    return [_contest(criterion, first, second, by_item) for (first, second), by_item in by_pair.items()]


def _score_contests(criterion: str, some: Sequence[Annotation], *, lower_is_better: bool) -> list[Contest]:
    """Every two systems over the judgements that the same annotator made of both on the same dialogue."""
    scores: dict[tuple[str, str], dict[str, float]] = {}
    for each in some:
        scores.setdefault((each.dialogue, each.annotator), {}).update(each.values)
    systems = sorted({system for values in scores.values() for system in values})
    all_values = {value for values in scores.values() for value in values.values()}
    found = []
    for first, second in itertools.combinations(systems, 2):
        by_dialogue: dict[str, list[float]] = {}
        pairs = []
        for (dialogue, _), values in scores.items():
            if first in values and second in values:
                difference = values[first] - values[second]
                by_dialogue.setdefault(dialogue, []).append(-difference if lower_is_better else difference)
                pairs.append((values[first], values[second]))
        if not pairs:
            continue
        made = _contest(criterion, first, second, by_dialogue)
        if not lower_is_better and all_values <= {0.0, 1.0}:
            sums = (int(sum(a for a, _ in pairs)), int(sum(b for _, b in pairs)))
            made = replace(made, proportions=two_proportions(sums, (len(pairs), len(pairs))).p)
        found.append(made)
    return found


def _contest(criterion: str, first: str, second: str, by_item: dict[str, list[float]]) -> Contest:
    rate = win_rate([_outcome(value) for values in by_item.values() for value in values])
    means = [float(np.mean(values)) for values in by_item.values()]
    p = wilcoxon(means, [0.0] * len(means)).p if len(means) > 1 else math.nan
    majority = win_rate([_majority(list(map(_outcome, values))) for values in by_item.values()])
    return Contest(criterion, first, second, rate, len(by_item), p, majority.p)


def _outcome(value: float) -> Outcome:
    return "win" if value > 0 else "loss" if value < 0 else "tie"


def _majority(outcomes: list[Outcome]) -> Outcome:
    """The outcome of the most annotators; a tie where no outcome has the most."""
    counts = Counter(outcomes).most_common(2)
    return counts[0][0] if len(counts) == 1 or counts[0][1] > counts[1][1] else "tie"


def _standings(criterion: str, some: Sequence[Annotation], seed: int) -> list[Standing]:
    scores: dict[str, dict[str, list[float]]] = {}
    for each in some:
        for system, value in each.values.items():
            scores.setdefault(system, {}).setdefault(each.dialogue, []).append(value)
    found = []
    for system in sorted(scores):
        means = np.array([np.mean(values) for values in scores[system].values()])
        low = high = math.nan
        if len(means) > 1:
            sampled = np.random.default_rng(seed).choice(means, (_RESAMPLES, len(means))).mean(axis=1)
            low, high = (float(bound) for bound in np.percentile(sampled, [2.5, 97.5]))
        found.append(Standing(criterion, system, float(means.mean()), low, high, len(means)))
    return found

"""Systems against a baseline, and methods against their variants: differences, intervals, corrected p-values."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dialore.evaluation.base import Additive
from dialore.evaluation.registry import Context, load_metric
from dialore.evaluation.statistics import RESAMPLES, as_table, holm, paired_bootstrap, wilcoxon

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dialore.evaluation.base import About, Metric
    from dialore.evaluation.report.data import Results, SystemScores

Measures = dict[tuple[str, int], tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One system against the baseline on one metric, on the dialogues that both have measures of.

    Attributes:
        pairs: dialogues that both have.
        difference: the system's figure less the baseline's, on these.
        bootstrap: p of the paired bootstrap, Holm-corrected over the systems compared on the metric.
        wilcoxon: p of Wilcoxon's signed-rank test, corrected alike; None for metrics of the corpus as a whole.
    """

    system: SystemScores
    baseline: SystemScores
    metric: str
    pairs: int
    difference: float
    low: float
    high: float
    bootstrap: float
    wilcoxon: float | None
    higher_is_better: bool

    @property
    def p(self) -> float:
        """What the mark goes by: the larger p of the tests that were made; NaN where one of them says nothing."""
        tests = [self.bootstrap] if self.wilcoxon is None else [self.bootstrap, self.wilcoxon]
        return math.nan if any(math.isnan(p) for p in tests) else max(tests)

    @property
    def mark(self) -> str:
        """`*` for p < 0.05, `**` for p < 0.01, by every test that was made; else nothing."""
        return mark_of(self.p)

    @property
    def is_better(self) -> bool:
        """Whether the system does better than the baseline, significantly or not."""
        return self.difference != 0 and (self.difference > 0) == self.higher_is_better


@dataclass(frozen=True, slots=True)
class Ablation:
    """A full method and its variants on one data set and model.

    Attributes:
        comparisons: each variant less the full method, by the variant's place and the metric's name.
    """

    full: SystemScores
    variants: list[SystemScores]
    comparisons: dict[tuple[int, str], Comparison]


def mark_of(p: float) -> str:
    """The mark of a p-value: `*` for p < 0.05, `**` for p < 0.01, else nothing."""
    return "**" if p < 0.01 else "*" if p < 0.05 else ""


def combiner(name: str) -> Metric:
    """A metric that combines measures; it needs nothing that measuring needs."""
    return load_metric(name, Context())


def compare(
    results: Results, systems: Sequence[SystemScores], baseline: SystemScores, abouts: Sequence[About]
) -> list[Comparison]:
    """Every other system against the baseline, metric by metric; those without common dialogues are left out."""
    found: list[Comparison] = []
    others = [system for system in systems if system is not baseline]
    for about in abouts:
        base = results.measures(baseline, about.name)
        if not base:  # a mean of other metrics' figures has no measures of its own
            continue
        metric = combiner(about.name)
        made = [
            _compare(metric, system, baseline, results.measures(system, about.name), base, len(others))
            for system in others
        ]
        found += _corrected([each for each in made if each is not None])
    return found


def ablations(results: Results, abouts: Sequence[About]) -> list[Ablation]:
    """Every method that stands in the results both without and with options."""
    families: dict[tuple[str, str, str], list[SystemScores]] = {}
    for system in results.systems():
        families.setdefault((system.dataset, system.model, system.method), []).append(system)
    found = []
    for family in families.values():
        full = next((system for system in family if not system.options), None)
        variants = [system for system in family if system.options]
        if full is not None and variants:
            places = {id(system): place for place, system in enumerate(variants)}
            made = compare(results, [full, *variants], full, abouts)
            found.append(Ablation(full, variants, {(places[id(each.system)], each.metric): each for each in made}))
    return found


def _compare(
    metric: Metric,
    system: SystemScores,
    baseline: SystemScores,
    own: Measures,
    base: Measures,
    comparisons: int,
) -> Comparison | None:
    mine, theirs = by_dialogue(metric, own), by_dialogue(metric, base)
    common = [dialogue for dialogue in mine if dialogue in theirs]
    if len(common) < 2:
        return None
    first, second = as_table([mine[each] for each in common]), as_table([theirs[each] for each in common])
    # A bootstrap's p is never below two resamples' worth: enough of them that a corrected one can pass 0.01.
    resamples = max(RESAMPLES, 400 * comparisons) if isinstance(metric, Additive) else RESAMPLES
    interval, bootstrapped = paired_bootstrap(metric, first, second, resamples=resamples)
    if math.isnan(interval.value):
        return None
    about = metric.about
    p = wilcoxon(values(metric, first), values(metric, second)).p if about.level == "response" else None
    difference = (interval.value, interval.low, interval.high)
    return Comparison(system, baseline, about.name, len(common), *difference, bootstrapped, p, about.higher_is_better)


def _corrected(made: Sequence[Comparison]) -> list[Comparison]:
    bootstraps = holm([each.bootstrap for each in made])
    tests = holm([math.nan if each.wilcoxon is None else each.wilcoxon for each in made])
    return [
        replace(each, bootstrap=p, wilcoxon=None if each.wilcoxon is None else q)
        for each, p, q in zip(made, bootstraps, tests, strict=True)
    ]


def by_dialogue(metric: Metric, measures: Measures) -> dict[str, tuple[float, ...]]:
    """One row a dialogue: repetitions of one are no independent observations.

    Measures that combine by addition are averaged over repetitions; of any other metric the first one counts.
    """
    found: dict[str, list[tuple[float, ...]]] = {}
    for (dialogue, _), row in sorted(measures.items(), key=lambda item: item[0][1]):
        found.setdefault(dialogue, []).append(row)
    if not isinstance(metric, Additive):
        return {dialogue: rows[0] for dialogue, rows in found.items()}
    return {
        dialogue: rows[0] if len(rows) == 1 else tuple(float(value) for value in np.mean(rows, axis=0))
        for dialogue, rows in found.items()
    }


def values(metric: Metric, rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each row's own value, of a metric whose single responses have one."""
    if rows.shape[1] == 1:
        return rows[:, 0]
    return np.array([metric.combine(rows[place : place + 1]) for place in range(len(rows))])


def values_of(metric: Metric, measures: Mapping[tuple[str, int], tuple[float, ...]]) -> dict[tuple[str, int], float]:
    """Each response's own value by its key, those that have one."""
    if not measures:
        return {}
    found = values(metric, as_table(list(measures.values())))
    return {key: float(value) for key, value in zip(measures, found, strict=True) if not math.isnan(value)}

"""Tables of a report: scores with significance, ablations and judges' preferences."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dialore import pages
from dialore.dialogue import conversation_of
from dialore.errors import UnknownNameError
from dialore.evaluation.base import Additive, Metric, MetricInfo, Score
from dialore.evaluation.geomean import ABOUTS as GEOMEANS
from dialore.evaluation.geomean import GeoMean
from dialore.evaluation.judges.comparing import position_bias, rate_of
from dialore.evaluation.registry import Context, load_metric
from dialore.evaluation.report.data import (
    MINUS,
    Judged,
    Results,
    SystemScores,
    decimals,
    display_factor,
    p_value,
    share,
    spread,
    three,
)
from dialore.evaluation.statistics import (
    MIN_PAIRS,
    RANDOMISATIONS,
    SLOW_RANDOMISATIONS,
    Rate,
    as_table,
    compare_paired,
    correct_p_values,
    wilcoxon,
)

Measures = Mapping[tuple[str, int], tuple[float, ...]]
"""Measures by dialogue id and repetition."""
MAX_COLUMNS = 9
"""Maximum number of metrics beside each other on a page."""
# Headings in table order. A metric belongs to the last one whose needs it shares.
_FAMILIES = {
    "Reference-based": {"reference"},
    "Reference-free": set[str](),
    "Knowledge and planning": {"knowledge", "plan", "nli"},
    "Judged": {"judge"},
}


# --- comparisons with a baseline


@dataclass(slots=True)
class Comparison:
    """One system against the baseline on one metric, on the dialogues (`pairs`) for which both have measures.

    Attributes:
        randomisation: p of the paired randomisation test, Holm-corrected over the systems compared on the metric.
        wilcoxon: p of Wilcoxon's signed-rank test, corrected likewise. None for metrics of the whole corpus.
        uncorrected: The same p without correction, as most papers print it.
        display_factor: Factor from the difference and its interval to the figures in tables.
    """

    system: SystemScores
    baseline: SystemScores
    metric: str
    pairs: int
    difference: float
    low: float
    high: float
    randomisation: float
    wilcoxon: float | None
    uncorrected: float | None
    higher_is_better: bool
    display_factor: float

    @property
    def p(self) -> float:
        """The larger p-value of the tests, which decides the mark. NaN if a test has no result."""
        if self.wilcoxon is None:
            return self.randomisation
        return float(np.maximum(self.randomisation, self.wilcoxon))

    @property
    def mark(self) -> str:
        """The mark of significance."""
        return mark_of(self.p)

    @property
    def is_better(self) -> bool:
        """True if the system has the better figure, significantly or not."""
        return self.difference != 0 and (self.difference > 0) == self.higher_is_better


def mark_of(p: float) -> str:
    """Return the mark of a p-value: `*` for p < 0.05, `**` for p < 0.01, else nothing."""
    return "*" * ((p < 0.05) + (p < 0.01))


def combiner(name: str) -> Metric:
    """Return a metric that only combines measures, without judge, graph or other context."""
    return GeoMean(GEOMEANS[name]) if name in GEOMEANS else load_metric(name, Context())


def compare(
    results: Results, systems: Sequence[SystemScores], baseline: SystemScores, metrics: Sequence[MetricInfo]
) -> list[Comparison]:
    """Compare every other system with the baseline, metric by metric. Pairs without common dialogues are left out."""
    comparisons: list[Comparison] = []
    others = [system for system in systems if system is not baseline]
    for info in metrics:
        base = results.measures(baseline, info.name)
        if not base:
            continue
        metric = combiner(info.name)
        # Enough random swaps for a p below 0.01 after the correction.
        usual = RANDOMISATIONS if isinstance(metric, Additive) else SLOW_RANDOMISATIONS
        swaps = max(usual, 400 * len(others))
        pairs = [_compare_pair(metric, system, baseline, results, base, swaps) for system in others]
        compared = [pair for pair in pairs if pair is not None]
        correct_p_values(compared, "randomisation")
        correct_p_values(compared, "wilcoxon")
        comparisons += compared
    return comparisons


def _compare_pair(
    metric: Metric, system: SystemScores, baseline: SystemScores, results: Results, base: Measures, randomisations: int
) -> Comparison | None:
    info = metric.about
    own_rows = rows_by_dialogue(metric, results.measures(system, info.name))
    base_rows = rows_by_dialogue(metric, base)
    common = [dialogue for dialogue in own_rows if dialogue in base_rows]
    if len(common) < 2:
        return None
    first = as_table([own_rows[dialogue] for dialogue in common])
    second = as_table([base_rows[dialogue] for dialogue in common])
    conversations = [conversation_of(dialogue) for dialogue in common]
    interval, p = compare_paired(metric, first, second, dialogues=conversations, randomisations=randomisations)
    if math.isnan(interval.value):
        return None
    signed_rank = None
    if info.level == "response":
        _, index, counts = np.unique(conversations, return_inverse=True, return_counts=True)
        means = [np.bincount(index, weights=values(metric, rows)) / counts for rows in (first, second)]
        signed_rank = wilcoxon(*means)
    return Comparison(
        system,
        baseline,
        info.name,
        len(common),
        difference=interval.value,
        low=interval.low,
        high=interval.high,
        randomisation=p,
        wilcoxon=signed_rank,
        uncorrected=signed_rank,
        higher_is_better=info.higher_is_better,
        display_factor=display_factor(info),
    )


def rows_by_dialogue(metric: Metric, measures: Measures) -> dict[str, tuple[float, ...]]:
    """Return one row per dialogue: the mean of its repetitions if the metric is additive, else the first."""
    repetitions: dict[str, list[tuple[float, ...]]] = {}
    for dialogue, repetition in sorted(measures, key=lambda key: key[1]):
        repetitions.setdefault(dialogue, []).append(measures[dialogue, repetition])
    if not isinstance(metric, Additive):
        return {dialogue: rows[0] for dialogue, rows in repetitions.items()}
    return {dialogue: tuple(np.mean(rows, axis=0).tolist()) for dialogue, rows in repetitions.items()}


def values(metric: Metric, rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the value of each row, for a metric whose single responses have one."""
    if rows.shape[1] == 1:
        return rows[:, 0]
    return np.array([metric.combine(row[None, :]) for row in rows])


def values_of(metric: Metric, measures: Measures) -> dict[tuple[str, int], float]:
    """Return the value of each response that has one."""
    if not measures:
        return {}
    scores = values(metric, as_table([*measures.values()])).tolist()
    return {key: score for key, score in zip(measures, scores, strict=True) if not math.isnan(score)}


# --- ablations


@dataclass(frozen=True, slots=True)
class Ablation:
    """A full system, its variants on one data set and model, and the comparisons of each with it."""

    full: SystemScores
    variants: list[SystemScores]
    comparisons: list[Comparison]


def find_ablations(results: Results, metrics: Sequence[MetricInfo]) -> list[Ablation]:
    """Group every full system with its ablated variants.

    Systems are compared if they share data set, model, method and prompt variant. A system is a variant of another if
    it disables or changes some of its options. A variant with several full systems belongs to the one that sets the
    most options.
    """
    families: dict[tuple[str, ...], list[SystemScores]] = {}
    for system in results.systems():
        key = (system.dataset, system.model, system.method, str(system.options.get("prompt_variant", "")))
        families.setdefault(key, []).append(system)
    ablations = []
    for family in families.values():
        for full in family:
            variants = [system for system in family if _full_system(system, family) is full]
            if variants:
                ablations.append(Ablation(full, variants, compare(results, [full, *variants], full, metrics)))
    return ablations


def _full_system(system: SystemScores, family: Sequence[SystemScores]) -> SystemScores | None:
    """Return the full system of which `system` is a variant, or None if it is a full system itself."""
    bases = [base for base in family if _is_variant(system, base, family)]
    full = [base for base in bases if not any(_is_variant(base, other, family) for other in family)]
    return max(full, key=lambda base: len(base.options), default=None)


def _is_variant(system: SystemScores, base: SystemScores, family: Sequence[SystemScores]) -> bool:
    """Return whether a system is `base` with something disabled, or with additional options.

    Additional options that are words have no direction: then the first system of the family is the full one. A
    variant may lack stage models of the full system, but cannot use others.
    """
    options, base_options = dict(system.options), dict(base.options)
    stages, base_stages = options.pop("stages", {}), base_options.pop("stages", {})
    missing = object()
    changed = {name: value for name, value in options.items() if base_options.get(name, missing) != value}
    if not changed or not base_options.keys() <= options.keys() or not stages.items() <= base_stages.items():
        return False
    if changed.keys() & base_options.keys():
        return all(value in (False, "none") for value in changed.values())
    if not base_options or family.index(base) < family.index(system):
        return True
    return all(value == "none" or isinstance(value, int | float) for value in changed.values())


# --- preferences of judges

READING = (
    "A system wins a dialogue where the judge picks it whichever is shown first; else it is a tie. The interval is "
    "Wilson's, 95%, of the share of wins among all; p is the sign test of wins against losses, then Holm-corrected "
    "over the criteria; * p < 0.05, ** p < 0.01 by the corrected one. For both, turns and repetitions of one "
    "conversation count as one. Position: how often whoever was shown first was picked in both orders, less how often "
    "whoever was shown second."
)


@dataclass(slots=True)
class Verdict:
    """The outcome of one criterion for the first system.

    Attributes:
        p: p of the sign test, Holm-corrected over the criteria.
        bias: Share of preferences for the first position, less the share for the second.
        unjudged: Why there are fewer preferences than dialogues.
    """

    criterion: str
    rate: Rate
    p: float
    bias: float
    unjudged: str

    @property
    def mark(self) -> str:
        """The mark of the corrected p-value."""
        return mark_of(self.p)

    @property
    def parts(self) -> list[float]:
        """Wins, ties and losses in per cent."""
        return [100 * count / (self.rate.n or 1) for count in (self.rate.wins, self.rate.ties, self.rate.losses)]

    @property
    def row(self) -> list[str]:
        """The cells below the columns of the contest, without the mark."""
        rate = self.rate
        counts = [f"{count:,}" for count in (rate.wins, rate.ties, rate.losses)]
        if not rate.n:
            return [self.criterion, *counts, *["–"] * 5]
        interval = f"{share(rate.wins, rate.n)} ({100 * rate.low:.1f} to {100 * rate.high:.1f})"
        bias = f"{100 * self.bias:+.1f}%".replace("+0.0", "0.0").replace("-", MINUS)
        return [self.criterion, *counts, interval, share(rate.share, 1), p_value(rate.p), p_value(self.p), bias]


@dataclass(frozen=True, slots=True)
class Contest:
    """Two systems before one judge, which was asked with these prompts. Wins are those of the first system."""

    first: str
    second: str
    judge: str
    prompts: str
    judged: str
    dataset: str
    verdicts: list[Verdict]

    @property
    def columns(self) -> list[str]:
        """The heads of the table of verdicts."""
        wins = [f"{self.first} wins", "ties", f"{self.second} wins"]
        return ["criterion", *wins, "share of wins", "ties half", "p", "corrected p", "position"]


def contests(judged: Sequence[Judged]) -> list[Contest]:
    """Group preferences that follow each other by run, judge and pair of systems."""
    grouped = groupby(judged, lambda it: (it.run, it.dataset, it.judge, it.judged, it.first, it.second))
    results = []
    for (_, dataset, judge, kind, first, second), pairs in grouped:
        verdicts = []
        for pair in pairs:
            rate = rate_of(pair.preferences)
            problems = Counter(vote.problem for vote in pair.preferences if vote.problem is not None)
            unjudged = ", ".join(f"{count} {problem}" for problem, count in problems.items())
            p = rate.p if rate.n else math.nan
            verdicts.append(Verdict(pair.criterion, rate, p, position_bias(pair.preferences), unjudged))
        correct_p_values(verdicts, "p")
        model, _, prompts = judge.partition(", ")
        results.append(Contest(first, second, model, prompts, kind, dataset, verdicts))
    return results


# --- the main table


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure of the main table.

    Attributes:
        place: 1 for the best figure of its group, 2 for the second, else 0.
        note: Number of the footnote, or 0.
    """

    metric: MetricInfo
    score: Score
    comparison: Comparison | None
    place: int
    note: int

    @property
    def text(self) -> str:
        """The figure in three digits, or nothing if it is not available."""
        return "" if self.score.value is None else three(self.score.value * display_factor(self.metric))

    @property
    def spread(self) -> str:
        """Half of the interval.

        Empty if the interval does not contain the figure: resampling repeats responses, which lowers diversity.
        """
        score, factor = self.score, display_factor(self.metric)
        if score.value is None or score.low is None or score.high is None:
            return ""
        if not score.low <= score.value <= score.high:
            return ""
        return spread(score.low * factor, score.high * factor, decimals(score.value * factor))

    @property
    def mark(self) -> str:
        """The mark of significance."""
        return self.comparison.mark if self.comparison is not None else ""


@dataclass(frozen=True, slots=True)
class Row:
    """A system's row."""

    system: SystemScores
    label: str
    cells: list[Cell]
    is_baseline: bool

    @property
    def n(self) -> int:
        """The largest number of responses behind a figure. Figures of fewer have a footnote."""
        return max((cell.score.n for cell in self.cells), default=0)


@dataclass(frozen=True, slots=True)
class Group:
    """Systems that are compared with each other."""

    title: str
    rows: list[Row]
    comparisons: list[Comparison]


@dataclass(slots=True)
class MainTable:
    """The main table and the texts below it.

    Attributes:
        families: Headings over the columns, each with the number of columns.
        absent: Metrics without a column because no system has them, with the reason.
        facts: What the runs record of themselves, by folder.
        counts_differ: Whether figures of a group are of different numbers of responses.
    """

    metrics: list[MetricInfo]
    families: list[tuple[str, int]]
    facts: Mapping[str, Any]
    counts_differ: bool = False
    groups: list[Group] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    absent: list[tuple[MetricInfo, str]] = field(default_factory=list)

    @property
    def has_groups(self) -> bool:
        """True if the rows need headings."""
        return len(self.groups) > 1

    @property
    def rows(self) -> list[Row]:
        """The rows of all groups."""
        return [row for group in self.groups for row in group.rows]

    @property
    def comparisons(self) -> list[Comparison]:
        """The comparisons of all groups."""
        return [comparison for group in self.groups for comparison in group.comparisons]

    def parts(self, width: int = MAX_COLUMNS) -> list[list[tuple[str, list[int]]]]:
        """Split the columns into parts of at most `width`: in each, families with the indices of their metrics."""
        parts: list[list[tuple[str, list[int]]]] = []
        remaining = 0
        start = 0
        for title, count in self.families:
            for columns in np.array_split(np.arange(start, start + count), math.ceil(count / width)):
                if len(columns) > remaining:
                    parts.append([])
                    remaining = width
                parts[-1].append((title, columns.tolist()))
                remaining -= len(columns)
            start += count
        return parts

    def add_note(self, score: Score) -> int:
        """Return the number of the footnote of a figure that some responses, or all, lack; 0 if it needs none."""
        if score.value is not None and not score.problems:
            return 0
        note = f"of {score.n} responses only: {score.reason}"
        if score.value is None:
            note = f"not available: {score.reason or 'not measured'}"
        if note not in self.notes:
            self.notes.append(note)
        return self.notes.index(note) + 1


def family_of(info: MetricInfo) -> str:
    """Return the heading over a metric's column."""
    families = [title for title, needs in _FAMILIES.items() if needs & set(info.needs)]
    return families[-1] if families else "Reference-free"


def main_table(results: Results, *, baseline: str | None = None, keep_absent: bool = False) -> MainTable:
    """Return the main table.

    Args:
        results: The scored runs.
        baseline: Name or method of the system to compare with. Without one, `vanilla` if there is one, else the first
            system of each group.
        keep_absent: Whether metrics that no system has get a column as well.
    """
    systems = results.systems()
    known = {name for system in systems for name in (system.name, system.method)}
    if baseline is not None and baseline not in known:
        raise UnknownNameError("system", baseline, known)
    order = list(_FAMILIES)
    metrics = sorted(results.metrics(), key=lambda info: order.index(family_of(info)))
    absent = []
    for info in () if keep_absent else metrics:
        scores = [_score(system, info) for system in systems]
        if all(score.value is None for score in scores):
            reasons = dict.fromkeys(score.reason or "not measured" for score in scores)
            absent.append((info, "; ".join(reasons)))
    shown = [info for info in metrics if info not in [gone for gone, _ in absent]]
    families = Counter(family_of(info) for info in shown)
    table = MainTable(shown, list(families.items()), results.facts, absent=absent)
    for title, members in group_systems(systems):
        base = _find_baseline(members, baseline)
        comparisons = [] if base is None else compare(results, members, base, shown)
        by_cell = {(id(comparison.system), comparison.metric): comparison for comparison in comparisons}
        places = {}
        for info in shown:
            scores = [_score(system, info) for system in members]
            places[info.name] = _places(scores, info)
            table.counts_differ |= _counts_differ(scores)
        group = Group(title, [], comparisons)
        for index, (system, label) in enumerate(zip(members, labels(members), strict=True)):
            row = Row(system, label, [], system is base)
            for info in shown:
                score = _score(system, info)
                compared = by_cell.get((id(system), info.name))
                cell = Cell(info, score, compared, places[info.name][index], table.add_note(score))
                row.cells.append(cell)
            group.rows.append(row)
        table.groups.append(group)
    return table


def _find_baseline(systems: Sequence[SystemScores], name: str | None) -> SystemScores | None:
    if len(systems) < 2:
        return None
    wanted = name or "vanilla"
    by_name = [system for system in systems if system.name == wanted]
    by_method = [system for system in systems if system.method == wanted]
    candidates = by_name or by_method or ([] if name else systems)
    return candidates[0] if candidates else None


def _score(system: SystemScores, info: MetricInfo) -> Score:
    return system.scores.get(info.name) or Score(info.name, None, reason="not measured in this run")


def _places(scores: Sequence[Score], info: MetricInfo) -> list[int]:
    """Return 1 for the best, 2 for the second, else 0. Figures that look the same share a place.

    No figure has a place if all look the same, or if they are of different numbers of responses: a system that
    answers only what is easy is not the best.
    """
    rounded = [None if score.value is None else float(f"{score.value:.2e}") for score in scores]
    ranking = sorted({value for value in rounded if value is not None}, reverse=info.higher_is_better)
    if len(ranking) < 2 or _counts_differ(scores):
        return [0] * len(scores)
    places = {ranking[0]: 1, ranking[1]: 2}
    return [0 if value is None else places.get(value, 0) for value in rounded]


def _counts_differ(scores: Iterable[Score]) -> bool:
    """Return whether figures are of different numbers of responses."""
    return len({score.n for score in scores if score.value is not None}) > 1


def group_systems(systems: Sequence[SystemScores]) -> list[tuple[str, list[SystemScores]]]:
    """Group systems by data set, and by model if every model of a data set has several systems."""
    datasets = dict.fromkeys(system.dataset for system in systems)
    groups: list[tuple[str, list[SystemScores]]] = []
    for dataset in datasets:
        members = [system for system in systems if system.dataset == dataset]
        by_model: dict[str, list[SystemScores]] = {}
        for system in members:
            by_model.setdefault(system.model, []).append(system)
        if len(by_model) == 1 or min(map(len, by_model.values())) == 1:
            groups.append((dataset, members))
            continue
        prefix = f"{dataset} · " if len(datasets) > 1 else ""
        groups += [(prefix + model, some) for model, some in by_model.items()]
    return groups


def labels(systems: Sequence[SystemScores]) -> list[str]:
    """Return names that tell the systems of a group apart: with the model, and with the run, if needed."""
    names = [system.name for system in systems]
    if len({system.model for system in systems}) > 1:
        names = [f"{name} · {system.model}" for name, system in zip(names, systems, strict=True)]
    if len(set(names)) < len(names):
        names = [f"{name} · {system.run}" for name, system in zip(names, systems, strict=True)]
    return names


# --- sentences about the tables


def how_to_read(table: MainTable) -> list[str]:
    """Return the sentences below the table: what is special about the runs, and what the marks mean."""
    return _sentences("reading", table)


def significant(group: Group) -> list[str]:
    """Return a sentence per system: the metrics on which it is significantly better or worse than the baseline."""
    return _sentences("significance", group)


def _sentences(macro: str, subject: object) -> list[str]:
    """Return the lines that a macro of `data/report/reading.j2` writes."""
    templates = pages.environment().overlay(autoescape=False)
    sentences = templates.get_template("report/reading.j2", globals={"min_pairs": MIN_PAIRS}).module
    text: str = getattr(sentences, macro)(subject)
    return [line for line in text.splitlines() if line]

"""Systems against each other: tests against a baseline, ablations, judges' preferences, and the main table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    holm,
    wilcoxon,
)
from dialore.text import count_noun

Measures = dict[tuple[str, int], tuple[float, ...]]


@dataclass(slots=True)
class Comparison:
    """One system against the baseline on one metric, on the dialogues (`pairs`) that both have measures of.

    The p-values are Holm-corrected over the systems compared on the metric; `wilcoxon` is None for metrics of the
    corpus as a whole, and `uncorrected` is its p as most papers print it, DCRAG's tables too: of this one comparison.
    `display_factor` is what the difference and its interval are multiplied by in tables.
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
    higher_is_better: bool
    uncorrected: float | None
    display_factor: float

    @property
    def p(self) -> float:
        """The p-value of the mark: the larger one of the tests that were made; NaN where one of them says nothing."""
        tests = [self.randomisation] if self.wilcoxon is None else [self.randomisation, self.wilcoxon]
        return math.nan if any(math.isnan(p) for p in tests) else max(tests)

    @property
    def mark(self) -> str:
        """`*` for p < 0.05, `**` for p < 0.01, by every test that was made; else nothing."""
        return mark_of(self.p)

    @property
    def is_better(self) -> bool:
        """True where the system does better than the baseline, significantly or not."""
        return self.difference != 0 and (self.difference > 0) == self.higher_is_better


@dataclass(frozen=True, slots=True)
class Ablation:
    """A full system, its variants on one data set and model, and the comparisons of each with it."""

    full: SystemScores
    variants: list[SystemScores]
    comparisons: list[Comparison]


def mark_of(p: float) -> str:
    """Return the mark of a p-value: `*` for p < 0.05, `**` for p < 0.01, else nothing."""
    return "**" if p < 0.01 else "*" if p < 0.05 else ""


def combiner(name: str) -> Metric:
    """Return a metric that combines measures; it needs nothing that measuring needs."""
    return GeoMean(GEOMEANS[name]) if name in GEOMEANS else load_metric(name, Context())


def compare(
    results: Results, systems: Sequence[SystemScores], baseline: SystemScores, abouts: Sequence[MetricInfo]
) -> list[Comparison]:
    """Return every other system against the baseline, metric by metric; those without common dialogues are left out."""
    compared: list[Comparison] = []
    others = [system for system in systems if system is not baseline]
    for about in abouts:
        base = results.measures(baseline, about.name)
        if not base:
            continue
        metric = combiner(about.name)
        measured = ((system, results.measures(system, about.name)) for system in others)
        pairs = [_compare(metric, system, baseline, own, base, len(others)) for system, own in measured]
        made = [pair for pair in pairs if pair is not None]
        for test in ("randomisation", "wilcoxon"):
            tested = [pair for pair in made if getattr(pair, test) is not None]
            for pair, p in zip(tested, holm([getattr(pair, test) for pair in tested]), strict=True):
                setattr(pair, test, p)
        compared += made
    return compared


def ablations(results: Results, abouts: Sequence[MetricInfo]) -> list[Ablation]:
    """Full systems, each with those that leave out or change a part of it, of one method by one kind of prompts."""
    families: dict[tuple[str, str, str, str], list[SystemScores]] = {}
    for system in results.systems():
        key = (system.dataset, system.model, system.method, str(system.options.get("prompt_variant", "")))
        families.setdefault(key, []).append(system)
    groups = []
    for family in families.values():
        places = range(len(family))
        bases = [[of for of in places if _is_variant(family, member, of)] for member in places]
        # A variant is its nearest full system's: the one that sets the most of what it sets.
        wholes = ([of for of in some if not bases[of]] for some in bases)
        fulls = [max(some, key=lambda of: len(family[of].options), default=None) for some in wholes]
        for of in places:
            if variants := [family[member] for member in places if fulls[member] == of]:
                made = compare(results, [family[of], *variants], family[of], abouts)
                groups.append(Ablation(family[of], variants, made))
    return groups


def _is_variant(family: Sequence[SystemScores], place: int, of: int) -> bool:
    """Return whether a system is another one with something left out, or with options more.

    Options more that are words tell no direction: then the full system is the one that stands first. A variant may
    lack stages, but those that it has have the full one's models.
    """
    (own, stages), (base, base_stages) = (
        ({name: value for name, value in system.options.items() if name != "stages"}, system.options.get("stages", {}))
        for system in (family[place], family[of])
    )
    changed = [name for name, value in own.items() if name not in base or base[name] != value]
    if not changed or not base.keys() <= own.keys() or not stages.items() <= base_stages.items():
        return False
    if any(name in base for name in changed):
        return all(own[name] in (False, "none") for name in changed)
    return of < place or not base or all(own[name] == "none" or isinstance(own[name], int | float) for name in changed)


def _compare(
    metric: Metric, system: SystemScores, baseline: SystemScores, own: Measures, base: Measures, comparisons: int
) -> Comparison | None:
    mine, theirs = rows_by_dialogue(metric, own), rows_by_dialogue(metric, base)
    common = [dialogue for dialogue in mine if dialogue in theirs]
    if len(common) < 2:
        return None
    first, second = as_table([mine[key] for key in common]), as_table([theirs[key] for key in common])
    # Enough random swaps for a p below 0.01 after Holm's correction.
    usual = RANDOMISATIONS if isinstance(metric, Additive) else SLOW_RANDOMISATIONS
    randomisations = max(usual, 400 * comparisons)
    talks = [conversation_of(dialogue) for dialogue in common]
    interval, randomised = compare_paired(metric, first, second, dialogues=talks, randomisations=randomisations)
    if math.isnan(interval.value):
        return None
    about, p = metric.about, None
    if about.level == "response":
        _, of, counts = np.unique(talks, return_inverse=True, return_counts=True)
        p = wilcoxon(*(np.bincount(of, weights=values(metric, rows)) / counts for rows in (first, second)))
    return Comparison(
        system=system,
        baseline=baseline,
        metric=about.name,
        pairs=len(common),
        difference=interval.value,
        low=interval.low,
        high=interval.high,
        randomisation=randomised,
        wilcoxon=p,
        higher_is_better=about.higher_is_better,
        uncorrected=p,
        display_factor=display_factor(about),
    )


def rows_by_dialogue(metric: Metric, measures: Measures) -> dict[str, tuple[float, ...]]:
    """Return one row a dialogue: the mean of its repetitions where measures add up, else the first."""
    grouped_rows: dict[str, list[tuple[float, ...]]] = {}
    for (dialogue, _), row in sorted(measures.items(), key=lambda item: item[0][1]):
        grouped_rows.setdefault(dialogue, []).append(row)
    if not isinstance(metric, Additive):
        return {dialogue: rows[0] for dialogue, rows in grouped_rows.items()}
    return {dialogue: tuple(np.mean(rows, axis=0).tolist()) for dialogue, rows in grouped_rows.items()}


def values(metric: Metric, rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each row's own value, of a metric whose single responses have one."""
    if rows.shape[1] == 1:
        return rows[:, 0]
    return np.array([metric.combine(rows[row : row + 1]) for row in range(len(rows))])


def values_of(metric: Metric, measures: Mapping[tuple[str, int], tuple[float, ...]]) -> dict[tuple[str, int], float]:
    """Return each response's own value by its key, those that have one."""
    if not measures:
        return {}
    scores = values(metric, as_table(list(measures.values())))
    return {key: float(value) for key, value in zip(measures, scores, strict=True) if not math.isnan(value)}


READING = (
    "A system wins a dialogue where the judge picks it whichever is shown first; else it is a tie. The interval is "
    "Wilson's, 95%, of the share of wins among all; p is the sign test of wins against losses, then Holm-corrected "
    "over the criteria; * p < 0.05, ** p < 0.01 by the corrected one. For both, turns and repetitions of one "
    "conversation count as one. Position: how often whoever was shown first was picked in both orders, less how often "
    "whoever was shown second."
)


@dataclass(frozen=True, slots=True)
class _Verdict:
    """One criterion's outcome for the first system.

    `p` is the sign test's, Holm-corrected over the criteria; `lean` the share of preferences that went by the first
    place less that by the second; `unjudged` says why there are fewer preferences than dialogues.
    """

    criterion: str
    rate: Rate
    p: float
    lean: float
    unjudged: str

    @property
    def mark(self) -> str:
        """The mark of the corrected p-value."""
        return mark_of(self.p)

    @property
    def parts(self) -> list[float]:
        """Wins, ties and losses in per cent of all."""
        rate = self.rate
        return [100 * count / (rate.n or 1) for count in (rate.wins, rate.ties, rate.losses)]

    @property
    def row(self) -> list[str]:
        """The verdict below the columns of its contest, without its mark."""
        rate = self.rate
        judged = rate.n > 0
        wide = f" ({100 * rate.low:.1f} to {100 * rate.high:.1f})" if judged else ""
        sign = "+" if self.lean > 0 else MINUS if self.lean < 0 else ""
        return [
            self.criterion,
            *(f"{count:,}" for count in (rate.wins, rate.ties, rate.losses)),
            share(rate.wins, rate.n) + wide,
            share(rate.wins + rate.ties / 2, rate.n),
            p_value(rate.p if judged else None),
            p_value(self.p if judged else None),
            f"{sign}{100 * abs(self.lean):.1f}%" if judged else "–",
        ]


@dataclass(frozen=True, slots=True)
class Contest:
    """Two systems before one judge, asked by these prompts; wins are the first one's."""

    first: str
    second: str
    judge: str
    prompts: str
    judged: str
    dataset: str
    verdicts: list[_Verdict]

    @property
    def columns(self) -> list[str]:
        """The head of the table of verdicts."""
        wins = [f"{self.first} wins", "ties", f"{self.second} wins"]
        return ["criterion", *wins, "share of wins", "ties half", "p", "corrected p", "position"]


def contests(found: Sequence[Judged]) -> list[Contest]:
    """Contests of what was judged, criteria in the order in which they come."""
    groups: dict[tuple[str, ...], list[Judged]] = {}
    for pair in found:
        key = (pair.run, pair.dataset, pair.judge, pair.judged, pair.first, pair.second)
        groups.setdefault(key, []).append(pair)
    made = []
    for (_, dataset, judge, judged, first, second), some in groups.items():
        rates = [rate_of(pair.preferences) for pair in some]
        corrected = holm([rate.p if rate.n else math.nan for rate in rates])
        verdicts = []
        for pair, rate, p in zip(some, rates, corrected, strict=True):
            problems = Counter(vote.problem for vote in pair.preferences if vote.problem is not None)
            lacking = ", ".join(f"{count} {problem}" for problem, count in problems.items())
            verdicts.append(_Verdict(pair.criterion, rate, p, position_bias(pair.preferences), lacking))
        model, _, prompts = judge.partition(", ")
        made.append(Contest(first, second, model, prompts, judged, dataset, verdicts))
    return made


_WIDEST = 9
"""The most columns that stand beside each other where a page has to hold them."""
# In the order of tables, each with the needs that tell it, those of later ones first.
_FAMILIES = {
    "Reference-based": {"reference"},
    "Reference-free": set[str](),
    "Knowledge and planning": {"knowledge", "plan", "nli"},
    "Judged": {"judge"},
}
_Part = list[tuple[str, list[int]]]
"""Columns beside each other: families, each with its metrics' places."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure of the table, with `text` and half of its interval as shown, empty where they are not available.

    Its `place` is 1 for the best of its group, 2 for the second, else 0; `note` is the number of its footnote, or 0.
    """

    score: Score
    text: str
    spread: str
    place: int
    comparison: Comparison | None
    note: int

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
        """How many responses its figures are of; those of fewer have a footnote."""
        return max((cell.score.n for cell in self.cells), default=0)


@dataclass(frozen=True, slots=True)
class Group:
    """Systems that are compared with each other: of one data set, and of one model where several have several."""

    title: str
    rows: list[Row]
    comparisons: list[Comparison]


@dataclass(slots=True)
class MainTable:
    """The table and what stands below it.

    Attributes:
        families: titles over the columns, each with how many it spans.
        absent: metrics that no system has, with the reason; they have no column.
        remarks: what one should know of the runs before one reads their figures.
    """

    metrics: list[MetricInfo]
    families: list[tuple[str, int]]
    remarks: list[str]
    groups: list[Group] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    absent: list[tuple[MetricInfo, str]] = field(default_factory=list)

    @property
    def has_groups(self) -> bool:
        """True where the rows need headings."""
        return len(self.groups) > 1

    def parts(self, widest: int = _WIDEST) -> list[_Part]:
        """Return the columns in parts of so many at most: in each, families with their metrics' places."""
        made: list[_Part] = []
        begin = 0
        for title, width in self.families:
            count = -(-width // widest)
            ends = [begin + width * part // count for part in range(count + 1)]
            begin += width
            for start, stop in pairwise(ends):
                some = (title, list(range(start, stop)))
                taken = sum(len(places) for _, places in made[-1]) if made else widest
                if taken + len(some[1]) > widest:
                    made.append([])
                made[-1].append(some)
        return made

    @property
    def comparisons(self) -> list[Comparison]:
        """All of them, group by group."""
        return [comparison for group in self.groups for comparison in group.comparisons]


def family(about: MetricInfo) -> str:
    """Return what kind of metric it is, by what it needs: the heading over its column."""
    needs = set(about.needs)
    return next((title for title, any_of in reversed(_FAMILIES.items()) if needs & any_of), "Reference-free")


def main_table(results: Results, *, baseline: str | None = None, keep_absent: bool = False) -> MainTable:
    """Return the main table; `keep_absent` gives metrics that no system has a column, too.

    The baseline is named as in tables or by its method: `vanilla` where there is such a one, else each group's first.
    """
    systems = results.systems()
    known = {name for system in systems for name in (system.name, system.method)}
    if baseline is not None and baseline not in known:
        raise UnknownNameError("system", baseline, known)
    abouts = sorted(results.metrics(), key=lambda about: list(_FAMILIES).index(family(about)))
    empty = [about for about in abouts if all(_score(system, about).value is None for system in systems)]
    shown = [about for about in abouts if keep_absent or about not in empty]
    families = [(title, len(list(some))) for title, some in groupby(shown, family)]
    made = MainTable(shown, families, _remarks(results.facts))
    for about in empty if not keep_absent else ():
        reasons = dict.fromkeys(_score(system, about).reason or "not measured" for system in systems)
        made.absent.append((about, "; ".join(reasons)))
    for title, some in group_systems(systems):
        name = baseline or "vanilla"
        called = [system for system in some if system.name == name]
        called = called or [system for system in some if system.method == name] or ([] if baseline else some)
        base = called[0] if called and len(some) > 1 else None
        compared = compare(results, some, base, shown) if base is not None else []
        pairs = {(id(pair.system), pair.metric): pair for pair in compared}
        places = {about.name: _places(some, about) for about in shown}
        rows = []
        for number, (system, label) in enumerate(zip(some, labels(some), strict=True)):
            cells = [
                _cell(it, _score(system, it), places[it.name][number], pairs.get((id(system), it.name)), made.notes)
                for it in shown
            ]
            rows.append(Row(system, label, cells, system is base))
        made.groups.append(Group(title, rows, compared))
    return made


def _describe_spending(name: str, spent: Mapping[str, Any]) -> str:
    """Return what a run has paid in all, with the calls of unfinished and repeated dialogues."""
    usage = spent["usage"]
    tokens = f"{usage['prompt_tokens']:,} prompt tokens ({usage['cached_prompt_tokens']:,} cached by the server)"
    money = f", {spent['cost']:.4f} by price" if spent["cost"] else ""
    calls = count_noun(usage["calls"], "calls")
    made = f"{usage['completion_tokens']:,} completion tokens"
    return f"The run {name} paid for {calls}, {tokens} and {made}{money}, unfinished dialogues included."


def _remarks(facts: Mapping[str, Any]) -> list[str]:
    """Return which runs are unfinished, or continued after a change of prompts, files of methods or servers."""
    notes = []
    for name, kept in ((kept.get("name") or run, kept) for run, kept in facts.items() if isinstance(kept, dict)):
        if unfinished := kept.get("unfinished"):
            notes.append(f"The run {name} is not finished: {unfinished}. The same `dialore run` command continues it.")
        if changed := kept.get("changed_prompts"):
            kind = "methods" if all(file.endswith(".py") for file in changed) else "prompts"
            versions = "; ".join(" and ".join(references) for references in changed.values())
            notes.append(f"The responses of the run {name} were made with several versions of its {kind}: {versions}.")
        notes += [f"The run {name} was made by batches: its seconds are no latency."] * bool(kept.get("batches"))
        if spent := kept.get("spent"):
            notes.append(_describe_spending(name, spent))
        for model, places in (kept.get("addresses") or {}).items():
            if len(places) > 1:
                notes.append(f"The responses of {model} in the run {name} are of several servers: {', '.join(places)}.")
    return notes


def group_systems(systems: Sequence[SystemScores]) -> list[tuple[str, list[SystemScores]]]:
    """Systems by data set, and by model where every model has several; the title says what tells groups apart."""
    by_dataset: dict[str, dict[str, list[SystemScores]]] = {}
    for system in systems:
        by_dataset.setdefault(system.dataset, {}).setdefault(system.model, []).append(system)
    groups: list[tuple[str, list[SystemScores]]] = []
    for dataset, by_model in by_dataset.items():
        if len(by_model) > 1 and all(len(some) > 1 for some in by_model.values()):
            title = f"{dataset} · " if len(by_dataset) > 1 else ""
            groups += [(title + model, some) for model, some in by_model.items()]
        else:
            groups.append((dataset, [system for system in systems if system.dataset == dataset]))
    return groups


def labels(systems: Sequence[SystemScores]) -> list[str]:
    """Names that tell a group's systems apart: with the model, and with the run, where they must."""
    names = [system.name for system in systems]
    if len({system.model for system in systems}) > 1:
        names = [f"{name} · {system.model}" for name, system in zip(names, systems, strict=True)]
    if len(set(names)) < len(names):
        names = [f"{name} · {system.run}" for name, system in zip(names, systems, strict=True)]
    return names


def _cell(about: MetricInfo, score: Score, place: int, comparison: Comparison | None, notes: list[str]) -> Cell:
    note = 0
    if score.problems or score.value is None:
        only = f"not available: {score.reason or 'not measured'}"
        text = only if score.value is None else f"of {score.n} responses only: {score.reason}"
        if text not in notes:
            notes.append(text)
        note = notes.index(text) + 1
    if score.value is None:
        return Cell(score, "", "", 0, None, note)
    # Resampling repeats responses, which lowers figures of diversity: an interval beside its figure would mislead.
    factor = display_factor(about)
    figure = score.value * factor
    wide = ""
    if score.low is not None and score.high is not None and score.low <= score.value <= score.high:
        wide = spread(score.low * factor, score.high * factor, decimals(figure))
    return Cell(score, three(figure), wide, place, comparison, note)


def _places(systems: Sequence[SystemScores], about: MetricInfo) -> list[int]:
    """1 for the best, 2 for the second, else 0; figures that look the same share a place, and all alike have none.

    Nor have figures of different numbers of responses: who answers only what is easy is not the best.
    """
    shown = [_score(system, about) for system in systems]
    rounded = [None if score.value is None else float(f"{score.value:.2e}") for score in shown]
    different = sorted({value for value in rounded if value is not None}, reverse=about.higher_is_better)
    if len(different) < 2 or _differ(shown):
        return [0] * len(systems)
    return [different.index(value) + 1 if value in different[:2] else 0 for value in rounded]


def _differ(scores: Iterable[Score]) -> bool:
    """Return whether figures are of different numbers of responses."""
    return len({score.n for score in scores if score.value is not None}) > 1


def _score(system: SystemScores, about: MetricInfo) -> Score:
    return system.scores.get(about.name) or Score(about.name, None, reason="not measured in this run")


def how_to_read(table: MainTable) -> list[str]:
    """Sentences below the table."""
    lines = ["Figures have three significant digits; ± is half of the 95% bootstrap interval; n is how many responses."]
    if any(display_factor(about) != 1 for about in table.metrics):
        lines.append("Overlap and shares are in per cent, also in plots; CSV, JSON and Python have them from 0 to 1.")
    if any(cell.place for group in table.groups for row in group.rows for cell in row.cells):
        where = "of its group" if table.has_groups else "of its column"
        lines.append(f"The best figure {where} is bold, the second underlined.")
    columns = (cells for group in table.groups for cells in zip(*(row.cells for row in group.rows), strict=True))
    if any(_differ(cell.score for cell in cells) for cells in columns):
        lines.append("Figures of different numbers of responses are not to be compared: among them none is bold.")
    if made := table.comparisons:
        pairs = sorted({pair.pairs for pair in made})
        counted = f"{pairs[0]}" if len(pairs) == 1 else f"{pairs[0]} to {pairs[-1]}"
        baselines = dict.fromkeys(pair.baseline.name for pair in made)
        lines.append(
            f"* p < 0.05, ** p < 0.01: better or worse than {', '.join(baselines)}, on {counted} dialogues that both "
            "systems answered: by paired randomisation of the systems' outputs, and for metrics of "
            "single responses by Wilcoxon's signed-rank test as well (the larger p counts), Holm-corrected over the "
            "systems compared on a metric. That is stricter than the mark of most papers, which is p < 0.05 by "
            "Wilcoxon's test alone, uncorrected: its p has a column of its own under Significance."
        )
        if any(math.isnan(pair.p) for pair in made):
            lines.append("Where a test says nothing, there is no mark.")
        if pairs[0] < MIN_PAIRS:
            lines.append(f"Fewer than {MIN_PAIRS} dialogues cannot show p < 0.05: they have no mark and no interval.")
    return [*table.remarks, *lines]


def significant(made: Sequence[Comparison]) -> list[str]:
    """Of each system, the metrics on which it is better or worse than the baseline, significantly."""
    by_system: dict[int, list[Comparison]] = {}
    for pair in made:
        by_system.setdefault(id(pair.system), []).append(pair)
    sentences = []
    for some in by_system.values():
        system, baseline = some[0].system.name, some[0].baseline.name
        parts = [
            f"{word} on {', '.join(f'{pair.metric}{pair.mark}' for pair in marked)}"
            for word, is_better in (("better", True), ("worse", False))
            if (marked := [pair for pair in some if pair.mark and pair.is_better == is_better])
        ]
        none = f"{system}: no difference from {baseline} is significant."
        sentences.append(f"{system} is {' and '.join(parts)} than {baseline}." if parts else none)
    return sentences

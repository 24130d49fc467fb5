"""Scored runs as a report reads them, and the gate: figures within limits, none significantly worse than another's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter

from dialore.dialogue import conversation_of
from dialore.errors import InputError, UnknownNameError
from dialore.evaluation.base import MetricInfo
from dialore.evaluation.geomean import ABOUTS as GEOMEANS
from dialore.evaluation.geomean import GeoMean, geomean
from dialore.evaluation.report.data import Judged, ScoredResponse, SystemScores
from dialore.evaluation.report.tables import combiner, compare
from dialore.evaluation.statistics import wilson
from dialore.experiments.config import SystemConfig
from dialore.experiments.scoring import load_preferences, score_of
from dialore.methods.registry import method_class, method_options
from dialore.plugins import loadable
from dialore.text import count_noun

if TYPE_CHECKING:
    from dialore.experiments.store import RunStore, System

_COSTS = ("seconds", "calls", "prompt_tokens", "completion_tokens")
"""Figures of each response beside its scores; `failed` is the share of the responses that failed."""
_STATISTICS = ("mean", "p50", "p95")


class RunResults:
    """The results of one or several runs, by these metrics or all; see `dialore.evaluation.report.data.Results`."""

    def __init__(self, stores: Sequence[RunStore], metrics: Sequence[str] = ()) -> None:
        self._stores = list(stores)
        recorded: dict[str, dict[str, Any]] = {}
        for store in self._stores:
            recorded |= store.metrics()
        about = TypeAdapter(MetricInfo).validate_python
        names = [name for name in metrics or recorded if name in recorded]
        if not metrics:  # one of an absent file or package hides no other
            names = list(loadable(names, lambda name: combiner(name).about.name))
        self._abouts = {name: about(recorded[name]) for name in names}
        self.facts = {store.folder.name: store.facts() | _completeness(store) for store in self._stores}
        self.title = ", ".join(dict.fromkeys(_named(store)[0] for store in self._stores))
        self._systems = [
            (self._scores(store, system), store, system) for store in self._stores for system in store.systems()
        ]

    def systems(self) -> Sequence[SystemScores]:
        """Return every system, in the order in which the runs name them."""
        return [scores for scores, _, _ in self._systems]

    def metrics(self) -> Sequence[MetricInfo]:
        """Return every metric that was scored, in the order of the tables, and the means of several that are there."""
        means = [about for about in GEOMEANS.values() if set(about.needs) <= self._abouts.keys()]
        return [*self._abouts.values(), *means]

    def measures(self, system: SystemScores, metric: str) -> dict[tuple[str, int], tuple[float, ...]]:
        """Return a system's measures by dialogue id and repetition; of a GeoMean, its components' side by side."""
        if metric in GEOMEANS:
            about = GEOMEANS[metric]
            return GeoMean(about).joined({name: self.measures(system, name) for name in about.needs})
        store, number = self._place(system)
        ids = store.dialogue_ids()
        return {
            (ids[job.position], job.repetition): measure.values
            for job, measure in store.measures(metric, number)
            if measure.problem is None
        }

    def judged(self) -> Sequence[Judged]:
        """Return what judges prefer of two systems of a run, run by run."""
        return [judged for store in self._stores for judged in load_preferences(store, *_named(store))]

    def responses(self, system: SystemScores) -> Iterator[ScoredResponse]:
        """Yield a system's responses with their measures, in the data set's order."""
        store, number = self._place(system)
        for job in store.jobs(number):
            measures = store.measures_of(job)
            yield ScoredResponse(store.dialogue(job.position), store.response(job), measures, job.repetition)

    def _place(self, system: SystemScores) -> tuple[RunStore, int]:
        return next((store, known.number) for scores, store, known in self._systems if scores is system)

    def _scores(self, store: RunStore, system: System) -> SystemScores:
        talks = [conversation_of(name) for name in store.dialogue_ids()]
        scores = {}
        known: dict[str, dict[tuple[int, int], tuple[float, ...]]] = {}
        for name in self._abouts:
            measured = dict(store.measures(name, system.number))
            known[name] = {(job.position, job.repetition): m.values for job, m in measured.items() if m.problem is None}
            dialogues = [talks[job.position] for job in measured]
            scores[name] = score_of(combiner(name), [*measured.values()], dialogues=dialogues)
        for about in GEOMEANS.values():
            if set(about.needs) <= scores.keys():
                scores[about.name] = geomean(scores, about=about, measures=known)
        run, dataset = _named(store)
        options = beside_defaults(system.method, system.options)
        counts = store.counts(system.number)
        return SystemScores(system.title, system.method, options, system.model, dataset, run, scores, *counts)


def beside_defaults(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options whose values are not the method's own anyway; all, where the method is not installed here."""
    try:
        known = method_options(method_class(method))
    except UnknownNameError:
        return dict(options)
    return {name: value for name, value in options.items() if name not in known or value != known[name].default}


def describe_unfinished(store: RunStore) -> str:
    """Return how many of its responses an unfinished run has, such as "7 of 16 responses"; empty if it is finished.

    Imported responses are not counted, nor are simulations and runs without a configuration of systems.
    """
    facts = store.facts()
    config = facts.get("config", {})
    if "goals" in facts:  # a simulation, whose dialogues are added as they are made
        return ""
    titles = {SystemConfig.model_validate(system).title for system in config.get("systems") or ()}
    configured = [system for system in store.systems() if system.title in titles]
    expected = store.size * len(configured) * int(config.get("repetitions", 1))
    present = sum(len(store.jobs(system.number)) for system in configured)
    return f"{present} of {count_noun(expected, 'responses')}" if present < expected else ""


def _completeness(store: RunStore) -> dict[str, str]:
    unfinished = describe_unfinished(store)
    return {"unfinished": unfinished} if unfinished else {}


def _named(store: RunStore) -> tuple[str, str]:
    """Return the run's name, and its data set's with split and limit."""
    facts = store.facts()
    dataset = facts.get("config", {}).get("dataset", {})
    title = f"{dataset.get('name', '')} {dataset.get('split', '')}".strip()
    limit = f", {dataset['limit']}" if dataset.get("limit") else ""
    return str(facts.get("name", store.folder.name)), title + limit


# --- the gate


@dataclass(frozen=True, slots=True)
class Limit:
    """The least value, or the greatest, of a metric, `failed`, or a cost (`seconds.p95`), of one system or of all."""

    figure: str
    value: float
    is_least: bool
    system: str = ""

    @classmethod
    def parse(cls, text: str, *, is_least: bool) -> Limit:
        """Read `FIGURE=VALUE` or `SYSTEM:FIGURE=VALUE`; raises InputError."""
        name, _, value = text.rpartition("=")
        system, _, figure = name.rpartition(":")
        try:
            return cls(figure.strip(), float(value), is_least, system.strip())
        except ValueError as error:
            hint = "write right=0.9, seconds.p95=3 or weave:right=0.9"
            raise InputError(f"{text!r} is no limit", hint=hint) from error


@dataclass(frozen=True, slots=True)
class _Verdict:
    """A figure beside what is asked of it."""

    system: str
    figure: str
    value: float | None
    wanted: str
    holds: bool


def check_limits(store: RunStore, limits: Sequence[Limit]) -> list[_Verdict]:
    """Hold a run's figures against limits, which a missing one breaks; UnknownNameError for an unknown name."""
    results = RunResults([store])
    systems = results.systems()
    numbers = [system.number for system in store.systems()]
    known = [about.name for about in results.metrics()]
    figures = [*known, "failed", *(f"{cost}.{name}" for cost in _COSTS for name in _STATISTICS)]
    verdicts = []
    for limit in limits:
        figure = f"{limit.figure}.mean" if limit.figure in _COSTS else limit.figure
        if figure not in figures:
            raise UnknownNameError("figure of the run", limit.figure, figures)
        if limit.system and limit.system not in {name for system in systems for name in (system.name, system.method)}:
            raise UnknownNameError("system of the run", limit.system, [system.name for system in systems])
        for system, number in zip(systems, numbers, strict=True):
            if limit.system in ("", system.name, system.method):
                value = _figure(store, system, number, figure)
                holds = value is not None and (value >= limit.value if limit.is_least else value <= limit.value)
                wanted = f"{'at least' if limit.is_least else 'at most'} {limit.value:g}"
                verdicts.append(_Verdict(system.name, figure, value, wanted, holds))
    return verdicts


def check_against(store: RunStore, base: RunStore) -> list[_Verdict]:
    """Hold each system's scores against those of its namesake in another run, on the dialogues that both answered.

    A score does not hold if it is significantly worse, by the tests of a report (p < 0.05), or if the other run has it
    and this one has none to compare. Nor does the share of failed responses, which no pair shows,
    where the other's lies below its 95% interval. Raises InputError where the runs have no system of one name, or the
    other run is not scored.
    """
    results = RunResults([store, base])
    count = len(store.systems())
    own, theirs = results.systems()[:count], {system.name: system for system in results.systems()[count:]}
    pairs = [(system, theirs[system.name]) for system in own if system.name in theirs]
    if not pairs:
        names = ", ".join(sorted(theirs))
        raise InputError(f"{base.folder} has no system of {store.folder}", hint=f"it has {names}: name one alike")
    verdicts = []
    for system, former in pairs:
        made = compare(results, [former, system], former, results.metrics())
        comparisons = {comparison.metric: comparison for comparison in made}
        for metric, score in former.scores.items():
            if score.value is None:
                continue
            comparison = comparisons.get(metric)
            wanted = f"not worse than {score.value:.4g} (n {comparison.pairs if comparison else 0})"
            value = system.scores[metric].value if comparison else None
            is_worse = comparison is None or (bool(comparison.mark) and not comparison.is_better)
            verdicts.append(_Verdict(system.name, metric, value, wanted, not is_worse))
        (failed, answered), (before, former_answered) = _failed(system), _failed(former)
        share = before / max(1, former_answered)
        wanted = f"not above {share:.4g} (n {answered})"
        value = failed / answered if answered else None
        holds = answered > 0 and wilson(failed, answered)[0] <= share
        verdicts.append(_Verdict(system.name, "failed", value, wanted, holds))
    if len(verdicts) == len(pairs):
        raise InputError(f"{base.folder} is not scored", hint="score both runs by the same metrics")
    return verdicts


def _failed(system: SystemScores) -> tuple[int, int]:
    """Return how many responses of a system failed, and how many there are."""
    failed = system.counts.get("failed", 0)
    return failed, failed + system.counts.get("ok", 0)


def _figure(store: RunStore, system: SystemScores, number: int, figure: str) -> float | None:
    """Return a figure of a system; None where it could not be computed."""
    if figure in system.scores:
        return system.scores[figure].value
    if figure == "failed":
        failed, answered = _failed(system)
        return failed / answered if answered else None
    cost, _, statistic = figure.partition(".")
    values = store.costs(number, cost)
    if not values:
        return None
    return float(np.mean(values) if statistic == "mean" else np.quantile(values, int(statistic[1:]) / 100))

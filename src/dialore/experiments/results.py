"""Scored runs as a report reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from dialore.errors import UnknownNameError
from dialore.evaluation.base import MetricInfo, conversation_of
from dialore.evaluation.geomean import ABOUTS as GEOMEANS
from dialore.evaluation.geomean import GeoMean, geomean
from dialore.evaluation.report.data import Judged, ScoredResponse, SystemScores
from dialore.evaluation.report.tables import combiner
from dialore.experiments.scoring import kept_preferences, score_of
from dialore.methods.registry import method_class, method_options
from dialore.plugins import loadable

if TYPE_CHECKING:
    from dialore.experiments.store import RunStore, System


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
        self.facts = {store.folder.name: store.facts() for store in self._stores}
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
        return [judged for store in self._stores for judged in kept_preferences(store, *_named(store))]

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


def _named(store: RunStore) -> tuple[str, str]:
    """Return the run's name, and its data set's with split and limit."""
    facts = store.facts()
    dataset = facts.get("config", {}).get("dataset", {})
    title = f"{dataset.get('name', '')} {dataset.get('split', '')}".strip()
    limit = f", {dataset['limit']}" if dataset.get("limit") else ""
    return str(facts.get("name", store.folder.name)), title + limit

"""A report from scored runs, read in one pass over the responses, and the data of its dialogue browser."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic_core import to_json

from dialore.datasets import gold_text
from dialore.evaluation.report import tables
from dialore.evaluation.report.data import Results, ScoredResponse, Survey, display_factor
from dialore.evaluation.report.display import notes_of, steps_of
from dialore.evaluation.report.plots import Figure, bars, distribution, knowledge_against, sizes_against
from dialore.evaluation.report.tables import Group, Row, labels

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.evaluation.base import MetricInfo
    from dialore.evaluation.report.people import People
    from dialore.response import Response

DIALOGUES = 200
"""How many dialogues of each data set the browser shows where nothing else is said."""
_STAGE = {"stage", "model", "outcome", "started", "seconds", "usage", "prompt", "messages", "completion", "output"}


@dataclass(frozen=True, slots=True)
class Report:
    """A report's contents: facts by run, people by export, figures by metric and group, surveys in names' order."""

    title: str
    facts: Mapping[str, Any]
    table: tables.MainTable
    ablations: list[tables.Ablation]
    contests: list[tables.Contest]
    people: Sequence[People]
    surveys: list[Survey]
    names: list[str]
    figures: dict[str, list[tuple[str, list[Figure]]]]
    browser: Browser | None

    def files(self) -> Iterator[tuple[str, Figure]]:
        """Yield every figure with a name for its file, without an ending: metric, group if there are several, kind."""
        for metric, groups in self.figures.items():
            for number, (_, figures) in enumerate(groups, start=1):
                for figure in figures:
                    yield "-".join([metric, *([str(number)] if len(groups) > 1 else []), figure.name]), figure


def make_report(
    results: Results,
    *,
    baseline: str | None = None,
    dialogues: int = DIALOGUES,
    sizes: Mapping[str, float] | None = None,
    keep_absent: bool = False,
    title: str = "",
    people: Sequence[People] = (),
) -> Report:
    """Make a report; `sizes` are models' in billions of parameters, where their names do not say them.

    The browser shows so many `dialogues` of each data set, none for 0; `keep_absent` gives metrics that no system has a
    column, too. The title is the runs' names where none is given. Raises UnknownNameError where no system is called as
    the baseline is.
    """
    systems = results.systems()
    names = _names(results)
    table = tables.main_table(results, baseline=baseline, keep_absent=keep_absent)
    datasets = [system.dataset for system in systems]
    browser = Browser(names, datasets, results.metrics(), dialogues) if dialogues else None
    surveys = [Survey(system) for system in systems]
    for number, survey in enumerate(surveys):
        for scored in results.responses(survey.system):
            survey.add(scored)
            if browser is not None:
                browser.add(number, scored)
    by_system = {id(survey.system): survey for survey in surveys}
    figures = {
        about.name: _figures_by_group(results, about, table.groups, by_system, sizes or {}) for about in table.metrics
    }
    return Report(
        title=title or results.title,
        facts=results.facts,
        table=table,
        ablations=tables.ablations(results, table.metrics),
        contests=tables.contests(results.judged()),
        people=people,
        surveys=surveys,
        names=names,
        figures=figures,
        browser=browser,
    )


def _names(results: Results) -> list[str]:
    systems = results.systems()
    datasets = dict.fromkeys(system.dataset for system in systems)
    if len(datasets) == 1:
        return labels(systems)
    # A data set tells systems apart before a run does.
    titles: dict[int, str] = {}
    for dataset in datasets:
        some = [system for system in systems if system.dataset == dataset]
        titles |= {id(system): f"{name} · {dataset}" for name, system in zip(labels(some), some, strict=True)}
    return [titles[id(system)] for system in systems]


def _figures_by_group(
    results: Results,
    about: MetricInfo,
    groups: Sequence[Group],
    surveys: Mapping[int, Survey],
    sizes: Mapping[str, float],
) -> list[tuple[str, list[Figure]]]:
    """Return a metric's figures by group. The figure over model sizes belongs to the data set, whatever its groups."""
    figures = {group.title: _figures(results, about, group, surveys) for group in groups}
    rows_by_dataset: dict[str, list[Row]] = {}
    for group in groups:
        for row in group.rows:
            rows_by_dataset.setdefault(row.system.dataset, []).append(row)
    for dataset, rows in rows_by_dataset.items():
        figure = sizes_against(about, rows, sizes, dataset)
        if figure is not None:
            figures.setdefault(dataset, []).append(figure)
    return list(figures.items())


def _figures(results: Results, about: MetricInfo, group: Group, surveys: Mapping[int, Survey]) -> list[Figure]:
    rows, title = group.rows, group.title
    figures = [bars(about, rows, title)]
    if about.level == "response":
        metric = tables.combiner(about.name)
        values = [tables.values_of(metric, results.measures(row.system, about.name)) for row in rows]
        given = [surveys[id(row.system)].given for row in rows]
        figures += [distribution(about, rows, values, title), knowledge_against(about, rows, values, given, title)]
    return [figure for figure in figures if figure is not None]


class Browser:
    """Collects what the browser shows, response by response; at most so many dialogues of each data set."""

    def __init__(self, names: Sequence[str], datasets: Sequence[str], abouts: Sequence[MetricInfo], limit: int) -> None:
        self._names, self._of, self._limit = list(names), list(datasets), limit
        self._datasets = list(dict.fromkeys(datasets))
        self._abouts = {about.name: about for about in abouts}
        self._metrics = {about.name: tables.combiner(about.name) for about in abouts if about.level == "response"}
        self._entries: dict[tuple[int, str], dict[str, Any]] = {}
        self._counts = [0] * len(self._datasets)
        self._details: list[dict[str, Any]] = []

    @property
    def size(self) -> int:
        """How many dialogues it shows."""
        return len(self._entries)

    def add(self, number: int, scored: ScoredResponse) -> None:
        """Take in a response of the system of that number, in the data set's order."""
        entry = self._entry(self._datasets.index(self._of[number]), scored.dialogue)
        if entry is None:
            return
        response = scored.response
        outcomes = {stage.outcome for stage in response.trace}
        values = {}  # those that single responses have, for sorting and for disagreement
        for name, measure in scored.measures.items():
            if measure.problem is None and name in self._metrics:
                value = self._metrics[name].combine(np.array([measure.values]))
                if not math.isnan(value):
                    values[name] = round(value * display_factor(self._abouts[name]), 6)
        # Name, value or None, problem with reason, and detail.
        measures = [
            [name, values.get(name), f"{it.problem}: {it.reason}" if it.problem else "", it.detail]
            for name, about in self._abouts.items()
            if (it := scored.measures.get(name)) is not None and (about.level == "response" or it.problem)
        ]
        brief = {
            "text": response.text,
            "status": response.status,
            "unparsed": "unparsed" in outcomes,
            "repaired": "repaired" in outcomes,
            "repetition": scored.repetition,
            "values": values,
            "place": len(self._details),
        }
        entry["answers"].setdefault(str(number), []).append(brief)
        self._details.append(_detail(response) | {"measures": measures})

    def packed(self) -> dict[str, str]:
        """Return the index (systems, metrics, dialogues with their answers) and the details, by the page's ids."""
        entries = list(self._entries.values())
        # How far a dialogue's systems lie apart, as a share of a metric's range, averaged over metrics.
        by_metric: dict[str, list[float]] = {}
        own: list[dict[str, list[float]]] = []
        for entry in entries:
            own.append({})
            for answers in entry["answers"].values():
                for name, value in answers[0]["values"].items():
                    own[-1].setdefault(name, []).append(value)
                    by_metric.setdefault(name, []).append(value)
        ranges = {name: max(values) - min(values) for name, values in by_metric.items()}
        for entry, values in zip(entries, own, strict=True):
            apart = [(max(v) - min(v)) / ranges[name] for name, v in values.items() if len(v) > 1 and ranges[name] > 0]
            entry["apart"] = round(sum(apart) / len(apart), 4) if apart else None
        metrics = [
            {"name": about.name, "level": about.level, "higher": about.higher_is_better}
            for about in self._abouts.values()
        ]
        index = {"systems": self._names, "datasets": self._datasets, "metrics": metrics, "dialogues": entries}
        return {"index": pack(index), "details": pack(self._details)}

    def _entry(self, dataset: int, dialogue: Dialogue) -> dict[str, Any] | None:
        key = (dataset, dialogue.id)
        if key not in self._entries:
            if self._counts[dataset] >= self._limit:
                return None
            self._counts[dataset] += 1
            has_plan = "sources" in dialogue.model_fields_set
            self._entries[key] = {
                "id": dialogue.id,
                "dataset": dataset,
                "language": dialogue.language,
                "topic": dialogue.topic or "",
                "persona": list(dialogue.persona),
                "turns": [[turn.speaker, turn.text] for turn in dialogue.turns],
                "reference": dialogue.reference or "",
                "gold": [gold_text(item) or json.dumps(item, ensure_ascii=False) for item in dialogue.knowledge],
                "plan": [name.upper() for name in dialogue.sources] if has_plan else None,
                "answers": {},
            }
        return self._entries[key]


def pack(data: object) -> str:
    """JSON, gzipped, in base64; the same data gives the same text. What is no number becomes null."""
    return base64.b64encode(gzip.compress(to_json(data, inf_nan_mode="null", fallback=str), 9, mtime=0)).decode()


def _detail(response: Response) -> dict[str, Any]:
    numbers = response.numbers
    return response.model_dump(include={"model", "error", "seconds", "usage", "demands"}) | {
        "parts": response.parts,
        "steps": dataclasses.asdict(steps_of(response)),
        "knowledge": [
            [item.text, item.kind, item.source, item.score, item.used, item.set, numbers.get(item.id, 0), item.triple]
            for item in response.knowledge
        ],
        "stages": [stage.model_dump(include=_STAGE) | {"notes": notes_of(stage)} for stage in response.trace],
    }

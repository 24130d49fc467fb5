"""A report from scored runs, read in one pass over the responses, and the data of its dialogue browser."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic_core import to_json

from dialore.datasets import gold_text
from dialore.evaluation.report import plots, tables
from dialore.evaluation.report.data import Results, ScoredResponse, Survey, SystemScores, display_factor
from dialore.response_text import notes_of, steps_of

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.evaluation.base import MetricInfo
    from dialore.evaluation.report.people import People
    from dialore.response import Response

DIALOGUES = 200
"""Default number of dialogues of each data set in the browser."""
_STAGE = {"stage", "model", "outcome", "started", "seconds", "usage", "prompt", "messages", "completion", "output"}


@dataclass(frozen=True, slots=True)
class Report:
    """The contents of a report.

    Attributes:
        facts: What the runs record of themselves, by folder.
        surveys: Counts of the systems' responses, in the order of `names`.
        figures: Plots by metric, per group of the main table.
    """

    title: str
    facts: Mapping[str, Any]
    table: tables.MainTable
    ablations: list[tables.Ablation]
    contests: list[tables.Contest]
    people: Sequence[People]
    surveys: list[Survey]
    names: list[str]
    figures: dict[str, list[tuple[str, list[plots.Figure]]]]
    browser: Browser | None

    def files(self) -> Iterator[tuple[str, plots.Figure]]:
        """Yield every plot with a name for its file: metric, number of the group if there are several, kind."""
        for metric, groups in self.figures.items():
            for number, (_, figures) in enumerate(groups, start=1):
                prefix = f"{metric}-{number}" if len(groups) > 1 else metric
                for figure in figures:
                    yield f"{prefix}-{figure.name}", figure


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
    """Return a report.

    Args:
        results: The scored runs.
        baseline: Name or method of the system to compare with; see `main_table`.
        dialogues: Number of dialogues of each data set in the browser.
        sizes: Sizes of models in billions of parameters, if their names do not tell them.
        keep_absent: Whether metrics that no system has get a column as well.
        title: The title; by default the runs' names.
        people: Human judgements.

    Raises:
        UnknownNameError: No system is called as the baseline.
    """
    systems = results.systems()
    table = tables.main_table(results, baseline=baseline, keep_absent=keep_absent)
    names = _names(systems)
    datasets = [system.dataset for system in systems]
    browser = Browser(names, datasets, results.metrics(), dialogues) if dialogues else None
    surveys = [Survey(system) for system in systems]
    for number, survey in enumerate(surveys):
        for scored in results.responses(survey.system):
            survey.add(scored)
            if browser is not None:
                browser.add(number, scored)
    knowledge = {id(survey.system): survey.given for survey in surveys}
    figures: dict[str, list[tuple[str, list[plots.Figure]]]] = {}
    for info in table.metrics:
        figures[info.name] = _figures_by_group(results, info, table.groups, knowledge, sizes or {})
    return Report(
        title=title or results.title,
        facts=results.facts,
        table=table,
        ablations=tables.find_ablations(results, table.metrics),
        contests=tables.contests(results.judged()),
        people=people,
        surveys=surveys,
        names=names,
        figures=figures,
        browser=browser,
    )


def _names(systems: Sequence[SystemScores]) -> list[str]:
    """Return names that tell all systems apart: by the data set first, if there are several."""
    datasets = dict.fromkeys(system.dataset for system in systems)
    if len(datasets) == 1:
        return tables.labels(systems)
    names: dict[int, str] = {}
    for dataset in datasets:
        members = [system for system in systems if system.dataset == dataset]
        for system, label in zip(members, tables.labels(members), strict=True):
            names[id(system)] = f"{label} · {dataset}"
    return [names[id(system)] for system in systems]


def _figures_by_group(
    results: Results,
    info: MetricInfo,
    groups: Sequence[tables.Group],
    knowledge: Mapping[int, Mapping[tuple[str, int], int]],
    sizes: Mapping[str, float],
) -> list[tuple[str, list[plots.Figure]]]:
    """Return a metric's figures by group. The figure over model sizes belongs to the data set, whatever its groups."""
    figures = {group.title: _figures(results, info, group, knowledge) for group in groups}
    rows_by_dataset: dict[str, list[tables.Row]] = {}
    for group in groups:
        for row in group.rows:
            rows_by_dataset.setdefault(row.system.dataset, []).append(row)
    for dataset, rows in rows_by_dataset.items():
        figure = plots.sizes_against(info, rows, sizes, dataset)
        if figure is not None:
            figures.setdefault(dataset, []).append(figure)
    return list(figures.items())


def _figures(
    results: Results,
    info: MetricInfo,
    group: tables.Group,
    knowledge: Mapping[int, Mapping[tuple[str, int], int]],
) -> list[plots.Figure]:
    rows, title = group.rows, group.title
    figures = [plots.bars(info, rows, title)]
    if info.level == "response":
        metric = tables.combiner(info.name)
        values = [tables.values_of(metric, results.measures(row.system, info.name)) for row in rows]
        given = [knowledge[id(row.system)] for row in rows]
        figures.append(plots.distribution(info, rows, values, title))
        figures.append(plots.knowledge_against(info, rows, values, given, title))
    return [figure for figure in figures if figure is not None]


class Browser:
    """The data of the dialogue browser, collected response by response.

    Args:
        names: The systems' names.
        datasets: The data set of each system.
        metrics: The metrics that are shown.
        limit: Maximum number of dialogues per data set.
    """

    def __init__(
        self, names: Sequence[str], datasets: Sequence[str], metrics: Sequence[MetricInfo], limit: int
    ) -> None:
        self._names, self._dataset_of, self._limit = list(names), list(datasets), limit
        self._datasets = list(dict.fromkeys(datasets))
        self._metrics = metrics
        self._combiners = {info.name: tables.combiner(info.name) for info in metrics if info.level == "response"}
        self._entries: dict[tuple[str, str], dict[str, Any]] = {}
        self._counts = Counter[str]()
        self._details: list[dict[str, Any]] = []

    @property
    def size(self) -> int:
        """The number of dialogues."""
        return len(self._entries)

    def add(self, number: int, scored: ScoredResponse) -> None:
        """Add a response of the system of that number, in the data set's order."""
        entry = self._entry(self._dataset_of[number], scored.dialogue)
        if entry is None:
            return
        response = scored.response
        outcomes = {stage.outcome for stage in response.trace}
        values: dict[str, float] = {}  # for sorting and for disagreement
        measures = []  # name, value or None, problem with reason, and detail
        for info in self._metrics:
            measure = scored.measures.get(info.name)
            if measure is None or (info.level != "response" and not measure.problem):
                continue
            if measure.problem is None:
                value = self._combiners[info.name].combine(np.array([measure.values]))
                if not math.isnan(value):
                    values[info.name] = round(value * display_factor(info), 6)
            problem = f"{measure.problem}: {measure.reason}" if measure.problem else ""
            measures.append([info.name, values.get(info.name), problem, measure.detail])
        answer = {
            "text": response.text,
            "status": response.status,
            "unparsed": "unparsed" in outcomes,
            "repaired": "repaired" in outcomes,
            "repetition": scored.repetition,
            "values": values,
            "place": len(self._details),
        }
        entry["answers"].setdefault(str(number), []).append(answer)
        self._details.append(_detail(response) | {"measures": measures})

    def packed(self) -> dict[str, str]:
        """Return the index (systems, metrics, dialogues with their answers) and the details, by the page's ids."""
        entries = list(self._entries.values())
        _add_disagreement(entries)
        metrics = [{"name": it.name, "level": it.level, "higher": it.higher_is_better} for it in self._metrics]
        index = {"systems": self._names, "datasets": self._datasets, "metrics": metrics, "dialogues": entries}
        return {"index": pack(index), "details": pack(self._details)}

    def _entry(self, dataset: str, dialogue: Dialogue) -> dict[str, Any] | None:
        """Return the entry of a dialogue, or None if the limit is reached."""
        key = (dataset, dialogue.id)
        if key in self._entries:
            return self._entries[key]
        if self._counts[dataset] >= self._limit:
            return None
        self._counts[dataset] += 1
        has_plan = "sources" in dialogue.model_fields_set
        self._entries[key] = dialogue.model_dump(include={"id", "language", "persona"}) | {
            "dataset": self._datasets.index(dataset),
            "topic": dialogue.topic or "",
            "turns": [[turn.speaker, turn.text] for turn in dialogue.turns],
            "reference": dialogue.reference or "",
            "gold": [gold_text(item) or json.dumps(item, ensure_ascii=False) for item in dialogue.knowledge],
            "plan": [name.upper() for name in dialogue.sources] if has_plan else None,
            "answers": {},
        }
        return self._entries[key]


def _add_disagreement(entries: Sequence[dict[str, Any]]) -> None:
    """Set `apart` of each dialogue: the spread of its systems as a share of a metric's range, averaged over metrics."""
    by_entry = []
    ranges: dict[str, list[float]] = {}
    for entry in entries:
        values: dict[str, list[float]] = {}
        for answers in entry["answers"].values():
            for name, value in answers[0]["values"].items():
                values.setdefault(name, []).append(value)
                ranges.setdefault(name, []).append(value)
        by_entry.append(values)
    for entry, values in zip(entries, by_entry, strict=True):
        known = [name for name, own in values.items() if len(own) > 1 and np.ptp(ranges[name]) > 0]
        spreads = [float(np.ptp(values[name]) / np.ptp(ranges[name])) for name in known]
        entry["apart"] = round(sum(spreads) / len(spreads), 4) if spreads else None


def pack(data: object) -> str:
    """Return data as JSON, gzipped, in base64. The same data gives the same text; NaN and infinity become null."""
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

"""A report from scored runs: everything that its forms show, read in one pass over the responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dialore.evaluation.report.browser import Browser
from dialore.evaluation.report.comparison import Ablation, ablations, combiner, values_of
from dialore.evaluation.report.data import Survey
from dialore.evaluation.report.judged import Contest, contests
from dialore.evaluation.report.plots import Figure, bars, distribution, knowledge_against, sizes_against
from dialore.evaluation.report.tables import Group, MainTable, labels, main_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dialore.evaluation.base import About
    from dialore.evaluation.report.data import Results

DIALOGUES = 200
"""How many dialogues of each data set the browser shows where nothing else is said."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a report shows.

    Attributes:
        facts: what the runs keep of themselves, by run.
        contests: what judges prefer of two systems.
        surveys: counts of every system, in the order of `names`.
        names: every system's name, unlike any other's.
        figures: by metric, a list a group: the group's title and its figures.
        browser: the dialogues; None where none are wanted.
    """

    title: str
    facts: Mapping[str, Any]
    table: MainTable
    ablations: list[Ablation]
    contests: list[Contest]
    surveys: list[Survey]
    names: list[str]
    figures: dict[str, list[tuple[str, list[Figure]]]]
    browser: Browser | None

    @property
    def described(self) -> list[About]:
        """Every metric that the report names, those without a column too."""
        return [*self.table.metrics, *(about for about, _ in self.table.absent)]

    def files(self) -> Iterator[tuple[str, Figure]]:
        """Every figure with a name for its file, without an ending: metric, group where there are several, kind."""
        for metric, groups in self.figures.items():
            for place, (_, figures) in enumerate(groups, start=1):
                for figure in figures:
                    yield "-".join([metric, *([str(place)] if len(groups) > 1 else []), figure.name]), figure


def make_report(
    results: Results,
    *,
    baseline: str | None = None,
    dialogues: int = DIALOGUES,
    sizes: Mapping[str, float] | None = None,
    keep_absent: bool = False,
    title: str = "",
) -> Report:
    """Make a report.

    Args:
        results: the scored runs.
        baseline: the system that others are compared with.
        dialogues: how many dialogues of each data set the browser shows; 0 for no browser.
        sizes: models' sizes in billions of parameters, where their names do not say them.
        keep_absent: give metrics that no system has a column, too.
        title: the report's title; the runs' names otherwise.

    Raises:
        UnknownNameError: no system is called as the baseline is.
        MissingExtraError: the `evaluation` extra, with the tests of significance, is not installed.
    """
    systems = results.systems()
    names = _names(results)
    table = main_table(results, baseline=baseline, keep_absent=keep_absent)
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
        about.name: [(group.title, _figures(results, about, group, by_system, sizes or {})) for group in table.groups]
        for about in table.metrics
    }
    return Report(
        title=title or results.title,
        facts=results.facts,
        table=table,
        ablations=ablations(results, table.metrics),
        contests=contests(results.judged()),
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
    found: dict[int, str] = {}
    for dataset in datasets:
        some = [system for system in systems if system.dataset == dataset]
        found |= {id(system): f"{name} · {dataset}" for name, system in zip(labels(some), some, strict=True)}
    return [found[id(system)] for system in systems]


def _figures(
    results: Results, about: About, group: Group, surveys: Mapping[int, Survey], sizes: Mapping[str, float]
) -> list[Figure]:
    rows, title = group.rows, group.title
    found = [bars(about, rows, title)]
    if about.level == "response":
        metric = combiner(about.name)
        values = [values_of(metric, results.measures(row.system, about.name)) for row in rows]
        given = [surveys[id(row.system)].given for row in rows]
        found += [distribution(about, rows, values, title), knowledge_against(about, rows, values, given, title)]
    found.append(sizes_against(about, rows, sizes, title))
    return [figure for figure in found if figure is not None]

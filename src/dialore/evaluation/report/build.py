"""A report from scored runs: everything that its four forms show, read in one pass over the responses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dialore.evaluation.report.ablation import Ablation, ablations
from dialore.evaluation.report.browser import Browser
from dialore.evaluation.report.comparison import combiner, values_of
from dialore.evaluation.report.judged import Contest, contests
from dialore.evaluation.report.plots import Figure, bars, distribution, knowledge_against, sizes_against
from dialore.evaluation.report.survey import Survey
from dialore.evaluation.report.tables import Group, MainTable, labels, main_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dialore.evaluation.base import About
    from dialore.evaluation.report.data import Results

DIALOGUES = 200
"""How many dialogues of each data set the browser shows where nothing else is said."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What one may say about a report.

    Attributes:
        baseline: the system that others are compared with.
        dialogues: how many dialogues of each data set the browser shows; 0 for no browser.
        sizes: models' sizes in billions of parameters, where their names do not say them.
        keep_absent: give metrics that no system has a column, too.
        title: the report's title; the runs' names otherwise.
    """

    baseline: str | None = None
    dialogues: int = DIALOGUES
    sizes: Mapping[str, float] = field(default_factory=dict)
    keep_absent: bool = False
    title: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What a report shows.

    Attributes:
        title: its title.
        facts: what the runs keep of themselves, by run.
        table: the main table.
        ablations: methods against their variants.
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


def make_report(results: Results, settings: Settings | None = None) -> Report:
    """Make a report.

    Args:
        results: the scored runs.
        settings: what one may say about it.

    Raises:
        UnknownNameError: no system is called as the baseline is.
        MissingExtraError: the `evaluation` extra, with the tests of significance, is not installed.
    """
    settings = settings or Settings()
    systems = list(results.systems())
    names = _names(results)
    table = main_table(results, baseline=settings.baseline, keep_absent=settings.keep_absent)
    browser = Browser(systems, names, results.metrics(), settings.dialogues) if settings.dialogues else None
    surveys = []
    for number, system in enumerate(systems):
        survey = Survey(system)
        passing = survey.over(results.responses(system))
        if browser is not None:
            browser.add(number, system, passing)
        else:
            for _ in passing:
                pass
        surveys.append(survey)
    by_system = {id(survey.system): survey for survey in surveys}
    figures = {
        about.name: [
            (group.title, _figures(results, about, group, by_system, settings.sizes)) for group in table.groups
        ]
        for about in table.metrics
    }
    found = ablations(results, table.metrics)
    title = settings.title or results.title
    return Report(title, results.facts, table, found, contests(results.judged()), surveys, names, figures, browser)


def _names(results: Results) -> list[str]:
    systems = list(results.systems())
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

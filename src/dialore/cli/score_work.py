"""What `dialore score` does."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dialore.cli.measuring import default_metrics, measuring
from dialore.cli.output import console, note, print_json, progress, table
from dialore.evaluation.registry import Context, load_metric, load_metrics, metric_names
from dialore.experiments.results import RunResults
from dialore.experiments.scoring import measure_run
from dialore.experiments.store import RunStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dialore.cli.options import MeasureSettings
    from dialore.evaluation.base import About, Metric, Score
    from dialore.evaluation.report.data import SystemScores
    from dialore.settings import ModelSettings


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says."""

    judge: ModelSettings
    metrics: tuple[str, ...]
    measuring: MeasureSettings
    again: bool


def work(folder: Path, settings: Settings, *, json: bool) -> None:
    """Measure what is missing, and show the scores.

    Raises:
        InputError: no run, an unknown metric, a judge without a model that was asked for by name.
        ModelError: the judge's endpoint refuses.
        BudgetError: the budget is spent.
    """
    with RunStore.open(folder) as store:
        named = settings.metrics or tuple(store.facts().get("config", {}).get("metrics", ()))
        names = named or default_metrics(settings.measuring)
        with store.writing():
            try:
                asyncio.run(_measure(store, names, settings))
            except KeyboardInterrupt:
                note(f"interrupted: what is measured is kept in {folder}; the same command again does the rest")
                raise
        results = RunResults([store], [about.name for about in _abouts(names)])
        if json:
            print_json([_data(system) for system in results.systems()])
        else:
            show(results)


async def _measure(store: RunStore, names: Sequence[str], settings: Settings) -> None:
    abouts = _abouts(names)
    needs = {need for about in abouts for need in about.needs}
    async with measuring(settings.measuring, settings.judge, needs, must_judge=bool(settings.metrics)) as opened:
        context = dataclasses.replace(
            opened,
            idf_corpus=lambda: (store.dialogue(position) for position in range(store.size)),
            idf_corpus_name="the run's own dialogues",
        )
        await _measure_with(context, store, names, settings)


async def _measure_with(context: Context, store: RunStore, names: Sequence[str], settings: Settings) -> None:
    metrics = load_metrics(names, context)
    lacking = {
        name
        for name, given in (("judge", context.judge), ("nli", context.nli), ("language-model", context.language_model))
        if not given
    }
    kept = [metric.about.name for metric in metrics if lacking & set(metric.about.needs) and _is_kept(store, metric)]
    for name in kept:
        note(f"{name}: as it was measured before, by a model that is not named now")
    with progress("scoring") as step:
        await measure_run(
            store,
            [metric for metric in metrics if metric.about.name not in kept],
            at_once=settings.judge.concurrency,
            again=settings.again,
            on_progress=step,
        )


def _is_kept(store: RunStore, metric: Metric) -> bool:
    """Whether the run has measures that another model made; they were paid for, and are not to be dropped for none."""
    before = store.metrics().get(metric.about.name)
    return before is not None and before.get("identity", "") != getattr(metric, "identity", "")


def _abouts(names: Sequence[str]) -> list[About]:
    return [load_metric(name, Context()).about for name in names]


def _data(system: SystemScores) -> dict[str, Any]:
    said = dataclasses.asdict(system)
    said["scores"] = {name: dataclasses.asdict(score) for name, score in system.scores.items()}
    return said


def show(results: RunResults) -> None:
    """The scores on the terminal: metrics down, systems across, what is not available as a dash."""
    abouts, systems = results.metrics(), results.systems()
    several = len({system.model for system in systems}) > 1
    for begin in range(0, len(systems), _ACROSS):
        some = systems[begin : begin + _ACROSS]
        heads = (f"{system.name} ({system.model})" if several else system.name for system in some)
        rows = table("!metric", *(f">{head}" for head in heads))
        for about in abouts:
            rows.add_row(about.name, *(_cell(system.scores[about.name]) for system in some))
        console().print(rows)
    missing = {
        f"{about.name}: {system.scores[about.name].reason}"
        for about in abouts
        for system in systems
        if system.scores[about.name].value is None
    }
    for reason in sorted(missing):
        note(f"not available: {reason}")


_ACROSS = 4


def _cell(score: Score) -> str:
    if score.value is None:
        return "-"
    if score.low is None or score.high is None:
        return f"{score.value:.3f}"
    return f"{score.value:.3f} [dim]±{(score.high - score.low) / 2:.3f}[/]"


def show_list(*, json: bool) -> None:
    """Every metric: what it measures, where it is from, what it needs."""
    abouts = _abouts(metric_names())
    if json:
        print_json([dataclasses.asdict(about) for about in abouts])
        return
    rows = table("!metric", "what it measures", "needs", "paper")
    for about in abouts:
        rows.add_row(about.name, about.definition, ", ".join(about.needs) or "-", about.paper)
    console().print(rows)

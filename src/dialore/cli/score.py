"""`dialore score`: measures of a run's responses, apart from generation."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text
from typer import Argument, Option

from dialore.cli.imports import import_and_report
from dialore.cli.options import (
    BaseUrl,
    Data,
    DataSet,
    Json,
    JudgeSet,
    JudgeSettings,
    LogTo,
    Metrics,
    Model,
    connecting,
    options_as,
)
from dialore.cli.output import Table, console, note, print_json, progress, styled
from dialore.errors import InputError
from dialore.evaluation.base import Metric, MetricInfo, Score
from dialore.evaluation.overlap import is_mixed
from dialore.evaluation.registry import Context, load_metric, load_metrics, metric_names
from dialore.evaluation.report.data import display_factor, unit
from dialore.experiments import scoring
from dialore.experiments.results import RunResults, describe_unfinished
from dialore.experiments.scoring import context_of, measure_run
from dialore.experiments.store import RunStore
from dialore.experiments.tracking import tracking
from dialore.llm.model import LanguageModel
from dialore.plugins import loadable
from dialore.session import open_model
from dialore.settings import ModelSettings
from dialore.sources.graph import open_graph
from dialore.text import count_noun

_ACROSS = 4
"""Systems that stand side by side in a table."""


def score(
    context: typer.Context,
    run: Annotated[Path, Argument(metavar="RUN", help="The folder of a run, or, with --data, a file of responses.")],
    metric: Metrics = None,
    model: Model = None,
    base_url: BaseUrl = None,
    graph: Annotated[str | None, Option("--graph", "-g", metavar="PATH|starter", help="For CDP and CDF.")] = None,
    dataset: DataSet = None,
    data: Data = None,
    changes: JudgeSet = None,
    again: Annotated[bool, Option("--again", help="Measure what has been measured, too.")] = False,
    listing: Annotated[bool, Option("--list", help="List the metrics and leave; RUN may be `-`.")] = False,
    log_to: LogTo = None,
    json: Json = False,
) -> None:
    """Score a run, each figure with its 95% interval; judges are asked by --model and --base-url.

    Measures are kept in the run: asked again, only what is missing is
    measured. Without --metric: what the experiment file names, else all
    that need neither a judge nor a model. Responses made elsewhere are
    first read into runs/NAME, as by `dialore import`, which has more options.

    [bold]Examples[/bold]
    dialore score runs/try
    dialore score runs/try -x bleu -x cdp --graph conceptnet.graph
    dialore score runs/try -x meep --model gpt-4o
    dialore score runs/try -x consistency --set nli=trained:models/nli
    dialore score responses.jsonl --data dialogues.jsonl
    dialore score - --list
    """
    if listing:
        _show_list(json=json)
        return
    settings = options_as(JudgeSettings, context)
    origin = {path: value for path, value in (("dataset.name", dataset), ("dataset.path", data)) if value is not None}
    if run.is_file():
        run = import_and_report([("", run)], origin)
    elif origin:
        raise InputError(f"{run} knows its dialogues", hint="--data and --dataset go with a file of responses")
    with RunStore.open(run) as store:
        kept = store.facts().get("config", {})
        named = metric or kept.get("metrics") or ()
        names = tuple(named) or default_metrics(settings)
        known = abouts(names)

        async def measure_all() -> None:
            needs = {need for about in known for need in about.needs}
            async with measuring(settings, needs, must_judge=bool(metric)) as opened:
                context = context_of(store, opened)
                how = {"at_once": settings.model.concurrency, "again": again, "optional": not metric}
                await _measure(context, store, names, **how)

        with store.writing():
            try:
                asyncio.run(measure_all())
            except KeyboardInterrupt:
                note(f"interrupted: what is measured is kept in {run}; the same command again does the rest")
                raise
        note_unfinished(store)
        _note_languages(store)
        results = RunResults([store], [about.name for about in known])
        if json:
            print_json([dataclasses.asdict(system) for system in results.systems()])
        else:
            show_scores(results)
        with tracking(log_to or kept.get("log_to"), store) as tracked:
            tracked.log_scores(results)
        if tracked.place:
            note(f"logged to {tracked.place}")


def note_unfinished(store: RunStore) -> None:
    """Say how many responses a run has if it is not finished."""
    if unfinished := describe_unfinished(store):
        note(f"the run in {store.folder} is not finished: {unfinished}; the same `dialore run` command continues it")


def _note_languages(store: RunStore) -> None:
    """Say how many references are not in the language of their dialogue."""
    dialogues = (store.dialogue(position) for position in range(store.size))
    mixed = [dialogue.id for dialogue in dialogues if is_mixed(dialogue)]
    if mixed:
        counted = f"{len(mixed)} of {count_noun(store.size, 'dialogues')}, such as {mixed[0]!r}"
        note(
            f"{counted}: the reference is in another language than the last turn; overlap is measured in that language"
        )


async def _measure(context: Context, store: RunStore, names: Sequence[str], **how: Any) -> None:  # noqa: ANN401
    metrics = load_metrics(names, context)
    models = {"judge": context.judge, "nli": context.nli, "language-model": context.language_model}
    lacking = {name for name, given in models.items() if not given}
    wanted: list[Metric] = []
    for metric in metrics:
        before = store.metrics().get(metric.about.name)
        is_by_another = before is not None and before.get("identity", "") != getattr(metric, "identity", "")
        if is_by_another and lacking & set(metric.about.needs):  # paid for, its measures are not dropped for none
            note(f"{metric.about.name}: as it was measured before, by a model that is not named now")
        else:
            wanted.append(metric)
    with progress("scoring") as step:
        await measure_run(store, wanted, **how, on_progress=step)


def abouts(names: Sequence[str] | None = None) -> list[MetricInfo]:
    """Return what is known about metrics, of all that can be loaded where None; raise as `load_metric`."""

    def about(name: str) -> MetricInfo:
        return load_metric(name, Context()).about

    return list(loadable(metric_names(), about) if names is None else map(about, names))


def show_scores(results: RunResults) -> None:
    """Show the scores: metrics down, systems across; n is of each system where they differ."""
    measured, systems = results.metrics(), results.systems()
    several = len({system.model for system in systems}) > 1
    for begin in range(0, len(systems), _ACROSS):
        some = systems[begin : begin + _ACROSS]
        heads = (f"{system.name} ({system.model})" if several else system.name for system in some)
        rows = Table("!metric", *(f">{head}" for head in heads), ">n", "unit")
        for about in measured:
            scores = [system.scores[about.name] for system in some]
            numbers = [str(score.n) for score in scores if score.value is not None]
            counted = ", ".join(numbers if len(set(numbers)) > 1 else numbers[:1])
            cells = [_cell(about, score) for score in scores]
            rows.add_row(about.name, *cells, counted, unit(about))
        console().print(rows)
    if any(display_factor(about) != 1 for about in measured):
        note("overlap and shares are in per cent, as papers print them; --json has them from 0 to 1")
    scored = [(about.name, system.scores[about.name]) for about in measured for system in systems]
    for missing in sorted({f"{name}: {score.reason}" for name, score in scored if score.value is None}):
        note(f"not available: {missing}")


def _cell(about: MetricInfo, score: Score) -> Text:
    if score.value is None:
        return styled("-")
    factor = display_factor(about)
    decimals = 2 if unit(about) == "%" else 3
    figure = f"{score.value * factor:.{decimals}f}"
    if score.low is None or score.high is None:
        return styled(figure)
    half = (score.high - score.low) / 2 * factor
    return styled(f"{figure} [dim]±{half:.{decimals}f}[/]")


def _show_list(*, json: bool) -> None:
    """Show every metric: what it measures, where it is from, what it needs."""
    known = abouts()
    if json:
        print_json([dataclasses.asdict(about) for about in known])
        return
    rows = [(about.name, about.definition, ", ".join(about.needs) or "-", about.paper) for about in known]
    console().print(Table("!metric", "what it measures", "needs", "paper", rows=rows))


def default_metrics(settings: JudgeSettings, *, without: Collection[str] = ()) -> tuple[str, ...]:
    """Return the metrics that need no model beside those that were named, and nothing that is not to be had."""
    given = {"nli": settings.nli, "language-model": settings.language_model}
    return scoring.default_metrics([need for need, name in given.items() if name], without)


def require_judge(settings: ModelSettings) -> LanguageModel:
    """Return the model that judges; raise InputError where no endpoint is known, or as `open_model` does."""
    model = open_model(settings.cached())
    if model is None:
        raise InputError("a judge is a language model", hint="set model.base_url and model.model")
    return model


@asynccontextmanager
async def measuring(settings: JudgeSettings, needs: Collection[str], *, must_judge: bool) -> AsyncIterator[Context]:
    """Yield what metrics may use, opened as far as they need it, without a corpus; closed at the end.

    Raises:
        InputError: no judge where there must be one, or as `open_model` and `open_graph` do.
    """
    async with AsyncExitStack() as opened:
        model = graph = None
        if "judge" in needs:
            connect, say_without = connecting()
            model = require_judge(settings.model) if must_judge else connect(settings.model.cached(), None)
            say_without("nothing is judged")
        if model is not None:
            opened.push_async_callback(model.close)
        if "graph" in needs:
            graph = opened.enter_context(closing(open_graph(settings.graph)))
        yield Context(
            graph=graph,
            judge=model,
            judge_prompts=settings.prompts,
            nli=settings.nli,
            language_model=settings.language_model,
            embedder=settings.embedder,
            tokens=settings.tokens,
        )

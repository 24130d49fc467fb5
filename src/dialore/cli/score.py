"""`dialore score`: measures of a run's responses, apart from generation."""

# No deferred annotations here: typer reads them.
from pathlib import Path
from typing import Annotated

import typer

from dialore.cli.options import Json, JudgeModel, MeasureSettings, takes_settings


@takes_settings
def score(
    judge: JudgeModel,
    measuring: MeasureSettings,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", "-x", metavar="NAME", help="A metric; may be given several times. See --list."),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Measure what has been measured, too.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="List the metrics and leave; RUN may be `-`.")] = False,
    json: Json = False,
) -> None:
    """Score a run, each figure with its 95% interval; judges are asked by --model and --base-url.

    Measures are kept in the run: asked again, only what is missing is
    measured. Without --metric: what the experiment file names, else all
    that need neither a judge nor a model.

    [bold]Examples[/bold]
    dialore score runs/try
    dialore score runs/try -x bleu -x cdp --graph conceptnet.graph
    dialore score runs/try -x meep --model gpt-4o
    dialore score - --list
    """
    from dialore.cli import score_work

    if listing:
        score_work.show_list(json=json)
        return
    settings = score_work.Settings(
        judge=judge,
        measuring=measuring,
        metrics=tuple(metric or ()),
        again=again,
    )
    score_work.work(run, settings, json=json)

"""`dialore meta`: how far metrics and judges agree with people."""

# No deferred annotations here: typer reads them.
from pathlib import Path
from typing import Annotated

import typer

from dialore.cli.options import Json, JudgeModel, MeasureSettings, takes_settings


@takes_settings
def meta(
    judge: JudgeModel,
    measuring: MeasureSettings,
    sets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SET]...", help="Sets of human judgements. Default: all that are in the folder."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="FOLDER", help="Where the published files lie. Default: DIALORE_DATA."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", "-x", metavar="NAME", help="A metric; several times. Default: all without a model."),
    ] = None,
    embedder: Annotated[
        str | None, typer.Option("--embedder", metavar="SPEC", help="For ragas-answer-relevance. [default: static]")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=3, metavar="N", help="Only N responses of each set, drawn.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the drawing, the bootstrap and the folds.")] = 0,
    measures: Annotated[
        Path | None,
        typer.Option(
            "--measures", metavar="FILE", help="Models' measures, gone on from. Default: in the cache folder."
        ),
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Write the tables there, too.")
    ] = None,
    json: Json = False,
) -> None:
    """Correlate metrics and judges with human scores; judges are asked by --model and --base-url.

    Intervals are 95% bootstrap intervals over contexts. Where people
    said yes or no, the area under the curve and the accuracy of a
    threshold found on other contexts stand in place of correlations.

    [bold]Examples[/bold]
    dialore meta --data judgements
    dialore meta topicalchat_usr -x meep -x overall --limit 60 -m gpt-4o
    dialore meta --markdown meta.md
    """
    from dialore.cli import meta_work

    settings = meta_work.Settings(
        judge=judge,
        measuring=measuring,
        sets=tuple(sets or ()),
        data=data,
        metrics=tuple(metric or ()),
        embedder=embedder,
        limit=limit,
        seed=seed,
        measures=measures,
        markdown=markdown,
    )
    meta_work.work(settings, json=json)

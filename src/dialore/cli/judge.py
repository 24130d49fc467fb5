"""`dialore judge`: a judge compares a run's systems, or scores several at once."""

# No deferred annotations here: typer reads them.
from pathlib import Path
from typing import Annotated

import typer

from dialore.cli.options import Json, JudgeModel, JudgePrompts, takes_settings


@takes_settings
def judge(
    asked: JudgeModel,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    pairwise: Annotated[
        tuple[str, str] | None,
        typer.Option("--pairwise", metavar="A B", help="Compare two systems, dialogue by dialogue, in both orders."),
    ] = None,
    together: Annotated[
        bool, typer.Option("--together", help="Score all systems, or those of --system, in one prompt a dialogue.")
    ] = False,
    system: Annotated[
        list[str] | None,
        typer.Option("--system", "-s", metavar="NAME", help="With --together: this system; several times."),
    ] = None,
    criteria: Annotated[
        str | None,
        typer.Option("--criteria", "-c", metavar="NAME,...", help="By what. Default: what the papers compare by."),
    ] = None,
    queries: Annotated[
        bool, typer.Option("--queries", help="Judge the queries that were asked, not the responses.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, metavar="N", help="Only the first N dialogues.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="With --together: of the order that systems are shown in.")] = 0,
    prompts: JudgePrompts = None,
    json: Json = False,
) -> None:
    """Have a judge compare systems of a run; it is asked by --model and --base-url.

    A system wins a dialogue only where the judge prefers it in both
    orders; all else is a tie. What is judged is kept in the run: asked
    again, only what is missing is judged.

    [bold]Examples[/bold]
    dialore judge runs/try --pairwise dcrag vanilla --model gpt-4o
    dialore judge runs/try --pairwise dcrag t-rag -c engagingness
    dialore judge runs/try --together --queries
    """
    from dialore.cli import judge_work

    settings = judge_work.Settings(
        judge=asked,
        pair=pairwise,
        together=together,
        systems=tuple(system or ()),
        criteria=tuple(name.strip() for name in (criteria or "").split(",") if name.strip()),
        judged="queries" if queries else "responses",
        limit=limit,
        seed=seed,
        prompts=prompts,
    )
    judge_work.work(run, settings, json=json)

"""`dialore run`: methods × dialogues × models × repetitions, kept on disk and gone on with."""

# No deferred annotations here: typer reads them.
from pathlib import Path
from typing import Annotated

import typer

from dialore.cli.options import Json, KnowledgeSettings, ModelSettings, takes_settings


@takes_settings
def run(
    models: ModelSettings,
    knowledge: KnowledgeSettings,
    config: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="An experiment file (YAML); or say all by options.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Where the run is kept. [default: runs/NAME]")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option("--method", "-M", metavar="NAME", help="A method; may be given several times.")
    ] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", metavar="NAME", help="See `dialore data list`.")] = None,
    data: Annotated[Path | None, typer.Option("--data", metavar="FILE", help="The data set's file.")] = None,
    cut: Annotated[
        str | None, typer.Option("--cut", metavar="last|random|all", help="Where dialogues are cut.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="How many dialogues, drawn by seed.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Of the draw.")] = None,
    repetitions: Annotated[int | None, typer.Option("--repetitions", min=1, help="Responses a dialogue.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", min=0, help="Stop when so many tokens are paid for.")
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option("--max-cost", min=0, help="Stop when so much is spent, by the models' prices.")
    ] = None,
    replay: Annotated[Path | None, typer.Option("--replay", metavar="FILE", help="Answer from this recording.")] = None,
    accept_changed_prompts: Annotated[
        bool,
        typer.Option("--accept-changed-prompts", help="Go on where prompts changed since; the report will say so."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, whatever it is expected to cost.")] = False,
    dry: Annotated[bool, typer.Option("--dry-run", help="Say what it is expected to cost, and leave.")] = False,
    engine: Annotated[str, typer.Option("--engine", metavar="local|ray", help="Where it runs.")] = "local",
    json: Json = False,
) -> None:
    """Answer a data set by several systems, into a folder that can be gone on with.

    Every finished response is on disk at once. Run the same command again
    and only what is missing or failed is done; score it with `dialore score`.

    [bold]Examples[/bold]
    dialore run experiment.yaml
    dialore run experiment.yaml --limit 20 --model llama3.1
    dialore run -M dcrag -M vanilla --dataset dailydialog --data valid.json.gz --limit 100
    dialore run experiment.yaml --dry-run          (calls and tokens, by rehearsal)

    Exit code: 0 all answered, 1 some failed or a budget is spent, 2 nothing could be done.
    """
    from dialore.cli import run_work

    changes = {
        "dataset.name": dataset,
        "dataset.path": data,
        "dataset.cut": cut,
        "dataset.limit": limit,
        "dataset.seed": seed,
        "repetitions": repetitions,
        "budget.tokens": max_tokens,
        "budget.cost": max_cost,
    }
    task = run_work.Task(
        config=config,
        out=out,
        methods=tuple(method or ()),
        changes={name: value for name, value in changes.items() if value is not None},
        models=models,
        knowledge=knowledge,
        replay=replay,
        accept_changed_prompts=accept_changed_prompts,
        ask=not yes and not json,
        dry=dry,
        engine=engine,
    )
    run_work.work(task, json=json)

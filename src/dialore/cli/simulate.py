"""`dialore simulate`: whole conversations of a method with a simulated user."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from dialore.cli.options import METHODS, Json, RunOptions, connecting, takes_settings
from dialore.cli.output import Table, console, note, print_json, run_progress
from dialore.cli.run import configured
from dialore.experiments.simulation import run_simulation
from dialore.experiments.store import RunStore


@takes_settings
def simulate(
    said: RunOptions,
    config: Annotated[Path | None, Argument(metavar="[FILE]", help="An experiment file; or say all here.")] = None,
    out: Annotated[Path | None, Option(metavar="FOLDER", help="The run. (default: runs/NAME)")] = None,
    method: Annotated[
        str | None, Option("--method", "-M", metavar="NAME", help="The method.", autocompletion=METHODS)
    ] = None,
    user_model: Annotated[str | None, Option(metavar="NAME", help="The user's model. (default: the agent's)")] = None,
    user_base_url: Annotated[str | None, Option(metavar="URL", help="Where it is. (default: the agent's)")] = None,
    real: Annotated[
        str | None, Option(metavar="NAME:SPLIT|FILE", help="Real dialogues to hold the simulated users against.")
    ] = None,
    json: Json = False,
) -> None:
    """Hold whole conversations with a simulated user, into a run to be scored and reported.

    The data set says what users want: the handbook test's questions, or
    dialogues with "goal", "about", "temper" and "answer". Run the same
    command again and only what is missing or failed is done.

    [bold]Examples[/bold]
    dialore simulate examples/simulate/handbook.yaml --model qwen2.5:1.5b --user-model llama3.1
    dialore simulate -M weave --dataset jsonl --data goals.jsonl --documents handbook --real log.jsonl
    """
    own = {"model": user_model, "base_url": user_base_url, "real": real}
    changes = {**said, **{f"user.{name}": value for name, value in own.items() if value is not None}}
    chosen = configured(config, changes, [method] if method else [], [])
    folder = out or Path("runs") / chosen.name
    connect, _ = connecting()
    with run_progress("talking") as on_progress:
        ended = asyncio.run(run_simulation(chosen, folder, connect, on_progress))
    with RunStore.open(folder) as store:
        facts = store.facts()
    realism: list[dict[str, Any]] = facts.get("realism", [])
    if json:
        figures = {"folder": str(folder), "conversations": ended.total, "before": ended.before, **ended.figures}
        print_json(figures | {"ended": facts["ended"], "realism": realism})
    elif realism:
        columns = ("simulated", "real", "difference", "distance")
        rows = Table("!of users", *(f">{name}" for name in columns))
        for row in realism:
            rows.add_row(row["feature"], *("-" if row[name] is None else f"{row[name]:.2f}" for name in columns))
        console().print(rows)
    for failure in [*ended.failures, *([f"stopped: {ended.stopped}"] if ended.stopped else [])]:
        note(failure)
    ways = ", ".join(f"{count} {way or 'not ended'}" for way, count in facts["ended"].items())
    note(f"{ended.ok} conversations held, {ended.failed} failed, {ended.before} were there ({ways}): {folder}")
    if ended.before + ended.ok < ended.total:
        raise typer.Exit(1)

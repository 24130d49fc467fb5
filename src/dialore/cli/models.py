"""`dialore models`: trained parts on disk, and how well they answer held-out rows."""

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from dialore.cli.options import Json, JudgeModel, takes_settings
from dialore.cli.output import Table, console, note, print_json, progress, say
from dialore.errors import InputError
from dialore.experiments.stage_rouge import VARIANTS, StageRouge, score_stages
from dialore.llm.distilled import read_rows
from dialore.session import connect_model
from dialore.trained import list_cards, read_card

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_models(
    folder: Annotated[Path, Argument(metavar="[FOLDER]", help="Where they lie.")] = Path("models"), json: Json = False
) -> None:
    """List the trained parts in a folder.

    [bold]Example[/bold]
    dialore models list models
    """
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}", hint="name one, or train a model: `dialore train --help`")
    cards = list(list_cards(folder))
    if json:
        print_json([{"path": str(path), **card} for path, card in cards])
        return
    shown = Table("!folder", "kind", "data set", ">responses", ">seed")
    for path, card in cards:
        data = card["data"]
        shown.add_row(str(path), card["kind"], data["dataset"], f"{data['responses']:,}", str(card["seed"]))
    console().print(shown)
    note(f"{len(cards)} trained parts in {folder}")


@app.command("show")
def show(path: Annotated[Path, Argument(metavar="FOLDER", help="The model.")], json: Json = False) -> None:
    """Show a model's card: its data, settings and figures.

    [bold]Example[/bold]
    dialore models show models/planner
    """
    card = read_card(path)
    if json:
        print_json({"path": str(path), **card})
    else:
        say((path / "README.md").read_text(encoding="utf-8").rstrip())


@app.command("rouge")
@takes_settings
def rouge(
    rows: Annotated[Path, Argument(metavar="ROWS", help="Rows of `dialore distill`.")],
    settings: JudgeModel,
    limit: Annotated[int | None, Option("--limit", "-n", min=1, help="Number of held-out rows. (default: all)")] = None,
    json: Json = False,
) -> None:
    """Score a model's outputs against held-out rows, by ROUGE.

    Works for a model of `dialore train stages` (--model trained:FOLDER) and for
    any other, for example the base that it was trained from (--model hf:NAME).

    [bold]Example[/bold]
    dialore models rouge rows.jsonl --model trained:models/scg-qp-query
    """
    held_out = [row for row in read_rows(rows) if row.split == "valid"][:limit]
    model = connect_model(settings)
    if model is None:
        raise InputError("no model to score", hint="name one: --model trained:FOLDER, or hf:NAME")

    async def score() -> list[StageRouge]:
        try:
            with progress("answering") as step:
                return await score_stages(model, held_out, lambda done, total: step("rows", done, total))
        finally:
            await model.close()

    results = asyncio.run(score())
    if json:
        print_json([asdict(result) for result in results])
        return
    table = Table("!stage", ">rows", *(f">{name}" for name in VARIANTS))
    for result in results:
        table.add_row(result.task, str(result.outputs), *(f"{result.scores[name]:.4f}" for name in VARIANTS))
    console().print(table)

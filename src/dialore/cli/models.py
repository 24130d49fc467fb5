"""`dialore models`: trained parts on disk, and how well a model answers held-out rows."""

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Context, Option

from dialore.cli.options import Json, JudgeSet, JudgeSettings, options_as
from dialore.cli.output import Table, console, note, print_json, progress, say
from dialore.errors import InputError
from dialore.session import open_model
from dialore.settings import ModelSettings
from dialore.trained import list_cards, read_card


def models(
    context: Context,
    model: Annotated[
        str, Argument(metavar="[FOLDER|MODEL]", help="A trained part, a folder of them, or a model.")
    ] = "models",
    rows: Annotated[
        Path | None,
        Option(metavar="FILE", help="Score the model against held-out rows of `dialore distill`, by ROUGE."),
    ] = None,
    limit: Annotated[int | None, Option("--limit", "-n", min=1, help="With --rows: how many. (default: all)")] = None,
    changes: JudgeSet = None,
    json: Json = False,
) -> None:
    """List the trained parts in a folder, show one's card, or score a model against held-out rows.

    [bold]Examples[/bold]
    dialore models models
    dialore models models/planner
    dialore models trained:models/scg-qp-query --rows rows.jsonl
    dialore models hf:google/flan-t5-large --rows rows.jsonl
    """
    folder = Path(model)
    if rows is not None:
        settings = options_as(JudgeSettings, context).model
        _score(settings.model_copy(update={"model": model}), rows, limit, json=json)
    elif (folder / "README.md").is_file():
        card = read_card(folder)
        if json:
            print_json({"path": model, **card})
        else:
            say((folder / "README.md").read_text(encoding="utf-8").rstrip())
    elif folder.is_dir():
        _list(folder, json=json)
    else:
        raise InputError(f"there is no folder {folder}", hint="name one, or train a model: `dialore train --help`")


def _list(folder: Path, *, json: bool) -> None:
    cards = list(list_cards(folder))
    if json:
        print_json([{"path": str(path), **card} for path, card in cards])
        return
    table = Table("!folder", "kind", "data set", ">responses", ">seed")
    for path, card in cards:
        data = card["data"]
        table.add_row(str(path), card["kind"], data["dataset"], f"{data['responses']:,}", str(card["seed"]))
    console().print(table)
    note(f"{len(cards)} trained parts in {folder}")


def _score(settings: ModelSettings, rows: Path, limit: int | None, *, json: bool) -> None:
    from dialore.experiments.stage_rouge import VARIANTS, StageRouge, score_stages
    from dialore.llm.distilled import read_rows

    held_out = [row for row in read_rows(rows) if row.split == "valid"][:limit]
    model = open_model(settings)
    if model is None:
        raise InputError("no model to score", hint="name one: trained:FOLDER, or hf:NAME")

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

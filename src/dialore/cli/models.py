"""`dialore models`: trained parts on disk."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from dialore.cli.options import Json
from dialore.cli.output import Table, console, note, print_json, say
from dialore.errors import InputError
from dialore.learned import describe, describe_all

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
    cards = list(describe_all(folder))
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
    card = describe(path)
    if json:
        print_json({"path": str(path), **card})
    else:
        say((path / "README.md").read_text(encoding="utf-8").rstrip())

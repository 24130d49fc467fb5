"""`dialore data`: published data sets, looked into, counted, and made into dialogue files."""

# No deferred annotations here: typer reads them.
from pathlib import Path
from typing import Annotated

import typer

from dialore.cli.options import Json

app = typer.Typer(no_args_is_help=True, help="List data sets, look into their published files, convert them.")
_Name = Annotated[str, typer.Argument(metavar="NAME", help="The data set; see `dialore data list`.")]
_File = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="The file as it is published, gzipped or not; of an archive, ARCHIVE:FILE."),
]


@app.command("list")
def list_data(json: Json = False) -> None:
    """List the data sets that can be read, what they hold, and where they are to be had.

    [bold]Example[/bold]
    dialore data list
    """
    from dialore.cli import data_work

    data_work.list_all(json=json)


@app.command("show")
def show(
    name: _Name,
    file: _File,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many dialogues.")] = 3,
    json: Json = False,
) -> None:
    """Show whole dialogues, each turn beside the gold knowledge that it was written with.

    [bold]Examples[/bold]
    dialore data show kbp dev.json -n 1
    dialore data show wizard-of-internet valid.jsonl --json
    """
    from dialore.cli import data_work

    data_work.show(name, file, count=count, json=json)


@app.command("stats")
def stats(name: _Name, file: _File, json: Json = False) -> None:
    """Count a file's dialogues and samples; measure their turns, knowledge, personas and plans.

    A sample is a turn that may be a reference: the system's or wizard's
    where a data set has such roles, else any but the first.

    [bold]Examples[/bold]
    dialore data stats kbp train.json
    dialore data stats kbp kbp.zip:dev.json --json
    """
    from dialore.cli import data_work

    data_work.stats(name, file, json=json)


@app.command("convert")
def convert(
    name: _Name,
    file: _File,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where the dialogues go. [default: standard output]")
    ] = None,
    cut: Annotated[
        str,
        typer.Option(
            "--cut",
            metavar="last|random|all",
            help="Which turn is the reference: the last that may be, one drawn, or each in turn.",
        ),
    ] = "last",
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="How many to keep, drawn by --seed.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the draws.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="With --out: say what was done as JSON.")] = False,
) -> None:
    """Convert a data set's file to dialogues with references and gold knowledge (JSONL).

    [bold]Examples[/bold]
    dialore data convert dailydialog valid.json.gz --out valid.jsonl
    dialore data convert kbp dev.json --cut all --limit 20 --out 20.jsonl
    dialore data convert xdailydialog-zh dev.txt --cut all | dialore respond -
    """
    from dialore.cli import data_work

    data_work.convert(name, file, out, cut=cut, limit=limit, seed=seed, json=json)

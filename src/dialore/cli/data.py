"""`dialore data`: published data sets, made into dialogue files."""

# No deferred annotations here: typer reads them.
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dialore.cli.options import Json
from dialore.cli.output import console, note, print_json, table, write_whole

if TYPE_CHECKING:
    from dialore.datasets.base import Cut
    from dialore.dialogue import Dialogue

app = typer.Typer(no_args_is_help=True, help="List data sets and convert their published files.")


@app.command("list")
def list_data(json: Json = False) -> None:
    """List the data sets that can be read.

    [bold]Example[/bold]
    dialore data list
    """
    from dialore.datasets.registry import data_set, data_set_names

    found = [data_set(name) for name in data_set_names()]
    if json:
        names = ("name", "version", "language", "source", "licence", "form")
        print_json([{name: getattr(each, name) for name in names} for each in found])
        return
    rows = table("!data set", "language", "source", "licence", "its files")
    for each in found:
        rows.add_row(each.name, each.language, each.source, each.licence, each.form)
    console().print(rows)


@app.command("convert")
def convert(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The data set; see `dialore data list`.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file as it is published, gzipped or not.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where the dialogues go. [default: standard output]")
    ] = None,
    cut: Annotated[
        str,
        typer.Option(
            "--cut",
            metavar="last|random|all",
            help="Which turn is the reference: the last, one drawn, or each in turn.",
        ),
    ] = "last",
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="How many to keep, drawn by --seed.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the draws.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="With --out: say what was done as JSON.")] = False,
) -> None:
    """Convert a data set's file to dialogues with references (JSONL).

    [bold]Examples[/bold]
    dialore data convert dailydialog valid.json.gz --out valid.jsonl
    dialore data convert dailydialog valid.json.gz --limit 20 --out 20.jsonl
    dialore data convert xdailydialog-zh dev.txt --cut all | dialore respond -
    """
    from dialore.datasets.base import CUTS, cut_dialogues
    from dialore.datasets.registry import data_set
    from dialore.errors import UnknownNameError

    if cut not in CUTS:
        raise UnknownNameError("cut", cut, CUTS)
    chosen: Cut = next(known for known in CUTS if known == cut)
    dialogues = cut_dialogues(data_set(name).read(file), cut=chosen, limit=limit, seed=seed)
    if out is None:
        for dialogue in dialogues:
            typer.echo(as_line(dialogue))
        return
    write_whole(out, "".join(f"{as_line(dialogue)}\n" for dialogue in dialogues))
    if json:
        print_json({"data_set": name, "dialogues": len(dialogues), "out": str(out), "cut": cut, "seed": seed})
    else:
        note(f"{len(dialogues)} dialogues of {name} written to {out}")


def as_line(dialogue: "Dialogue") -> str:
    """A dialogue as one line of a dialogue file; what is empty is left out, other keys stand where they stood."""
    data = dialogue.model_dump(mode="json", exclude_defaults=True, exclude={"extra"})
    import json as encoder

    return encoder.dumps({**data, **dialogue.extra}, ensure_ascii=False)

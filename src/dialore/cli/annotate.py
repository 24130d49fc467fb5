"""`dialore annotate`: human evaluation by sheets."""

# No deferred annotations here: typer reads them.
from pathlib import Path
from typing import Annotated

import typer

from dialore.cli.options import Json

app = typer.Typer(no_args_is_help=True, help="Export blind sheets for people to judge by, import them, agreement.")


@app.command("export")
def export(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="The folders of runs.")],
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where the sheets go.")] = Path("sheets"),
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="Where the key goes. [default: FOLDER.key.json]")
    ] = None,
    criteria: Annotated[
        str, typer.Option("--criteria", "-c", metavar="NAME", help="dcrag, safari, scg-qp-query, ...; see `criteria`.")
    ] = "dcrag",
    form: Annotated[
        str | None, typer.Option("--form", metavar="pairwise|likert|ranking", help="[default: the paper's]")
    ] = None,
    system: Annotated[
        list[str] | None,
        typer.Option("--system", "-s", metavar="NAME", help="Only this system; may be given several times."),
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", metavar="SYSTEM", help="Only pairs with this system. [default: all]")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="How many dialogues.")] = 100,
    annotators: Annotated[int, typer.Option("--annotators", min=1, help="How many sheets.")] = 3,
    language: Annotated[
        str | None, typer.Option("--language", metavar="en|zh", help="Of the questions. [default: the dialogues']")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of drawing, shuffling and blinding.")] = 0,
    json: Json = False,
) -> None:
    """Write a sheet for each annotator, blind and shuffled; the key stays with you.

    Each comes as CSV, as XLSX with lists to choose from (the `evaluation`
    extra), and as a page to print. Responses are of the first repetition.

    [bold]Examples[/bold]
    dialore annotate export runs/try --against dcrag -n 100
    dialore annotate export runs/kbp -c safari --language zh
    dialore annotate export runs/try -c dcrag --form ranking
    """
    from dialore.cli import annotate_work

    wanted = annotate_work.Wanted(
        tuple(runs), out, key, criteria, form, tuple(system or ()), against, limit, annotators, language, seed
    )
    annotate_work.export(wanted, json=json)


@app.command("import")
def import_sheets(
    sheets: Annotated[list[Path], typer.Argument(metavar="SHEET...", help="Filled-in sheets, one an annotator.")],
    key: Annotated[Path, typer.Option("--key", metavar="FILE", help="The export's key.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where they go.")] = Path("annotations.jsonl"),
    json: Json = False,
) -> None:
    """Read filled-in sheets, CSV or XLSX, and undo the blinding; the file's name is the annotator's.

    [bold]Examples[/bold]
    dialore annotate import sheets/*.csv --key sheets.key.json
    dialore annotate import anna.xlsx ben.xlsx --key sheets.key.json
    """
    from dialore.cli import annotate_work

    annotate_work.import_sheets(sheets, key, out, json=json)


@app.command("agreement")
def agreement(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `annotate import` wrote.")],
    json: Json = False,
) -> None:
    """How far annotators agree, who wins how often, and whether that is significant.

    [bold]Example[/bold]
    dialore annotate agreement annotations.jsonl
    """
    from dialore.cli import annotate_work

    annotate_work.agreement(file, json=json)


@app.command("criteria")
def criteria(json: Json = False) -> None:
    """List the sets of criteria, with the paper each is from."""
    from dialore.cli import annotate_work

    annotate_work.list_criteria(json=json)

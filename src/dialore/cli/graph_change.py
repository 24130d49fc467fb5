"""`dialore graph add`, `delete`, `update`, `compact`, `verify` and `export`."""

# No deferred annotations here: typer reads them.
from pathlib import Path
from typing import Annotated

import typer

from dialore.cli.options import Json

_File = Annotated[Path, typer.Argument(metavar="GRAPH", help="The graph's file.")]
_Files = Annotated[list[Path], typer.Argument(metavar="FILES...", help="TSV, JSONL or ConceptNet assertions; .gz too.")]
_Format = Annotated[
    str | None, typer.Option("--format", metavar="tsv|jsonl|conceptnet", help="Where it cannot be guessed.")
]


def register(app: typer.Typer) -> None:
    """Add the commands that change, check and write back graphs."""
    for command in (add, delete, update, compact, verify, export):
        app.command(command.__name__)(command)


def add(graph: _File, files: _Files, file_format: _Format = None, json: Json = False) -> None:
    """Add facts to a graph; of one that is there, the heavier is kept.

    All of them are there afterwards, or none. Who reads the graph goes on
    reading it as it was; new readers see the new facts.

    [bold]Example[/bold]
    dialore graph add my.graph more.tsv
    """
    from dialore.cli import graph_change_work

    graph_change_work.change("add", graph, files, file_format=file_format, json=json)


def delete(graph: _File, files: _Files, file_format: _Format = None, json: Json = False) -> None:
    """Delete facts from a graph, whatever their weight.

    [bold]Example[/bold]
    dialore graph delete my.graph wrong.tsv
    """
    from dialore.cli import graph_change_work

    graph_change_work.change("delete", graph, files, file_format=file_format, json=json)


def update(graph: _File, files: _Files, file_format: _Format = None, json: Json = False) -> None:
    """Give facts that are there the weight and provenance of the files.

    [bold]Example[/bold]
    dialore graph update my.graph weights.jsonl
    """
    from dialore.cli import graph_change_work

    graph_change_work.change("update", graph, files, file_format=file_format, json=json)


def compact(graph: _File, json: Json = False) -> None:
    """Copy a graph that was changed often without its unused pages, in place.

    [bold]Example[/bold]
    dialore graph compact my.graph
    """
    from dialore.cli import graph_change_work

    graph_change_work.compact(graph, json=json)


def verify(graph: _File, json: Json = False) -> None:
    """Check a graph file: each table against the others, changes included.

    Exit code 1 where something is wrong.

    [bold]Example[/bold]
    dialore graph verify my.graph
    """
    from dialore.cli import graph_change_work

    graph_change_work.verify(graph, json=json)


def export(
    graph: _File,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="[default: standard output]")] = None,
    file_format: Annotated[
        str | None, typer.Option("--format", metavar="tsv|jsonl", help="[default: by the file's name, else tsv]")
    ] = None,
) -> None:
    """Write a graph's facts to a file that a graph can be built of again.

    [bold]Examples[/bold]
    dialore graph export my.graph --out facts.jsonl.gz
    dialore graph export my.graph | cut -f 2 | sort | uniq -c
    """
    from dialore.cli import graph_change_work

    graph_change_work.export(graph, out, file_format=file_format)

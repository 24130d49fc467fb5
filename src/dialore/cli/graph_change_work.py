"""What the commands do that change, check and write back graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from dialore.cli.graph_work import facts_of_files, say_rejects
from dialore.cli.output import note, print_json, progress
from dialore.errors import GraphError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Literal

def change(
    verb: Literal["add", "delete", "update"],
    graph: Path,
    files: Sequence[Path],
    *,
    file_format: str | None,
    json: bool,
) -> None:
    """Change a graph and say what came of it; raises GraphError as `GraphEditor.commit` and `read_facts` do."""
    from dialore.sources.graph.changes import GraphEditor
    from dialore.sources.graph.facts import Rejects

    rejects = Rejects()
    editor = GraphEditor(graph)
    with progress("reading facts") as step:
        getattr(editor, verb)(facts_of_files(files, file_format, None, rejects, step))
        step("changing the graph", 0, None)
        report = editor.commit()
    say_rejects(rejects)
    if json:
        print_json({**report.model_dump(), "rejected": rejects.count})
    else:
        done = {name: getattr(report, name) for name in ("added", "updated", "deleted", "unchanged", "missing")}
        said = ", ".join(f"{count:,} {name}" for name, count in done.items() if count) or "nothing to change"
        note(f"{said}: {graph} has {report.facts:,} facts of {report.concepts:,} concepts")


def compact(graph: Path, *, json: bool) -> None:
    """Copy a graph without the pages that nothing uses any more; raises GraphError as `compact_graph` does."""
    from dialore.sources.graph.changes import compact_graph

    before = graph.stat().st_size if graph.is_file() else 0
    compact_graph(graph)
    after = graph.stat().st_size
    if json:
        print_json({"path": str(graph), "bytes_before": before, "bytes": after})
    else:
        note(f"{graph}: {before / 2**20:.1f} MB before, {after / 2**20:.1f} MB now")


def verify(graph: Path, *, json: bool) -> None:
    """Check a graph; exit code 1 where something is wrong."""
    from dialore.sources.graph.verify import verify as check

    with progress("checking") as step:
        report = check(graph, step)
    if json:
        print_json(report.model_dump())
    else:
        for problem in report.problems:
            typer.echo(f"{graph}: {problem}")
        if not report.problems:
            typer.echo(f"{graph} is whole: {report.facts:,} facts of {report.concepts:,} concepts")
    if report.problems:
        raise typer.Exit(1)


def export(graph: Path, out: Path | None, *, file_format: str | None) -> None:
    """Write a graph's facts to a file or to standard output; raises GraphError as `export_graph` does."""
    from dialore.sources.graph.facts import EXPORT_FORMATS, export_graph, lines_of
    from dialore.sources.graph.store import GraphStore

    ending = "jsonl" if out is not None and out.name.removesuffix(".gz").endswith((".jsonl", ".ndjson")) else "tsv"
    chosen = next((known for known in EXPORT_FORMATS if known == (file_format or ending)), None)
    if chosen is None:
        raise UnknownNameError("format", file_format or "", EXPORT_FORMATS)
    if out is not None and out.exists() and graph.exists() and out.samefile(graph):
        raise GraphError(f"{out} is the graph itself", mend="name another --out")
    with GraphStore(graph) as store:
        if out is None:
            for line in lines_of(store, chosen):
                typer.echo(line)
            return
        with progress("writing facts") as step:
            done = export_graph(store, out, chosen, step)
    note(f"{done:,} facts: {out}")

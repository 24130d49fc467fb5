"""`dialore graph`: build a commonsense graph, look into it, ask it."""

# No deferred annotations here: typer reads them.
from pathlib import Path
from typing import Annotated

import typer

from dialore.cli import graph_change
from dialore.cli.options import Json

app = typer.Typer(no_args_is_help=True, help="Build a commonsense graph, look into it, ask it, change it.")
_Graph = Annotated[str, typer.Option("--graph", "-g", metavar="PATH|starter", help="The graph.")]


@app.command("build")
def build(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILES...", help="TSV, JSONL or ConceptNet assertions; .gz too.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the graph goes.")],
    language: Annotated[
        list[str] | None,
        typer.Option("--language", "-l", metavar="en|zh", help="Of a ConceptNet dump, keep these; may be repeated."),
    ] = None,
    file_format: Annotated[
        str | None, typer.Option("--format", metavar="tsv|jsonl|conceptnet", help="Where it cannot be guessed.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="The graph's name. [default: the file's]")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is no graph.")] = False,
    json: Json = False,
) -> None:
    """Build a graph file; an old one stays in place until the new one is whole.

    TSV lines are head, relation, tail and perhaps a weight, or relation
    first; JSONL objects have these keys; ConceptNet is its assertions dump
    as published.

    [bold]Examples[/bold]
    dialore graph build facts.tsv --out my.graph
    dialore graph build assertions.csv.gz -l en -l zh --out conceptnet.graph
    dialore respond talk.json --graph my.graph
    """
    from dialore.cli import graph_work

    graph_work.build(files, out, languages=language, file_format=file_format, name=name, force=force, json=json)


@app.command("stats")
def stats(
    graph: Annotated[str | None, typer.Argument(metavar="[GRAPH]", help="The graph's file, or starter.")] = None,
    option: _Graph = "starter",
    top: Annotated[int, typer.Option("--top", min=0, help="How many of the best-connected concepts to name.")] = 10,
    json: Json = False,
) -> None:
    """Count a graph's facts, concepts and relations.

    [bold]Examples[/bold]
    dialore graph stats
    dialore graph stats my.graph --json
    """
    from dialore.cli import graph_work

    graph_work.stats(graph or option, top=top, json=json)


@app.command("show")
def show(
    concept: Annotated[str, typer.Argument(metavar="CONCEPT", help="A word or phrase.")],
    graph: _Graph = "starter",
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many facts to show, the heaviest first.")] = 50,
    json: Json = False,
) -> None:
    """Show the facts of one concept.

    [bold]Examples[/bold]
    dialore graph show "sore throat"
    dialore graph show 饺子 --json
    """
    from dialore.cli import graph_work

    graph_work.show(concept, graph, limit=limit, json=json)


@app.command("retrieve")
def retrieve(
    query: Annotated[list[str] | None, typer.Option("--query", "-q", help="A query; may be repeated.")] = None,
    topic: Annotated[list[str] | None, typer.Option("--topic", "-t", help="A topic; may be repeated.")] = None,
    history: Annotated[
        str | None, typer.Option("--history", help="What the facts are ranked by. [default: queries and topics]")
    ] = None,
    language: Annotated[
        str | None, typer.Option("--language", "-l", metavar="en|zh", help="[default: found from the text]")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Facts to keep of each set.")] = 10,
    ranking: Annotated[
        str, typer.Option("--ranking", metavar="default|paper", help="paper: the cosine with the history alone.")
    ] = "default",
    reranker: Annotated[
        str | None,
        typer.Option("--reranker", metavar="SPEC", help="An embedder that looks at the best again: onnx:FOLDER."),
    ] = None,
    graph: _Graph = "starter",
    json: Json = False,
) -> None:
    """Retrieve the facts between and around queries and topics, ranked.

    Foreseen facts lie between a query and a topic; unforeseen ones hold
    either.

    [bold]Example[/bold]
    dialore graph retrieve -q "sore throat" -t honey --history "It hurts."
    """
    from dialore.cli import graph_work

    graph_work.retrieve(
        query or [],
        topic or [],
        graph,
        history=history,
        language=language,
        top=top,
        ranking=ranking,
        reranker=reranker,
        json=json,
    )


graph_change.register(app)

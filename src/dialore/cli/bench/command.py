"""`dialore bench`: what we cost, measured."""

# No deferred annotations here: typer reads them.
from pathlib import Path
from typing import Annotated

import typer

from dialore.cli.options import Json

app = typer.Typer(no_args_is_help=True, help="Measure our own overhead.")


@app.callback()
def bench() -> None:
    """Measure our own overhead; no model is needed."""


@app.command("pipeline")
def pipeline(
    dialogues: Annotated[int, typer.Option("--dialogues", min=1, help="How many are answered one by one.")] = 20,
    latency: Annotated[int, typer.Option("--latency", min=0, metavar="MS", help="Of the endpoint, one by one.")] = 100,
    batch: Annotated[int, typer.Option("--batch", min=0, help="How many are answered at once; 0 leaves it out.")] = 128,
    connections: Annotated[int, typer.Option("--connections", min=1, help="The most calls at once.")] = 64,
    batch_latency: Annotated[
        int, typer.Option("--batch-latency", min=1, metavar="MS", help="Of the endpoint, in the batch.")
    ] = 500,
    method: Annotated[str, typer.Option("--method", "-M", metavar="NAME", help="The method.")] = "dcrag",
    graph: Annotated[str, typer.Option("--graph", "-g", metavar="PATH|starter", help="The graph.")] = "starter",
    every: Annotated[bool, typer.Option("--all", help="Every method, one by one, in one table.")] = False,
    sentences: Annotated[
        int, typer.Option("--sentences", min=10, help="With --all: of the base that is made up for it.")
    ] = 100_000,
    documents: Annotated[
        Path | None,
        typer.Option("--documents", "-d", metavar="PATH", help="With --all: a document index in its place."),
    ] = None,
    json: Json = False,
) -> None:
    """Measure a method, or with --all every one, against a local endpoint of known latency.

    The endpoint runs in a process of its own. Measured: our CPU time per
    model call and per response, sequential steps, the share of prompts that
    a server's prefix cache can reuse, throughput against the ideal, import
    time and peak memory. Ratios hold on any machine; times do not. With
    --all: calls, steps, tokens, CPU and that share, in one table.

    [bold]Examples[/bold]
    dialore bench pipeline
    dialore bench pipeline --method t-rag --graph conceptnet.graph --json
    dialore bench pipeline --all --latency 5
    """
    if every:
        from dialore.cli.bench import pipeline_all

        pipeline_all.run(pipeline_all.Plan(dialogues, latency, graph, sentences, documents), json=json)
        return
    from dialore.cli.bench import pipeline as work

    plan = work.Plan(dialogues, latency, batch, connections, batch_latency, method, graph)
    work.run(plan, json=json)


@app.command("graph")
def graph(
    facts: Annotated[int, typer.Option("--facts", min=1000, help="Of the generated graph.")] = 330_000,
    questions: Annotated[int, typer.Option("--questions", min=1, help="With a hub, and as many without.")] = 200,
    rivals: Annotated[bool, typer.Option(help="Ask other stores too, those that are installed.")] = True,
    folder: Annotated[
        Path | None, typer.Option("--folder", metavar="FOLDER", help="Keep the files here. [default: a temporary one]")
    ] = None,
    json: Json = False,
) -> None:
    """Measure the graph source on a generated graph of ConceptNet's shape.

    Measured, each in a process of its own: build time, size and peak memory;
    the time to open; ten queries and ten topics to 50 + 50 ranked facts,
    with a hub among them and without; memory. Then the same question, the
    facts of the same concepts, is asked of networkx, SQLite and DuckDB. ConceptNet's size is
    3,300,000 facts: 15 minutes, 3 GB of memory and disk each.

    [bold]Examples[/bold]
    dialore bench graph
    dialore bench graph --facts 3300000 --json
    """
    from dialore.cli.bench import graph as work

    work.run(work.Plan(facts, questions, rivals, folder), json=json)


@app.command("run")
def run(
    dialogues: Annotated[int, typer.Option("--dialogues", min=1, help="How many are answered.")] = 1500,
    connections: Annotated[int, typer.Option("--connections", min=1, help="The most calls at once.")] = 64,
    median: Annotated[int, typer.Option("--median", min=1, metavar="MS", help="Of the endpoint's latency.")] = 200,
    sigma: Annotated[float, typer.Option("--sigma", min=0, help="Spread of the latency's logarithm.")] = 0.6,
    method: Annotated[str, typer.Option("--method", "-M", metavar="NAME", help="The method.")] = "dcrag",
    memory: Annotated[
        int, typer.Option("--memory", min=0, help="Dialogues of a run, and four times as many; 0 leaves it out.")
    ] = 500,
    responses: Annotated[
        int, typer.Option("--responses", min=0, help="How many are scored; 0 leaves it out.")
    ] = 10_000,
    json: Json = False,
) -> None:
    """Measure whole runs against a local endpoint of lognormal latency.

    Measured: the throughput of `dialore run` against the ideal (the sum of
    all latencies over the connections), beside a loop that gathers batch
    after batch and one that begins all dialogues at once; our CPU time a
    call; peak memory of a run and of one four times as long; and the time
    to score responses by every metric that needs no model.

    [bold]Examples[/bold]
    dialore bench run
    dialore bench run --dialogues 300 --memory 0 --responses 0 --json
    """
    from dialore.cli.bench import run as work

    plan = work.Plan(dialogues, connections, median, sigma, method, memory, responses)
    work.run(plan, json=json)

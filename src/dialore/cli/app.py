"""The command tree."""

# No deferred annotations here: typer reads them.
import logging
from typing import Annotated

import typer
from typer import Option

from dialore import __version__
from dialore.cli import (
    annotate,
    bench,
    chat,
    check,
    data,
    demo,
    distill,
    documents,
    feedback,
    graph,
    imports,
    judge,
    mcp,
    memory,
    meta,
    methods,
    models,
    prompts,
    report,
    respond,
    run,
    samples,
    score,
    serve,
    simulate,
    train,
)
from dialore.cli.options import TYPER, SettingsGroup

app = typer.Typer(cls=SettingsGroup, no_args_is_help=True, **TYPER)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dialore {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
    verbose: Annotated[bool, Option("--verbose", "-v", help="Say on standard error what goes on.")] = False,
) -> None:
    """Knowledge-grounded dialogue with large language models.

    Find what a response needs to know, get it from a commonsense graph,
    and write a response whose grounds can be seen.

    [bold]Start here[/bold]
    dialore demo              nine dialogues, several methods, nothing to set up
    dialore chat              talk; /why shows the grounds
    dialore ask "What helps against a sore throat?"
    dialore respond talk.json --trace trace.jsonl
    echo '{"turns": ["My throat hurts."]}' | dialore respond -

    [bold]Go live[/bold]
    export DIALORE_BASE_URL=http://localhost:11434/v1 DIALORE_MODEL=llama3.1

    Without an endpoint you see what was found, and how to add a model.
    """
    if verbose:
        logging.getLogger("dialore").setLevel(logging.INFO)


for command in (
    respond.ask,
    respond.respond,
    respond.ground,
    chat.chat,
    run.run,
    simulate.simulate,
    distill.distill,
    score.score,
    report.report,
    check.check,
    judge.judge,
    meta.meta,
    demo.demo,
    serve.serve,
    mcp.mcp,
    methods.methods,
):
    app.command()(command)
app.command("import")(imports.import_files)
for group in (graph, documents, prompts, data, samples, train, models, annotate, feedback, memory, bench):
    app.add_typer(group.app, name=group.__name__.rpartition(".")[2])

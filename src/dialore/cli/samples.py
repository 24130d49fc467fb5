"""`dialore samples`: build a base of samples to prompt with, and look into it."""

# No deferred annotations here: typer reads them.
from pathlib import Path
from typing import Annotated

import typer

from dialore.cli.options import Json

app = typer.Typer(no_args_is_help=True, help="Build a base of samples to prompt with (for msdp), look into it.")
_Base = Annotated[Path, typer.Argument(metavar="BASE", help="The sample database.")]


@app.command("build")
def build(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder that the database goes to.")],
    files: Annotated[list[Path], typer.Argument(metavar="FILES...", help="Dialogues; a data set's files with -D.")],
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset", "-D", metavar="NAME", help="The data set that the files are of. [default: dialogues]"
        ),
    ] = None,
    align_graph: Annotated[
        str | None,
        typer.Option(
            "--align-graph",
            metavar="PATH|URL|starter",
            help="Take as knowledge the facts between history and reply in this graph, for msdp-dcrag.",
        ),
    ] = None,
    facts: Annotated[int, typer.Option("--facts", min=1, help="With --align-graph: facts of a sample at most.")] = 3,
    perplexity: Annotated[
        str | None,
        typer.Option(
            "--perplexity",
            metavar="NAME",
            help="Tell each sample's perplexity as a prompt by this model: hf:gpt2, or one behind --base-url.",
        ),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", "-u", metavar="URL", help="The completions endpoint of --perplexity.")
    ] = None,
    embedder: Annotated[
        str, typer.Option("--embedder", metavar="SPEC", help="Encodes topic and history: static, st:NAME, onnx:FOLDER.")
    ] = "static",
    turns: Annotated[int, typer.Option("--turns", min=1, help="Last turns of a history that are encoded.")] = 3,
    overlap_run: Annotated[
        int,
        typer.Option(
            "--overlap-run", min=1, help="Words overlap only in a row of so many; 10 is MSDP's released code."
        ),
    ] = 1,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="How many to keep, drawn by --seed.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the draw.")] = 0,
    json: Json = False,
) -> None:
    """Build a sample database from dialogues whose replies come with knowledge.

    Each reply with its history and gold knowledge is a sample. Lines of a
    dialogue file need "reference" and "knowledge".

    [bold]Examples[/bold]
    dialore samples build wow.samples train.json -D wizard-of-wikipedia
    dialore samples build own.samples dialogues.jsonl --perplexity hf:gpt2
    dialore samples build dd.samples train.json -D dailydialog --align-graph g
    dialore respond talk.json --method msdp --samples wow.samples
    """
    from dialore.cli import samples_work

    samples_work.build(
        out,
        files,
        samples_work.Plan(
            dataset=dataset,
            align_graph=align_graph,
            facts=facts,
            perplexity=perplexity,
            base_url=base_url,
            embedder=embedder,
            turns=turns,
            overlap_run=overlap_run,
            limit=limit,
            seed=seed,
        ),
        json=json,
    )


@app.command("stats")
def stats(base: _Base, json: Json = False) -> None:
    """Count a database's samples, and say how they were made.

    [bold]Example[/bold]
    dialore samples stats wow.samples
    """
    from dialore.cli import samples_work

    samples_work.stats(base, json=json)


@app.command("find")
def find(
    base: _Base,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The last turn of a dialogue.")],
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="The dialogue's topic.")] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many samples.")] = 10,
    json: Json = False,
) -> None:
    """Find the samples that a dialogue would be prompted with.

    [bold]Example[/bold]
    dialore samples find wow.samples "I love pizza" --topic Pizza
    """
    from dialore.cli import samples_work

    samples_work.find(base, text, topic, top, json=json)

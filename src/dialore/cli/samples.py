"""`dialore samples`: bases of samples to prompt with."""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from dialore.cli.options import DataSet, Json
from dialore.cli.output import note, print_json, progress
from dialore.datasets import data_set
from dialore.datasets.split import stream_histories
from dialore.dialogue import Dialogue
from dialore.errors import InputError
from dialore.llm.connection import LOCAL
from dialore.llm.perplexity import LocalLikelihood, Scored
from dialore.methods.few_shot import Sample, SampleDatabase, align_samples, build_samples, check_out, samples_of
from dialore.prompts.library import PromptLibrary
from dialore.retrieval.embedding import Embedder, load_embedder
from dialore.sources.graph import open_graph
from dialore.text import count_noun

Step = Callable[[str, int, int | None], None]


_Files = Annotated[list[Path], Argument(metavar="FILES...", help="Dialogues; a data set's files with -D.")]
app = typer.Typer(no_args_is_help=True)


@app.command("build")
def build(
    out: Annotated[Path, Argument(metavar="OUT", help="The folder that the database goes to.")],
    files: _Files,
    dataset: DataSet = None,
    align_graph: Annotated[
        str | None,
        Option(
            metavar="PATH|URL|starter",
            help="Knowledge is the facts of this graph between history and reply, for msdp-dcrag.",
        ),
    ] = None,
    facts: Annotated[int, Option(min=1, help="With --align-graph: facts of a sample at most.")] = 3,
    perplexity: Annotated[
        str | None,
        Option(metavar="NAME", help="Tell each sample's perplexity as a prompt by this model, run here: hf:gpt2."),
    ] = None,
    embedder: Annotated[str, Option(metavar="SPEC", help="Encodes samples: static, st:NAME, dot:NAME.")] = "static",
    turns: Annotated[int, Option(min=1, help="Last turns of a history that are encoded.")] = 3,
    overlap_run: Annotated[int, Option(min=1, help="Words overlap in a row of so many; 10 is MSDP's code.")] = 1,
    limit: Annotated[int | None, Option(min=1, help="How many to keep, sampled by --seed.")] = None,
    seed: Annotated[int, Option(help="Of the sample.")] = 0,
    json: Json = False,
) -> None:
    """Build a sample database from dialogues whose replies come with knowledge.

    Each reply with its history and gold knowledge is a sample. Lines of a
    dialogue file need "reference" and "knowledge".

    [bold]Examples[/bold]
    dialore samples build wow.samples train.json -D wizard-of-wikipedia
    dialore samples build own.samples dialogues.jsonl --perplexity hf:gpt2
    dialore samples build dd.samples train.json -D dailydialog --align-graph g
    dialore respond talk.json --method msdp --set sources.samples=wow.samples
    """
    started = time.perf_counter()
    check_out(out)
    encoder = load_embedder(embedder)
    with progress("reading dialogues") as step:
        histories = stream_histories(lambda: _whole(files, dataset, step), cut="all", limit=limit, seed=seed)
        samples, graph = _samples(histories, align_graph, encoder, facts)
        if not samples:
            wanted = "has a fact of the graph between it and its history" if align_graph else "comes with its knowledge"
            raise InputError(f"no reply {wanted}", hint="see `dialore samples build --help`")
        perplexities = _perplexities(samples, perplexity, step) if perplexity else None
        meta = build_samples(
            samples,
            out,
            encoder,
            turns=turns,
            overlap_run=overlap_run,
            perplexities=perplexities,
            perplexity_by=perplexity or "",
            graph=graph,
            on_step=step,
        )
    size, seconds = out.stat().st_size, time.perf_counter() - started
    if json:
        counts = meta.model_dump(include={"samples", "fit", "grounded"})
        print_json({"path": str(out), **counts, "bytes": size, "seconds": seconds})
        return
    kinds = f"{meta.fit:,} for knowledge generation, {meta.grounded:,} with an overlap of 0.6 to 0.9"
    note(f"{count_noun(meta.samples, 'samples')} ({kinds}): {out} ({size / 2**20:.1f} MB, {seconds:.1f} s)")


@app.command("compare")
def compare(
    base: Annotated[Path, Argument(metavar="BASE", help="A database of samples.")],
    files: _Files,
    dataset: DataSet = None,
    grams: Annotated[int, Option(min=1, help="Words in a row by which knowledge is compared.")] = 13,
    json: Json = False,
) -> None:
    """Tell how much of the knowledge and the topics of other data a base has.

    MSDP reports it of Wizard of the Internet's test set: 0.39% of 13-grams,
    5.76% of topics.

    [bold]Example[/bold]
    dialore samples compare wow.samples test.jsonl -D wizard-of-internet
    """
    with progress("reading dialogues") as step:
        shares = SampleDatabase(base).compare(stream_histories(lambda: _whole(files, dataset, step), cut="all"), grams)
    if json:
        print_json(shares)
        return
    told = [f"{shares[f'{what} known']:.2%} of {shares[what]:,.0f} {what}" for what in ("rows", "pieces", "topics")]
    note(f"{base} has {told[0]} of {grams} words, parts of {told[1]} of knowledge, and {told[2]}")


def _samples(
    histories: Iterator[Dialogue], align_graph: str | None, encoder: Embedder, facts: int
) -> tuple[list[Sample], str]:
    """Return the samples of histories, and the name of the graph that they were aligned with."""
    if align_graph is None:
        return list(samples_of(histories)), ""
    with closing(open_graph(align_graph)) as graph:
        return list(align_samples(histories, graph, encoder, facts)), graph.name


def _whole(files: Sequence[Path], dataset: str | None, step: Step) -> Iterator[Dialogue]:
    """Yield the whole dialogues of the files; dialogues of our own form where no data set is named.

    An id that was there before gets a number, as files may number their dialogues alike.
    """
    reader, known = data_set(dataset or "jsonl"), set[str]()
    for file in files:
        for dialogue in reader.read(file):
            names = itertools.chain([dialogue.id], (f"{dialogue.id}-{number}" for number in itertools.count(2)))
            name = next(name for name in names if name not in known)
            known.add(name)
            if len(known) % 100 == 0:
                step("reading dialogues", len(known), None)
            yield dialogue.model_copy(update={"id": name})


def _perplexities(samples: Sequence[Sample], name: str, step: Step) -> dict[str, float]:
    """Return each sample's perplexity as a prompt of the knowledge generator (MSDP, Appendix A)."""
    # Each sample is the one line of a prompt that ends in its own knowledge.
    library, pairs = PromptLibrary(), []
    for sample in samples:
        prompt = library.get("msdp/knowledge-generation", sample.language).render({"samples": [], "current": sample})
        pairs.append(Scored("", f"{prompt.continuation} {sample.knowledge}"))
    model = LocalLikelihood(name.removeprefix(LOCAL))

    async def score() -> dict[str, float]:
        try:
            scored = await model.score(pairs, lambda done, total: step("scoring prompts", done, total))
        finally:
            await model.close()
        return {sample.id: likelihood.perplexity for sample, likelihood in zip(samples, scored, strict=True)}

    return asyncio.run(score())

"""What the sample commands do."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dialore.cli.output import console, note, print_json, progress, table
from dialore.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from dialore.dialogue import Dialogue
    from dialore.llm.perplexity import Scored
    from dialore.sources.samples.base import SampleBase
    from dialore.sources.samples.sample import Sample

    Step = Callable[[str, int, int | None], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How a base is to be built; see `dialore samples build --help`."""

    dataset: str | None = None
    align_graph: str | None = None
    facts: int = 3
    perplexity: str | None = None
    base_url: str | None = None
    embedder: str = "static"
    turns: int = 3
    overlap_run: int = 1
    limit: int | None = None
    seed: int = 0


def build(out: Path, files: Sequence[Path], plan: Plan, *, json: bool) -> None:
    """Build a base and say what is in it.

    Raises:
        InputError: a file that cannot be read, no samples in any, a model, graph or embedder that is not there.
        ModelError: the model of the perplexities failed.
    """
    from dialore.retrieval.embedding import load_embedder
    from dialore.sources.samples.build import build_samples, check_out

    check_out(out)
    embedder = load_embedder(plan.embedder)
    with progress("reading dialogues") as step:
        samples, graph = _samples(files, plan, step)
        if not samples:
            raise InputError(_empty(plan), mend="see `dialore samples build --help`")
        perplexities = _perplexities(samples, plan, step) if plan.perplexity else None
        report = build_samples(
            samples,
            out,
            embedder,
            turns=plan.turns,
            overlap_run=plan.overlap_run,
            perplexities=perplexities,
            perplexity_by=plan.perplexity or "",
            graph=graph,
            on_step=step,
        )
    if json:
        print_json(report.model_dump())
        return
    kinds = f"{report.fit:,} for knowledge generation, {report.grounded:,} with an overlap of 0.6 to 0.9"
    note(f"{report.samples:,} samples ({kinds}): {report.path} ({report.bytes / 2**20:.1f} MB, {report.seconds:.1f} s)")


def _empty(plan: Plan) -> str:
    if plan.align_graph:
        return "no reply has a fact of the graph between it and its history"
    return "no reply comes with its knowledge"


def _samples(files: Sequence[Path], plan: Plan, step: Step) -> tuple[list[Sample], str]:
    """The samples of the files, and the name of the graph that they were aligned with."""
    from dialore.sources.samples.alignment import aligned_samples
    from dialore.sources.samples.sample import samples_of

    histories = _counted(_histories(files, plan), step)
    if plan.align_graph is None:
        return list(samples_of(histories)), ""
    from dialore.agent import open_graph

    with closing(open_graph(plan.align_graph)) as graph:
        return list(aligned_samples(histories, graph, plan.facts)), graph.name


def _counted(dialogues: Iterable[Dialogue], step: Step) -> Iterator[Dialogue]:
    for number, dialogue in enumerate(dialogues, start=1):
        if number % 100 == 0:
            step("reading dialogues", number, None)
        yield dialogue


def _histories(files: Sequence[Path], plan: Plan) -> Iterator[Dialogue]:
    from dialore.datasets.split import stream_histories

    yield from stream_histories(lambda: _whole(files, plan), cut="all", limit=plan.limit, seed=plan.seed)


def _whole(files: Sequence[Path], plan: Plan) -> Iterator[Dialogue]:
    """Whole dialogues; what is a history with its reference already becomes one whose only answer that is."""
    from dialore.datasets.base import Answer, WholeDialogue
    from dialore.datasets.registry import data_set
    from dialore.dialogue import read_dialogues

    if plan.dataset is not None:
        reader = data_set(plan.dataset)
        for file in files:
            yield from reader.read(file)
        return
    for dialogue in (dialogue for file in files for dialogue in read_dialogues(file)):
        if dialogue.reference is None:
            yield dialogue
            continue
        answer = Answer(turn=len(dialogue.turns), knowledge=dialogue.knowledge)
        fields = {name: getattr(dialogue, name) for name in dialogue.model_fields_set - {"reference", "knowledge"}}
        turns = dialogue.followed_by(dialogue.responder, dialogue.reference).turns
        yield WholeDialogue.model_validate({**fields, "turns": turns, "answers": (answer,)})


def _perplexities(samples: Sequence[Sample], plan: Plan, step: Step) -> dict[str, float]:
    """Each sample's perplexity as a prompt of the knowledge generator (MSDP, Appendix A)."""
    from dialore.llm.perplexity import likelihood_model

    model = likelihood_model(plan.perplexity or "", plan.base_url)

    async def score() -> dict[str, float]:
        try:
            pairs = list(_prompts(samples))
            scored = await model.score(pairs, lambda done, total: step("scoring prompts", done, total))
        finally:
            await model.close()
        return {sample.id: likelihood.perplexity for sample, likelihood in zip(samples, scored, strict=True)}

    return asyncio.run(score())


def _prompts(samples: Sequence[Sample]) -> Iterator[Scored]:
    """Each sample as the one line of a prompt that ends in its own knowledge."""
    from dialore.llm.perplexity import Scored
    from dialore.prompts.library import PromptLibrary

    library = PromptLibrary()
    for sample in samples:
        prompt = library.get("msdp/knowledge-generation", sample.language).render({"samples": [], "current": sample})
        yield Scored("", f"{prompt.continuation} {sample.knowledge}")


def stats(path: Path, *, json: bool) -> None:
    """Say what is in a base; raises InputError where it cannot be opened."""
    with closing(_open(path)) as base:
        shares = [base.overlap(row) for row in range(len(base))]
        found = {
            **base.meta.model_dump(exclude={"groups", "format"}),
            "languages": {group.language: group.stop - group.start for group in base.meta.groups},
            "fit": sum(group.fit - group.start for group in base.meta.groups),
            # As single precision has them, in which they are kept.
            "grounded": sum(0.6 - 1e-6 <= share <= 0.9 + 1e-6 for share in shares),
        }
    if json:
        print_json(found)
        return
    rows = table("!of the database", "")
    for name, value in found.items():
        shown = ", ".join(f"{key} {count:,}" for key, count in value.items()) if isinstance(value, dict) else value
        rows.add_row(name.replace("_", " "), f"{shown:,}" if isinstance(shown, int) else str(shown))
    console().print(rows)


def find(path: Path, text: str, topic: str | None, top: int, *, json: bool) -> None:
    """Say which samples are nearest to a turn; raises InputError where the base cannot be opened."""
    from rich.markup import escape

    from dialore.dialogue import Dialogue

    with closing(_open(path)) as base:
        found = base.nearest(Dialogue.model_validate({"id": "query", "turns": [text], "topic": topic}), top)
    if json:
        fields = ("id", "topic", "last_turn", "knowledge", "response")
        rows = ({"score": round(score, 4)} | {name: getattr(each, name) for name in fields} for each, score in found)
        print_json(list(rows))
        return
    shown = table(">score", "topic", "last turn", "knowledge", "response")
    for each, score in found:
        cells = (each.topic, each.last_turn, each.knowledge, each.response)
        shown.add_row(f"{score:.3f}", *(escape(cell) for cell in cells))
    console().print(shown)


def _open(path: Path) -> SampleBase:
    from dialore.sources.samples.base import open_samples

    return open_samples(path)

"""How long scoring takes: a run of made-up responses with real traces, measured by every metric that needs no model."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dialore.cli.bench.dialogues import made_up
from dialore.evaluation.registry import Context, load_metric, load_metrics, metric_names
from dialore.experiments.results import RunResults
from dialore.experiments.scoring import NEEDS_MODEL, measure_run
from dialore.experiments.store import Job, RunStore, System
from dialore.llm.rehearsal import Rehearsal
from dialore.sources.graph import open_graph
from dialore.workbench import create_agent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dialore.dialogue import Dialogue
    from dialore.response import Response
    from dialore.sources.graph.source import Graph

_REHEARSED = 50
_PLANS: list[list[str]] = [[], ["persona"], ["persona", "documents"]]
_STEM = "tea rain train garden exam film throat bread river music friend letter winter kitchen market story bridge"


@dataclass(frozen=True, slots=True)
class ScoringTime:
    """What scoring cost.

    Attributes:
        responses: how many were scored.
        metrics: by how many metrics.
        measuring: wall-clock seconds of the measures.
        combining: wall-clock seconds of the figures with their intervals.
        cpu: CPU seconds of both.
        unavailable: metrics that gave no figure, and why.
    """

    responses: int
    metrics: int
    measuring: float
    combining: float
    cpu: float
    unavailable: dict[str, str]


def time_scoring(responses: int, step: Callable[[str, int, int | None], None]) -> ScoringTime:
    """Score so many responses of DCRAG, each with its trace, by every metric that needs no model."""
    names = [name for name in metric_names() if not NEEDS_MODEL & set(load_metric(name, Context()).about.needs)]
    with tempfile.TemporaryDirectory(prefix="dialore-bench-") as folder, closing(open_graph(None)) as graph:
        step("making responses to be scored", 0, responses)
        with RunStore.create(Path(folder) / "run") as store, store.writing():
            _fill(store, graph, responses)
            context = Context(
                graph=graph,
                idf_corpus=lambda: (store.dialogue(position) for position in range(store.size)),
                idf_corpus_name="the run's own dialogues",
            )
            wall, cpu = time.perf_counter(), time.process_time()
            asyncio.run(measure_run(store, load_metrics(names, context), on_progress=step))
            measured = time.perf_counter()
            scores = RunResults([store]).systems()[0].scores
            ended = time.perf_counter()
            cpu = time.process_time() - cpu
    missing = {name: score.reason for name, score in scores.items() if score.value is None}
    return ScoringTime(responses, len(names), measured - wall, ended - measured, cpu, missing)


def _fill(store: RunStore, graph: Graph, count: int) -> None:
    draw = random.Random(11)  # noqa: S311 - texts, not secrets
    words = [f"{stem}{end}" for stem in _STEM.split() for end in ("", "s", "y", "ing", "ed", "er", "like", "less")]
    few = made_up(graph, _REHEARSED)
    dialogues = [_with_reference(few[n % len(few)], n, draw, words) for n in range(count)]
    store.set_up({"name": "scoring"}, [System(0, "dcrag", "dcrag", {}, "rehearsal")], dialogues)
    answered = asyncio.run(_answers(few, graph))
    for position, dialogue in enumerate(dialogues):
        store.add(Job(position, 0), _response(answered[position % len(answered)], dialogue, draw, words))


async def _answers(dialogues: Sequence[Dialogue], graph: Graph) -> list[Response]:
    agent = create_agent("dcrag", model=Rehearsal(), graph=graph)
    return [await agent.respond(dialogue) for dialogue in dialogues]


def _with_reference(dialogue: Dialogue, number: int, draw: random.Random, words: Sequence[str]) -> Dialogue:
    said = _sentence(draw, words)
    gold = tuple({"source": name, "text": f"{said} {_sentence(draw, words)}"} for name in ("persona", "documents"))
    plan = draw.choice(_PLANS)
    changes = {"id": f"bench-{number}", "reference": said, "knowledge": gold, "sources": tuple(plan)}
    return dialogue.model_copy(update=changes)


def _response(answered: Response, dialogue: Dialogue, draw: random.Random, words: Sequence[str]) -> Response:
    kept = (dialogue.reference or "").split()
    begin = draw.randrange(len(kept))
    text = f"{' '.join(kept[begin : begin + 6])} {answered.text} {_sentence(draw, words)}"
    return answered.model_copy(update={"id": dialogue.id, "text": text, "plan": draw.choice(_PLANS)})


def _sentence(draw: random.Random, words: Sequence[str]) -> str:
    return " ".join(draw.choices(words, k=draw.randint(8, 16))).capitalize() + "."

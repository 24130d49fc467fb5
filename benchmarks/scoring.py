"""The scoring benchmark: made-up responses with real traces, measured by every metric that needs no model."""

# No deferred annotations here: typer reads them.
import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Annotated, Any

import typer

from benchmarks.made_up import made_up
from benchmarks.measure import folder, report, show, tell
from dialore.dialogue import Dialogue
from dialore.evaluation.registry import Context, load_metric, load_metrics, metric_names
from dialore.experiments.results import RunResults
from dialore.experiments.scoring import NEEDS_MODEL, measure_run
from dialore.experiments.store import Job, RunStore, System
from dialore.llm.fake import FakeModel
from dialore.response import Response
from dialore.session import create_agent
from dialore.sources.graph import Graph, open_graph

_REHEARSED = 50
_PLANS: list[list[str]] = [[], ["persona"], ["persona", "documents"]]
_STEMS = "tea rain train garden exam film throat bread river music friend letter winter kitchen market story bridge"
_WORDS = [f"{stem}{end}" for stem in _STEMS.split() for end in ("", "s", "y", "ing", "ed", "er", "like", "less")]


def scoring(
    responses: Annotated[int, typer.Option(min=1, help="How many are scored.")] = 10_000,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure how long it takes to score responses by every metric that needs no model."""
    names = [name for name in metric_names() if not NEEDS_MODEL & set(load_metric(name, Context()).about.needs)]
    with folder() as here, closing(open_graph(None)) as graph, RunStore.create(here / "run") as store, store.writing():
        tell("making responses")
        _fill(store, graph, responses)
        context = Context(
            graph=graph,
            idf_corpus=lambda: (store.dialogue(position) for position in range(store.size)),
            idf_corpus_name="the run's own dialogues",
        )
        tell(f"measuring by {len(names)} metrics")
        begun, cpu = time.perf_counter(), time.process_time()
        asyncio.run(measure_run(store, load_metrics(names, context)))
        measured = time.perf_counter()
        scores = RunResults([store]).systems()[0].scores
        ended = time.perf_counter()
        cpu = time.process_time() - cpu
    figures: dict[str, Any] = {
        "responses": responses,
        "metrics": len(names),
        "measuring_s": round(measured - begun, 2),
        "intervals_s": round(ended - measured, 2),
        "cpu_s": round(cpu, 2),
        "unavailable": {name: score.reason for name, score in scores.items() if score.value is None},
    }
    report(figures, json, lambda all_: show("scoring; wanted: under 60 s in all at 10,000 responses", [all_]))


def _fill(store: RunStore, graph: Graph, count: int) -> None:
    rng = random.Random(11)  # noqa: S311 - texts, not secrets
    few = made_up(graph, _REHEARSED)
    dialogues = [_with_reference(few[n % len(few)], n, rng) for n in range(count)]
    store.set_up({"name": "scoring"}, [System(0, "dcrag", "dcrag", {}, "rehearsal")], dialogues)
    answered = asyncio.run(_answers(few, graph))
    for position, dialogue in enumerate(dialogues):
        store.add(Job(position, 0), _response(answered[position % len(answered)], dialogue, rng))


async def _answers(dialogues: Sequence[Dialogue], graph: Graph) -> list[Response]:
    agent = create_agent("dcrag", model=FakeModel(), graph=graph)
    return [await agent.respond(dialogue) for dialogue in dialogues]


def _with_reference(dialogue: Dialogue, number: int, rng: random.Random) -> Dialogue:
    reference = _sentence(rng)
    gold = tuple({"source": name, "text": f"{reference} {_sentence(rng)}"} for name in ("persona", "documents"))
    plan = tuple(rng.choice(_PLANS))
    changes = {"id": f"bench-{number}", "reference": reference, "knowledge": gold, "sources": plan}
    return dialogue.model_copy(update=changes)


def _response(answered: Response, dialogue: Dialogue, rng: random.Random) -> Response:
    kept = (dialogue.reference or "").split()
    begin = rng.randrange(len(kept))
    text = f"{' '.join(kept[begin : begin + 6])} {answered.text} {_sentence(rng)}"
    return answered.model_copy(update={"id": dialogue.id, "text": text, "plan": rng.choice(_PLANS)})


def _sentence(rng: random.Random) -> str:
    return " ".join(rng.choices(_WORDS, k=rng.randint(8, 16))).capitalize() + "."

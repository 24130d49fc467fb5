"""What the graph benchmark stands on: a generated file of facts, the graph built of it, questions, and its columns."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.cli.bench.graph_shape import HUBS, ShapedGraph, known_words, shaped_graph
from dialore.cli.bench.measures import peak_memory

if TYPE_CHECKING:
    from collections.abc import Callable

SETS = ("plain", "hub")
_CHUNK = 20_000


def generate(folder: Path, facts: int, questions: int) -> dict[str, Any]:
    """Write `facts.tsv` and `questions.json`."""
    graph = shaped_graph(facts)
    with (folder / "facts.tsv").open("w", encoding="utf-8") as file:
        for fact in graph.facts():
            file.write(f"{fact.head}\t{fact.relation}\t{fact.tail}\t{fact.weight:g}\n")
    degrees = graph.degrees()
    (folder / "questions.json").write_text(json.dumps(_questions(graph, degrees, questions)), encoding="utf-8")
    return {
        "facts": len(graph.head),
        "concepts": len(graph.names),
        "largest_degrees": np.sort(degrees)[::-1][:5].tolist(),
        "median_degree": float(np.median(degrees)),
    }


def _questions(graph: ShapedGraph, degrees: np.ndarray[Any, Any], count: int) -> dict[str, list[dict[str, Any]]]:
    """Ten queries and ten topics each, half of them drawn by their facts, half at random; with a hub and without."""
    rng = np.random.default_rng(1)
    shares = degrees.astype(np.float64)
    shares[:HUBS] = 0
    rising = np.cumsum(shares / shares.sum())
    words = known_words()
    sets: dict[str, list[dict[str, Any]]] = {name: [] for name in SETS}
    for _ in range(count):
        often = np.minimum(np.searchsorted(rising, rng.random(10)), len(degrees) - 1)
        any_of = rng.integers(HUBS, len(degrees), 10)
        names = [graph.names[place] for pair in zip(often, any_of, strict=True) for place in pair]
        history = " ".join(words[place] for place in rng.integers(0, len(words), 40))
        for name in SETS:
            asked = [graph.names[int(rng.integers(HUBS))], *names[1:]] if name == "hub" else names
            sets[name].append({"queries": asked[:10], "topics": asked[10:], "names": asked, "history": history})
    return sets


def build(folder: Path) -> dict[str, Any]:
    """Build `bench.graph` of `facts.tsv`."""
    from dialore.retrieval.static import StaticEmbedder
    from dialore.sources.graph.facts import read_facts
    from dialore.sources.graph.writing import build_graph

    steps: dict[str, float] = {}
    cpu = time.process_time()
    begun = last = time.perf_counter()

    def step(name: str, _done: int, _total: int) -> None:
        nonlocal last
        now = time.perf_counter()
        steps[name] = steps.get(name, 0.0) + now - last
        last = now

    facts = read_facts(folder / "facts.tsv", progress=lambda _done: step("reading facts", 0, 0))
    report = build_graph(facts, folder / "bench.graph", name="bench", embedder=StaticEmbedder(), on_step=step)
    return {
        "seconds": time.perf_counter() - begun,
        "cpu_seconds": time.process_time() - cpu,
        "steps": steps,
        "facts": report.facts,
        "concepts": report.concepts,
        "bytes": report.bytes,
        "peak_memory_mb": peak_memory() / 2**20,
    }


def columns(folder: Path) -> dict[str, Any]:
    """Write the graph's facts by number, for other stores, and the questions' concepts by number."""
    from dialore.sources.graph.store import GraphStore

    with GraphStore(folder / "bench.graph") as store:
        parts: dict[str, list[np.ndarray[Any, Any]]] = {"head": [], "relation": [], "tail": []}
        for start in range(0, store.meta.concepts, _CHUNK):
            edges = store.edges_of(range(start, min(start + _CHUNK, store.meta.concepts)))
            own = edges.head_place >= 0
            for name, found in parts.items():
                found.append(getattr(edges, name)[own])
        for name, found in parts.items():
            np.save(folder / f"{name}.npy", np.concatenate(found))
        sets = json.loads((folder / "questions.json").read_text(encoding="utf-8"))
        asked = {
            kind: [
                {side: [store.find(name) for name in question[side]] for side in ("queries", "topics")}
                for question in questions
            ]
            for kind, questions in sets.items()
        }
        (folder / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
        return {"facts": store.meta.facts}


def main() -> None:
    """`graph_prepare generate|build|columns FOLDER [FACTS QUESTIONS]`; print what was done as JSON."""
    verb, folder = sys.argv[1], Path(sys.argv[2])
    verbs: dict[str, Callable[[], dict[str, Any]]] = {
        "generate": lambda: generate(folder, int(sys.argv[3]), int(sys.argv[4])),
        "build": lambda: build(folder),
        "columns": lambda: columns(folder),
    }
    print(json.dumps(verbs[verb]()))  # noqa: T201 - to the process that waits for it


if __name__ == "__main__":
    main()

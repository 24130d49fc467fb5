"""Questions to a generated graph, and how long their answers take; run in a process of its own, whose memory tells."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_KEPT = 200
"""Of each side of a hub so many facts are read for 50 of a set, as for the default ranking."""


def resident() -> dict[str, float]:
    """This process's resident memory in MB: all of it, its own, and that mapped from files; empty where not told."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    names = {"all": "VmRSS", "own": "RssAnon", "mapped": "RssFile"}
    return {name: int(found[key].split()[0]) / 1024 for name, key in names.items() if key in found}


def timed(ask: Callable[[Any], object], questions: Sequence[Any]) -> list[float]:
    """Milliseconds of each question's answer."""
    times = []
    for question in questions:
        begun = time.perf_counter()
        ask(question)
        times.append((time.perf_counter() - begun) * 1000)
    return times


def main() -> None:
    """Read {"graph", "questions": [{"queries", "topics", "history", "concepts"}]} from stdin; print the figures."""
    before = resident()
    task = json.loads(sys.stdin.read())
    told = resident()
    from dialore.dialogue import Dialogue
    from dialore.response import Demands
    from dialore.retrieval.embedding import load_embedder
    from dialore.sources.graph.source import Graph

    embedder = load_embedder()
    embedder.encode(["all of it loaded"])
    loaded = resident()
    begun = time.perf_counter()
    graph = Graph.open(Path(task["graph"]), embedder)
    opened = time.perf_counter()

    def ask(question: dict[str, Any]) -> object:
        demands = Demands(explicit=question["queries"], maintained=question["topics"])
        dialogue = Dialogue.model_validate({"id": "bench", "language": "en", "turns": [question["history"]]})
        return graph.retrieve(demands, dialogue, 50)

    sets: dict[str, list[dict[str, Any]]] = task["sets"]
    first = next(iter(sets.values()))[0]
    ask(first)
    figures: dict[str, Any] = {
        "open_ms": (opened - begun) * 1000,
        "first_question_ms": (time.perf_counter() - opened) * 1000,
    }
    for name, questions in sets.items():
        cold = timed(ask, questions)
        figures[name] = {"first_time": cold, "again": timed(ask, questions), **_parts(graph, questions)}
    after = resident()
    figures["memory"] = {
        "interpreter": before,
        "libraries_and_embedder": _less(loaded, told),
        "graph": _less(after, loaded),
        "beyond_interpreter": _less(after, told),
    }
    print(json.dumps(figures))  # noqa: T201 - to the process that waits for it


def _parts(graph: Any, questions: Sequence[dict[str, Any]]) -> dict[str, list[float]]:  # noqa: ANN401
    """How long linking, and the facts' cosines, take of it."""
    import numpy as np

    def link(question: dict[str, Any]) -> None:
        for phrase in (*question["queries"], *question["topics"]):
            graph.linker.link(phrase, "en")

    def rank(question: dict[str, Any]) -> None:
        concepts = [graph.store.find(name) for name in question["names"]]
        query = graph.embedder.encode([question["history"]])[0]
        edges = graph.store.edges_of(concepts, query, _KEPT)
        edges.between(concepts[:10], concepts[10:])
        scores = graph.store.cosines(edges, query)
        edges.best(scores, np.arange(len(edges)), 50)

    return {"linking": timed(link, questions), "facts_and_cosines": timed(rank, questions)}


def _less(some: dict[str, float], others: dict[str, float]) -> dict[str, float]:
    return {name: some[name] - others[name] for name in some if name in others}


if __name__ == "__main__":
    main()

"""The graph benchmark: a graph of ConceptNet's shape is generated, built and asked, and other stores beside it."""

# No deferred annotations here: typer reads them.
import json as jsons
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.measure import answer_parent, child, folder, peak_memory, report, resident, show, spread, tell, timed
from benchmarks.shape import HUBS, ShapedGraph, known_words, shaped_graph

SETS = {"plain": "without a hub", "hub": "with a hub"}
_FACTS_A_SET = 50


def graph(
    facts: Annotated[int, typer.Option(min=1000, help="Of the generated graph.")] = 330_000,
    questions: Annotated[int, typer.Option(min=1, help="With a hub, and as many without.")] = 200,
    rivals: Annotated[bool, typer.Option(help="Ask other stores too, those that are installed.")] = True,
    files: Annotated[Path | None, typer.Option("--folder", help="Keep the files here.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure the graph source on a generated graph: build, open, ten queries and ten topics to 50 + 50 facts.

    Each step runs in a process of its own. ConceptNet's size is 3,300,000 facts: 15 minutes, 3 GB of memory and disk.
    """
    with folder(files) as here:
        report(measure_graph(here, facts, questions, rivals=rivals), json, _show)


def measure_graph(here: Path, facts: int, questions: int, *, rivals: bool) -> dict[str, Any]:
    """Generate, build and ask a graph of so many facts in a folder; the figures by step."""
    tell("generating")
    figures: dict[str, Any] = {"graph": child("graph", "generate", here, facts, questions)}
    tell("building")
    figures["build"] = child("graph", "build", here)
    tell("asking")
    figures["asked"] = child("graph", "ask", here)
    if rivals:
        from benchmarks.graph_rivals import ask_stores

        tell("asking other stores")
        figures["stores"] = ask_stores(here)
    return figures


def _show(figures: dict[str, Any]) -> None:
    build, asked = figures["build"], figures["asked"]
    degrees = ", ".join(f"{degree:,}" for degree in figures["graph"]["largest_degrees"])
    rows = [
        {"10 queries and 10 topics to 50 + 50 facts, ms": f"{words}, {part}", **asked[name][part]}
        for name, words in SETS.items()
        for part in asked[name]
    ]
    show(f"{build['facts']:,} facts, {build['concepts']:,} concepts, hubs of {degrees}; wanted p50 5, p95 15", rows)
    wanted = {"open_ms": 100, "memory_mb": 300, "build_s": 180, "size_mb": 600}
    found = {"open_ms": asked["open_ms"], "memory_mb": asked["memory_mb"].get("all"), "build_s": build["seconds"]}
    found |= {"size_mb": build["size_mb"], "build_peak_memory_mb": build["peak_memory_mb"]}
    show("", [{"": name, "measured": value, "wanted under": wanted.get(name)} for name, value in found.items()])
    if stores := figures.get("stores"):
        show("the facts of 20 concepts in two sets, in other stores; ms", stores)


def generate(here: str, facts: str, questions: str) -> dict[str, Any]:
    """Write `facts.tsv` and `questions.json`."""
    shaped = shaped_graph(int(facts))
    with (Path(here) / "facts.tsv").open("w", encoding="utf-8") as file:
        for fact in shaped.facts():
            file.write(f"{fact.head}\t{fact.relation}\t{fact.tail}\t{fact.weight:g}\n")
    degrees = shaped.degrees()
    asked = _questions(shaped, degrees, int(questions))
    (Path(here) / "questions.json").write_text(jsons.dumps(asked), encoding="utf-8")
    return {
        "facts": len(shaped.head),
        "concepts": len(shaped.names),
        "largest_degrees": np.sort(degrees)[::-1][:HUBS].tolist(),
        "median_degree": float(np.median(degrees)),
    }


def _questions(shaped: ShapedGraph, degrees: np.ndarray[Any, Any], count: int) -> dict[str, list[dict[str, Any]]]:
    """Ten queries and ten topics each, half of them sampled by their facts, half at random; with a hub and without."""
    rng = np.random.default_rng(1)
    shares = degrees.astype(np.float64)
    shares[:HUBS] = 0
    rising = np.cumsum(shares / shares.sum())
    words = known_words()
    sets: dict[str, list[dict[str, Any]]] = {name: [] for name in SETS}
    for _ in range(count):
        often = np.minimum(np.searchsorted(rising, rng.random(10)), len(degrees) - 1)
        any_of = rng.integers(HUBS, len(degrees), 10)
        names = [shaped.names[place] for pair in zip(often, any_of, strict=True) for place in pair]
        history = " ".join(words[place] for place in rng.integers(0, len(words), 40))
        for name in SETS:
            asked = [shaped.names[int(rng.integers(HUBS))], *names[1:]] if name == "hub" else names
            sets[name].append({"queries": asked[:10], "topics": asked[10:], "history": history})
    return sets


def build(here: str) -> dict[str, Any]:
    """Build `bench.graph` of `facts.tsv`."""
    from dialore.retrieval.graph.facts import read_facts
    from dialore.retrieval.graph.writing import build_graph
    from dialore.retrieval.static import StaticEmbedder

    steps: dict[str, float] = {}
    begun = last = time.perf_counter()
    cpu = time.process_time()

    def step(name: str, *_counts: int) -> None:
        nonlocal last
        now = time.perf_counter()
        steps[name] = round(steps.get(name, 0.0) + now - last, 3)
        last = now

    facts = read_facts(Path(here) / "facts.tsv", progress=lambda _done: step("reading facts"))
    built = build_graph(facts, Path(here) / "bench.graph", name="bench", embedder=StaticEmbedder(), on_step=step)
    return {
        "seconds": round(time.perf_counter() - begun, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "steps": steps,
        "facts": built.facts,
        "concepts": built.concepts,
        "size_mb": round(built.bytes / 2**20, 2),
        "peak_memory_mb": round(peak_memory(), 1),
    }


def ask(here: str) -> dict[str, Any]:
    """Ask both sets of questions twice: what was never asked before, and again."""
    from dialore.dialogue import Dialogue
    from dialore.response import Demands
    from dialore.retrieval.embedding import load_embedder
    from dialore.sources.graph import open_graph

    sets: dict[str, list[dict[str, Any]]] = jsons.loads((Path(here) / "questions.json").read_text(encoding="utf-8"))
    before = resident()
    embedder = load_embedder()
    embedder.encode(["all of it loaded"])
    loaded = resident()
    begun = time.perf_counter()
    opened = open_graph(Path(here) / "bench.graph", embedder=embedder)
    open_ms = (time.perf_counter() - begun) * 1000

    def retrieve(question: dict[str, Any]) -> object:
        demands = Demands(explicit=question["queries"], maintained=question["topics"])
        dialogue = Dialogue.model_validate({"id": "bench", "language": "en", "turns": [question["history"]]})
        return opened.retrieve(demands, dialogue, _FACTS_A_SET)

    def link(question: dict[str, Any]) -> None:
        opened.link([*question["queries"], *question["topics"]])

    first = timed(retrieve, sets["plain"][:1])[0]
    figures: dict[str, Any] = {"open_ms": round(open_ms, 2), "first_question_ms": round(first, 2)}
    for name, questions in sets.items():
        cold = spread(timed(retrieve, questions))
        figures[name] = {"asked again": spread(timed(retrieve, questions)), "never asked before": cold}
        figures[name]["linking alone"] = spread(timed(link, questions))
    after = resident()
    figures["memory_mb"] = {key: round(after[key] - before[key], 1) for key in after}
    figures["graph_memory_mb"] = {key: round(after[key] - loaded[key], 1) for key in after}
    return figures


if __name__ == "__main__":
    answer_parent({"generate": generate, "build": build, "ask": ask})

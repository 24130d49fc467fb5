"""Measure retrieval: how well the facts of real dialogues are ranked, and how quickly.

    python scripts/measure_retrieval.py --data FOLDER [--ranking NAME[,key=value...] ...] [--json]

Turns, demands and graded facts are those of `tests/retrieval/graph/relevance` (see its README); the dialogues come from
the published data sets, and the graphs from ConceptNet's, by --data. Facts that nobody graded count as not useful;
`judged` says how many of the first twenty were graded. A pair of concepts counts once, under whatever relations it is
listed.

| column | is |
|---|---|
| nDCG@10 | of the grades 0, 1, 2, with gain 2^grade - 1 |
| useful@20, @50 | share of the first 20, 50 facts (of all, where there are fewer) that are useful, grade 2 |
| recall@50 | share of the useful facts of the set that are among the first fifty |
| concepts | share of the linked concepts that any of the first fifty facts holds |
| ms | of linking and ranking both sets, 50 facts each: the median and the 95th percentile |

Intervals are 95% bootstrap intervals over the turns. A turn is of the development half where its id's one-byte
blake2b digest is even, else of the test half.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.datasets import data_set, split_dialogues
from dialore.response import Demands
from dialore.retrieval.embedding import load_embedder
from dialore.retrieval.graph import GraphStore, build_graph, read_facts
from dialore.retrieval.graph.starter import starter_files
from dialore.sources.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge

RELEVANCE = Path(__file__).parent.parent / "tests" / "retrieval" / "graph" / "relevance"
FILES = {"dailydialog": "dailydialog/valid.json.gz", "xdailydialog-zh": "xdailydialog/zh_dev.txt.gz"}
SETS = ("unforeseen", "foreseen")
METRICS = ("ndcg@10", "useful@20", "useful@50", "recall@50", "concepts", "judged")
TOP = 50
USEFUL = 2

Triple = tuple[str, str, str]


@dataclass(frozen=True)
class Turn:
    """A dialogue up to the turn to be answered, its demands, and the graded facts."""

    dialogue: Dialogue
    demands: Demands
    grades: dict[Triple, int]

    @property
    def half(self) -> str:
        """Which half of the turns it belongs to."""
        return "test" if hashlib.blake2b(self.dialogue.id.encode(), digest_size=1).digest()[0] % 2 else "dev"


def read_turns(language: str, data: Path) -> list[Turn]:
    """Read the turns of a language, each with its dialogue."""
    turns, known = [], {}
    for line in (RELEVANCE / f"{language}.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        drawn = (entry["data"], entry["cut"])
        if drawn not in known:
            known[drawn] = draw(*drawn, data)
        grades = {(head, relation, tail): grade for head, relation, tail, grade in entry["facts"]}
        turns.append(Turn(known[drawn][entry["id"]], Demands.model_validate(entry["demands"]), grades))
    return turns


def draw(name: str, cut: str, data: Path) -> dict[str, Dialogue]:
    """Draw the dialogues of a data set as `dialore data convert --cut random --limit N --seed M` does."""
    numbers = dict(part.split() for part in cut.split(", ")[1:])
    dialogues = data_set(name).read(data / FILES[name])
    drawn = split_dialogues(dialogues, cut="random", limit=int(numbers["limit"]), seed=int(numbers["seed"]))
    return {dialogue.id: dialogue for dialogue in drawn}


def graph_file(language: str, data: Path, folder: Path, embedder: Any) -> Path:  # noqa: ANN401
    """Build the graph of a language: English from CN-100K, Chinese from the starter's files and ConceptNet's."""
    path = folder / f"{language}.graph"
    if language == "en":
        files = sorted((data / "conceptnet_cn100k").glob("*.gz"))
    else:
        files = [file for file in starter_files() if ".zh" in file.name]
        files.append(data / "conceptnet_zh" / "triples.csv.gz")
    build_graph((fact for file in files for fact in read_facts(file)), path, name=language, embedder=embedder)
    return path


def pair_of(triple: Triple) -> tuple[str, ...]:
    """Both concepts, in whatever order."""
    return tuple(sorted((triple[0], triple[2])))


def triple_of(item: Knowledge) -> Triple:
    """Return a fact's head, relation and tail."""
    return item.fact.head, item.fact.relation, item.fact.tail


def score(listed: Sequence[Triple], candidates: Iterable[Triple], grades: dict[Triple, int]) -> list[float]:
    """Return nDCG@10, the shares of useful facts, recall, and the judged share; NaN where there is nothing to find."""
    seen: set[tuple[str, ...]] = set()
    found = np.zeros(max(TOP, len(listed)))
    for place, triple in enumerate(listed):
        found[place] = 0 if pair_of(triple) in seen else grades.get(triple, 0)
        seen.add(pair_of(triple))
    best: dict[tuple[str, ...], int] = {}
    for count, triple in enumerate(candidates, start=1):  # noqa: B007
        best[pair_of(triple)] = max(best.get(pair_of(triple), 0), grades.get(triple, 0))
    ideal = np.array(sorted(best.values(), reverse=True))
    useful = int((ideal == USEFUL).sum())
    recalled = sum(found[place] == USEFUL and pair_of(triple) in best for place, triple in enumerate(listed[:50]))
    top = gain(ideal[:10])
    return [
        gain(found[:10]) / top if top else np.nan,
        float((found[:20] == USEFUL).sum()) / min(20, count),
        float((found[:50] == USEFUL).sum()) / min(50, count),
        recalled / useful if useful else np.nan,
        float(np.mean([triple in grades for triple in listed[:20]])) if listed else np.nan,
    ]


def gain(grades: NDArray[Any]) -> float:
    """Return the discounted cumulative gain of grades in order."""
    return float(((2.0**grades - 1) / np.log2(np.arange(2, len(grades) + 2))).sum())


def measure(graph: Graph, plain: Graph, turns: Sequence[Turn]) -> tuple[dict[str, NDArray[np.float64]], list[float]]:
    """Return (turns, metrics) for each set, and the milliseconds of every retrieval but the first."""
    rows: dict[str, list[list[float]]] = {kind: [] for kind in SETS}
    times: list[float] = []
    for turn in turns:
        everything = plain.retrieve(turn.demands, turn.dialogue, 10**9)
        graph.retrieve(turn.demands, turn.dialogue, TOP)
        started = time.perf_counter()
        found = graph.retrieve(turn.demands, turn.dialogue, TOP)
        times.append((time.perf_counter() - started) * 1000)
        linked = {link.name for link in found.links}
        for kind in SETS:
            listed = [triple_of(item) for item in getattr(found, kind)]
            candidates = [triple_of(item) for item in getattr(everything, kind)]
            if not candidates:
                rows[kind].append([np.nan] * len(METRICS))
                continue
            values = score(listed, candidates, turn.grades)
            held = linked & {end for head, _, tail in listed for end in (head, tail)}
            rows[kind].append([*values[:4], len(held) / len(linked), values[4]])
    return {kind: np.array(values) for kind, values in rows.items()}, times


def interval(values: NDArray[np.float64], draws: int = 2000) -> dict[str, float]:
    """Return the mean of what is a number and its 95% bootstrap interval (percentiles, fixed seed)."""
    values = values[~np.isnan(values)]
    if not len(values):
        return {"mean": np.nan, "low": np.nan, "high": np.nan, "turns": 0}
    picks = np.random.default_rng(0).integers(0, len(values), (draws, len(values)))
    low, high = np.percentile(values[picks].mean(axis=1), [2.5, 97.5])
    return {"mean": float(values.mean()), "low": float(low), "high": float(high), "turns": len(values)}


def run(specs: Sequence[str], data: Path, graphs: Path) -> list[dict[str, Any]]:
    """Measure every ranking on both languages."""
    embedder = load_embedder()
    table = []
    for language in ("en", "zh"):
        path = graphs / f"{language}.graph"
        if not path.is_file():
            graph_file(language, data, graphs, embedder)
        turns = read_turns(language, data)
        halves = np.array([turn.half for turn in turns])
        store = GraphStore(path)
        plain = Graph(store, embedder, "paper")
        for spec in specs:
            graph = Graph(store, embedder, spec)
            values, times = measure(graph, plain, turns)
            for half in ("dev", "test"):
                row: dict[str, Any] = {"ranking": spec, "language": language, "half": half}
                for kind in SETS:
                    columns = values[kind][halves == half].T
                    row[kind] = {name: interval(column) for name, column in zip(METRICS, columns, strict=True)}
                row["ms"] = {"p50": float(np.median(times)), "p95": float(np.percentile(times, 95))}
                table.append(row)
        store.close()
    return table


def shown(value: dict[str, float]) -> str:
    """Write a mean and its interval."""
    return f"{value['mean']:.3f} [{value['low']:.2f}, {value['high']:.2f}]" if value["turns"] else "-"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the development data's folder")
    parser.add_argument("--ranking", action="append", help="a name, perhaps with changes: default,decay=0.1")
    parser.add_argument("--graphs", type=Path, help="where the graphs are kept; else they are built each time")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.graphs or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        table = run(options.ranking or ["paper", "default"], options.data, folder)
    if options.json:
        print(json.dumps(table, indent=1))
        return
    print(f"| ranking | | set | {' | '.join(METRICS)} | ms p50 / p95 |\n|{'---|' * (len(METRICS) + 4)}")
    for row in table:
        for kind in SETS:
            cells = " | ".join(shown(row[kind][name]) for name in METRICS)
            turns = row[kind]["useful@20"]["turns"]
            where = f"{row['language']} {row['half']} ({turns})"
            print(
                f"| {row['ranking']} | {where} | {kind} | {cells} | {row['ms']['p50']:.1f} / {row['ms']['p95']:.1f} |"
            )


if __name__ == "__main__":
    main()

"""The same question asked of other stores, each in a process of its own.

The question: the facts of 20 concepts, those between a query and a topic (foreseen) and the others (unforeseen), as
counts and a checksum. No linking, ranking or wording: other stores have none.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.cli.bench.graph_questions import resident, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

Question = dict[str, list[int]]
Answer = tuple[int, int, int, int]


def installed() -> list[str]:
    """Names of the stores that can be asked here."""
    needs = {"dialore": "lmdb", "networkx": "networkx", "sqlite": "sqlite3", "duckdb": "duckdb"}
    return [name for name, module in needs.items() if find_spec(module)]


def _answer(rows: Iterable[tuple[int, int, int]], question: Question) -> Answer:
    queries, topics = set(question["queries"]), set(question["topics"])
    foreseen = unforeseen = first = second = 0
    for head, relation, tail in rows:
        code = (head * 31 + relation * 17 + tail) % 1_000_003
        if (head in queries and tail in topics) or (head in topics and tail in queries):
            foreseen, first = foreseen + 1, first + code
        else:
            unforeseen, second = unforeseen + 1, second + code
    return foreseen, unforeseen, first, second


def _dialore(folder: Path) -> tuple[Callable[[], None], Callable[[], Callable[[Question], Answer]]]:
    from dialore.sources.graph.store import GraphStore

    def opened() -> Callable[[Question], Answer]:
        store = GraphStore(folder / "bench.graph")

        def ask(question: Question) -> Answer:
            edges = store.edges_of([*question["queries"], *question["topics"]])
            between = edges.between(question["queries"], question["topics"])
            code = (edges.head.astype(np.int64) * 31 + edges.relation * 17 + edges.tail) % 1_000_003
            return (
                int(between.sum()),
                int((~between).sum()),
                int(code[between].sum()),
                int(code[~between].sum()),
            )

        return ask

    return lambda: None, opened


def _columns(folder: Path) -> tuple[NDArray[Any], ...]:
    return tuple(np.load(folder / f"{name}.npy") for name in ("head", "relation", "tail"))


def _networkx(folder: Path) -> tuple[Callable[[], None], Callable[[], Callable[[Question], Answer]]]:
    import pickle

    path = folder / "networkx.pickle"

    def build() -> None:
        graph: Any = import_module("networkx").MultiDiGraph()
        graph.add_edges_from(zip(*(column.tolist() for column in _ordered(folder)), strict=True))
        path.write_bytes(pickle.dumps(graph, protocol=5))

    def opened() -> Callable[[Question], Answer]:
        graph: Any = pickle.loads(path.read_bytes())  # noqa: S301 - written above

        def ask(question: Question) -> Answer:
            asked = sorted({*question["queries"], *question["topics"]})
            kept = set(asked)
            rows = [(head, relation, tail) for head, tail, relation in graph.out_edges(asked, keys=True)]
            rows += [
                (head, relation, tail) for head, tail, relation in graph.in_edges(asked, keys=True) if head not in kept
            ]
            return _answer(rows, question)

        return ask

    return build, opened


def _ordered(folder: Path) -> tuple[NDArray[Any], ...]:
    head, relation, tail = _columns(folder)
    return head, tail, relation


_SQL = (
    "SELECT head, relation, tail FROM facts WHERE head IN ({0}) UNION ALL "
    "SELECT head, relation, tail FROM facts WHERE tail IN ({0}) AND head NOT IN ({0})"
)


def _sqlite(folder: Path) -> tuple[Callable[[], None], Callable[[], Callable[[Question], Answer]]]:
    import sqlite3

    path = folder / "facts.sqlite"

    def build() -> None:
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA journal_mode=OFF")
            connection.execute("CREATE TABLE facts (head INTEGER, relation INTEGER, tail INTEGER)")
            rows = zip(*(column.tolist() for column in _columns(folder)), strict=True)
            connection.executemany("INSERT INTO facts VALUES (?, ?, ?)", rows)
            connection.execute("CREATE INDEX by_head ON facts (head, relation, tail)")
            connection.execute("CREATE INDEX by_tail ON facts (tail, relation, head)")

    def opened() -> Callable[[Question], Answer]:
        connection = sqlite3.connect(path)

        def ask(question: Question) -> Answer:
            asked = ",".join(map(str, sorted({*question["queries"], *question["topics"]})))
            return _answer(connection.execute(_SQL.format(asked)), question)

        return ask

    return build, opened


def _duckdb(folder: Path) -> tuple[Callable[[], None], Callable[[], Callable[[Question], Answer]]]:
    duckdb: Any = import_module("duckdb")
    path = folder / "facts.duckdb"

    def build() -> None:
        given = dict(zip(("head", "relation", "tail"), _columns(folder), strict=True))
        with duckdb.connect(str(path)) as connection:
            connection.register("given", given)
            connection.execute("CREATE TABLE facts AS SELECT * FROM given")
            connection.execute("CREATE INDEX by_head ON facts (head)")
            connection.execute("CREATE INDEX by_tail ON facts (tail)")

    def opened() -> Callable[[Question], Answer]:
        connection = duckdb.connect(str(path), read_only=True)

        def ask(question: Question) -> Answer:
            asked = ",".join(map(str, sorted({*question["queries"], *question["topics"]})))
            return _answer(connection.execute(_SQL.format(asked)).fetchall(), question)

        return ask

    return build, opened


_STORES = {"dialore": _dialore, "networkx": _networkx, "sqlite": _sqlite, "duckdb": _duckdb}
_FILES = {"dialore": "bench.graph", "networkx": "networkx.pickle", "sqlite": "facts.sqlite", "duckdb": "facts.duckdb"}


def main() -> None:
    """`graph_rivals STORE FOLDER build|ask`: build the store, or ask the sets of questions from stdin."""
    name, folder, verb = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    build, opened = _STORES[name](folder)
    begun = time.perf_counter()
    if verb == "build":
        build()
        figures: dict[str, Any] = {"build_s": time.perf_counter() - begun}
        figures["bytes"] = (folder / _FILES[name]).stat().st_size
    else:
        sets = json.loads(sys.stdin.read())
        before = resident()
        begun = time.perf_counter()
        ask = opened()
        figures = {"open_ms": (time.perf_counter() - begun) * 1000}
        answers: list[Answer] = []
        for kind, questions in sets.items():
            answers.extend(ask(question) for question in questions[:20])
            figures[kind] = timed(ask, questions)
        figures["answers"] = answers
        after = resident()
        figures["memory_mb"] = after["all"] - before["all"] if after else None
    print(json.dumps(figures))  # noqa: T201 - to the process that waits for it


if __name__ == "__main__":
    main()

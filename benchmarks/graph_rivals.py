"""The same question asked of other stores, each in a process of its own.

The question: the facts of 20 concepts, those between a query and a topic (foreseen) and the others (unforeseen), as
counts and a checksum. No linking, ranking or wording: other stores have none.
"""

from __future__ import annotations

import json
import pickle
import sqlite3
import time
from contextlib import closing
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.measure import answer_parent, child, resident, size_of, spread, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from dialore.retrieval.graph.store import GraphStore

    Question = tuple[list[int], list[int]]
    Ask = Callable[[Question], list[int]]

_NEEDS = {"dialore": "dialore", "networkx": "networkx", "sqlite": "sqlite3", "duckdb": "duckdb"}
_FILES = {"dialore": "bench.graph", "networkx": "networkx.pickle", "sqlite": "facts.sqlite", "duckdb": "facts.duckdb"}
_SQL = (
    "SELECT head, relation, tail FROM facts WHERE head IN ({0}) UNION ALL "
    "SELECT head, relation, tail FROM facts WHERE tail IN ({0}) AND head NOT IN ({0})"
)
_CHUNK = 20_000
_CHECKED = 20
"""Questions of each set whose answers are compared between stores."""


def ask_stores(here: Path) -> list[dict[str, Any]]:
    """Build and ask every store that is installed, over the graph that is built in a folder; a row each."""
    child("graph_rivals", "columns", here)
    rows: list[dict[str, Any]] = []
    own: list[list[int]] = []
    for name in (name for name, module in _NEEDS.items() if find_spec(module)):
        built = child("graph_rivals", "build", name, here)
        found = child("graph_rivals", "ask", name, here)
        answers = found.pop("answers")
        own = own or answers
        rows.append({"store": name, **built, **found, "answers": "equal" if answers == own else "different"})
    return rows


def columns(here: str) -> int:
    """Write the graph's facts by number, for other stores, and the questions' concepts by number."""
    with closing(_open(here)) as store:
        parts: dict[str, list[NDArray[Any]]] = {"head": [], "relation": [], "tail": []}
        for start in range(0, store.meta.concepts, _CHUNK):
            edges = store.edges_of(range(start, min(start + _CHUNK, store.meta.concepts)))
            own = edges.head_place >= 0
            for name, found in parts.items():
                found.append(getattr(edges, name)[own])
        rows = np.array([np.concatenate(found) for found in parts.values()], np.int64)
        np.save(Path(here) / "columns.npy", rows)
        sets = json.loads((Path(here) / "questions.json").read_text(encoding="utf-8"))
        asked = {
            kind: [[[store.find(name) for name in each[side]] for side in ("queries", "topics")] for each in questions]
            for kind, questions in sets.items()
        }
    (Path(here) / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
    return len(rows[0])


def build(name: str, here: str) -> dict[str, Any]:
    """Build a store of the columns."""
    path = Path(here) / _FILES[name]
    begun = time.perf_counter()
    if name in _BUILD:
        _BUILD[name](path, np.load(Path(here) / "columns.npy"))
    seconds = round(time.perf_counter() - begun, 1) if name in _BUILD else None
    return {"build_s": seconds, "size_mb": round(size_of(path) / 2**20, 1)}


def ask(name: str, here: str) -> dict[str, Any]:
    """Open a store and ask it the sets of questions."""
    sets = json.loads((Path(here) / "asked.json").read_text(encoding="utf-8"))
    before = resident().get("all", 0)
    begun = time.perf_counter()
    answer = _OPEN[name](here)
    figures: dict[str, Any] = {"open_ms": round((time.perf_counter() - begun) * 1000, 1)}
    answers = []
    for kind, questions in sets.items():
        answers += [answer(question) for question in questions[:_CHECKED]]
        figures |= {f"{kind} {part}": value for part, value in spread(timed(answer, questions)).items()}
    return figures | {"memory_mb": round(resident().get("all", 0) - before, 1), "answers": answers}


def _open(here: str) -> GraphStore:
    from dialore.retrieval.graph.store import GraphStore

    return GraphStore(Path(here) / _FILES["dialore"])


def _open_dialore(here: str) -> Ask:
    store = _open(here)

    def ask(question: Question) -> list[int]:
        queries, topics = question
        edges = store.edges_of([*queries, *topics])
        between = edges.between(queries, topics)
        code = (edges.head.astype(np.int64) * 31 + edges.relation.astype(np.int64) * 17 + edges.tail) % 1_000_003
        return [int(number) for number in (between.sum(), (~between).sum(), code[between].sum(), code[~between].sum())]

    return ask


def _build_networkx(path: Path, rows: NDArray[Any]) -> None:
    graph: Any = import_module("networkx").MultiDiGraph()
    head, relation, tail = rows.tolist()
    graph.add_edges_from(zip(head, tail, relation, strict=True))
    path.write_bytes(pickle.dumps(graph, protocol=5))


def _open_networkx(here: str) -> Ask:
    graph: Any = pickle.loads((Path(here) / _FILES["networkx"]).read_bytes())  # noqa: S301 - written above

    def ask(question: Question) -> list[int]:
        asked = sorted({*question[0], *question[1]})
        kept = set(asked)
        rows = [(head, relation, tail) for head, tail, relation in graph.out_edges(asked, keys=True)]
        entering = graph.in_edges(asked, keys=True)
        rows += [(head, relation, tail) for head, tail, relation in entering if head not in kept]
        return _answer(rows, question)

    return ask


def _build_sqlite(path: Path, rows: NDArray[Any]) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode=OFF")
        connection.execute("CREATE TABLE facts (head INTEGER, relation INTEGER, tail INTEGER)")
        connection.executemany("INSERT INTO facts VALUES (?, ?, ?)", zip(*rows.tolist(), strict=True))
        connection.execute("CREATE INDEX by_head ON facts (head, relation, tail)")
        connection.execute("CREATE INDEX by_tail ON facts (tail, relation, head)")


def _open_sqlite(here: str) -> Ask:
    return _by_sql(sqlite3.connect(Path(here) / _FILES["sqlite"]))


def _build_duckdb(path: Path, rows: NDArray[Any]) -> None:
    with import_module("duckdb").connect(str(path)) as connection:
        connection.register("given", dict(zip(("head", "relation", "tail"), rows, strict=True)))
        connection.execute("CREATE TABLE facts AS SELECT * FROM given")
        connection.execute("CREATE INDEX by_head ON facts (head)")
        connection.execute("CREATE INDEX by_tail ON facts (tail)")


def _open_duckdb(here: str) -> Ask:
    return _by_sql(import_module("duckdb").connect(str(Path(here) / _FILES["duckdb"]), read_only=True))


def _by_sql(connection: Any) -> Ask:  # noqa: ANN401 - SQLite's or DuckDB's
    def ask(question: Question) -> list[int]:
        asked = ",".join(map(str, sorted({*question[0], *question[1]})))
        return _answer(connection.execute(_SQL.format(asked)).fetchall(), question)

    return ask


def _answer(rows: Iterable[tuple[int, int, int]], question: Question) -> list[int]:
    queries, topics = map(set, question)
    foreseen = unforeseen = first = second = 0
    for head, relation, tail in rows:
        code = (head * 31 + relation * 17 + tail) % 1_000_003
        if (head in queries and tail in topics) or (head in topics and tail in queries):
            foreseen, first = foreseen + 1, first + code
        else:
            unforeseen, second = unforeseen + 1, second + code
    return [foreseen, unforeseen, first, second]


_BUILD = {"networkx": _build_networkx, "sqlite": _build_sqlite, "duckdb": _build_duckdb}
_OPEN = {"dialore": _open_dialore, "networkx": _open_networkx, "sqlite": _open_sqlite, "duckdb": _open_duckdb}

if __name__ == "__main__":
    answer_parent({"columns": columns, "build": build, "ask": ask})

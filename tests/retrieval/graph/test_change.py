"""Changing a graph that is there: what was asked for is there, readers see old or new, and a kill breaks nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dialore.errors import GraphError, InputError
from dialore.knowledge import Fact
from dialore.retrieval.graph import GraphStore
from dialore.retrieval.graph.changes import ChangeReport, GraphEditor, compact_graph
from dialore.retrieval.graph.checking import problems_of
from tests.hashing import HashingEmbedder
from tests.retrieval.graph.graphs import ROOT, build, embedder, facts

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SMALL = facts(
    "sushi | MadeOf | rice | 2", "rice | AtLocation | field", "cook | CapableOf | make sushi", "rice | IsA | rice"
)
ROWS = set[tuple[str, str, str, float, str]]


def rows(source: Path | GraphStore) -> ROWS:
    if isinstance(source, GraphStore):
        return of(source.facts())
    with GraphStore(source) as store:
        return of(store.facts())


def of(items: Iterable[Fact]) -> ROWS:
    return {(fact.head, fact.relation, fact.tail, fact.weight, fact.provenance) for fact in items}


def change(path: Path, *, add: list[Fact] = [], delete: list[Fact] = []) -> ChangeReport:  # noqa: B006
    editor = GraphEditor(path, embedder())
    editor.delete(delete)
    editor.add(add)
    return editor.commit()


def counts(report: ChangeReport) -> tuple[int, ...]:
    return report.added, report.updated, report.deleted, report.unchanged, report.missing


def test_facts_are_added_and_deleted(tmp_path: Path) -> None:
    path = build(tmp_path / "g.graph", SMALL)
    new = facts("Miso Soup | MadeOf | miso | 3", "miso soup | GoesWith | 米饭", "sushi | IsA | food")
    assert counts(change(path, add=new)) == (3, 0, 0, 0, 0)
    assert rows(path) == of(
        [*SMALL, *facts("sushi | IsA | food"), new[0], Fact("Miso Soup", "GoesWith", "米饭", 1, "test")]
    )
    lighter, heavier = facts("sushi | MadeOf | rice | 1", "SUSHI | IsA | food | 5")
    assert counts(change(path, add=[lighter, heavier])) == (0, 1, 0, 1, 0)
    gone = facts("cook | CapableOf | Make Sushi", "a | IsA | b", "sushi | NoSuchRelation | rice")
    report = change(path, delete=[*gone, lighter], add=[lighter])
    assert counts(report) == (1, 0, 2, 0, 2)
    with GraphStore(path) as store:
        assert rows(store) == of(
            [
                lighter,
                SMALL[1],
                SMALL[3],
                Fact("sushi", "IsA", "food", 5, "test"),
                new[0],
                Fact("Miso Soup", "GoesWith", "米饭", 1, "test"),
            ]
        )
        assert (store.meta.facts, report.facts) == (6, 6)
        assert store.meta.languages == ["en", "zh"]
        assert store.find("cook") is None  # it has no facts any more
        assert store.with_stems("cook") == []
        soup = store.find("miso  SOUP")
        assert soup is not None
        assert store.with_stems("miso soup") == [soup]
        assert store.degree(soup) == 2
    change(path, add=facts("cook | Desires | sushi"))
    with GraphStore(path) as store:
        assert store.find("cook") is not None


def test_a_changed_graph_is_the_graph_that_is_built_of_the_same_facts(tmp_path: Path) -> None:
    many = facts(*(f"head {n} | IsA | tail {n % 5} | {1 + n % 3}" for n in range(300)))
    more = facts(
        *(f"very new head {n} | CreatedByHand | tail {n % 9}" for n in range(200)),
        *(f"茶馆{n} | IsA | 饮料" for n in range(9)),
    )
    path = build(tmp_path / "changed.graph", many)
    for start in range(0, len(more), 50):
        change(path, add=more[start : start + 50])
    change(path, delete=[*many[::7], *more[::5]], add=[Fact(f.head, f.relation, f.tail, 9.5, "x") for f in many[1::7]])
    left = [Fact(f.head, f.relation, f.tail, 9.5, "x") if n % 7 == 1 else f for n, f in enumerate(many) if n % 7]
    left += [fact for n, fact in enumerate(more) if n % 5]
    fresh = build(tmp_path / "fresh.graph", left)
    query = embedder().encode(["tea and some heads, made by hand"])[0]
    with GraphStore(path) as changed, GraphStore(fresh) as built:
        assert rows(changed) == rows(built) == of(left)
        assert changed.meta.fingerprint == built.meta.fingerprint
        assert changed.meta.facts == built.meta.facts
        for name in ("tail 1", "tail 8", "very new head 7", "饮料", "head 8"):
            scores = []
            for store in (changed, built):
                number = store.find(name)
                assert number is not None
                edges = store.edges_of([number], query)
                assert list(edges.weight[edges.head_place == 0]) == sorted(
                    edges.weight[edges.head_place == 0], reverse=True
                )
                cosines = edges.cosines
                assert cosines is not None
                scores.append({store.fact(edges, row).id: float(cosines[row]) for row in range(len(edges))})
            assert scores[0] == pytest.approx(scores[1], abs=1e-2)
        before = rows(changed)
    assert problems_of(path) == []
    size = path.stat().st_size
    compact_graph(path)
    assert path.stat().st_size < size
    assert rows(path) == before
    assert problems_of(path) == []


def test_deleting_what_was_added_gives_the_old_fingerprint(tmp_path: Path) -> None:
    path = build(tmp_path / "g.graph", SMALL)
    first = GraphStore(path).meta.fingerprint
    new = facts("moon | IsA | satellite")
    second = change(path, add=new)
    assert second.fingerprint != first
    assert change(path, delete=new).fingerprint == first
    size = path.stat().st_size
    assert counts(change(path, delete=new)) == (0, 0, 0, 0, 1)
    with GraphEditor(path, embedder()) as editor:
        editor.add(new)
        editor.delete(new)
    assert counts(editor.report) == (1, 0, 1, 0, 0)
    assert path.stat().st_size == size  # nothing is written where nothing changes


def test_a_fact_that_is_added_and_deleted_at_once_leaves_no_concept(tmp_path: Path) -> None:
    path = build(tmp_path / "g.graph", SMALL)
    with GraphEditor(path, embedder()) as editor:
        editor.add(facts("moon | IsA | satellite", "sun | IsA | star"))
        editor.delete(facts("moon | IsA | satellite"))
    with GraphStore(path) as store:
        assert store.find("moon") is None
        assert store.find("star") is not None
    assert problems_of(path) == []


def test_a_rebuild_is_seen_without_reopening(tmp_path: Path) -> None:
    path = build(tmp_path / "g.graph", SMALL)
    with GraphStore(path) as store:
        edges = store.edges_of([store.find("rice")])
        with store.read():
            build(path, facts("moon | IsA | satellite"))
            assert {store.fact(edges, row).triple for row in range(len(edges))} == {
                "(sushi, MadeOf, rice)",
                "(rice, AtLocation, field)",
                "(rice, IsA, rice)",
            }
        assert rows(store) == of(facts("moon | IsA | satellite"))
        assert store.find("rice") is None
    with pytest.raises(GraphError, match="closed"):
        store.find("moon")


def test_a_commit_that_fails_halfway_is_as_if_it_had_never_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build(tmp_path / "g.graph", SMALL)

    def broken(*_: object) -> None:
        raise OSError("the disk went away")

    with monkeypatch.context() as patch:
        patch.setattr("dialore.retrieval.graph.changes._Change._write_meta", broken)
        with pytest.raises(GraphError, match="cannot write"):
            change(path, add=facts("moon | IsA | satellite"), delete=SMALL[:1])
    assert rows(path) == of(SMALL)
    assert problems_of(path) == []
    change(path, add=facts("moon | IsA | satellite"))
    assert len(rows(path)) == 5


def test_what_cannot_be_is_refused_and_leaves_the_graph(tmp_path: Path) -> None:
    path = build(tmp_path / "g.graph", SMALL)
    before = path.read_bytes()
    for bad, said in ((Fact("", "IsA", "b"), "blank"), (Fact("a", "IsA", "b", float("nan")), "not a number")):
        with pytest.raises(GraphError, match=said):
            change(path, add=[*facts("moon | IsA | satellite"), bad])
    with pytest.raises(GraphError, match="no such graph"):
        change(tmp_path / "missing.graph", add=SMALL)
    other = GraphEditor(path, HashingEmbedder())
    other.add(facts("moon | IsA | satellite"))
    with pytest.raises(InputError, match="another version of the embedder"):
        other.commit()
    with pytest.raises(ZeroDivisionError), GraphEditor(path, embedder()) as editor:
        editor.add([Fact("moon", "IsA", "satellite", 1 / 0)])
    assert path.read_bytes() == before


def test_two_writers_wait_for_each_other(tmp_path: Path) -> None:
    path = build(tmp_path / "g.graph", SMALL)

    def write(name: str) -> None:
        for number in range(20):
            change(path, add=facts(f"{name} {number} | IsA | number"))

    threads = [threading.Thread(target=write, args=(name,)) for name in ("one", "two", "three")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rows(path)) == len(SMALL) + 60


def test_questions_are_answered_while_it_is_changed(tmp_path: Path) -> None:
    path = build(tmp_path / "g.graph", facts(*(f"pair {n} | IsA | thing" for n in range(50))))
    done = threading.Event()
    wrong: list[object] = []

    def read() -> None:
        with GraphStore(path) as store:
            query = np.ones(store.meta.dimension, np.float32) / 16
            while not done.is_set():
                edges = store.edges_of([store.find("thing")], query)
                new = {store.fact(edges, row).head for row in range(len(edges)) if edges.weight[row] == 2}
                lefts, rights = ({name[5:] for name in new if name.startswith(side)} for side in ("left", "rite"))
                if lefts != rights or edges.cosines is None or len(edges.cosines) != len(edges):
                    wrong.append((lefts, rights))

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(40):
        change(path, add=facts(f"left {number} | IsA | thing | 2", f"rite {number} | IsA | thing | 2"))
        if number % 3 == 0:
            change(path, delete=facts(f"left {number} | IsA | thing", f"rite {number} | IsA | thing"))
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []


KILLED = """
    import os, random, signal, sys, time
    from pathlib import Path
    from dialore.retrieval.graph import GraphStore
    from dialore.retrieval.graph.checking import problems_of
    from tests.retrieval.graph.graphs import build, embedder, facts
    from tests.retrieval.graph.test_change import change, rows
    path = Path(sys.argv[1])
    random.seed(7)
    build(path, facts("pair 0 | IsA | thing"))
    embedder().encode(["loaded"])
    kills = 0
    while kills < 60:
        done, first = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                for number in range(10000):
                    name = f"{kills} {number} {random.random()}"
                    both = facts(f"left {name} | IsA | thing", f"rite {name} | IsA | thing")
                    change(path, add=both)
                    if number == 0:
                        os.write(first, b".")
                    if number % 2:
                        change(path, delete=both)
                    if number % 5 == 4 and kills % 3 == 0:
                        build(path, GraphStore(path).facts())
            finally:
                os._exit(1)
        # However slow the machine is, one change is finished before the child is killed.
        os.read(done, 1)
        os.close(done)
        os.close(first)
        time.sleep(random.uniform(0, 0.06))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), status
        kills += 1
        heads = [row[0] for row in rows(path)]
        left, rite = ({head[5:] for head in heads if head.startswith(side)} for side in ("left", "rite"))
        assert left == rite, left ^ rite
        problems = problems_of(path)
        assert problems == [], problems
    print(kills, len(heads))
"""


def test_killed_at_sixty_random_moments_it_is_whole(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(KILLED), str(tmp_path / "g.graph")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kills, heads = map(int, done.stdout.split())
    assert kills == 60
    assert heads >= 120


def test_a_graph_sends_the_texts_of_changes_nowhere_that_settings_do_not_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DIALORE_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    path = build(tmp_path / "g.graph", SMALL)
    named = GraphStore(path).meta.model_copy(update={"embedder": "endpoint:m@http://elsewhere/v1"})
    monkeypatch.setattr("dialore.retrieval.graph.store.GraphMeta.model_validate_json", lambda *_, **__: named)
    editor = GraphEditor(path)
    editor.add(facts("moon | IsA | satellite"))
    with pytest.raises(InputError, match="would send texts to http://elsewhere"):
        editor.commit()

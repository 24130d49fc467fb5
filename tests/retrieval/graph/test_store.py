"""Whatever lies where a graph should be, opening it is one clear error and never the end of the process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dialore.dialogue import Dialogue
from dialore.errors import GraphError
from dialore.knowledge import Fact
from dialore.response import Demands
from dialore.retrieval.graph import GraphStore
from dialore.retrieval.graph.store import FORMAT
from dialore.sources.graph import Graph
from tests.hashing import HashingEmbedder
from tests.retrieval.graph.graphs import ROOT, build, change_file, change_meta, embedder, facts, graph_of
from tests.retrieval.graph.test_change import change

if TYPE_CHECKING:
    from pathlib import Path

SMALL = facts(
    "sushi | MadeOf | rice | 2", "rice | AtLocation | field", "cook | CapableOf | make sushi", "茶 | IsA | 饮料"
)
MANY = facts(*(f"head {number} | IsA | tail {number % 5}" for number in range(2000)))


def failure(path: Path) -> str:
    with pytest.raises(GraphError) as caught:
        GraphStore(path)
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    return text


def test_what_is_no_graph(tmp_path: Path) -> None:
    assert "no such graph" in failure(tmp_path / "missing.graph")
    assert "not a file" in failure(tmp_path)
    for name, content in {
        "empty": b"",
        "text": b"sushi\tMadeOf\trice\n",
        "noise": bytes(np.random.default_rng(0).integers(0, 256, 100_000, np.uint8)),
        "zeros": bytes(100_000),
        "sqlite": b"SQLite format 3\0" + bytes(8000),
    }.items():
        path = tmp_path / name
        path.write_bytes(content)
        assert "not a graph" in failure(path)
        assert path.read_bytes() == content


def test_another_database_is_no_graph(tmp_path: Path) -> None:
    path = tmp_path / "other"
    change_file(path, "CREATE TABLE facts (head TEXT, tail TEXT)")
    assert "not a graph" in failure(path)


def test_a_file_that_was_refused_can_be_replaced_and_opened(tmp_path: Path) -> None:
    path = build(tmp_path / "g.graph", SMALL)
    change_file(path, f"PRAGMA user_version = {FORMAT + 1}")
    assert f"layout {FORMAT + 1}" in failure(path)
    change_file(path, f"PRAGMA user_version = {FORMAT}")
    with GraphStore(path) as store:
        assert store.find("sushi") is not None


@pytest.mark.parametrize("fields", [{"kind": "something else"}, {"facts": "many"}])
def test_a_description_of_something_else_is_refused(tmp_path: Path, fields: dict[str, object]) -> None:
    path = build(tmp_path / "g.graph", SMALL)
    change_meta(path, **fields)
    assert "damaged" in failure(path)


@pytest.mark.parametrize("key", ["meta", "relations", "revision"])
def test_a_description_that_lacks_a_part_is_refused(tmp_path: Path, key: str) -> None:
    path = build(tmp_path / "g.graph", SMALL)
    change_file(path, "DELETE FROM meta WHERE key = ?", key)
    assert "damaged" in failure(path)


def test_a_graph_cut_short_at_any_length_is_an_error_and_no_signal(tmp_path: Path) -> None:
    whole = build(tmp_path / "g.graph", MANY).read_bytes()
    lengths = [1, 16, 100, 4095, 4096, 4097, 8191, 8192, 8193, 12288, len(whole) // 3, len(whole) // 2]
    lengths += [len(whole) - 4096 * pages for pages in (40, 3, 2, 1)] + [len(whole) - 1]
    for length in lengths:
        (tmp_path / f"cut-{length}").write_bytes(whole[:length])
    script = f"""
        import sys
        from pathlib import Path
        from dialore.errors import GraphError
        from dialore.retrieval.graph import GraphStore
        for length in {lengths}:
            path = Path({str(tmp_path)!r}) / f"cut-{{length}}"
            try:
                with GraphStore(path) as store:
                    print(length, sum(1 for _ in store.facts()))
            except GraphError as error:
                assert str(path) in str(error) and "\\n" not in str(error), str(error)
                print(length, "refused")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert done.stdout.splitlines() == [f"{length} refused" for length in lengths]


def test_concepts_and_facts(tmp_path: Path) -> None:
    with GraphStore(build(tmp_path / "g.graph", SMALL, "kitchen")) as store:
        sushi = store.find("  SUSHI ")
        assert sushi is not None
        assert store.concept(sushi) == "sushi"
        assert store.find("tempura") is None
        assert store.degree(sushi) == 1
        assert store.meta.name == "kitchen"
        assert (store.meta.facts, store.meta.concepts) == (4, 7)
        assert sorted(store.meta.languages) == ["en", "zh"]
        edges = store.edges_of([sushi])
        fact = store.fact(edges, 0)
        assert fact == Fact("sushi", "MadeOf", "rice", 2.0, "test")
        assert fact.graph == "kitchen"
        with pytest.raises(GraphError, match="no concept 99"):
            store.concept(99)


def test_an_edge_between_two_asked_concepts_comes_once(tmp_path: Path) -> None:
    path = build(tmp_path / "g.graph", facts("a | IsA | b", "b | IsA | a", "a | IsA | a", "c | IsA | a", "b | IsA | d"))
    with GraphStore(path) as store:
        ids = {name: store.find(name) for name in "abcd"}
        edges = store.edges_of([ids["a"], ids["b"]])
        found = [(store.fact(edges, row).head, store.fact(edges, row).tail) for row in range(len(edges))]
        assert sorted(found) == [("a", "a"), ("a", "b"), ("b", "a"), ("b", "d"), ("c", "a")]
        assert len(store.edges_of([])) == 0


def test_two_stores_of_a_file_are_closed_apart(tmp_path: Path) -> None:
    path = build(tmp_path / "g.graph", SMALL)
    one, two = GraphStore(path), GraphStore(path)
    before = two.concept_sums(np.array([0, 1], np.uint32))
    one.close()
    one.close()
    assert two.find("sushi") is not None
    assert np.array_equal(two.concept_sums(np.array([0, 1], np.uint32)), before)
    two.close()
    for use in (lambda: two.find("sushi"), lambda: two.concept_sums(np.array([0], np.uint32))):
        with pytest.raises(GraphError, match="closed"):
            use()


def test_many_threads_read_at_once(tmp_path: Path) -> None:
    store = GraphStore(build(tmp_path / "g.graph", MANY))
    wrong: list[object] = []

    def read(offset: int) -> None:
        for number in range(offset, 2000, 7):
            concept = store.find(f"head {number}")
            if concept is None:
                wrong.append(number)
                continue
            edges = store.edges_of([concept])
            tails = [store.fact(edges, row).tail for row in range(len(edges))]
            if tails != [f"tail {number % 5}"]:
                wrong.append((number, tails))

    threads = [threading.Thread(target=read, args=(offset,)) for offset in range(7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    store.close()


def test_a_graph_of_another_embedder_ranks_by_encoding_the_facts(tmp_path: Path) -> None:
    path = build(tmp_path / "g.graph", SMALL)
    dialogue = Dialogue.model_validate({"id": "d", "turns": ["I would love some sushi with rice"]})
    demands = Demands(explicit=["sushi"], maintained=["rice"])
    other = HashingEmbedder()
    with GraphStore(path) as store:
        found = Graph(store, other, "paper").retrieve(demands, dialogue)
        (history,) = other.encode([dialogue.history])
        for knowledge in (*found.foreseen, *found.unforeseen):
            (vector,) = other.encode([knowledge.triple])
            assert knowledge.score == pytest.approx(float(vector @ history), abs=1e-3)
        own = Graph(store, embedder(), "paper").retrieve(demands, dialogue)
        assert [item.id for item in own.foreseen] == [item.id for item in found.foreseen]
        assert {item.id for item in own.unforeseen} == {item.id for item in found.unforeseen}
        assert own.foreseen[0].score != found.foreseen[0].score


def test_facts_of_a_concept_are_the_heaviest_first(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, "tea | IsA | drink | 1", "cup | UsedFor | tea | 3", "tea | HasA | scent | 2")
    assert [fact.weight for fact in graph.facts_of("Tea")] == [3.0, 2.0, 1.0]
    assert graph.facts_of("coffee") == []
    assert graph.name == "small"
    graph.close()


def test_calls_inside_a_read_see_one_state_and_later_ones_the_newest(tmp_path: Path) -> None:
    path = build(tmp_path / "g.graph", SMALL)
    with GraphStore(path) as store:
        with store.read() as state:
            before = set(store.facts())
            change(path, add=facts("rice | UsedFor | sake"), delete=SMALL[:1])
            with store.read() as inner:
                assert inner is state
            assert (store.meta.facts, store.find("sake")) == (len(SMALL), None)
            assert len(store.edges_of([store.find("rice")])) == 2
            assert len(store.edges_of([store.find("sushi")])) == 1
        assert store.find("sake") is not None
        assert set(store.facts()) == before - {SMALL[0]} | set(facts("rice | UsedFor | sake"))
        with store.read() as newer:
            assert newer is not state
        with store.read() as again:
            assert again is newer


def test_another_file_in_its_place_is_opened_and_none_is_no_error(tmp_path: Path) -> None:
    path = build(tmp_path / "g.graph", SMALL)
    other = build(tmp_path / "other.graph", facts("moon | IsA | satellite"))
    with GraphStore(path) as store:
        other.replace(path)
        assert [fact.head for fact in store.facts()] == ["moon"]
        assert store.find("moon") is not None
        path.unlink()
        assert store.find("moon") is not None


def test_an_iterator_of_facts_keeps_its_state_while_the_store_is_used(tmp_path: Path) -> None:
    path = build(tmp_path / "g.graph", SMALL)
    with GraphStore(path) as store:
        iterator = store.facts()
        found = [next(iterator)]
        change(path, delete=SMALL)
        assert store.meta.facts == 0
        assert len([*found, *iterator]) == len(SMALL)

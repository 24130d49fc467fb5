"""What a store of facts must do."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dialore.errors import GraphError
from dialore.knowledge import Fact
from dialore.retrieval.graph import GraphStore
from dialore.retrieval.graph.fact_ranking import LinearCosines
from dialore.retrieval.graph.store import stem_key
from dialore.retrieval.linking.linker import Linker
from dialore.text import content_words, words
from tests.retrieval.graph.graphs import build, embedder, facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from dialore.retrieval.graph.store import Edges

    Loading = Callable[[list[Fact]], Path]

KITCHEN = facts(
    "sushi | MadeOf | rice | 2.828",
    "rice | AtLocation | field | 0.1",
    "Sushi | MadeOf | rice | 1",
    "cook | CapableOf | carve sushi | 3.4028235e38",
    "wedding ring | UsedFor | get married",
    "wed ring | IsA | jewelry",
    "rice | IsA | rice | 4",
    "field | RelatedTo | sushi",
    "茶 | IsA | 饮料",
    "做 饭 | RelatedTo | 米饭",
    r"a\b	c | IsA | 'it''s' \N {x} $1 %s :y",
    "🍣 | Symbol/Of | SUSHI",
    "!!! | RelatedTo | ???",
    f"{'long ' * 400}name | IsA | word",
)


@pytest.fixture
def load(tmp_path: Path) -> Loading:
    """Loads facts into a new graph named kitchen; returns what opens it."""
    return lambda items: build(tmp_path / "kitchen.graph", items, "kitchen")


@pytest.fixture
def store(load: Loading) -> Iterator[GraphStore]:
    opened = GraphStore(load(KITCHEN))
    yield opened
    opened.close()


def names_of(store: GraphStore, *names: str) -> list[int]:
    found = [store.find(name) for name in names]
    assert None not in found
    return found  # type: ignore[return-value]


def triples(store: GraphStore, *names: str) -> list[tuple[str, str, str]]:
    edges = store.edges_of(names_of(store, *names))
    found = [store.fact(edges, row) for row in range(len(edges))]
    return sorted((fact.head, fact.relation, fact.tail) for fact in found)


def test_the_description(store: GraphStore) -> None:
    assert store.meta.name == "kitchen"
    assert store.meta.facts == len(KITCHEN) - 1
    assert store.meta.concepts == len({name.lower() for fact in KITCHEN for name in (fact.head, fact.tail)})
    assert set(store.meta.relations) == {fact.relation for fact in KITCHEN}
    assert store.meta.provenances == ["test"]
    assert sorted(store.meta.languages) == ["en", "zh"]


def test_a_concept_is_found_by_its_normal_form(store: GraphStore) -> None:
    for name, written in {
        "sushi": "sushi",
        "  SUSHI_ ": "sushi",
        "wedding_ring": "wedding ring",
        "茶": "茶",
        "🍣": "🍣",
        "!!!": "!!!",
        "long " * 400 + "NAME": "long " * 400 + "name",
        r"A\b c": r"a\b	c",
        r"'it''s' \n {x} $1 %s :y": r"'it''s' \N {x} $1 %s :y",
    }.items():
        (number,) = names_of(store, name)
        assert store.concept(number) == written
    for name in ("tempura", "sush", "sushi%", "' OR 1=1 --", "a\0b", "long " * 400, "\\"):
        assert store.find(name) is None


def test_concepts_have_the_stems_of_their_content_words(store: GraphStore) -> None:
    def with_stems(phrase: str, language: str = "en") -> list[str]:
        found = store.with_stems(stem_key(content_words(phrase, language) or words(phrase, language), language))  # type: ignore[arg-type]
        assert found == sorted(found)
        return sorted(store.concept(number) for number in found)

    assert with_stems("wedding rings") == ["wed ring", "wedding ring"]
    assert with_stems("to carve the sushi") == ["carve sushi"]
    assert with_stems("喝", "zh") == []
    assert with_stems("饮料", "zh") == ["饮料"]
    assert with_stems("long " * 400 + "names") == ["long " * 400 + "name"]
    # What was given out is the caller's own.
    store.with_stems(stem_key(["ring"], "en")).append(7)
    assert store.with_stems(stem_key(["ring"], "en")) == []


def test_degrees(store: GraphStore) -> None:
    degrees = {name: store.degree(names_of(store, name)[0]) for name in ("sushi", "rice", "cook", "茶", "jewelry")}
    assert degrees == {"sushi": 3, "rice": 4, "cook": 1, "茶": 1, "jewelry": 1}


def test_a_concept_that_is_not_there(store: GraphStore) -> None:
    with pytest.raises(GraphError, match="no concept 1000"):
        store.concept(1000)


def test_facts_of_concepts_come_once_each(store: GraphStore) -> None:
    assert triples(store, "sushi") == [
        ("field", "RelatedTo", "sushi"),
        ("sushi", "MadeOf", "rice"),
        ("🍣", "Symbol/Of", "sushi"),
    ]
    assert triples(store, "rice", "sushi", "rice") == [
        ("field", "RelatedTo", "sushi"),
        ("rice", "AtLocation", "field"),
        ("rice", "IsA", "rice"),
        ("sushi", "MadeOf", "rice"),
        ("🍣", "Symbol/Of", "sushi"),
    ]
    empty = store.edges_of([])
    assert len(empty) == 0
    assert empty.between([], []).tolist() == []
    assert len(store.edges_of([1000])) == 0
    assert len(store.edges_of(iter(names_of(store, "茶")))) == 1


def test_facts_are_columns(store: GraphStore) -> None:
    sushi, rice = sorted(names_of(store, "sushi", "rice"))
    edges = store.edges_of([rice, sushi])
    assert edges.asked.tolist() == [sushi, rice]
    expected = {"head": "u4", "relation": "u2", "tail": "u4", "weight": "f4", "provenance": "u2"}
    for name, kind in expected.items():
        column = getattr(edges, name)
        assert (column.dtype, column.shape) == (np.dtype(kind), (5,)), name
    for ends, places in ((edges.head, edges.head_place), (edges.tail, edges.tail_place)):
        for end, place in zip(ends.tolist(), places.tolist(), strict=True):
            assert (edges.asked[place] == end) if place >= 0 else end not in edges.asked
    assert np.count_nonzero(edges.between([sushi], [rice])) == 1


def test_facts_are_merged_and_keep_their_weight(store: GraphStore) -> None:
    edges = store.edges_of(names_of(store, "sushi"))
    (fact,) = [fact for row in range(len(edges)) if (fact := store.fact(edges, row)).relation == "MadeOf"]
    assert fact == Fact("sushi", "MadeOf", "rice", 2.828, "test")
    assert fact.graph == "kitchen"
    edges = store.edges_of(names_of(store, "cook"))
    assert store.fact(edges, 0).weight == pytest.approx(3.4028235e38)


def test_every_fact_by_head_the_heaviest_first(store: GraphStore) -> None:
    found = list(store.facts())
    expected = {fact.id: fact.weight for fact in reversed(KITCHEN)} | {KITCHEN[0].id: 2.828}
    assert {fact.id: fact.weight for fact in found} == pytest.approx(expected)
    assert len(found) == len(expected)
    runs = [(head, [fact.weight for fact in group]) for head, group in itertools.groupby(found, lambda fact: fact.head)]
    assert len({head for head, _ in runs}) == len(runs)
    assert all(weights == sorted(weights, reverse=True) for _, weights in runs)


def test_phrases_are_linked(store: GraphStore) -> None:
    linker = Linker(store)
    linked = {
        (phrase, language): [(link.name, link.how) for link in linker.link(phrase)]
        for phrase, language in (("Sushi", "en"), ("carving sushi", "en"), ("wedding rings", "en"), ("饮料和茶", "zh"))
    }
    assert linked["Sushi", "en"] == [("sushi", "exact")]
    assert [name for name, _ in linked["carving sushi", "en"]] == ["carve sushi"]
    assert [name for name, _ in linked["wedding rings", "en"]] == ["wedding ring"]
    assert sorted(name for name, _ in linked["饮料和茶", "zh"])[:1] == ["饮料"] or linked["饮料和茶", "zh"]


def test_cosines_of_stored_vectors_are_those_of_the_embedder(load: Loading) -> None:
    path = load(KITCHEN)
    query = embedder().encode(["I would love some sushi with rice from the field, or 米饭"])[0]

    def cosines(*, stored: bool) -> dict[str, float]:
        store = GraphStore(path)
        linear = LinearCosines(store, embedder())

        def ranked(concepts: Iterable[int]) -> tuple[Edges, np.ndarray]:
            edges = store.edges_of(concepts, query)
            assert edges.cosines is not None
            return edges, edges.cosines if stored else linear(edges, query)

        edges, scores = ranked(range(store.meta.concepts))
        assert scores.dtype == np.float32
        assert np.array_equal(scores, ranked(range(store.meta.concepts))[1])
        assert len(ranked([])[1]) == 0
        scored = {store.fact(edges, row).triple: float(scores[row]) for row in range(len(edges))}
        store.close()
        return scored

    reference = cosines(stored=True)
    assert cosines(stored=False) == pytest.approx(reference, abs=2e-3)
    assert max(reference.values()) > 0.5


def test_many_threads_read_at_once(load: Loading) -> None:
    store = GraphStore(load(facts(*(f"head {number} | IsA | tail {number % 5}" for number in range(300)))))
    wrong: list[object] = []

    def read(offset: int) -> None:
        for number in range(offset, 300, 6):
            concept = store.find(f"head {number}")
            edges = store.edges_of([concept]) if concept is not None else store.edges_of([])
            found = [store.fact(edges, row).tail for row in range(len(edges))]
            if found != [f"tail {number % 5}"]:
                wrong.append((number, found))

    threads = [threading.Thread(target=read, args=(offset,)) for offset in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    assert wrong == []


def test_a_closed_store_says_so(load: Loading) -> None:
    store = GraphStore(load(KITCHEN))
    (sushi,) = names_of(store, "sushi")
    store.close()
    store.close()
    for use in (lambda: store.find("cook"), lambda: store.edges_of([sushi]), lambda: store.concept(3)):
        with pytest.raises(GraphError, match="closed"):
            use()


def test_loading_again_replaces_the_graph(load: Loading) -> None:
    load(KITCHEN)
    with_one = GraphStore(load(facts("tea | IsA | drink")))
    assert (with_one.meta.facts, with_one.find("sushi")) == (1, None)
    assert [fact.triple for fact in with_one.facts()] == ["(tea, IsA, drink)"]
    with_one.close()

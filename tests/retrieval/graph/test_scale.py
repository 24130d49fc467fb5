"""Graphs of ConceptNet's shape: of hubs the heaviest facts are read, files are streamed, vectors are right."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest
from benchmarks.shape import HUBS, shaped_graph

from dialore.retrieval.graph import GraphStore
from dialore.retrieval.graph.changes import GraphEditor
from dialore.retrieval.graph.checking import problems_of
from dialore.retrieval.graph.fact_ranking import Ranking
from dialore.retrieval.graph.facts import read_facts
from dialore.retrieval.graph.relations import connecting_words
from tests.retrieval.graph.graphs import build, embedder, facts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dialore.retrieval.graph.store import Edges

HUB = Ranking().hub
SHAPED = shaped_graph(30_000)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scale")
    more = facts(*(f"busy bee | HasProperty | flower {number} of {number % 97} fields" for number in range(3 * HUB)))
    more += facts(*(f"bee {number} | RelatedTo | busy bee | 2" for number in range(2 * HUB)))
    return build(folder / "shaped.graph", [*SHAPED.facts(), *more])


@pytest.fixture
def store(path: Path) -> Iterator[GraphStore]:
    with GraphStore(path) as opened:
        yield opened


def test_the_generator_makes_the_same_graph_of_that_shape() -> None:
    again = shaped_graph(30_000)
    assert again.names == SHAPED.names
    assert np.array_equal(again.head, SHAPED.head)
    assert len(SHAPED.head) == pytest.approx(30_000, rel=0.01)
    assert len(set(SHAPED.names)) == len(SHAPED.names) == 10_909
    degrees = SHAPED.degrees()
    assert degrees.min() >= 1
    assert all(degrees[:HUBS] > 400)
    assert np.sort(degrees)[-HUBS - 1] < 400
    assert np.median(degrees) <= 4
    assert 0.4 < np.mean([" " in name for name in SHAPED.names]) < 0.8
    triples = set(zip(SHAPED.head.tolist(), SHAPED.relation.tolist(), SHAPED.tail.tolist(), strict=True))
    assert len(triples) == len(SHAPED.head)


def test_cosines_are_those_of_the_summed_vectors(store: GraphStore) -> None:
    asked = [store.find(SHAPED.names[number]) for number in (0, 5, 900, 7000)]
    history = embedder().encode(["a long talk about the weather and then some more"])[0]
    edges = store.edges_of(asked, history)
    cosines = edges.cosines
    assert cosines is not None
    for row in range(0, len(edges), 7):
        fact = store.fact(edges, row)
        parts = embedder().sums([fact.head, connecting_words(fact.relation), fact.tail])
        whole = parts.sum(axis=0).astype(np.float64)
        assert cosines[row] == pytest.approx(whole @ history / max(np.linalg.norm(whole), 1e-6), abs=5e-3)


@pytest.mark.parametrize("most", [1, 50, 700])
def test_the_first_of_a_hub_are_its_heaviest_and_those_between_asked_concepts(store: GraphStore, most: int) -> None:
    asked = [store.find(name) for name in ("busy bee", "flower 3 of 3 fields", "bee 17", *SHAPED.names[1:41:39])]
    query = embedder().encode(["a bee is stung by a wasp"])[0]
    everything, some = store.edges_of(asked, query), store.edges_of(asked, query, most)
    assert len(some) < len(everything) / 2
    assert some.total == everything.total == len(everything)
    assert some.degrees.tolist() == [store.degree(number) for number in some.asked.tolist()]

    def scored(edges: Edges) -> dict[tuple[int, int, int], float]:
        assert edges.cosines is not None
        names = zip(edges.head.tolist(), edges.relation.tolist(), edges.tail.tolist(), strict=True)
        return dict(zip(names, edges.cosines.tolist(), strict=True))

    every, near = scored(everything), scored(some)
    assert len(near) == len(some)
    assert near == pytest.approx({name: every[name] for name in near}, abs=1e-5)
    known = {name for name in every if name[0] in asked and name[2] in asked}
    assert known != set()
    assert known <= set(near)
    for place, side in (("head_place", 0), ("tail_place", 2)):
        for number in (asked[0], asked[-1]):
            of_side = getattr(everything, place) == everything.asked.tolist().index(number)
            weights = sorted(everything.weight[of_side].tolist(), reverse=True)
            read = [weight for weight, name in zip(some.weight.tolist(), near, strict=True) if name[side] == number]
            assert sorted(read, reverse=True)[:most] == weights[:most]


def test_a_hub_that_was_changed_is_read_as_it_is_now(tmp_path: Path) -> None:
    path = build(tmp_path / "g.graph", facts(*(f"hub | IsA | leaf {number}" for number in range(3 * HUB))))
    with GraphStore(path) as store:
        hub = store.find("hub")

        def heaviest(store: GraphStore) -> list[str]:
            edges = store.edges_of([hub], None, 2)
            assert edges.total == store.meta.facts
            return [store.fact(edges, row).tail for row in range(len(edges))]

        first = heaviest(store)
        with GraphEditor(path, embedder()) as editor:
            editor.add(facts("hub | IsA | snow mountain | 2", "hub | IsA | mountain | 3"))
        assert heaviest(store) == ["mountain", "snow mountain"]
        with GraphEditor(path, embedder()) as editor:
            editor.delete(facts("hub | IsA | mountain", "hub | IsA | snow mountain"))
        assert heaviest(store) == first


def test_a_shaped_graph_is_whole(path: Path) -> None:
    assert problems_of(path) == []


def test_a_dump_of_all_languages_is_streamed(tmp_path: Path) -> None:
    """ConceptNet 5's own form: senses, surface text, sources, weights, and nine in ten lines of other languages."""
    sources = [{"contributor": "/s/resource/wiktionary/en", "process": "/s/process/wikiparsec/2"}]

    def line(relation: str, start: str, end: str, **metadata: object) -> str:
        extra = {"dataset": "/d/wiktionary/en", "license": "cc:by-sa/4.0", "sources": sources, "weight": 1.0}
        cells = (
            f"/a/[/r/{relation}/,{start}/,{end}/]",
            f"/r/{relation}",
            start,
            end,
            json.dumps({**extra, **metadata}),
        )
        return "\t".join(cells) + "\n"

    path = tmp_path / "assertions.csv.gz"
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as file:
        for number in range(30_000):
            file.write(line("Synonym", f"/c/fr/mot_{number}/n", f"/c/de/wort_{number}/n/wn/act"))
            if number % 10 == 0:
                file.write(
                    line(
                        "UsedFor", f"/c/en/ice_axe_{number}/n/wn/artifact", "/c/en/climb_up/v", weight=2.828,
                        surfaceText="[[an ice axe]] is used for [[climbing up]]",
                    )
                )  # fmt: skip
                file.write(line("ExternalURL", f"/c/en/ice_axe_{number}", "http://dbpedia.org/resource/Ice_axe"))
                file.write(line("RelatedTo", f"/c/zh_TW/冰斧{number}", "/c/zh/登山"))
                file.write(line("RelatedTo", f"/c/zh/冰斧{number}", "/c/en/ice_axe"))
    tracemalloc.start()
    count = 0
    for fact in read_facts(path, languages=("en",)):
        count += 1
        last = fact
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (count, last.head, last.relation, last.tail) == (3000, "ice axe 29990", "UsedFor", "climb up")
    assert (last.weight, last.provenance) == (2.828, "/d/wiktionary/en")
    assert peak < 2**20
    assert sum(1 for _ in read_facts(path)) == 6000

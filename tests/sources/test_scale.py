"""Graphs of ConceptNet's shape: hubs are ranked exactly, files larger than memory are streamed, vectors are right."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest
from benchmarks.shape import HUBS, shaped_graph

from dialore.sources.graph import GraphStore
from dialore.sources.graph.changes import GraphEditor
from dialore.sources.graph.facts import read_facts
from dialore.sources.graph.relations import connecting_words
from dialore.sources.graph.store import LARGE
from dialore.sources.graph.verify import verify
from tests.sources.graphs import build, embedder, facts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHAPED = shaped_graph(30_000)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scale")
    more = facts(*(f"busy bee | HasProperty | flower {number} of {number % 97} fields" for number in range(3 * LARGE)))
    more += facts(*(f"bee {number} | RelatedTo | busy bee | 2" for number in range(2 * LARGE)))
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
    edges = store.edges_of(asked, history, 10**6)
    cosines = edges.cosines
    assert cosines is not None
    for row in range(0, len(edges), 7):
        fact = store.fact(edges, row)
        parts = embedder().sums([fact.head, connecting_words(fact.relation, "en"), fact.tail])
        whole = parts.sum(axis=0).astype(np.float64)
        assert cosines[row] == pytest.approx(whole @ history / max(np.linalg.norm(whole), 1e-6), abs=5e-3)


@pytest.mark.parametrize("keep", [1, 50, 700])
def test_the_best_of_a_hub_are_exactly_the_best_of_all(store: GraphStore, keep: int) -> None:
    others = ["flower 3 of 3 fields", "bee 17", SHAPED.names[1], SHAPED.names[40]]
    asked = [store.find(name) for name in ("busy bee", *others)]
    for words in ("flowers in the field", "a bee is stung by a wasp", "the third number", "wholly other things"):
        query = embedder().encode([words])[0]
        everything, near = store.edges_of(asked, query, 10**6), store.edges_of(asked, query, keep)
        assert len(near) < len(everything) / 2
        assert near.degrees.tolist() == [store.degree(number) for number in near.asked.tolist()]
        ranked = []
        for edges in (everything, near):
            scores = edges.cosines
            assert scores is not None
            names = [(edges.head[row], edges.relation[row], edges.tail[row]) for row in range(len(edges))]
            ranked.append(dict(zip(names, scores.tolist(), strict=True)))
            between = edges.between(asked[:1], asked[1:])
            ranked.append({name for name, there in zip(names, between.tolist(), strict=True) if there})
        all_scores, all_between, near_scores, near_between = ranked
        assert near_between == all_between != set()
        for name, score in near_scores.items():
            assert score == pytest.approx(all_scores[name], abs=1e-5)
        hub = store.find("busy bee")
        own = {name: score for name, score in all_scores.items() if hub in (name[0], name[2])}
        best = sorted(own.values(), reverse=True)[keep - 1]
        assert {name for name, score in own.items() if score >= best} <= set(near_scores)


def test_a_hub_that_was_changed_is_ranked_by_what_it_is_now(tmp_path: Path) -> None:
    path = build(tmp_path / "g.graph", facts(*(f"hub | IsA | leaf {number}" for number in range(3 * LARGE))))
    query = embedder().encode(["an entirely new mountain, a mountain of snow"])[0]
    with GraphStore(path) as store:
        hub = store.find("hub")

        def best(store: GraphStore) -> list[str]:
            edges = store.edges_of([hub], query, 100)
            assert edges.cosines is not None
            order = np.lexsort((edges.tail, np.round(-edges.cosines, 4)))
            return [store.fact(edges, row).tail for row in order[:2].tolist()]

        first = best(store)
        with GraphEditor(path, embedder()) as editor:
            editor.add(facts("hub | IsA | snow mountain", "hub | IsA | mountain"))
        assert best(store) == first
        assert set(best(store.newest())) == {"snow mountain", "mountain"}
        with GraphEditor(path, embedder()) as editor:
            editor.delete(facts("hub | IsA | mountain", "hub | IsA | snow mountain"))
        assert best(store.newest()) == first


def test_a_shaped_graph_is_whole(path: Path) -> None:
    assert verify(path).problems == []


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

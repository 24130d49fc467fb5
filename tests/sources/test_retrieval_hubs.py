"""What is read near a question alone gives the same answers as reading every fact of a hub."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from benchmarks.shape import HUBS, known_words, shaped_graph

from dialore.dialogue import Dialogue
from dialore.knowledge import Fact
from dialore.response import Demands
from dialore.sources.graph import Graph, GraphStore
from dialore.sources.graph.facts.readers import read_facts
from dialore.sources.graph.ranking.settings import Ranking
from dialore.sources.graph.store import hubs, version
from dialore.sources.graph.store.hubs import LARGE
from dialore.sources.graph.store.version import GraphVersion
from tests.sources.graphs import build, development_data, embedder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SHAPED = shaped_graph(30_000)
RANKINGS = {
    "default": Ranking(),
    "paper": Ranking.named("paper"),
    "fused": Ranking(lexical=0.5, weight=0.2, hops=3),
    "small": Ranking(pool=5, decay=0.0, specificity=0.0),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hubs of some 450 facts, and one of thousands whose best facts are all dropped or folded."""
    unsafe = [
        Fact("long road", relation, f"porn {number}", 1.0, "test")
        for number in range(700)
        for relation in ("RelatedTo", "HasA", "UsedFor")
    ]
    plain = [Fact("long road", "HasA", f"mile {number} of {number % 89}", 1.0, "test") for number in range(3 * LARGE)]
    looped = [Fact("long road", "RelatedTo", "long road", 1.0, "test")]
    folder = tmp_path_factory.mktemp("hubs")
    return build(folder / "hubs.graph", [*SHAPED.facts(), *unsafe, *plain, *looped])


def compare(
    graph: Graph, questions: Iterable[tuple[Demands, Dialogue]], monkeypatch: pytest.MonkeyPatch, top: int
) -> int:
    """Ask everything twice, reading hubs near the question and reading all of them; how often fewer were read."""
    rows: list[int] = []
    whole = GraphVersion.edges_of

    def counted(self, concepts, query=None, keep=1000):
        edges = whole(self, concepts, query, keep)
        rows.append(len(edges))
        return edges

    fewer = 0
    for demands, dialogue in questions:
        answers, read = [], []
        for reading in (counted, lambda self, concepts, query=None, keep=1000: counted(self, concepts)):
            rows.clear()
            with monkeypatch.context() as patch:
                patch.setattr(GraphVersion, "edges_of", reading)
                answers.append((graph.retrieve(demands, dialogue, top), graph.retrieve_queries(
                    graph.link(demands.queries, dialogue), dialogue, top)))  # fmt: skip
            read.append(rows[0])
        assert answers[0] == answers[1]
        fewer += read[0] < read[1]
    return fewer


@pytest.mark.parametrize("ranking", RANKINGS)
def test_hubs_read_in_part_give_the_same_answers(path: Path, ranking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "LARGE", 16)
    draw = random.Random(ranking)
    words = known_words()
    busy, names = SHAPED.names[:HUBS], SHAPED.names[HUBS:]
    with GraphStore(path) as store:
        graph = Graph(store, embedder(), RANKINGS[ranking])

        def questions():
            for number in range(25):
                asked = [*draw.sample(names, 6), draw.choice(busy), *(["long road"] if number % 3 else [])]
                draw.shuffle(asked)
                history = " ".join(draw.sample(words, 20))
                dialogue = Dialogue.model_validate({"id": "d", "language": "en", "turns": [history]})
                yield Demands(explicit=asked[:4], maintained=asked[3:]), dialogue

        assert compare(graph, questions(), monkeypatch, top=draw.choice([5, 20])) > 12


@pytest.mark.parametrize(("room", "most"), [(0, 0.9), (1 << 20, 0.0), (1 << 20, 1.0)])
def test_hubs_parts_are_laid_out_or_not_for_the_same_facts(
    path: Path, room: int, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version, "LARGE", 16)
    query = embedder().encode(["a road that never ends"])[0]
    names = [*SHAPED.names[:HUBS], "long road", *SHAPED.names[HUBS : HUBS + 5]]
    with GraphStore(path) as store:
        concepts = [number for name in names if (number := store.find(name)) is not None]
        asked = [concepts, concepts[:1], concepts[1:3], [concepts[HUBS]], concepts]
        expected = [store.edges_of(some, query, 10) for some in asked]
        assert all(len(edges) < edges.total for edges in expected)
        monkeypatch.setattr(hubs, "_ROOM", room)
        monkeypatch.setattr(hubs, "_MOST", most)
        with GraphStore(path) as other:
            for some, edges in zip(asked, expected, strict=True):
                found = other.edges_of(some, query, 10)
                assert np.array_equal(found.head, edges.head)
                assert np.array_equal(found.tail, edges.tail)


def test_more_is_read_where_what_was_read_is_dropped(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The facts nearest the question are unsafe ones and their copies: what is offered lies behind hundreds of them."""
    with GraphStore(path) as store:
        graph = Graph(store, embedder(), replace(RANKINGS["default"], pool=10))
        dialogue = Dialogue.model_validate({"id": "d", "language": "en", "turns": ["porn"]})
        demands = Demands(explicit=["long road"])
        asked: list[int] = []
        near = GraphVersion.edges_of

        def counted(self, concepts, query=None, keep=1000):
            asked.append(keep)
            return near(self, concepts, query, keep)

        with monkeypatch.context() as patch:
            patch.setattr(GraphVersion, "edges_of", counted)
            found = graph.retrieve(demands, dialogue, 10)
        assert len(asked) > 1
        assert asked == sorted(asked)
        assert len(found.unforeseen) == 10
        assert not any("porn" in item.text for item in found.unforeseen)
        assert found.unforeseen_found == store.degree(store.find("long road")) - 1
        compare(graph, [(demands, dialogue)], monkeypatch, 10)


def test_real_phrases_over_real_facts_give_the_same_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "LARGE", 16)
    items = list(read_facts(development_data("conceptnet_cn100k/test.txt.gz")))
    phrases = sorted({end for fact in items for end in (fact.head, fact.tail)})
    draw = random.Random(0)
    with GraphStore(build(tmp_path / "real.graph", items)) as store:
        busy = sorted(phrases, key=lambda name: -store.degree(store.find(name) or 0))[:3]
        graph = Graph(store, embedder(), replace(RANKINGS["default"], pool=5))

        def questions():
            for _ in range(60):
                asked = [*draw.sample(phrases, 8), *draw.sample(busy, 2)]
                history = ". ".join(draw.sample(phrases, 4))
                dialogue = Dialogue.model_validate({"id": "d", "language": "en", "turns": [history]})
                yield Demands(explicit=asked[:5], maintained=asked[5:]), dialogue

        assert compare(graph, questions(), monkeypatch, 3) > 30


def test_products_are_the_same_to_the_last_bit_whatever_else_is_asked(path: Path) -> None:
    with GraphStore(path) as store:
        query = embedder().encode(["a road that never ends"])[0]
        every = np.arange(store.meta.concepts, dtype=np.uint32)
        whole = store.concept_products(every, query)
        draw = np.random.default_rng(0)
        for size in (1, 7, 300, 3000):
            some = draw.choice(every, size).astype(np.uint32)
            assert np.array_equal(store.concept_products(some, query), whole[some])
        sums = store.concept_sums(every)
        assert np.allclose(sums.astype(np.float64) @ query, whole, atol=1e-6 * float(np.abs(whole).max()))


def test_coarse_products_err_no_more_than_they_say(path: Path) -> None:
    """Facts of a hub are chosen by them: their cosines are as near the exact ones as the bound that they come with."""
    with GraphStore(path) as store:
        live = GraphVersion.open(path)
        edges = store.edges_of([store.find("long road")])
        for text in ("a road that never ends", "porn", "mile 3 of 5"):
            query = embedder().encode([text])[0]
            values, error = live.vectors.coarse_values(query)
            assert 0 < error < 2e-3
            exact = live.vectors.all_values(query)
            ends = [live.vectors.of(ends)[0] for ends in (edges.head[:300], edges.tail[:300])]
            assert not np.array_equal(values, exact)
            wrong = np.zeros(300)
            for end, parts in zip((edges.head, edges.tail), ends, strict=True):
                starts = live.vectors.of(end[:300])[1]
                wrong += np.add.reduceat((values - exact)[parts], starts)
            assert np.abs(wrong / edges.norm[:300]).max() <= error + 1e-6

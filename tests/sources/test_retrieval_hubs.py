"""What is read near a question alone gives the same answers as reading every fact of a hub."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from benchmarks.shape import HUBS, known_words, shaped_graph

from dialore.dialogue import Dialogue
from dialore.knowledge import Fact
from dialore.response import Demands
from dialore.sources.graph import Graph, GraphStore
from dialore.sources.graph import store as store_module
from dialore.sources.graph.facts import read_facts
from dialore.sources.graph.ranking import Ranking
from dialore.sources.graph.store import LARGE
from tests.sources.graphs import build, development_data, embedder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SHAPED = shaped_graph(30_000)
RANKINGS = {
    "default": Ranking(),
    "paper": Ranking.named("paper"),
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
    whole = GraphStore.edges_of

    def counted(self, concepts, query=None, keep=1000):
        edges = whole(self, concepts, query, keep)
        rows.append(len(edges))
        return edges

    fewer = 0
    for demands, dialogue in questions:
        answers, read = [], []
        for reading in (counted, lambda self, concepts, query, keep: counted(self, concepts, query, 10**6)):
            rows.clear()
            with monkeypatch.context() as patch:
                patch.setattr(GraphStore, "edges_of", reading)
                answers.append((graph.retrieve(demands, dialogue, top), graph.retrieve_queries(
                    graph.link(demands.queries, dialogue), dialogue, top)))  # fmt: skip
            read.append(rows[0])
        assert answers[0] == answers[1]
        fewer += read[0] < read[1]
    return fewer


@pytest.mark.parametrize("ranking", RANKINGS)
def test_hubs_read_in_part_give_the_same_answers(path: Path, ranking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "LARGE", 16)
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


def test_more_is_read_where_what_was_read_is_dropped(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The facts nearest the question are unsafe ones and their copies: what is offered lies behind hundreds of them."""
    with GraphStore(path) as store:
        graph = Graph(store, embedder(), replace(RANKINGS["default"], pool=10))
        dialogue = Dialogue.model_validate({"id": "d", "language": "en", "turns": ["porn"]})
        demands = Demands(explicit=["long road"])
        asked: list[int] = []
        near = GraphStore.edges_of

        def counted(self, concepts, query=None, keep=1000):
            asked.append(keep)
            return near(self, concepts, query, keep)

        with monkeypatch.context() as patch:
            patch.setattr(GraphStore, "edges_of", counted)
            found = graph.retrieve(demands, dialogue, 10)
        assert len(asked) > 1
        assert asked == sorted(asked)
        assert len(found.unforeseen) == 10
        assert not any("porn" in item.text for item in found.unforeseen)
        assert found.unforeseen_found == store.degree(store.find("long road")) - 1
        compare(graph, [(demands, dialogue)], monkeypatch, 10)


def test_real_phrases_over_real_facts_give_the_same_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "LARGE", 16)
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


def test_cosines_are_the_same_whatever_else_is_asked(path: Path) -> None:
    with GraphStore(path) as store:
        query = embedder().encode(["a road that never ends"])[0]
        every = list(range(0, store.meta.concepts, 3))

        def cosines(concepts: Iterable[int]) -> dict[tuple[int, int, int], float]:
            edges = store.edges_of(concepts, query, 10**6)
            assert edges.cosines is not None
            facts = zip(edges.head.tolist(), edges.relation.tolist(), edges.tail.tolist(), strict=True)
            return dict(zip(facts, edges.cosines.tolist(), strict=True))

        whole = cosines(every)
        draw = random.Random(0)
        for size in (1, 7, 300):
            some = cosines(draw.sample(every, size))
            assert {fact: whole[fact] for fact in some} == pytest.approx(some, abs=1e-6)

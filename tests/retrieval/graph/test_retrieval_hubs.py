"""A question ranks the heaviest facts of a hub, and finds foreseen ones among all."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from benchmarks.shape import HUBS, known_words, shaped_graph

from dialore.dialogue import Dialogue
from dialore.knowledge import Fact
from dialore.response import Demands
from dialore.retrieval.graph import GraphStore
from dialore.retrieval.graph.fact_ranking import Ranking
from dialore.sources.graph import Graph
from tests.retrieval.graph.graphs import build, embedder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

HUB = Ranking().hub
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
    plain = [Fact("long road", "HasA", f"mile {number} of {number % 89}", 1.0, "test") for number in range(3 * HUB)]
    # Hubs with more facts than are stored first, connected by light facts.
    big = [Fact(hub, "HasA", f"{hub} {number}", 1.0, "test") for hub in SHAPED.names[:3] for number in range(HUB)]
    big += [Fact(f"{number} {hub}", "HasA", hub, 1.0, "test") for hub in SHAPED.names[:3] for number in range(HUB)]
    big += [Fact(hub, "PartOf", other, 0.5, "test") for hub in SHAPED.names[:3] for other in SHAPED.names[:3]]
    looped = [Fact("long road", "RelatedTo", "long road", 1.0, "test")]
    folder = tmp_path_factory.mktemp("hubs")
    heavy = [Fact("long road", "IsA", "endless way", 2.0, "test")]
    return build(folder / "hubs.graph", [*SHAPED.facts(), *big, *unsafe, *plain, *looped, *heavy])


def test_of_a_hub_the_heaviest_facts_are_ranked(path: Path) -> None:
    with GraphStore(path) as store:
        graph = Graph(store, embedder())
        dialogue = Dialogue.model_validate({"id": "d", "language": "en", "turns": ["where does it end"]})
        found = graph.retrieve(Demands(explicit=["long road"]), dialogue, 10)
        assert {item.text for item in found.unforeseen} >= {"long road is a kind of endless way"}
        assert not any("porn" in item.text for item in found.unforeseen)
        assert found.unforeseen_found == store.degree(store.find("long road")) - 1
        assert len(graph.facts_of("long road")) == found.unforeseen_found


@pytest.mark.parametrize("ranking", RANKINGS)
def test_foreseen_facts_of_hubs_are_found_among_all(path: Path, ranking: str) -> None:
    draw = random.Random(ranking)
    words = known_words()
    with GraphStore(path) as store:
        all_read, many, few = (Graph(store, embedder(), replace(RANKINGS[ranking], hub=hub)) for hub in (0, HUB, 16))
        ends = [f"mile {number} of {number % 89}" for number in range(3 * HUB)]
        foreseen = 0
        for number in range(25):
            hubs = ["long road", *draw.sample(SHAPED.names[:HUBS], 3)]
            dialogue = Dialogue.model_validate(
                {"id": "d", "language": "en", "turns": [" ".join(draw.sample(words, 20))]}
            )
            demands = Demands(explicit=hubs[:2], maintained=[*hubs[2:], *draw.sample(ends, 3)])
            whole = all_read.retrieve(demands, dialogue, 20)
            part = (few if number % 2 else many).retrieve(demands, dialogue, 20)
            assert part.foreseen == whole.foreseen
            assert part.foreseen_found == whole.foreseen_found
            assert part.unforeseen_found == whole.unforeseen_found
            foreseen += len(part.foreseen)
        assert foreseen >= 50


def test_cosines_are_the_same_whatever_else_is_asked(path: Path) -> None:
    with GraphStore(path) as store:
        query = embedder().encode(["a road that never ends"])[0]
        every = list(range(0, store.meta.concepts, 3))

        def cosines(concepts: Iterable[int]) -> dict[tuple[int, int, int], float]:
            edges = store.edges_of(concepts, query)
            assert edges.cosines is not None
            facts = zip(edges.head.tolist(), edges.relation.tolist(), edges.tail.tolist(), strict=True)
            return dict(zip(facts, edges.cosines.tolist(), strict=True))

        whole = cosines(every)
        draw = random.Random(0)
        for size in (1, 7, 300):
            some = cosines(draw.sample(every, size))
            assert {fact: whole[fact] for fact in some} == pytest.approx(some, abs=1e-6)

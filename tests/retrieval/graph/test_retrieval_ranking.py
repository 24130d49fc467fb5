"""The default ranking: what it asks, what it takes, what it drops, and that every setting does what it says."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dialore.dialogue import Dialogue
from dialore.errors import InputError, UnknownNameError
from dialore.knowledge import Fact
from dialore.response import Demands
from dialore.retrieval.graph import GraphStore
from dialore.retrieval.graph.fact_ranking import RANKINGS, UNINFORMATIVE, Ranking, owners, pool, take
from dialore.retrieval.graph.store import Edges
from dialore.sources.graph import Graph
from tests.hashing import HashingEmbedder
from tests.retrieval.graph.graphs import build, embedder, facts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from dialore.retrieval.embedding import Embedder
    from dialore.sources.graph import Retrieval

HISTORY = Dialogue.model_validate({"id": "d", "turns": ["Shall we cook something warm tonight?", "Soup, then tea!"]})
PLAIN = Ranking.named("paper")
WORDS = ["sushi", "rice", "tea", "cup", "river", "winter", "guitar", "dog", "island", "bread", "market", "novel"]


def ask(folder: Path, ranking: Ranking | str, items: Sequence[Fact], demands: Demands, top: int = 50) -> Retrieval:
    path = folder / "g.graph"
    if not path.exists():
        build(path, items)
    graph = Graph(GraphStore(path), embedder(), ranking)
    found = graph.retrieve(demands, HISTORY, top)
    graph.close()
    return found


def triples(found: Retrieval) -> list[str]:
    return [item.triple for item in found.unforeseen]


def hub(count: int) -> list[Fact]:
    """Many facts of "soup", and three of "violin"."""
    names = [f"{one} {other}" for one in WORDS for other in WORDS if one != other]
    return [
        *(Fact("soup", "HasA", name) for name in names[:count]),
        *facts("violin | AtLocation | orchestra", "violin | MadeOf | wood", "violin | UsedFor | concert"),
    ]


def test_a_hub_does_not_fill_the_list(tmp_path: Path) -> None:
    demands = Demands(explicit=["soup", "violin"])
    by_paper = ask(tmp_path, "paper", hub(100), demands, top=20)
    ours = ask(tmp_path, "default", hub(100), demands, top=20)
    assert len(by_paper.unforeseen) == len(ours.unforeseen) == 20
    assert sum("violin" in triple for triple in triples(by_paper)) == 0
    assert sum("violin" in triple for triple in triples(ours)) >= 2
    assert (ours.unforeseen_found, ours.foreseen_found) == (by_paper.unforeseen_found, by_paper.foreseen_found)


def test_the_demands_words_count_beside_the_historys(tmp_path: Path) -> None:
    items = facts("violin | UsedFor | soup kitchen", "violin | UsedFor | concert orchestra")
    demands = Demands(explicit=["violin", "orchestra music"], maintained=["a concert hall"])
    assert triples(ask(tmp_path, "paper", items, demands))[0] == "(violin, UsedFor, soup kitchen)"
    assert triples(ask(tmp_path, "default", items, demands))[0] == "(violin, UsedFor, concert orchestra)"


def test_only_the_latest_turns_are_asked_by(tmp_path: Path) -> None:
    turns = ["I want to buy a violin.", "Good.", "So am I.", "Soup, then tea!"]
    dialogue = Dialogue.model_validate({"id": "d", "turns": turns})
    build(tmp_path / "g.graph", facts("rice | RelatedTo | violin shop", "rice | RelatedTo | tea soup"))
    for history, expected in ((1, "tea soup"), (0, "tea soup")):
        graph = Graph(GraphStore(tmp_path / "g.graph"), embedder(), replace(PLAIN, history=history))
        found = graph.retrieve(Demands(explicit=["rice"]), dialogue).unforeseen
        score = {item.fact.tail: item.score for item in found}
        last, whole = embedder().encode([turns[-1], "\n".join(turns)])
        text = embedder().encode(["(rice, RelatedTo, violin shop)"])[0]
        assert score["violin shop"] == pytest.approx(float(text @ (last if history else whole)), abs=0.01)
        assert max(score, key=lambda name: score[name]) == expected
        graph.close()


@pytest.mark.parametrize("top", [1, 5, 20, 60])
@pytest.mark.parametrize("ranking", ["default", "paper"])
def test_a_cut_is_the_beginning_of_a_longer_list(tmp_path: Path, ranking: str, top: int) -> None:
    chance = random.Random(7)
    items = sorted({(chance.choice(WORDS), "RelatedTo", f"{chance.choice(WORDS)} {n}") for n in range(900)})
    demands = Demands(explicit=WORDS[:4], maintained=WORDS[4:7])
    made = [Fact(*item) for item in items]
    whole = ask(tmp_path, ranking, made, demands, top=200)
    cut = ask(tmp_path, ranking, made, demands, top=top)
    assert cut.unforeseen == whole.unforeseen[:top]
    assert len(cut.unforeseen) == top
    scores = [item.score for item in whole.unforeseen]
    assert scores == sorted(scores, reverse=True)


def test_of_the_facts_between_two_concepts_the_best_is_kept(tmp_path: Path) -> None:
    items = facts("tea | RelatedTo | cup", "cup | UsedFor | tea", "tea | AtLocation | cup", "tea | HasA | scent")
    demands = Demands(explicit=["tea"])
    folded = triples(ask(tmp_path, "default", items, demands))
    assert len(folded) == 2
    assert "(tea, HasA, scent)" in folded
    assert len(triples(ask(tmp_path, replace(Ranking(), fold=False), items, demands))) == 4


def test_what_is_no_fact_is_dropped(tmp_path: Path) -> None:
    items = facts(
        "tea | RelatedTo | tea",
        "it take two to tea | HasA | tea",
        "you drink tea when you | HasProperty | tea lover",
        "something | AtLocation | tea",
        "tea | IsA | drink",
    )
    demands = Demands(explicit=["tea"])
    assert triples(ask(tmp_path, "default", items, demands)) == ["(tea, IsA, drink)"]
    kept = replace(Ranking(), well_formed=False)
    assert "(something, AtLocation, tea)" in triples(ask(tmp_path, kept, items, demands))


def test_relations_that_speak_of_words_are_dropped_and_can_be_kept(tmp_path: Path) -> None:
    assert {"ExternalURL", "DerivedFrom", "FormOf", "EtymologicallyRelatedTo"} <= UNINFORMATIVE
    items = facts(
        "tea | IsA | drink", "tea | ExternalURL | http://x.org/tea", "teas | FormOf | tea", "tea | Synonym | brew"
    )
    demands = Demands(explicit=["tea"])
    assert triples(ask(tmp_path, "default", items, demands)) == ["(tea, IsA, drink)"]
    assert len(triples(ask(tmp_path, replace(Ranking(), without=frozenset()), items, demands))) == 4


def test_unsafe_facts_are_dropped_and_can_be_kept(tmp_path: Path) -> None:
    items = facts("wife | UsedFor | have sex", "anger | CausesDesire | kill person", "wife | Desires | love")
    demands = Demands(explicit=["wife", "anger"])
    assert triples(ask(tmp_path, "default", items, demands)) == ["(wife, Desires, love)"]
    assert len(triples(ask(tmp_path, replace(Ranking(), safe=False), items, demands))) == 3


def test_dropped_facts_are_made_good_from_beyond_the_pool(tmp_path: Path) -> None:
    loops = [Fact("tea", "HasA", f"{word} {number} that") for number in range(60) for word in WORDS]
    good = [Fact("tea", "HasA", f"leaf {number}") for number in range(30)]
    found = ask(tmp_path, "default", [*loops, *good], Demands(explicit=["tea"]), top=30)
    assert {item.fact.tail for item in found.unforeseen} == {fact.tail for fact in good}


def test_the_same_ranking_whatever_the_order_of_demands(tmp_path: Path) -> None:
    names = ["soup", "violin", "rice", "tea"]
    items = [*hub(60), *facts("rice | AtLocation | bowl", "tea | AtLocation | bowl")]
    expected = triples(ask(tmp_path, replace(Ranking(), demands=0.0), items, Demands(explicit=names)))
    again = triples(ask(tmp_path, replace(Ranking(), demands=0.0), items, Demands(explicit=names[::-1])))
    assert again == expected


def test_names_and_numbers_are_checked() -> None:
    assert Ranking.named("default") == Ranking()
    assert set(RANKINGS) == {"default", "paper"}
    with pytest.raises(UnknownNameError, match="did you mean paper"):
        Ranking.named("papers")
    assert Ranking.named("paper,history=5,fold=true") == replace(PLAIN, history=5, fold=True)
    assert Ranking.named("decay=0.2,without=IsA+Synonym") == Ranking(decay=0.2, without=frozenset({"IsA", "Synonym"}))
    with pytest.raises(UnknownNameError, match="did you mean history"):
        Ranking.named("paper,histroy=5")
    with pytest.raises(InputError, match=r"ranking history=much: history: .*integer"):
        Ranking.named("history=much")
    with pytest.raises(InputError, match="decay must not be negative"):
        Ranking(decay=-1)
    with pytest.raises(InputError, match="pool must be at least 1"):
        Ranking(pool=0)


def test_owners_are_the_rarer_ends(tmp_path: Path) -> None:
    store = GraphStore(build(tmp_path / "g.graph", facts("a | IsA | b", "a | IsA | c", "a | IsA | d", "e | IsA | b")))
    number = {name: store.find(name) for name in "abcde"}
    edges = store.edges_of([number["a"], number["b"]])  # type: ignore[list-item]
    owner, counts = owners(edges)
    assert dict(zip(edges.asked.tolist(), counts.tolist(), strict=True)) == {number["a"]: 3, number["b"]: 2}
    of = {
        (int(head), int(tail)): int(edges.asked[place])
        for head, tail, place in zip(edges.head, edges.tail, owner, strict=True)
    }
    assert of[number["a"], number["b"]] == number["b"]
    assert of[number["a"], number["c"]] == number["a"]
    assert of[number["e"], number["b"]] == number["b"]
    store.close()


def test_taking_costs_the_same_concepts_others(tmp_path: Path) -> None:
    store = GraphStore(build(tmp_path / "g.graph", facts("a | IsA | p", "a | IsA | q", "a | IsA | r", "z | IsA | s")))
    edges = store.edges_of([store.find("a"), store.find("z")])  # type: ignore[list-item]
    owner, _ = owners(edges)
    score = {"p": 0.9, "q": 0.8, "r": 0.7, "s": 0.65}
    scores = np.array([score[store.concept(int(tail))] for tail in edges.tail], np.float32)
    rows = pool(edges, scores, owner, np.arange(4), 0.1, 4)
    taken = take(edges, scores[rows], owner, rows, 0.1, 4, lambda _: True)
    assert [store.concept(int(edges.tail[row])) for row, _ in taken] == ["p", "q", "s", "r"]
    assert [value for _, value in taken] == pytest.approx([0.9, 0.7, 0.65, 0.7 - 0.1 * np.log2(3)], abs=1e-3)
    refused = take(edges, scores[rows], owner, rows, 0.1, 4, lambda row: store.concept(int(edges.tail[row])) != "p")
    assert refused[0][1] == pytest.approx(0.8)
    store.close()


def test_a_pool_is_that_of_all_facts_in_order_whatever_ties() -> None:
    draw = np.random.default_rng(0)
    for number in range(40):
        size, concepts = int(draw.integers(1, 400)), int(draw.integers(1, 9))
        columns = {name: draw.integers(0, 12, size).astype(np.uint32) for name in ("head", "tail")}
        nothing = np.zeros(size, np.float32)
        places = np.zeros(size, np.intp)
        relation = draw.integers(0, 3, size).astype(np.uint16)
        edges = Edges(**columns, relation=relation, weight=nothing, provenance=relation, head_place=places,
                      tail_place=places, asked=np.arange(concepts, dtype=np.uint32), degrees=places)  # fmt: skip
        scores = np.round(draw.integers(-3, 25, size) / 40, 4).astype(np.float32)
        owner = draw.integers(0, concepts, size).astype(np.intp)
        rows = np.flatnonzero(draw.random(size) < 0.9)
        decay, wanted = (0.05, 0.0, 0.3)[number % 3], int(draw.integers(1, 60))

        def names(row: int, edges: Edges = edges) -> tuple[int, int, int]:
            return int(edges.head[row]), int(edges.relation[row]), int(edges.tail[row])

        ranked: list[tuple[float, tuple[int, int, int]]] = []
        for concept in range(concepts):
            own = sorted((-float(scores[row]), names(row)) for row in rows if owner[row] == concept)
            costs = [np.float32(decay) * np.float32(np.log2(1 + rank)) for rank in range(len(own))]
            adjusted = [np.round(np.float32(-score) - cost, 4) for (score, _), cost in zip(own, costs, strict=True)]
            ranked += [(-float(score), name) for score, (_, name) in zip(adjusted, own, strict=True)]
        found = pool(edges, scores, owner, rows, decay, wanted)
        assert [names(row) for row in found.tolist()] == [name for _, name in sorted(ranked)[:wanted]]


@pytest.mark.parametrize("make", [embedder, HashingEmbedder])
def test_the_paper_ranks_triples_as_they_stand_by_any_embedder(tmp_path: Path, make: Callable[[], Embedder]) -> None:
    items = facts("soup | AtLocation | bowl", "soup | UsedFor | warm up", "tea | IsA | drink", "violin | MadeOf | wood")
    path = build(tmp_path / "g.graph", items)
    made = make()
    with closing(Graph(GraphStore(path), made, "paper")) as graph:
        found = graph.retrieve(Demands(explicit=["soup", "tea"]), HISTORY)
    cosines = {
        fact.triple: float(made.encode([fact.triple])[0] @ made.encode(["\n".join(HISTORY.texts)])[0]) for fact in items
    }
    assert len(found.unforeseen) == 3
    for item in found.unforeseen:
        assert item.score == pytest.approx(cosines[item.triple], abs=1e-3)

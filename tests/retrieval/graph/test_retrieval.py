"""Foreseen and unforeseen facts are those of DCRAG's Section 3.3, ranked by their cosine with the history."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dialore.dialogue import Dialogue
from dialore.knowledge import Fact
from dialore.response import Demands
from dialore.retrieval.graph import GraphStore
from dialore.sources.graph import Graph, Retrieval
from tests.retrieval.graph.graphs import build, embedder, facts, graph_of

if TYPE_CHECKING:
    from pathlib import Path

    from dialore.knowledge import Knowledge

CONCEPTS = [
    "sushi", "rice", "tea", "cup", "kitchen", "river", "forest", "winter", "guitar", "teacher",
    "dog", "island", "bridge", "coffee", "bread", "market", "doctor", "airport", "novel", "garden",
    "violin", "cheese", "mountain", "ocean", "camera", "ticket", "hotel", "soup", "candle", "blanket",
]  # fmt: skip
RELATIONS = ["IsA", "UsedFor", "AtLocation", "RelatedTo", "HasA"]
HISTORY = Dialogue.model_validate(
    {"id": "d", "turns": ["Shall we cook something warm tonight?", "Soup, and then tea!"]}
)


def random_facts(seed: int, count: int) -> list[Fact]:
    chance = random.Random(seed)
    drawn = {(chance.choice(CONCEPTS), chance.choice(RELATIONS), chance.choice(CONCEPTS)) for _ in range(count)}
    return [Fact(*triple, weight=chance.choice([0.5, 1.0, 2.0]), provenance="t") for triple in sorted(drawn)]


def reference(items: list[Fact], queries: set[str], topics: set[str]) -> tuple[set[str], set[str]]:
    """The two sets by the paper's words; what is foreseen is not offered a second time as unforeseen."""
    foreseen, unforeseen = set(), set()
    for fact in items:
        head, tail = fact.head, fact.tail
        if (head in queries and tail in topics) or (head in topics and tail in queries):
            foreseen.add(fact.triple)
        elif head in queries | topics or tail in queries | topics:
            unforeseen.add(fact.triple)
    return foreseen, unforeseen


def cosine_of(fact: Fact, dialogue: Dialogue) -> float:
    """The cosine of a fact as a triple, as the paper embeds it, with the history."""
    one, other = embedder().encode([fact.triple, dialogue.history])
    return float(one @ other)


def as_fact(knowledge: Knowledge) -> Fact:
    return Fact(knowledge.fact.head, knowledge.fact.relation, knowledge.fact.tail)


def check_order(items: list[Knowledge]) -> None:
    scores = [item.score for item in items]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("seed", range(6))
def test_both_sets_are_those_of_the_paper(tmp_path: Path, seed: int) -> None:
    items = random_facts(seed, 60 * (seed + 1))
    chance = random.Random(seed + 100)
    queries, topics = set(chance.sample(CONCEPTS, 4)), set(chance.sample(CONCEPTS, 4))
    queries = set(sorted(queries)[: 4 - seed % 3])
    demands = Demands(
        explicit=sorted(queries)[:2],
        implicit=sorted(queries)[1:],
        maintained=sorted(topics)[:3],
        extended=sorted(topics)[2:],
    )
    graph = Graph(GraphStore(build(tmp_path / "g.graph", items)), embedder(), "paper")
    found = graph.retrieve(demands, HISTORY, top=1000)
    foreseen, unforeseen = reference(items, queries, topics)
    assert {item.triple for item in found.foreseen} == foreseen
    assert {item.triple for item in found.unforeseen} == unforeseen
    assert (len(found.foreseen), len(found.unforeseen)) == (len(foreseen), len(unforeseen))
    assert (found.foreseen_found, found.unforeseen_found) == (len(foreseen), len(unforeseen))
    assert {item.set for item in found.foreseen} <= {"foreseen"}
    assert {item.set for item in found.unforeseen} <= {"unforeseen"}
    for part in (found.foreseen, found.unforeseen):
        check_order(part)
        for item in part:
            assert item.score == pytest.approx(cosine_of(as_fact(item), HISTORY), abs=0.01)
    graph.close()


@pytest.mark.parametrize("top", [0, 1, 7, 50, 10_000])
def test_the_cut_keeps_the_best_of_the_whole_ranking(tmp_path: Path, top: int) -> None:
    items = random_facts(3, 900)
    graph = Graph(GraphStore(build(tmp_path / "g.graph", items)), embedder(), "paper")
    demands = Demands(explicit=CONCEPTS[:6], maintained=CONCEPTS[3:12])
    whole = graph.retrieve(demands, HISTORY, top=100_000)
    cut = graph.retrieve(demands, HISTORY, top=top)
    assert cut.foreseen == whole.foreseen[:top]
    assert cut.unforeseen == whole.unforeseen[:top]
    assert (cut.foreseen_found, cut.unforeseen_found) == (len(whole.foreseen), len(whole.unforeseen))
    assert len(whole.unforeseen) > 100
    graph.close()


def test_ties_are_settled_by_the_facts_and_not_by_the_order_of_demands(tmp_path: Path) -> None:
    # Words that the embedder does not tell apart: the same letters in another case make one concept, so ties are made
    # by heads and tails that swap places, and by names that are the same words in another order.
    lines = [
        f"{one} {other} | RelatedTo | tea" for one in ("red", "blue", "green") for other in ("red", "blue", "green")
    ]
    lines += [f"tea | RelatedTo | {line.split(' |')[0]}" for line in lines]
    graph = graph_of(tmp_path, *lines)
    names = ["tea", "red blue", "blue red", "green blue", "red"]
    expected = graph.retrieve(Demands(explicit=names, maintained=["tea"]), HISTORY, top=10)
    scores = [item.score for item in (*expected.foreseen, *expected.unforeseen)]
    assert len(set(scores)) < len(scores)
    chance = random.Random(0)
    for _ in range(5):
        chance.shuffle(names)
        found = graph.retrieve(Demands(explicit=list(names), maintained=["tea"]), HISTORY, top=10)
        assert [item.id for item in found.foreseen] == [item.id for item in expected.foreseen]
        assert [item.id for item in found.unforeseen] == [item.id for item in expected.unforeseen]
    graph.close()


def test_the_cut_through_a_tie_keeps_the_same_facts_as_the_whole_ranking(tmp_path: Path) -> None:
    lines = [f"{one} {other} | RelatedTo | tea" for one in CONCEPTS[:9] for other in CONCEPTS[:9] if one != other]
    graph = graph_of(tmp_path, *lines)
    whole = graph.retrieve(Demands(explicit=["tea"]), HISTORY, top=1000)
    assert len(whole.unforeseen) == len(lines)
    ranked = [(-item.score, graph.store.find(item.fact.head)) for item in whole.unforeseen]
    assert ranked == sorted(ranked)
    for top in range(1, len(lines), 5):
        assert graph.retrieve(Demands(explicit=["tea"]), HISTORY, top=top).unforeseen == whole.unforeseen[:top]
    graph.close()


def test_links_and_what_is_unlinked(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, "tea | IsA | drink", "wed ring | IsA | jewel")
    demands = Demands(explicit=["Teas", "zeppelin"], implicit=["tea"], maintained=["drink"], extended=["wedding rings"])
    found = graph.retrieve(demands, HISTORY)
    assert {(link.name, link.how) for link in found.links} == {
        ("tea", "exact"),
        ("drink", "exact"),
        ("wed ring", "variant"),
    }
    assert found.unlinked == ["zeppelin"]
    assert [item.text for item in found.foreseen] == ["tea is a kind of drink"]
    assert [item.text for item in found.unforeseen] == ["wed ring is a kind of jewel"]
    graph.close()


def test_a_fact_between_two_queries_is_unforeseen_and_a_loop_of_both_foreseen(tmp_path: Path) -> None:
    lines = facts("tea | IsA | drink", "tea | RelatedTo | tea", "cup | UsedFor | tea")
    graph = Graph(GraphStore(build(tmp_path / "g.graph", lines)), embedder(), "paper")
    only_queries = graph.retrieve(Demands(explicit=["tea", "drink"]), HISTORY)
    assert only_queries.foreseen == []
    assert only_queries.unforeseen_found == 3
    both = graph.retrieve(Demands(explicit=["tea"], maintained=["tea"]), HISTORY)
    assert [item.triple for item in both.foreseen] == ["(tea, RelatedTo, tea)"]
    assert both.unforeseen_found == 2
    graph.close()


def test_no_demands_no_facts(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, "tea | IsA | drink")
    assert graph.retrieve(Demands(), HISTORY) == Retrieval()
    assert graph.retrieve(Demands(explicit=["zeppelin"]), HISTORY) == Retrieval(unlinked=["zeppelin"])
    assert graph.retrieve_queries([], HISTORY) == ([], 0)
    graph.close()


def test_queries_alone_as_the_baselines_ask(tmp_path: Path) -> None:
    items = random_facts(5, 300)
    graph = Graph(GraphStore(build(tmp_path / "g.graph", items)), embedder(), "paper")
    links = graph.link(["tea", "cups", "tea"])
    assert [link.name for link in links] == ["tea", "cup"]
    found, count = graph.retrieve_queries(links, HISTORY, top=1000)
    expected = {fact.triple for fact in items if {fact.head, fact.tail} & {"tea", "cup"}}
    assert {item.triple for item in found} == expected
    assert count == len(expected)
    assert {item.set for item in found} == {""}
    check_order(found)
    best, again = graph.retrieve_queries([*links, *links], HISTORY, top=5)
    assert best == found[:5]
    assert again == count
    graph.close()


def test_knowledge_carries_the_fact(tmp_path: Path) -> None:
    graph = Graph(
        GraphStore(build(tmp_path / "g.graph", [Fact("Tea", "IsA", "drink", 2.5, "/d/x")], "kitchen")), embedder()
    )
    (item,) = graph.retrieve(Demands(explicit=["tea"], maintained=["drink"]), HISTORY).foreseen
    assert item.id == Fact("tea", "IsA", "Drink").id
    assert item.kind == "fact"
    assert item.source == "graph"
    assert item.model_dump()["fact"] == {
        "head": "Tea",
        "relation": "IsA",
        "tail": "drink",
        "weight": 2.5,
        "graph": "kitchen",
        "provenance": "/d/x",
    }
    graph.close()


def test_chinese(tmp_path: Path) -> None:
    items = facts(
        "饺子 | MadeOf | 面粉",
        "饺子 | AtLocation | 春节",
        "馅料 | PartOf | 饺子",
        "春节 | Causes | 团圆",
        "地铁 | IsA | 交通工具",
    )
    graph = Graph(GraphStore(build(tmp_path / "g.graph", items)), embedder(), "paper")
    dialogue = Dialogue.model_validate({"id": "d", "turns": ["春节你们家包饺子吗？"]})
    found = graph.retrieve(Demands(explicit=["饺子馅料"], maintained=["春节"]), dialogue)
    assert [item.text for item in found.foreseen] == ["饺子在春节"]
    assert {item.text for item in found.unforeseen} == {"饺子由面粉制成", "馅料是饺子的一部分", "春节会引起团圆"}
    for item in (*found.foreseen, *found.unforeseen):
        assert item.score == pytest.approx(cosine_of(as_fact(item), dialogue), abs=0.01)
    assert [link.name for link in graph.mentions(dialogue.texts)] == ["春节", "饺子"]
    graph.close()


def test_long_and_empty_vectors_are_ranked_too(tmp_path: Path) -> None:
    graph = graph_of(
        tmp_path, f"tea | RelatedTo | {'warm cup ' * 400}", "tea | RelatedTo | 🙂", "tea | RelatedTo | cup"
    )
    found = graph.retrieve(Demands(explicit=["tea"]), HISTORY).unforeseen
    assert len(found) == 3
    assert all(np.isfinite(item.score) and -1 <= item.score <= 1 for item in found)
    graph.close()

"""Phrases find the concept they name, by the closest way there is, and none that they do not name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dialore.dialogue import Dialogue
from dialore.retrieval.linking.linker import Link, Linker, best_links
from tests.retrieval.graph.graphs import build, embedder, facts, graph_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dialore.sources.graph import Graph

NAMES = [
    "London", "wed ring", "ring", "tire", "make bed", "bed", "day off", "bad day", "ice cream", "ice", "cream",
    "cup of tea", "tea", "green tea", "tea house", "house", "go to school", "school", "running", "eat", "couple of day",
    "New York", "york", "to be", "kitchen table", "table", "can", "get marry", "marry", "hungry", "t-shirt", "shirt",
    "favorite color", "theatre", "organize party", "credit card", "card", "pick up", "kid", "visit place", "notebook",
    "busy", "publicity", "lively", "smalltalk", "talk", "stomach ache", "back", "forest", "hill", "part",
    "in old day", "have job interview", "way", "reason", "movie", "grandmother's house", "work out", "work at", "work",
    "course", "run water", "water", "spend", "life", "mind", "open bag",
    "饺子", "馅料", "烤鸭", "北京", "北京烤鸭", "不同", "看电影", "电影", "KTV", "爱", "人", "洗澡", "书", "方法",
    "开心", "头发", "没钱", "有钱",
]  # fmt: skip


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    opened = graph_of(tmp_path_factory.mktemp("linking"), *(f"{name} | RelatedTo | nothing else" for name in NAMES))
    yield opened
    opened.close()


def link(graph: Graph, phrase: str) -> list[tuple[str, str]]:
    return [(found.name, found.how) for found in graph.link([phrase])]


@pytest.mark.parametrize(
    ("phrase", "expected"),
    [
        ("ice cream", [("ice cream", "exact")]),
        ("  ICE_cream! ", [("ice cream", "exact")]),
        ("to be", [("to be", "exact")]),
        ("making the bed", [("make bed", "lemma")]),
        ("days off", [("day off", "lemma")]),
        ("the beds", [("bed", "lemma")]),
        ("my cup of teas", [("cup of tea", "lemma")]),
        ("eating", [("eat", "lemma")]),
        ("tired", [("tire", "lemma")]),
        ("wedding ring", [("wed ring", "variant")]),
        ("runs", [("running", "lemma")]),
        ("go up to London", [("London", "contained")]),
        ("make bed", [("make bed", "exact")]),
        ("school in New York", [("school", "contained"), ("New York", "contained")]),
        ("a kitchen table with ice cream", [("kitchen table", "contained"), ("ice cream", "contained")]),
        ("green tea house", [("green tea", "contained"), ("house", "contained")]),
        ("purple table", [("table", "contained")]),
        ("getting married", [("get marry", "lemma")]),
        ("take a day off", [("day off", "contained")]),
        ("in the old days", [("in old day", "lemma")]),
        ("not hungry", [("hungry", "contained")]),
        ("so hungry", [("hungry", "lemma")]),
        ("T-shirts", [("t-shirt", "lemma")]),
        ("credit-cards", [("credit card", "lemma")]),
        ("New_York", [("New York", "exact")]),
        ("my grandmother’s house", [("grandmother's house", "lemma")]),
        ("favourite colours", [("favorite color", "lemma")]),
        ("theater", [("theatre", "lemma")]),
        ("organising a party", [("organize party", "lemma")]),
        ("pick up the kids", [("pick up", "contained"), ("kid", "contained")]),
        ("work out in London", [("work out", "contained"), ("London", "contained")]),
        ("places to visit", [("visit place", "lemma")]),
        ("note book", [("notebook", "variant")]),
        ("job interview", [("have job interview", "lemma")]),
        ("reasons behind movie choices", [("movie", "contained")]),
        ("the reason", [("reason", "lemma")]),
        ("stomachache", [("stomach ache", "variant")]),
        ("a bad stomachache", [("stomach ache", "contained")]),
        ("business meeting in London", [("London", "contained")]),
        ("public ring", [("ring", "contained")]),
        ("cost of living", []),
        ("small talk", [("talk", "contained")]),
        ("my back", [("back", "lemma")]),
        ("get money back", []),
        ("taking part", []),
        ("Forest Hills", []),
        ("the forest", [("forest", "lemma")]),
        ("Visit London", [("London", "contained")]),
        ("of course", []),
        ("the course", [("course", "lemma")]),
        ("ran on water", [("running", "contained"), ("water", "contained")]),
        ("running water", [("run water", "lemma")]),
        ("spending her life in London", [("life", "contained"), ("London", "contained")]),
        ("mind opening the bag", [("open bag", "contained")]),
    ],
)
def test_english(graph: Graph, phrase: str, expected: list[tuple[str, str]]) -> None:
    assert link(graph, phrase) == expected


@pytest.mark.parametrize(
    ("phrase", "never"),
    [
        ("make bed", "bed"),
        ("ice cream", "cream"),
        ("New York", "york"),
        ("wedding ring", "ring"),
        ("north london ring", "wed ring"),
        ("I love ice cream", "ice"),
        ("day", "day off"),
        ("day", "bad day"),
        ("days", "couple of day"),
        ("university", "school"),
        ("shirt", "t-shirt"),
        ("work", "work out"),
        ("ice and cream", "ice cream"),
        ("old", "in old day"),
        ("没有钱", "有钱"),
        ("饺子的方法", "方法"),
    ],
)
def test_a_phrase_has_no_link_to_a_part_of_its_match_or_to_more_than_it_says(
    graph: Graph, phrase: str, never: str
) -> None:
    assert never not in [name for name, _ in link(graph, phrase)]


@pytest.mark.parametrize("phrase", ["", "  ", "?!", "day", "zeppelin", "of the", "the", "🙂"])
def test_nothing_is_found_for_nothing(graph: Graph, phrase: str) -> None:
    assert link(graph, phrase) == []


@pytest.mark.parametrize(
    ("phrase", "expected"),
    [
        ("饺子", [("饺子", "exact")]),
        ("北京 烤鸭", [("北京烤鸭", "lemma")]),
        ("北京烤鸭", [("北京烤鸭", "exact")]),
        ("去看电影", [("看电影", "lemma")]),
        ("看了一场电影", [("看电影", "lemma")]),
        ("那部电影", [("电影", "lemma")]),
        ("洗了个澡", [("洗澡", "lemma")]),
        ("一本书", [("书", "lemma")]),
        ("看電影", [("看电影", "variant")]),
        ("她的頭髮", [("头发", "lemma")]),
        ("不开心", [("开心", "contained")]),
        ("没有钱", [("没钱", "lemma")]),
        ("方法", [("方法", "exact")]),
        ("去KTV吃饺子", [("KTV", "contained"), ("饺子", "contained")]),
        ("吃 ice creams", [("ice cream", "contained")]),
        ("beds", [("bed", "lemma")]),
        ("ktv", [("KTV", "exact")]),
        ("不同种类的饺子馅料", [("饺子", "contained"), ("馅料", "contained")]),
        ("饺子馅料", [("饺子", "contained"), ("馅料", "contained")]),
        ("恋爱的人", []),
    ],
)
def test_chinese(graph: Graph, phrase: str, expected: list[tuple[str, str]]) -> None:
    assert link(graph, phrase) == expected


def test_scores_order_the_ways_of_linking(graph: Graph) -> None:
    scores = [
        graph.link([phrase])[0].score
        for phrase in ("bed", "beds", "wedding ring", "two New York tables", "a purple and rather large bed")
    ]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == len(scores)
    assert all(0 < score <= 1 for score in scores)


def test_the_concept_with_most_facts_wins_between_equals(tmp_path: Path) -> None:
    graph = graph_of(
        tmp_path, "wedding | RelatedTo | love", "wedded | RelatedTo | love", "wedded | RelatedTo | ring", "a | IsA | b"
    )
    assert link(graph, "weddings")[0][0] == "wedding"
    assert link(graph, "weds")[0] == ("wedded", "lemma")
    graph.close()


def test_mentions_in_a_history(graph: Graph) -> None:
    dialogue = Dialogue.model_validate(
        {
            "id": "d",
            "turns": ["I ate ice. Cream was off.", "Then let's have ice cream!", "Ice creams for my wedding ring"],
        }
    )
    found = graph.mentions(dialogue.texts)
    assert [(item.name, item.phrase) for item in found] == [
        ("eat", "ate"), ("ice", "ice"), ("cream", "cream"), ("ice cream", "ice cream"), ("wed ring", "wedding ring"),
    ]  # fmt: skip
    assert len({item.concept for item in found}) == len(found)


def test_mentions_in_a_chinese_history(graph: Graph) -> None:
    dialogue = Dialogue.model_validate({"id": "d", "turns": ["我想吃饺子，馅料要多。", "好的，北京。烤鸭也要！"]})
    assert [item.name for item in graph.mentions(dialogue.texts)] == ["饺子", "馅料", "北京", "烤鸭"]


def test_a_concept_is_linked_once_by_its_best_link() -> None:
    weak, strong = Link("a", 1, "x", "contained", 0.5), Link("b", 1, "x", "exact", 1.0)
    other = Link("c", 2, "y", "lemma", 0.9)
    assert best_links([[weak, other], [strong]]) == [strong, other]
    assert best_links([[strong], [weak]]) == [strong]
    assert best_links([]) == []


def test_a_graph_in_traditional_characters(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, "餃子 | RelatedTo | 餡料", "頭髮 | RelatedTo | 理髮店", "聽音樂 | RelatedTo | 音樂")
    assert link(graph, "饺子") == [("餃子", "variant")]
    assert link(graph, "餃子") == [("餃子", "exact")]
    assert link(graph, "在家听音乐的头发") == [("聽音樂", "contained"), ("頭髮", "contained")]
    graph.close()


def test_the_nearest_concept_is_the_last_resort_and_says_its_cosine(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, "咖啡 | RelatedTo | 提神", "喝咖啡 | Causes | 精神好", "下雨 | Causes | 路滑")
    linker = Linker(graph.store, embedder(), nearest=True)
    (found,) = linker.link("喝coffee")
    assert (found.name, found.how) == ("喝咖啡", "nearest")
    assert found.cosine is not None
    assert 0.95 <= found.cosine <= 1.0001
    assert 0 < found.score < 0.9
    assert linker.link("咖啡")[0].how == "exact"
    who = graph_of(tmp_path / "who", "grasper | RelatedTo | hand")
    assert Linker(who.store, embedder(), nearest=True).link("get a grasp") == []
    who.close()
    assert linker.link("怎么说呢") == linker.link("zeppelin") == linker.link("嗯嗯") == []
    assert Linker(graph.store, embedder(), nearest=False).link("喝coffee") == []
    assert Linker(graph.store).link("喝coffee") == []
    graph.close()


def test_what_was_linked_is_forgotten_when_the_graph_changes(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, "tea | RelatedTo | cup")
    assert link(graph, "green tea") == [("tea", "contained")]
    build(tmp_path / "small.graph", facts("green tea | RelatedTo | cup", "cup | IsA | thing"))
    assert link(graph, "green tea") == [("green tea", "exact")]
    graph.close()

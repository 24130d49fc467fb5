"""Phrases find the concept they name, by the closest way there is, and none that they do not name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dialore.dialogue import Dialogue
from dialore.sources.graph.linking import Link, best_links
from tests.sources.graphs import graph_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dialore.sources.graph import Graph

NAMES = [
    "London", "wed ring", "ring", "tire", "make bed", "bed", "day off", "bad day", "ice cream", "ice", "cream",
    "cup of tea", "tea", "green tea", "tea house", "house", "go to school", "school", "running", "eat", "couple of day",
    "New York", "york", "to be", "kitchen table", "table", "can",
    "饺子", "馅料", "烤鸭", "北京", "北京烤鸭", "不同", "看电影", "电影", "KTV", "爱", "人",
]  # fmt: skip


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    opened = graph_of(tmp_path_factory.mktemp("linking"), *(f"{name} | RelatedTo | nothing else" for name in NAMES))
    yield opened
    opened.close()


def link(graph: Graph, phrase: str, language: str = "en") -> list[tuple[str, str]]:
    return [(found.name, found.how) for found in graph.linker.link(phrase, language)]


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
        ("go up to London", [("London", "lemma")]),
        ("make bed", [("make bed", "exact")]),
        ("school in New York", [("school", "contained"), ("New York", "contained")]),
        ("a kitchen table with ice cream", [("kitchen table", "contained"), ("ice cream", "contained")]),
        ("green tea house", [("green tea", "contained"), ("house", "contained")]),
        ("purple table", [("table", "contained")]),
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
    ],
)
def test_a_phrase_has_no_link_to_a_part_of_its_match_or_to_more_than_it_says(
    graph: Graph, phrase: str, never: str
) -> None:
    assert never not in [name for name, _ in link(graph, phrase)]


@pytest.mark.parametrize("phrase", ["", "  ", "?!", "day", "zeppelin", "of the", "the", "🙂"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_nothing_is_found_for_nothing(graph: Graph, phrase: str, language: str) -> None:
    assert link(graph, phrase, language) == []


@pytest.mark.parametrize(
    ("phrase", "expected"),
    [
        ("饺子", [("饺子", "exact")]),
        ("北京 烤鸭", [("北京烤鸭", "lemma")]),
        ("北京烤鸭", [("北京烤鸭", "exact")]),
        ("去看电影", [("电影", "lemma")]),
        ("吃 ice creams", [("ice cream", "contained")]),
        ("beds", [("bed", "lemma")]),
        ("ktv", [("KTV", "exact")]),
        ("不同种类的饺子馅料", [("不同", "contained"), ("饺子", "contained"), ("馅料", "contained")]),
        ("饺子馅料", [("饺子", "contained"), ("馅料", "contained")]),
        ("恋爱的人", []),
    ],
)
def test_chinese(graph: Graph, phrase: str, expected: list[tuple[str, str]]) -> None:
    assert link(graph, phrase, "zh") == expected


def test_scores_order_the_ways_of_linking(graph: Graph) -> None:
    scores = [
        graph.linker.link(phrase, "en")[0].score
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
    found = graph.mentions(dialogue)
    assert [(item.name, item.phrase) for item in found] == [
        ("eat", "ate"), ("ice", "ice"), ("cream", "cream"), ("ice cream", "ice cream"), ("wed ring", "wedding ring"),
    ]  # fmt: skip
    assert len({item.concept for item in found}) == len(found)


def test_mentions_in_a_chinese_history(graph: Graph) -> None:
    dialogue = Dialogue.model_validate({"id": "d", "turns": ["我想吃饺子，馅料要多。", "好的，北京。烤鸭也要！"]})
    assert [item.name for item in graph.mentions(dialogue)] == ["饺子", "馅料", "北京", "烤鸭"]


def test_a_concept_is_linked_once_by_its_best_link() -> None:
    weak, strong = Link("a", 1, "x", "contained", 0.5), Link("b", 1, "x", "exact", 1.0)
    other = Link("c", 2, "y", "lemma", 0.9)
    assert best_links([[weak, other], [strong]]) == [strong, other]
    assert best_links([[strong], [weak]]) == [strong]
    assert best_links([]) == []

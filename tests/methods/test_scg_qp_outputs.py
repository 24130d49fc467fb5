"""What is made of what SCG-QP's stages write: kinds, topics, queries, also from models that say more than asked."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from dialore.methods.scg_qp import (
    SearchDecision,
    Topic,
    plain_query,
    read_query,
    read_search,
    read_topic,
)


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("information", "information"),
        ("Information request", "information"),
        ("OPINION", "opinion"),
        ("passive turn", "passive"),
        ("no search needed", "none"),
        ("None", "none"),
        ("看法", "opinion"),
        ("无", "none"),
    ],
)
def test_kinds(written, kind):
    assert SearchDecision(kind=written).kind == kind


@pytest.mark.parametrize("written", ["", "perhaps", 3, None])
def test_what_is_no_kind(written):
    with pytest.raises(ValidationError):
        SearchDecision(kind=written)


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("The Conjuring", Topic("The Conjuring")),
        ("Topic: The Conjuring.\nBecause they said so", Topic("The Conjuring")),
        ("**Current topic:** *Seventeen (band)*", Topic("Seventeen (band)")),
        ("1. hiking", Topic("hiking")),
        ("2001: A Space Odyssey", Topic("2001: A Space Odyssey")),
        ("“火锅”", Topic("火锅")),
        ("当前话题：《流浪地球》", Topic("《流浪地球》")),
        ("Nothing Compares 2 U", Topic("Nothing Compares 2 U")),
        ("No Country for Old Men", Topic("No Country for Old Men")),
        ("无人机", Topic("无人机")),
        ("none", Topic(absent=True)),
        ("There is no current topic.", Topic(absent=True)),
        ("N/A", Topic(absent=True)),
        ("Topic: none", Topic(absent=True)),
        ("无", Topic(absent=True)),
        ("暂无话题", Topic(absent=True)),
        ("没有明确的话题。", Topic(absent=True)),
    ],
)
def test_topics(text, topic):
    assert read_topic(text) == topic


@pytest.mark.parametrize(
    "text", ["", "  \n ", "...", "the two of them talk about " * 4, "他们两个人在说很多事情，" * 4]
)
def test_what_is_no_topic(text):
    assert read_topic(text) is None


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("The Conjuring reviews", "The Conjuring reviews"),
        ('Search query: "The Conjuring reviews"', "The Conjuring reviews"),
        ('"The Conjuring" reviews', '"The Conjuring" reviews'),
        (
            "\n- What are some of NF's most vulnerable lyrics?\n- another",
            "What are some of NF's most vulnerable lyrics",
        ),
        ('```json\n{"query": "tennis Miami"}\n```', "tennis Miami"),
        ("搜索词：流浪地球 评价", "流浪地球 评价"),
        ("how to train your dragon", "how to train your dragon"),
        ("你的名字 影评", "你的名字 影评"),
        ("Norway in winter", "Norway in winter"),
        ("dogs that do not bark", "dogs that do not bark"),
    ],
)
def test_queries(text, query):
    assert read_query(text) == query


@pytest.mark.parametrize(
    "text",
    [
        "",
        "?!",
        "none",
        "word " * 50,
    ],
)
def test_what_is_no_query(text):
    assert read_query(text) is None


@pytest.mark.parametrize("text", ["__no_search__", "__do-not-search__", "no_passages_used", "No search needed", "无"])
def test_generators_that_want_no_search(text):
    assert read_search(text) == ""
    assert read_query(text) is None


@pytest.mark.parametrize("text", ["notes", "Norway", "do not disturb signs", "nothing compares"])
def test_queries_that_only_begin_like_that(text):
    assert read_search(text) == text


def test_a_query_of_content_words():
    assert plain_query("I watched The Conjuring last night, the Conjuring!") == "watched conjuring last night"
    assert plain_query("Oh, and you?") == ""
    assert "流浪" in plain_query("昨晚看了《流浪地球》。")

"""Turns chosen by what they are: searched for, with knowledge, in answer to a passive user."""

from __future__ import annotations

import pytest

from dialore.datasets import split_dialogues
from dialore.datasets.base import Talk
from dialore.experiments.config import DatasetConfig
from dialore.experiments.systems import load_dialogues
from dialore.text import asks
from tests.example_data import write_data


@pytest.fixture
def whole():
    talk = Talk("d", "en")
    talk.pair("I like tea.", "Tea is a drink.", ["Tea is a drink."], {"query": "tea"})
    talk.pair("Which tea is the best?", "Oolong, say some.", ["Oolong is a tea."], {"query": "best tea"})
    talk.pair("I never had any.", "Then try it.", extra={"query": "oolong"})
    talk.pair("Perhaps I will.", "Good!")
    return list(talk.whole())


@pytest.mark.parametrize(
    ("where", "turns"),
    [
        ([], [1, 3, 5, 7]),
        (["searched"], [1, 3, 5]),
        (["knowledge"], [1, 3]),
        (["passive"], [1, 5, 7]),
        (["searched", "knowledge", "passive"], [1]),
    ],
)
def test_turns_are_chosen_by_conditions(whole, where, turns):
    found = split_dialogues(whole, cut="all", where=where)
    assert [len(dialogue.turns) for dialogue in found] == turns
    assert split_dialogues(whole, cut="random", where=where, seed=3)[0].id in {dialogue.id for dialogue in found}


def test_a_run_reads_them(tmp_path):
    path = write_data(tmp_path) / "wizard_of_internet" / "test.jsonl"
    where = {"name": "wizard-of-internet", "path": path, "where": "searched"}
    assert len(list(load_dialogues(DatasetConfig.model_validate(where)))) == 5
    with pytest.raises(ValueError, match="'searched', 'knowledge' or 'passive'"):
        DatasetConfig.model_validate(where | {"where": "quiet"})


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("Who directed it?", True),
        ("do you know his third novel", True),
        ("It is grand. Have you seen it", True),
        ("Tell me more of it.", True),
        ("I wonder who directed it.", True),
        ("Yes, and what about you", True),
        ("你看过吗", True),
        ("你们能借我一把吗，我明天还", True),
        ("他电话多少", True),
        ("那家店在哪儿", True),
        ("没什么大事。", False),
        ("I have seen it twice, and I know how it ends.", False),
        ("What a film!", False),
        ("It shows how we get lost in it.", False),
        ("昨晚看了《流浪地球》。", False),
    ],
)
def test_a_turn_asks_or_does_not(text, asked):
    assert asks(text) == asked

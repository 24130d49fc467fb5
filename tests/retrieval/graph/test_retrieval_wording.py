"""Facts in words read as English and Chinese do, also the lemmatised ones of older graphs."""

from __future__ import annotations

import pytest

from dialore.knowledge import Fact
from dialore.retrieval.graph.relations import RELATIONS, connecting_words, gerund, is_doing, passive, verbalise

ENGLISH = [
    (("stapler", "UsedFor", "staple paper"), "stapler is used to staple paper"),
    (("honey", "UsedFor", "soothe sore throat"), "honey is used to soothe sore throat"),
    (("street", "UsedFor", "transportation"), "street is used for transportation"),
    (("hike", "UsedFor", "exercise"), "hike is used for exercise"),
    (("rest", "UsedFor", "relaxing"), "rest is used for relaxing"),
    (("revolver", "NotUsedFor", "write letter"), "revolver is not used to write letter"),
    (("eat breakfast", "HasPrerequisite", "make breakfast"), "eating breakfast requires making breakfast"),
    (("go jog", "HasPrerequisite", "run shoe"), "going jog requires running shoe"),
    (("cold", "CausesDesire", "chicken soup"), "cold makes one want chicken soup"),
    (("be hungry", "CausesDesire", "cook dinner"), "being hungry makes one want to cook dinner"),
    (("hockey", "ReceivesAction", "play on ice"), "hockey can be played on ice"),
    (("pizza", "ReceivesAction", "eat"), "pizza can be eaten"),
    (("salary", "ReceivesAction", "augmented"), "salary can be augmented"),
    (("have lunch", "MotivatedByGoal", "relax"), "having lunch is done to relax"),
    (("have lunch", "MotivatedByGoal", "health"), "having lunch is done for health"),
    (("cook dinner", "MotivatedByGoal", "you be hungry"), "cooking dinner is done because you be hungry"),
    (("child", "Desires", "play game"), "child wants to play game"),
    (("child", "Desires", "snack"), "child wants snack"),
    (("person", "NotDesires", "be late"), "person does not want to be late"),
    (("take walk", "Causes", "calm down"), "taking walk leads to calming down"),
    (("jog", "Causes", "sweat"), "jog causes sweat"),
    (("apply for job", "HasLastSubevent", "go to interview"), "applying for job ends with going to interview"),
    (("save money", "HasProperty", "good"), "saving money is good"),
    (("sushi", "MadeOf", "rice"), "sushi is made of rice"),
    (("person", "CapableOf", "save money"), "person can save money"),
    (("train ticket", "UsedFor", "board train"), "train ticket is used to board train"),
    (("rainy day", "UsedFor", "board game"), "rainy day is used for board game"),
    (("train dog", "HasPrerequisite", "patience"), "training dog requires patience"),
    (("sore muscles", "CausesDesire", "warm bath"), "sore muscles makes one want warm bath"),
    (("hot water bottle", "UsedFor", "warm bed"), "hot water bottle is used to warm bed"),
    (("travel alone", "Causes", "joy"), "traveling alone causes joy"),
    (("Mount Everest", "HasProperty", "high"), "Mount Everest is high"),
]
CHINESE = [
    (("健康", "HasProperty", "比钱重要"), "健康比钱重要"),
    (("时间", "HasProperty", "过得飞快"), "时间过得飞快"),
    (("卧室", "HasProperty", "安静"), "卧室是安静的"),
    (("天", "HasProperty", "蓝的"), "天是蓝的"),
    (("文化", "ReceivesAction", "通过美食了解"), "文化可以通过美食了解"),
    (("肚子饿", "CausesDesire", "点外卖"), "肚子饿让人想点外卖"),
]


@pytest.mark.parametrize(("triple", "expected"), ENGLISH)
def test_english(triple: tuple[str, str, str], expected: str) -> None:
    assert verbalise(Fact(*triple), "en") == expected


@pytest.mark.parametrize(("triple", "expected"), CHINESE)
def test_chinese(triple: tuple[str, str, str], expected: str) -> None:
    assert verbalise(Fact(*triple), "zh") == expected


@pytest.mark.parametrize("name", RELATIONS)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_wording_names_both_ends(name: str, language: str) -> None:
    worded = verbalise(Fact("Xanadu", name, "Yokohama"), language)  # type: ignore[arg-type]
    assert "Xanadu" in worded
    assert "Yokohama" in worded
    assert "{" not in worded
    assert "{" not in connecting_words(name)


def test_names_with_braces_stay(tmp_path: object) -> None:
    assert verbalise(Fact("{tail:gerund}", "UsedFor", "{head}"), "en") == "{tail:gerund} is used for {head}"


@pytest.mark.parametrize(
    ("base", "ing", "done"),
    [
        ("stop car", "stopping car", "stopped car"),
        ("make tea", "making tea", "made tea"),
        ("lie", "lie", "lied"),
        ("lie down", "lying down", "lied down"),
        ("be late", "being late", "been late"),
        ("see film", "seeing film", "seen film"),
        ("play card", "playing card", "played card"),
        ("study hard", "studying hard", "studied hard"),
        ("fix computer", "fixing computer", "fixed computer"),
        ("begin", "beginning", "begun"),
        ("cook", "cook", "cooked"),
        ("not eat", "not eating", "not eaten"),
        ("open door", "opening door", "opened door"),
        ("rain", "rain", "rain"),
        ("wait", "waiting", "waited"),
        ("visit friend", "visiting friend", "visited friend"),
    ],
)
def test_forms(base: str, ing: str, done: str) -> None:
    assert gerund(base) == ing
    assert passive(base) == done


def test_what_is_done() -> None:
    assert is_doing("relax")
    assert is_doing("exercise daily")
    assert not is_doing("exercise")
    assert not is_doing("relaxing")
    assert not is_doing("chicken soup")

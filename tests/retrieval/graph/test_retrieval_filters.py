"""What is no fact and what is unsafe is found, and what only looks like it is not."""

from __future__ import annotations

import random
from importlib import resources

import pytest

from dialore.retrieval.graph import relations as filters
from dialore.retrieval.graph.relations import is_safe, is_well_formed


@pytest.mark.parametrize(
    "name",
    [
        *[
            "have sex",
            "fucking",
            "shits",
            "kill person",
            "killing people",
            "kill",
            "murdered",
            "commit suicide",
            "raping",
        ],
        *["sexual intercourse", "masturbating", "snort cocaine", "hurt yourself", "stab someone", "Porn", "big_tits"],
        *["自杀", "杀人犯", "做爱", "吸毒的人", "他妈的", "杀"],
    ],
)
def test_unsafe(name: str) -> None:
    assert not is_safe(name)


@pytest.mark.parametrize(
    "name",
    [
        *[
            "kill time",
            "shoot film",
            "chicken breast",
            "breast cancer",
            "sex education",
            "assassin bug",
            "class",
            "cocktail",
        ],
        *["grape", "scrape", "murder mystery", "shoot basketball", "peacock", "Essex", "drug store", "pass", "title"],
        *["drape", "hello", "weapon", "war", "die", "trapeze", "make dinner", "shiitake", "retarget", "skilled person"],
        *["杀价", "消磨时间", "毒蛇", "跳楼价", "妈妈的", "他妈", "性格", "性别"],
    ],
)
def test_safe(name: str) -> None:
    assert is_safe(name)


def test_a_look_at_the_first_words_hides_nothing() -> None:
    """What no entry begins a word of is not searched for entries: a search would have found none."""
    lines = (resources.files("dialore") / "data" / "unsafe.en.txt").read_text(encoding="utf-8").splitlines()
    pieces = [line.strip("!= ") for line in lines if line.strip() and not line.startswith("#")]
    pieces += ["dog", "the", "make", "love", "it's", "same", "-", "_", "cat", "toy"]
    draw, rules = random.Random(0), filters._rules("en")
    unsafe = 0
    for _ in range(3000):
        words = (draw.choice(pieces) + draw.choice(["", "", "s", "ed", "ing", "x", "'s"]) for _ in range(3))
        name = draw.choice([" ", "-", ""]).join(words)
        found = filters._holds(name, "en")
        bare = rules.allowed.sub(" ", name) if rules.allowed else name
        assert found == (name in rules.whole or rules.unsafe.search(bare) is not None)
        unsafe += found
    assert 300 < unsafe < 2900


@pytest.mark.parametrize(
    ("head", "relation", "tail"),
    [
        ("tea", "RelatedTo", "tea"),
        ("it take two to", "HasA", "baby"),
        ("you eat when you", "HasProperty", "hungry"),
        ("sometimes person laugh because they", "HasProperty", "nervous"),
        ("something that have just be buy", "HasProperty", "new"),
        ("old proverb state that happiness", "ReceivesAction", "buy"),
        ("if it fall it", "CapableOf", "break"),
        ("Something", "AtLocation", "pier"),
        ("buy something", "MotivatedByGoal", "it"),
        ("照片", "RelatedTo", "张"),
        ("它", "HasA", "尾巴"),
    ],
)
def test_no_facts(head: str, relation: str, tail: str) -> None:
    assert not is_well_formed(head, relation, tail)


@pytest.mark.parametrize(
    ("head", "relation", "tail"),
    [
        ("tea", "IsA", "drink"),
        ("lose item", "AtLocation", "bed"),
        ("lost and found", "AtLocation", "airport"),
        ("fan", "CapableOf", "cool you"),
        ("clothe store change room", "UsedFor", "try on clothe"),
        ("italy", "IsA", "country"),
        ("iffy plan", "HasProperty", "risky"),
        ("vitamin c", "IsA", "vitamin"),
        ("一个人的晚饭", "HasA", "面条"),
        ("猫", "IsA", "动物"),
        ("猫", "Desires", "鱼"),
    ],
)
def test_facts(head: str, relation: str, tail: str) -> None:
    assert is_well_formed(head, relation, tail)

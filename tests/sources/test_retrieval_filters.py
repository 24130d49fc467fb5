"""What is no fact and what is unsafe is found, and what only looks like it is not."""

from __future__ import annotations

import pytest

from dialore.sources.graph.ranking.filters import is_safe, is_well_formed


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

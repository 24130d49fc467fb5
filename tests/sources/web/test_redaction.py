"""Queries without personal data, and with everything else."""

from __future__ import annotations

import pytest

from dialore.dialogue import Dialogue
from dialore.sources.web.redaction import redact


def talk(*turns: str) -> Dialogue:
    return Dialogue.model_validate({"id": "d", "turns": turns or ["hello"]})


PERSONAL = [
    ("refund status for jane.doe+shop@mail.example.com order", "jane.doe", "refund status for order"),
    ("邮箱zhang.wei@example.cn怎么注册", "zhang.wei", "邮箱怎么注册"),
    ("who called me from +1 (555) 234-5678", "234", "who called me from"),
    ("who called from +44 20 7946 0958 yesterday", "7946", "who called from yesterday"),
    ("call 555-234-5678 now", "5678", "call now"),
    ("reverse lookup (415) 555-2671", "2671", "reverse lookup"),
    ("my phone number is 5552345678 who owns it", "5552345678", "my phone number who owns it"),
    ("查询13812345678归属地", "138", "查询归属地"),
    ("手机号138 1234 5678归属地", "1234", "手机号归属地"),
    ("+86 13812345678 是谁的号码", "138", "是谁的号码"),
    ("电话010-62345678是哪里的", "6234", "电话是哪里的"),
    ("is 4111 1111 1111 1111 a visa card", "4111", "is a visa card"),
    ("card 5500-0000-0000-0004 declined", "5500", "card declined"),
    ("amex 378282246310005 fee", "3782", "amex fee"),
    ("my name is John Smith and I want a pizza", "John", "I want a pizza"),
    ("my name is jane, best yoga for me", "jane", "best yoga for me"),
    ("我叫王小明，附近有什么好吃的", "王小明", "附近有什么好吃的"),
    ("你好，我叫琳达·布朗。有什么好看的电影", "琳达", "你好。有什么好看的电影"),
    ("我的名字是诗涵，适合我的星座书", "诗涵", "适合我的星座书"),
]


@pytest.mark.parametrize(("query", "secret", "expected"), PERSONAL)
def test_personal_data_is_taken_out(query, secret, expected):
    clean, notes = redact(query, talk())
    assert secret not in clean
    assert clean == expected
    assert notes
    assert all(secret not in note for note in notes)


HARMLESS = [
    "best films of 2023 and 2024",
    "what happened on 1989-11-09 in berlin",
    "events on 11/09/1989 and 09.11.1989",
    "iphone 15 pro max 256gb price 1199.99",
    "RTX 4090 vs 3080 Ti benchmark",
    "population of 1,412,000,000 people",
    "how far is 384,400 km in miles",
    "python 3.11.4.1 release notes",
    "isbn 978-3-16-148410-0",
    "isbn 9780306406157 book",
    "pi is 3.14159265358979323846",
    "unix timestamp 1700000000 in utc",
    "timestamp 1700000000000 ms",
    "world war 2 1939-1945 timeline",
    "flight BA 2490 status 12:30:45",
    "usd 2000000 to eur",
    "$1234567890 budget",
    "RFC 2616 section 14.9.1",
    "boeing 737-800 seats",
    "iso 27001 and 9001 certification",
    "route 66 road trip",
    "10 Downing Street history",
    "sherlock holmes 221B Baker Street museum",
    "5th Avenue shops",
    "100 best streets in paris",
    "2 best doctors in town, 3 st bernard puppies",
    "router login 192.168.1.1",
    "google dns 8.8.8.8",
    "https://en.wikipedia.org/wiki/Penguin",
    "the lord of the rings 2 hours 58 minutes",
    "who is john smith",
    "my name is earl tv show",
    "call me by your name film",
    "call me maybe lyrics",
    "what does the name john mean",
    "2023年10月1日放假安排",
    "北京地铁10号线路线图",
    "中山路10号线地铁站",
    "我叫外卖应该用哪个软件",
    "我叫了出租车",
    "苹果手机15价格5999元",
    "长安街的历史",
    "三国演义第120回",
    "1688网站怎么样",
    "12306抢票",
    "全国人口1412000000",
    "between 2 and 10 dollars per square yard",
    "house at 7500 yuan per square meter",
    "laptop with 16.1 inch screen and removable disk drive",
    "GB82WEST12345698765432 which bank",
    "where is 203.0.113.77 located",
    "plumber near 742 Evergreen Terrace",
    "北京市朝阳区建国路88号附近的餐厅",
    "我叫醒你",
    "尽管我叫他不要，他还是来了",
    "我就叫打车去",
    "我叫我妹妹来",
    "请不要叫我先生。",
]


@pytest.mark.parametrize("query", HARMLESS)
def test_what_only_looks_like_it_stays(query):
    assert redact(query, talk()) == (query, [])


@pytest.mark.parametrize(
    ("turns", "query", "expected"),
    [
        (["Hi, my name is John Smith."], "birthday gift ideas for John Smith", "birthday gift ideas for"),
        (["Hi, my name is John Smith."], "john smith birthday gift", "birthday gift"),
        (["Call me Ishmael. I like whales."], "books for Ishmael about whales", "books for about whales"),
        (["I'm called Maria."], "maria's favourite recipes", "favourite recipes"),
        (["My name's Taylor, I love music"], "Taylor Swift concert tickets", "Taylor Swift concert tickets"),
        (["My name's Taylor, I love music"], "taylor swift concert tickets", "taylor swift concert tickets"),
        (["my name is Will"], "will it rain in May", "will it rain in May"),
        (["Call me when you can. I like Paris."], "Paris weather", "Paris weather"),
        (["我叫李雷，今年二十岁。"], "适合李雷的运动", "适合的运动"),
        (["大家叫我小雨，我喜欢唱歌"], "小雨喜欢的歌", "小雨喜欢的歌"),
        (["我叫外卖。"], "外卖软件排行", "外卖软件排行"),
        (["My name is Anna.", "Nice to meet you, Anna! My name is Bot."], "Bot programming", "Bot programming"),
    ],
)
def test_the_users_own_name(turns, query, expected):
    if len(turns) == 2:
        turns = [*turns, "What can you do?"]
    clean, notes = redact(query, talk(*turns))
    assert clean == expected
    assert bool(notes) == (clean != query)


def test_several_kinds_are_noted_apart_and_nothing_may_be_left():
    clean, notes = redact("me@example.org 13812345678", talk())
    assert clean == ""
    assert len(notes) == 2


@pytest.mark.parametrize(
    "query", ["a" * 50_000, "1 " * 20_000, "1-" * 20_000, "我叫" * 20_000, "x@" * 20_000, "1.1." * 9_999]
)
def test_long_queries_take_no_long_time(query):
    import time

    started = time.perf_counter()
    redact(query, talk())
    assert time.perf_counter() - started < 10


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("打\uff11\uff13\uff18\uff10\uff10\uff11\uff13\uff18\uff10\uff10\uff10问问天气", "打问问天气"),
        ("mail me\uff20example\uff0eorg about tea", "mail about tea"),
        ("\uff12\uff10\uff12\uff14年的电影", "\uff12\uff10\uff12\uff14年的电影"),
    ],
)
def test_full_width_numbers_and_signs_identify_as_well(query, left):
    sent, notes = redact(query, Dialogue(id="d1", turns=["你好"]))
    assert sent == left
    assert bool(notes) == (left != query)

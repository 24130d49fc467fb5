"""Other spellings of the same word."""

from __future__ import annotations

import pytest

from dialore.retrieval.linking.chinese import simplify, traditional
from dialore.retrieval.linking.english import respelt


@pytest.mark.parametrize(
    ("british", "american"),
    [
        ("colour", "color"),
        ("neighbours", "neighbors"),
        ("organise", "organize"),
        ("organisation", "organization"),
        ("jewellery", "jewelry"),
        ("theatre", "theater"),
        ("favourite", "favorite"),
        ("grey", "gray"),
    ],
)
def test_british_and_american(british: str, american: str) -> None:
    assert respelt(british) == american
    assert respelt(american) == british


@pytest.mark.parametrize("word", ["tea", "hour", "your", "is", "or", "", "茶", "café"])
def test_other_words_have_one_spelling(word: str) -> None:
    assert respelt(word) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("头发", "頭髮"),
        ("发现", "發現"),
        ("不同种类的饺子馅料", "不同種類的餃子餡料"),
        ("茶", "茶"),
        ("tea 茶", "tea 茶"),
    ],
)
def test_scripts_by_words(one: str, other: str) -> None:
    assert simplify(other) == one
    assert traditional(one) == other
    assert simplify(one) == one

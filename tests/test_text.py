"""Words, lemmas and stems in both languages, and when a phrase counts as mentioned."""

from __future__ import annotations

import marshal
import os
import subprocess
import sys

import pytest

from dialore.errors import UnknownNameError
from dialore.text import (
    check_language,
    content_lemmas,
    content_words,
    count_noun,
    detect_language,
    is_chinese,
    is_mentioned,
    is_stop_word,
    lemma,
    lemmas,
    normalise,
    segments,
    stem,
    words,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, World!", ["hello", "world"]),
        ("I’m tired — she's not.", ["i", "tired", "she", "not"]),
        ("can't won't shan't isn't don't", ["can", "will", "shall", "is", "do"]),
        ("you wouldn't've", ["you", "would"]),
        ("ai's", ["ai"]),
        ("five o'clock", ["five", "o'clock"]),
        ("rock'n'roll", ["rock'n'roll"]),
        ("ice_cream state-of-the-art", ["ice", "cream", "state", "of", "the", "art"]),
        ("ＦＵＬＬ ｗｉｄｔｈ", ["full", "width"]),
        ("café naïve", ["café", "naïve"]),
        ("3.5 km", ["3", "5", "km"]),
        ("?! ... 🙂", []),
        ("", []),
    ],
)
def test_english_words(text: str, expected: list[str]) -> None:
    assert words(text, "en") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("我喜欢喝茶。", ["我", "喜欢", "喝茶"]),
        ("我们去 KTV 唱歌吧！", ["我们", "去", "ktv", "唱歌", "吧"]),
        ("，。！", []),
        ("Python3很好", ["python3", "很", "好"]),
    ],
)
def test_chinese_words(text: str, expected: list[str]) -> None:
    assert words(text, "zh") == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("days", "day"),
        ("went", "go"),
        ("children", "child"),
        ("London", "london"),
        ("better", "good"),
        ("o'clock",) * 2,
    ],
)
def test_english_lemmas(word: str, expected: str) -> None:
    assert lemma(word, "en") == expected


def test_lemmas_keep_order_and_chinese_words_are_their_own() -> None:
    assert lemmas("The dogs were running", "en") == ["the", "dog", "be", "run"]
    assert lemmas("我喜欢喝茶", "zh") == words("我喜欢喝茶", "zh")


@pytest.mark.parametrize(
    ("one", "other", "joined"),
    [
        ("wedding", "wed", True),
        ("running", "run", True),
        ("happily", "happy", False),
        ("day", "daily", False),
        ("connection", "connecting", True),
        ("茶", "茶叶", False),
    ],
)
def test_stems_join_forms(one: str, other: str, joined: bool) -> None:
    assert (stem(one) == stem(other)) is joined


def test_content_words_drop_function_words_by_form_and_by_lemma() -> None:
    assert content_words("What is the best way to cook an egg?", "en") == ["best", "cook", "egg"]
    assert content_lemmas("She was taking the eggs and I am eating them", "en") == ["egg", "eat"]
    assert content_words("我昨天吃了一个苹果", "zh") == ["吃", "苹果"]
    assert content_words("the of and", "en") == []
    assert content_words("I can't", "en") == []


@pytest.mark.parametrize(
    ("word", "language", "expected"),
    [
        ("the", "en", True),
        ("x", "en", True),
        ("tea", "en", False),
        ("的", "zh", True),
        ("茶", "zh", False),
    ],
)
def test_stop_words(word: str, language: str, expected: bool) -> None:
    assert is_stop_word(word, check_language(language)) is expected


def test_normal_form() -> None:
    assert normalise("  Ice_Cream\t’n  More ") == "ice cream 'n more"
    assert normalise("ＡＢＣ１２３") == "abc123"
    assert normalise(normalise("Ｉce_CREAM")) == "ice cream"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Dr. Who met Mrs. Hall. J. K. Rowling wrote 3.5 books! Really?", 3),
        ("one\ntwo", 2),
        ("我喜欢茶，也喜欢咖啡。你呢？", 3),
        ("ice, cream", 1),
        ("i like Chanel No. 5 . you ?", 2),
        ("He said no. Then p. 5", 2),
        ("...", 1),
        ("  ", 0),
    ],
)
def test_segments(text: str, expected: int) -> None:
    assert len(segments(text)) == expected


@pytest.mark.parametrize(
    ("phrase", "text"),
    [
        ("tea", "I like tea."),
        ("Tea!", "i like TEA"),
        ("cats", "my cat sleeps"),
        ("cat", "two CATS sleep"),
        ("go to school", "He went to school early"),
        ("couple of days", "it takes a couple days"),
        ("the wedding ring", "She lost her wedding rings"),
        ("ice_cream", "ice cream for all"),
        ("Dr. Who", "I met Dr. Who in London."),
        ("can't", "I can do it"),
        ("to be or not to be", "To be or not to be, that is it"),
        ("st louis", "we flew to St. Louis"),
    ],
)
def test_a_phrase_is_mentioned_in_english(phrase: str, text: str) -> None:
    assert is_mentioned(phrase, ["nothing here", text], "en")


@pytest.mark.parametrize(
    ("phrase", "text"),
    [
        ("cat", "concatenate the category"),
        ("tea", "the team met"),
        ("trip to London", "a London trip"),
        ("tea house", "I like tea. House prices rise."),
        ("tea house", "I like tea\nHouse prices rise"),
        ("wedding", "they wed in May"),
        ("of the", "the end of it"),
        ("", "anything"),
        ("  ?! ", "what ?!"),
        ("green tea", "green leaves and tea"),
        ("tea", ""),
    ],
)
def test_a_phrase_is_not_mentioned_in_english(phrase: str, text: str) -> None:
    assert not is_mentioned(phrase, [text], "en")


def test_words_of_two_utterances_are_not_joined() -> None:
    assert not is_mentioned("tea house", ["I like tea", "house prices rise"], "en")
    assert not is_mentioned("tea", [], "en")


@pytest.mark.parametrize(
    ("phrase", "text", "expected"),
    [
        ("饺子", "不同种类的饺子馅料", True),
        ("饺子馅", "不同种类的饺子馅料", True),
        ("北京 烤鸭", "北京烤鸭很好吃", True),
        ("烤鸭。", "北京烤鸭很好吃", True),
        ("馆子", "我爱吃饭。馆子很近", True),
        ("饭馆", "我爱吃饭。馆子很近", False),
        ("烤鸡", "北京烤鸭很好吃", False),
        ("KTV", "我们去ktv唱歌", True),
        ("TV", "我们去ktv唱歌", False),
    ],
)
def test_chinese_mentions_are_by_characters(phrase: str, text: str, expected: bool) -> None:
    assert is_mentioned(phrase, ["没有", text], "zh") is expected


def test_a_chinese_phrase_is_found_whatever_the_dialogue_s_language() -> None:
    assert is_mentioned("饺子", ["I love 饺子 a lot"], "en")


@pytest.mark.parametrize(("text", "language"), [("tea", "en"), ("茶", "zh"), ("我爱 Python", "zh"), ("", "en")])
def test_detection(text: str, language: str) -> None:
    assert detect_language(text) == language
    assert is_chinese(text) is (language == "zh")


def test_an_unknown_language_says_which_are_known() -> None:
    with pytest.raises(UnknownNameError, match="en, zh"):
        check_language("klingon")


def test_threads_that_stem_at_once_do_not_mix_up_their_words():
    from concurrent.futures import ThreadPoolExecutor

    words = [f"{root}{ending}" for root in ("walk", "consider", "hope", "national", "engine") for ending in ENDINGS]
    expected = [stem.__wrapped__(word) for word in words]

    def all_of_them(_):
        return [stem.__wrapped__(word) for word in words * 20]

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(all_of_them, range(8)):
            assert found == expected * 20


ENDINGS = ("", "s", "ed", "ing", "ations", "fulness", "ally", "ized", "ement", "iveness")


def test_jieba_keeps_its_cache_in_our_own_folder(tmp_path) -> None:
    planted = tmp_path / "everybody"
    planted.mkdir()
    (planted / "jieba.cache").write_bytes(marshal.dumps(({"我": 1, "子": 5}, 6)))
    code = "from dialore.text import words; print(*words('我嗓子疼', 'zh'))"
    named = {"TMPDIR": str(planted), "DIALORE_CACHE": str(tmp_path / "own"), "PYTHONIOENCODING": "utf-8"}
    shown = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], env=os.environ | named, capture_output=True, check=True, text=True
    )
    assert shown.stdout.split() == ["我", "嗓子疼"], shown.stderr
    assert (tmp_path / "own" / "jieba.cache").exists()


@pytest.mark.parametrize(
    ("count", "plural", "expected"),
    [
        (0, "rows", "0 rows"),
        (1, "rows", "1 row"),
        (1200, "documents", "1,200 documents"),
        (1, "pieces of knowledge", "1 piece of knowledge"),
        (1, "entries", "1 entry"),
    ],
)
def test_a_count_of_one_has_a_singular_noun(count, plural, expected):
    assert count_noun(count, plural) == expected

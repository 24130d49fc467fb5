"""BM25, how texts are split for it, and the fusion of rankings."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path

import pytest

from dialore.retrieval.bm25 import Bm25, scores_of, split_terms
from dialore.retrieval.fusion import best, reciprocal_ranks

WORDS = ("sushi", "rice", "ramen", "soup", "tokyo", "kyoto", "temple", "train", "garden", "tea", "ceremony", "river")


def corpus(size: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 30))) for _ in range(size)]


def by_the_formula(texts: list[str], query: str, k1: float, b: float) -> list[float]:
    """Robertson and Zaragoza's BM25, term by term."""
    tallies = [Counter(split_terms(text)) for text in texts]
    lengths = [sum(tally.values()) for tally in tallies]
    mean = sum(lengths) / len(lengths)
    scores = []
    for tally, length in zip(tallies, lengths, strict=True):
        score = 0.0
        for term in split_terms(query):
            having = sum(term in other for other in tallies)
            rarity = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
            count = tally[term]
            if not count:
                continue
            score += rarity * count * (k1 + 1) / (count + k1 * (1 - b + b * length / mean))
        scores.append(score)
    return scores


def found(bm25: Bm25, query: str, top: int) -> list[int]:
    rows, scores = best(bm25.scores(query), top)
    return rows[scores > 0].tolist()


def test_exact_bm25_is_the_formula():
    texts = corpus(80)
    for query in ("tea ceremony in Kyoto", "rice rice soup", "the trains", "nothing of it"):
        wanted = by_the_formula(texts, query, 1.2, 0.75)
        engine = Bm25(texts)
        assert engine.scores(query) == pytest.approx(wanted, abs=1e-4)
        order = sorted(range(len(texts)), key=lambda row: (-round(wanted[row], 4), row))
        assert found(engine, query, 10) == [row for row in order if wanted[row] > 0][:10]


def test_terms_decide_and_ties_fall_by_place():
    texts = ["The cats are running home.", "A dog sleeps.", "", "猫在家里睡觉。", "cats", "cats"]
    bm25 = Bm25(texts)
    assert set(found(bm25, "a CAT runs", 10)) == {0, 4, 5}
    assert found(bm25, "cat", 2) == [4, 5]  # equal ones by place
    assert found(bm25, "家里的猫", 3) == [3]
    assert not any(bm25.scores(query).any() for query in ("the of and", "", "zebra"))
    assert bm25.scores("dog").tolist().index(max(bm25.scores("dog"))) == 1
    assert len(Bm25([]).scores("cat")) == 0


def test_texts_of_a_larger_collection_score_as_all_of_it_does():
    texts, query = corpus(80), "rice tea tea"
    tallies = [Counter(split_terms(text)) for text in texts]
    frequencies = Counter(term for tally in tallies for term in tally)
    mean = sum(tally.total() for tally in tallies) / 80
    some = scores_of(Counter(split_terms(query)), tallies[7:20], frequencies, 80, mean)
    assert some == pytest.approx(Bm25(texts).scores(query)[7:20].tolist(), abs=1e-4)


def test_texts_are_split_by_script():
    assert split_terms("The dogs' bowls weren't cleaned in 2019, e.g.") == ["dog", "bowl", "clean", "2019"]
    assert split_terms("北京大学的 Wi-Fi running") == ["wi", "fi", "run", "北京", "大学", "北京大学"]
    assert split_terms("x" * 500) == []


# A sentence of each language and a phrase that finds it: as docs/sources.md has it.
LANGUAGES = {
    "English": ("The hotel's kitchens open at eight.", "when does the kitchen open"),
    "Chinese": ("厨房早上八点开门。", "厨房几点开门"),
    "Japanese": ("台所は朝八時に開きます。", "台所"),
    "Korean": ("주방은 아침 여덟 시에 문을 엽니다.", "주방"),
    "Thai": ("ห้องครัวเปิดเวลาแปดโมงเช้า", "ห้องครัว"),
    "Lao": ("ຫ້ອງຄົວເປີດເວລາແປດໂມງ", "ຫ້ອງຄົວ"),
    "Khmer": ("ផ្ទះបាយបើកនៅម៉ោងប្រាំបី", "ផ្ទះបាយ"),
    "Burmese": ("မီးဖိုချောင်ကို ရှစ်နာရီမှာဖွင့်သည်။", "မီးဖိုချောင်"),
    "Arabic": ("يَفتحُ المَطبخُ في الساعة الثامنة.", "مطبخ"),
    "Hebrew": ("הַמִּטְבָּח נפתח בשמונה.", "המטבח"),
    "Hindi": ("रसोईघर सुबह आठ बजे खुलता है।", "रसोईघर"),
    "Russian": ("Завтрак подают на кухне с восьми.", "кухня"),
    "Greek": ("Η κουζίνα ανοίγει στις οκτώ.", "κουζίνας"),
    "Vietnamese": ("Nhà bếp mở cửa lúc tám giờ.", "nhà bếp"),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_phrase_is_found_in_its_language_and_in_no_other(language):
    texts = [text for text, _ in LANGUAGES.values()]
    assert found(Bm25(texts), LANGUAGES[language][1], 3) == [list(LANGUAGES).index(language)]


def test_the_languages_are_told_in_the_docs():
    page = (Path(__file__).parents[2] / "docs" / "sources.md").read_text("utf-8")
    for language, (text, phrase) in LANGUAGES.items():
        assert f"| {language} | {text} | {phrase} |" in page


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Das Unter\xadnehmen", "das Unternehmen"),
        ("har\u200bbour", "harbour"),
        ("\ufeffwel\u2060come\u200e", "welcome"),
        ("می\u200cخواهم", "میخواهم"),
        ("مطـــبخ", "مطبخ"),
        ("ว\u200bัน", "วัน"),
        ("ｶﾞｽ", "ガス"),
        ("cafe\u0301", "café"),
    ],
)
def test_signs_that_nobody_sees_part_no_words(one, other):
    assert split_terms(one) == split_terms(other) != []


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("天気 てんき テレビ", ["てん", "んき", "テレ", "レビ", "天", "気", "天気"]),
        ("朝食時間は七時", ["朝食", "時間", "食時", "七時"]),  # pairs besides jieba's words where kana stand beside
        ("집에서", ["집", "집에", "에서"]),
        ("고양이가", ["고양", "양이", "이가"]),
        ("ก", ["ก"]),
        ("я и é", []),  # letters of scripts with capitals alone are no words, as in English
        ("བོད་ཡིག", ["བོད", "ཡིག"]),
        ("ሰላም ለዓለም", ["ሰላም", "ለዓለም"]),
    ],
)
def test_scripts_have_terms_of_their_own(text, terms):
    assert split_terms(text) == terms


def test_reciprocal_ranks_are_the_formula():
    fused = reciprocal_ranks([["a", "b", "c"], ["c", "a"], ["d"]])
    assert dict(fused) == pytest.approx({"a": 1 / 61 + 1 / 62, "c": 1 / 63 + 1 / 61, "d": 1 / 61, "b": 1 / 62})
    assert [item for item, _ in fused] == ["a", "c", "d", "b"]
    assert reciprocal_ranks([["a", "a", "b"]]) == reciprocal_ranks([["a", "b"]])
    assert reciprocal_ranks([]) == []

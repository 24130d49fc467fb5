"""Overlap in scripts that are neither Latin nor Chinese: words of the language, never a nought for the same text."""

from __future__ import annotations

import pytest

from dialore.dialogue import Dialogue
from dialore.evaluation.base import Sample
from dialore.evaluation.overlap import measured_language
from dialore.evaluation.registry import Context, load_metric
from dialore.experiments.scoring import score_of
from dialore.response import Response

SAID = {
    "Russian": ("Я пью зелёный чай.", "Я пью чёрный чай."),
    "Japanese": ("緑茶が好きです。", "紅茶が好きです。"),
    "Thai": ("ฉันชอบชาเขียว", "ฉันชอบชาดำ"),
    "Korean": ("저는 매일 아침 녹차를 마셔요.", "저는 매일 아침 홍차를 마셔요."),
    "Arabic": ("أحب الشاي الأخضر في الصباح.", "أحب الشاي الأسود في الصباح."),
    "Greek": ("Μου αρέσει το πράσινο τσάι.", "Μου αρέσει το μαύρο τσάι."),
    "Hindi": ("मुझे हरी चाय पसंद है।", "मुझे काली चाय पसंद है।"),
    "Hebrew": ("אני אוהב תה ירוק.", "אני אוהב תה שחור."),
    "Lao": ("ຂ້ອຍມັກຊາຂຽວ", "ຂ້ອຍມັກຊາດຳ"),
    "French": ("J'ai bu du thé à la menthe l'été dernier.", "J'ai bu du café à la menthe l'été dernier."),
}
NAMES = ["rouge-l", "rouge-l-nlgeval", "f1", "bleu-1", "bleu-nlgeval"]


async def figure(name, dialogue, text):
    metric = load_metric(name, Context())
    measure = await metric.measure(Sample(dialogue, Response(id="x", method="m", text=text)))
    return score_of(metric, [measure]).value / metric.about.scale


@pytest.mark.parametrize("language", SAID)
async def test_the_same_text_is_one_and_a_near_one_is_in_between(language):
    pytest.importorskip("sacrebleu", reason="the evaluation extra is not installed")
    text, near = SAID[language]
    named = {"language": language} if language == "French" else {}  # the others are told by their script
    dialogue = Dialogue(id="x", turns=["Tea?"], reference=text, **named)
    assert measured_language(dialogue) == "other"
    for name in NAMES:
        assert await figure(name, dialogue, text) == pytest.approx(1.0), name
        assert 0.2 < await figure(name, dialogue, near) < 1.0, name


@pytest.mark.parametrize("reference", ["A café, naïve as ever: 5 µm.", "I said α once, and β twice.", "我喜欢绿茶。"])
def test_english_and_chinese_are_counted_as_their_references_count_them(reference):
    assert measured_language(Dialogue(id="x", turns=["Tea?"], reference=reference)) != "other"


@pytest.mark.parametrize("name", [*NAMES, "distinct-1"])
@pytest.mark.parametrize(
    "turn", ["How do I say thank you very much?", "저는 매일 아침 녹차를 마셔요.", "Как сказать спасибо?"]
)
async def test_the_language_is_that_of_the_reference_and_not_of_the_turn(name, turn):
    pytest.importorskip("sacrebleu", reason="the evaluation extra is not installed")
    text, near = "你可以说非常感谢你的帮助。", "你可以说很感谢你的关心。"
    after, alone = (Dialogue(id="x", turns=[turn], reference=text, language=named) for named in (None, "zh"))
    assert measured_language(after) == "zh"
    for response in (text, near):
        assert await figure(name, after, response) == pytest.approx(await figure(name, alone, response))


@pytest.mark.parametrize(
    ("turns", "reference", "expected"),
    [
        (["你好，怎么用英语说谢谢？"], "You can say thank you very much.", "en"),
        (["请问这是谁的歌？"], "Taylor Swift", "zh"),
        (["これは何ですか。"], "東京", "other"),
        (["これは何ですか。"], "你可以说非常感谢你的帮助，朋友们。", "zh"),
        (["What is it called?"], "東京タワーです。", "other"),
        (["你好吗？"], "저는 매일 아침 녹차를 마셔요.", "other"),
        (["What does it mean?"], "The word 茶 simply means tea in Chinese.", "en"),
    ],
)
def test_the_language_that_is_measured(turns, reference, expected):
    assert measured_language(Dialogue(id="x", turns=turns, reference=reference)) == expected


@pytest.mark.parametrize(
    "last", ["Bohemian Rhapsody", "The Sound of Silence", "My Heart Will Go On", "《Hello》", "OK!"]
)
def test_a_title_does_not_change_the_language_of_a_dialogue(last):
    assert Dialogue(["你喜欢什么歌？", "我喜欢英文歌，你呢？", last]).language == "zh"
    assert Dialogue(["どんな歌が好きですか。", "英語の歌が好きです。", last]).spoken == "Japanese"
    assert Dialogue([last]).language == "en"
    assert Dialogue(["Which song do you like best?", "Guess!", last]).language == "en"


@pytest.mark.parametrize(
    "last", ["How do I get there by bus?", "thank you very much", "Please Speak English With Me.", "Where is Beijing"]
)
def test_a_sentence_changes_the_language_of_a_dialogue(last):
    assert Dialogue(["你喜欢什么歌？", "我喜欢英文歌，你呢？", last]).language == "en"

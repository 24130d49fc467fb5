"""Overlap in scripts that are neither Latin nor Chinese: words of the language, never a nought for the same text."""

from __future__ import annotations

import pytest

from dialore.dialogue import Dialogue
from dialore.evaluation.base import Sample
from dialore.evaluation.overlap import is_foreign
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
    assert is_foreign(dialogue)
    for name in NAMES:
        assert await figure(name, dialogue, text) == pytest.approx(1.0), name
        assert 0.2 < await figure(name, dialogue, near) < 1.0, name


@pytest.mark.parametrize("reference", ["A café, naïve as ever: 5 µm.", "I said α once, and β twice.", "我喜欢绿茶。"])
def test_english_and_chinese_are_counted_as_their_references_count_them(reference):
    assert not is_foreign(Dialogue(id="x", turns=["Tea?"], reference=reference))

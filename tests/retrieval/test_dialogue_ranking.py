"""Ranking by a dialogue's turns: what each part of it is for."""

from __future__ import annotations

import pytest

from dialore.dialogue import Dialogue
from dialore.retrieval.dialogue_ranking import DialogueRanker, grams
from dialore.sources.persona import PersonaDocuments, PersonaSource
from dialore.text import close_gaps

PERSONA = {
    "en": {
        "I teach at a school.": ["Summer holidays last six weeks."],
        "I keep bees.": ["A hive may hold fifty thousand bees.", "Drones have no sting."],
    },
    "zh": {
        "我 是 一 名 老师": ["暑假一般有六个星期。"],
        "我 养 了 蜜蜂": ["一个蜂箱里可能有五万只蜜蜂。", "雄蜂没有刺。"],
    },
}
ASKED = {"en": "Can drones sting?", "zh": "雄蜂会用刺蜇人吗？"}


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_a_sentence_is_found_by_the_documents_under_it(language):
    persona = PERSONA[language]
    dialogue = Dialogue(id="d", turns=[ASKED[language]], persona=list(persona), extra={"documents": persona})
    bees = list(persona)[1]
    source = PersonaSource(retriever="dialogue")
    (found,) = await source.search(ASKED[language], dialogue, 1)
    assert found.text == bees
    assert found.documents == persona[bees]
    (document,) = await PersonaDocuments(source).search(ASKED[language], dialogue, 1, [found])
    assert document.text == persona[bees][1]
    blind = DialogueRanker(under=0, cosine=0).sentences(ASKED[language], dialogue, persona)
    assert blind[0] >= blind[1] or language == "zh"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_a_dialogue_was_about_is_kept_where_the_last_turn_says_nothing(language):
    persona = PERSONA[language]
    before = {"en": ["Do you have animals?", "Bees.", "Really?"], "zh": ["你养动物吗？", "养蜜蜂。", "真的吗？"]}[
        language
    ]
    dialogue = Dialogue(id="d", turns=before, persona=list(persona), extra={"documents": persona})
    first, second = DialogueRanker().sentences(dialogue.last.text, dialogue, persona)
    assert second > first
    forgets = DialogueRanker(past=0, cosine=0).sentences(dialogue.last.text, dialogue, persona)
    assert forgets[0] == forgets[1] == 0


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_was_told_is_not_told_again(language):
    texts = list(PERSONA[language].values())[1]
    told, asked = {
        "en": (texts[0], "What else about bees in a hive?"),
        "zh": (texts[0], "关于蜂箱里的蜜蜂，还有什么？"),
    }[language]
    dialogue = Dialogue(id="d", turns=["?", told, asked])
    again = DialogueRanker(told=0).documents(asked, dialogue, texts)
    new = DialogueRanker(told=2).documents(asked, dialogue, texts)
    assert again.argmax() == 0
    assert new.argmax() == 1


async def test_top_and_nothing():
    nobody = Dialogue(id="d", turns=["Hello"])
    assert await PersonaSource(retriever="dialogue").search("x", nobody, 3) == []
    assert await PersonaDocuments(retriever="dialogue").search("x", nobody, 3) == []
    bare = Dialogue(id="d", turns=["Hello"], persona=["I sail.", "I sing."])
    assert len(await PersonaSource(retriever="dialogue").search("x", bare, 1)) == 1
    assert await PersonaSource(retriever="dialogue").search("x", bare, 0) == []
    assert await PersonaDocuments(PersonaSource(retriever="dialogue")).search("x", bare, 3) == []


def test_equals_keep_their_order_and_scores_are_the_same_each_time():
    texts = ["bees hum", "ships sail", "bees hum"]
    dialogue = Dialogue(id="d", turns=["Do bees hum?"])
    first, second = (DialogueRanker().documents("Do bees hum?", dialogue, texts) for _ in range(2))
    assert list(first) == list(second)
    assert first[0] == first[2] > first[1]


def test_what_texts_are_compared_by():
    assert grams("The cats were purring") == ("cat", "purr")
    assert grams("我 喜欢 听 Taylor Swift 的 歌") == grams("我喜欢听Taylor Swift的歌")
    assert {"喜欢", "taylor", "歌"} <= set(grams("我喜欢听 Taylor Swift 的歌"))
    assert "的" not in grams("我的歌")
    assert close_gaps("我 有 电工证") == "我有电工证"
    assert close_gaps("two words") == "two words"

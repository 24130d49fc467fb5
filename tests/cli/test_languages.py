"""Other languages than English and Chinese: which it is, its words, and what is asked of a model."""

from __future__ import annotations

import json

import pytest

from dialore.agent import Agent
from dialore.dialogue import Dialogue
from dialore.errors import UnknownNameError
from dialore.methods.baselines import Vanilla
from dialore.methods.stage_runner import LLMRunner
from dialore.prompts.library import PromptLibrary
from dialore.text import detect_language, spoken_in, words
from tests.llm.server import say
from tests.methods.test_citations import Says

SAID = {
    "French": [
        "Bonjour, j'ai mal à la gorge.",
        "Merci beaucoup !",
        "Où est la gare ?",
        "Quel temps fait-il aujourd'hui à Lyon ?",
    ],
    "German": ["Mir tut der Hals weh.", "Wie geht es dir?", "Danke!", "Ich möchte nach Berlin fahren."],
    "Spanish": ["Me duele la garganta.", "¿Cómo estás?", "Hola", "Quiero viajar a Madrid mañana."],
    "Italian": ["Ho mal di gola.", "Come stai?", "Ciao!", "Vorrei andare a Roma con mio fratello."],
    "Portuguese": ["Estou com dor de garganta.", "Como você está?", "Obrigado!", "Quero viajar para Lisboa amanhã."],
    "Dutch": ["Ik heb keelpijn.", "Hoe gaat het met je?", "Bedankt!"],
    "Swedish": ["Jag har ont i halsen.", "Hur mår du?"],
    "Danish": ["Jeg har ondt i halsen.", "Hvordan har du det?"],
    "Norwegian": ["Jeg har vondt i halsen, hva skal jeg gjøre?"],
    "Polish": ["Boli mnie gardło, co mogę na to wziąć?", "Jak się masz?", "Cześć"],
    "Czech": ["Bolí mě v krku, co mám dělat?", "Jak se máš?"],
    "Romanian": ["Mă doare în gât, ce pot să iau?", "Bună ziua, ce mai faci?"],
    "Turkish": ["Boğazım ağrıyor, ne yapmam lazım ve neden?", "Nasılsın, bugün ne var?", "Merhaba"],
    "Indonesian": ["Tenggorokan saya sakit, apa yang bisa membantu?", "Terima kasih"],
    "Vietnamese": ["Tôi bị đau họng, tôi nên làm gì?", "Xin chào bạn"],
    "Finnish": ["Kurkkuni on kipeä, mitä minun pitää tehdä?", "Kiitos"],
    "Hungarian": ["Fáj a torkom, mit tegyek és hogyan?", "Köszönöm"],
    "Russian": ["У меня болит горло.", "Привет"],
    "Ukrainian": ["У мене болить горло, що мені робити? Дякую її."],
    "Japanese": ["喉が痛いです。", "ありがとう", "東京に行きます", "カラオケ"],
    "Korean": ["목이 아파요."],
    "Arabic": ["حلقي يؤلمني."],
    "Persian": ["گلویم درد می\u200cکند."],
    "Hebrew": ["כואב לי הגרון."],
    "Greek": ["Πονάει ο λαιμός μου."],
    "Hindi": ["मेरा गला दर्द कर रहा है।"],
    "Thai": ["เจ็บคอ"],
    "Burmese": ["မင်္ဂလာပါ"],
    "": [
        "My throat hurts.",
        "Do you like La La Land?",
        "I had a croissant à la carte in Paris, c'est la vie!",
        "OK",
        "Hi!",
        "Los Angeles",
        "我嗓子疼。",
        "嗓子疼, help me",
        "Hmm",
        "Yes no maybe",
        "Des Moines",
        "No.",
        "I am in Rio de Janeiro",
        "42",
        "Thanks a lot",
        "Me too",
        "El Paso is hot",
        "Who is he",
        "Ben was here",
        "lol omg haha",
        "α and β are letters",
        "The word да means yes",
    ],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in SAID.items() for text in texts])
def test_a_language_is_told_by_its_script_or_its_function_words(name, text):
    assert spoken_in([text])[1] == name


@pytest.mark.parametrize(
    ("turns", "found"),
    [
        (["我嗓子疼。", "喝点水吧。", "Please answer me in English."], ("en", "")),
        (["My throat hurts.", "我嗓子疼。"], ("zh", "")),
        (["Bonjour, comment vas-tu ?", "Bien, merci.", "OK"], ("en", "French")),
        (["我嗓子疼。", "喝点水吧。", "OK"], ("zh", "")),
        (["我嗓子疼。", "55,057,176.00"], ("zh", "")),
        (["我喜欢这部电影。", "http://www.universalstudios.com/ www.universalstudios.com"], ("zh", "")),
    ],
)
def test_the_last_turn_decides_and_a_word_or_two_is_told_with_the_turns_before(turns, found):
    dialogue = Dialogue(id="d", turns=turns)
    assert (dialogue.language, dialogue.spoken) == found


def test_a_language_may_be_named():
    assert spoken_in([], "fr") == spoken_in([], "French") == ("en", "French")
    assert Dialogue(id="d", turns=["Hm"], language="de").spoken == "German"
    stated = Dialogue(id="d", turns=["Bonjour, comment vas-tu ?"], language="en")
    assert (stated.spoken, "spoken" in stated.model_dump(exclude_unset=True)) == ("", False)
    with pytest.raises(UnknownNameError, match="unknown language: 'xx'"):
        spoken_in([], "xx")


def test_words_bear_their_marks_and_are_characters_where_no_space_parts_them():
    assert words("नमस्ते, आप कैसे हैं?", "en") == ["नमस्ते", "आप", "कैसे", "हैं"]
    assert words("喉が痛い。カラオケ", "en") == ["喉", "が", "痛", "い", "カラオケ"]
    assert words("我喜欢の歌曲", "zh") == ["我", "喜欢", "の", "歌曲"]
    assert words("L’été, j’irai", "en") == ["l'été", "j'irai"]
    assert (detect_language("東京に行きます"), detect_language("我喜欢の歌曲很好听")) == ("en", "zh")


async def test_the_response_is_asked_for_in_the_users_language_and_only_then():
    asked = {}
    for text in ("Bonjour, j'ai mal à la gorge.", "Hello, my throat hurts."):
        model = Says(response_generation="Eh bien.")
        agent = Agent(Vanilla(), LLMRunner(model, PromptLibrary()))
        response = await agent.respond(Dialogue(id="d", turns=[text]))
        messages = [message.content for message in model.requests["response-generation"].messages]
        asked[text] = (messages, response.trace[-1].notes)
    (french, noted), (english, nothing) = asked.values()
    line = "write your turn in French"
    assert (line in "\n".join(french), line in "\n".join(english), nothing) == (True, False, [])
    assert len(french) == len(english) == 2
    assert "French: prompts, graph and word lists are English and Chinese" in noted[0]


@pytest.mark.parametrize("method", ["edit", "dcrag"])
def test_stages_before_the_response_are_asked_as_ever(call, faulty_server, method):
    faulty_server.always = say("Eh bien.")
    done = call(
        "ask",
        "Où est la gare de Lyon ?",
        "-M",
        method,
        "-u",
        faulty_server.url,
        "--set",
        "model.no_cache=true",
        "--json",
    )
    assert done.err.count("French: prompts, graph") == 1
    held = [json.dumps(asked.body["messages"]) for asked in faulty_server.calls]
    assert 1 <= sum("turn in French" in each for each in held) <= 2  # a draft and its edit
    assert not all("turn in French" in each for each in held)

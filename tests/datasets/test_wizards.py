"""Wizard of Wikipedia and Wizard of the Internet, in every form that they are published in."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pytest

from dialore.datasets import data_set, knowledge_pieces, split_dialogues
from dialore.errors import InputError
from dialore.methods.few_shot import topic_of
from tests.data_folder import real_file


def every_turn(name, path):
    return split_dialogues(data_set(name).read(path), cut="all")


def write(path, data):
    path.write_text(json.dumps(data), "utf-8")
    return path


def test_the_real_wikipedia_file():
    path = real_file("wizard_of_wikipedia/valid.json.gz")
    histories = every_turn("wizard-of-wikipedia", path)
    assert len({history.id.split("@")[0] for history in histories}) == 981
    # 3,939 wizard turns, of which 253 used no passage.
    assert len(histories) == 3939
    assert sum(not history.knowledge for history in histories) == 253
    # The first is on gardening: four answers, each after a turn of the apprentice.
    first = histories[:4]
    assert [len(history.turns) for history in first] == [1, 3, 5, 7]
    assert first[0].last.speaker == "user" and "Gardening" in first[0].last.text  # noqa: PT018
    assert first[0].reference.startswith("I live on a farm")
    assert first[0].knowledge == ("Gardening is considered by many people to be a relaxing activity.",)
    assert all(isinstance(item, str) for history in first for item in history.knowledge)
    texts = [passage.text for passage in knowledge_pieces("wizard-of-wikipedia", path)]
    assert len(texts) == len(set(texts))
    assert len(texts) == len({item.strip() for history in histories for item in history.knowledge})


TOPIC = ["Tea is a drink.", "It is made of leaves."]
ORIGINAL = {
    "chosen_topic": "Tea",
    "persona": "i drink tea.",
    "wizard_eval": 5,
    "chosen_topic_passage": TOPIC,
    "dialog": [
        {
            "speaker": "0_Wizard",
            "text": "Shall we talk about tea?",
            "checked_sentence": {"no_passages_used": "no_passages_used"},
            "checked_passage": {"no_passages_used": "no_passages_used"},
            "retrieved_passages": [{"Coffee": ["Coffee is roasted."]}],
        },
        {
            "speaker": "1_Apprentice",
            "text": "Yes, what is it made of?",
            "retrieved_passages": [{"Green tea": ["Green tea is not oxidised."]}],
        },
        {
            "speaker": "0_Wizard",
            "text": "Of leaves.",
            "checked_sentence": {"chosen_topic_0_Tea": "It is made of leaves."},
            "checked_passage": {"chosen_topic": "Tea"},
            "retrieved_passages": [],
        },
        {"speaker": "1_Apprentice", "text": "And green tea?", "retrieved_passages": []},
        {
            "speaker": "0_Wizard",
            "text": "It is not oxidised.",
            "checked_sentence": {"partner_Green_tea_0": "Green tea is not oxidised."},
            "checked_passage": {"partner_Green_tea_0": "Green tea"},
            "retrieved_passages": [],
        },
        {"speaker": "1_Apprentice", "text": "I see.", "retrieved_passages": []},
        {"speaker": "0_Wizard", "text": "Good.", "checked_sentence": {}, "checked_passage": {}},
    ],
}


def test_wikipedia_as_parlai_publishes_it(tmp_path):
    path = write(tmp_path / "valid_random_split.json", [ORIGINAL])
    histories = every_turn("wizard-of-wikipedia", path)
    # The wizard's opening answers nothing.
    assert [history.reference for history in histories] == ["Of leaves.", "It is not oxidised.", "Good."]
    assert [history.knowledge for history in histories] == [
        ({"text": "It is made of leaves.", "title": "Tea"},),
        ({"text": "Green tea is not oxidised.", "title": "Green tea"},),
        (),
    ]
    assert histories[0].texts == ("Shall we talk about tea?", "Yes, what is it made of?")
    assert [turn.speaker for turn in histories[0].turns] == ["system", "user"]
    assert (histories[0].topic, histories[0].extra) == (
        "Tea",
        {"user_persona": ["i drink tea."], "checked_topic": "Tea"},
    )
    texts = [passage.text for passage in knowledge_pieces("wizard-of-wikipedia", path)]
    assert texts == [*TOPIC, "Coffee is roasted.", "Green tea is not oxidised."]


def test_the_topic_of_a_turn_is_the_passage_that_was_checked(tmp_path):
    """As MSDP's released code takes it: of a turn in a talk on Blue that was looked up under Color, "Color"."""
    blue = _changed(ORIGINAL, lambda entry: entry.update(chosen_topic="Blue"))
    nothing = {"no_passages_used": "no_passages_used"}
    blue["dialog"][2] |= {"checked_sentence": {"self_Color_0": "It is made of leaves."}}
    blue["dialog"][2] |= {"checked_passage": {"self_Color_0": "Color"}}
    blue["dialog"][4] |= {"checked_sentence": nothing, "checked_passage": {"partner_Paint": "Paint"}}
    blue["dialog"][6] |= {"checked_sentence": nothing, "checked_passage": nothing}
    histories = every_turn("wizard-of-wikipedia", write(tmp_path / "valid.json", [blue]))
    assert [topic_of(history, "checked") for history in histories] == ["Color", "Paint", "Blue"]
    assert [history.knowledge for history in histories] == [
        ({"text": "It is made of leaves.", "title": "Color"},),
        (),
        (),
    ]


def test_a_search_is_the_topic_until_the_next(tmp_path):
    """As MSDP's released code takes it, also where the wizard answers out of what was found before."""
    later = _changed(SEARCHED, lambda entry: entry["dialog_history"][8].update(SEARCHED["dialog_history"][6]))
    path = tmp_path / "valid.jsonl"
    path.write_text(json.dumps({"7": later}) + "\n", "utf-8")
    histories = every_turn("wizard-of-internet", path)
    assert [topic_of(history, "checked") for history in histories] == ["mint tea", "mint tea"]
    assert [history.extra.get("query") for history in histories] == ["mint tea", None]  # typed for that turn alone
    pairs = [["Tea?", "Yes."], ["Mint?", "Yes."], ["Milk?", "No."]]
    entry = {"id": "1", "meta": [], "dialogue": pairs, "query": [["tea"], [" "], ["milk"]], "KB": [["a"], ["b"], ["c"]]}
    histories = every_turn("wizard-of-internet", write(tmp_path / "pairs.json", [entry]))
    assert [topic_of(history, "checked") for history in histories] == ["tea", "tea", "milk"]


def test_the_real_internet_file():
    histories = every_turn("wizard-of-internet", real_file("wizard_of_internet/valid.json.gz"))
    assert len({history.id.split("@")[0] for history in histories}) == 516
    assert len(histories) == 2881 - 264  # so many dialogues are opened by the wizard, who answers nobody there
    assert sum("query" in history.extra for history in histories) == 2467 - 208
    assert sum(bool(history.knowledge) for history in histories) == 2294 - 184
    # The first: books, a search for bank audits that told the wizard nothing, then one for the Superbowl that did.
    third, fourth = histories[2:4]
    assert (third.id, third.extra["query"], third.knowledge) == ("wizard-of-internet-129@5", "bank audit", ())
    assert fourth.extra == {"query": "Superbowl 2021", "user_persona": ["I work as a freelance accountant."]}
    assert fourth.knowledge[0].startswith("Super Bowl LV, the 55th Super Bowl")
    assert fourth.reference == "I will! It is on the 7th right ?"
    assert fourth.persona == ()


def test_the_queries_are_those_that_are_published_apart():
    histories = every_turn("wizard-of-internet", real_file("wizard_of_internet/valid.json.gz"))
    apart = json.loads(gzip.decompress(real_file("wizard_of_internet/valid_queries.json.gz").read_bytes()))
    ours = Counter(
        (history.id.split("@")[0].removeprefix("wizard-of-internet-"), history.last.text, history.extra["query"])
        for history in histories
        if "query" in history.extra
    )
    # Where the wizard opens the dialogue, "none" stands for what is answered: there is no history.
    said = [entry for entry in apart if entry["dialogue"] != [["none"]]]
    assert len(apart) - len(said) == 208
    theirs = Counter((entry["id"], entry["dialogue"][-1][0].strip(), entry["query"]) for entry in said)
    assert ours == theirs


def test_a_wizard_who_opens_the_dialogue_answers_nobody(tmp_path):
    """The benchmark's form writes "none" for the turn that nobody said; anybody may say so later."""
    pairs = [["none", "Hi, do you drink tea?"], ["none", "What do you drink?"], ["Milk.", "Cold?"]]
    entry = {"id": "1", "meta": [], "dialogue": pairs, "query": [["tea"], [], []], "KB": [["Tea is a drink."], [], []]}
    first, second = every_turn("wizard-of-internet", write(tmp_path / "valid.json", [entry]))
    assert [turn.text for turn in first.turns] == ["Hi, do you drink tea?", "none"]
    assert [turn.speaker for turn in first.turns] == ["system", "user"]
    assert first.reference == "What do you drink?"
    assert second.last.text == "Milk."


def message(action, text, contents=(), selected=()):
    pages = [{"url": f"http://{title}", "title": title, "content": lines} for title, lines in contents]
    return {"action": action, "text": text, "context": {"contents": pages, "selected_contents": list(selected)}}


PAGES = [("tea.org", ["Tea is a drink.", "Mint tea is a tisane."]), ("mint.org", ["Mint is a herb."])]
SEARCHED = {
    "apprentice_persona": "I like mint.\nI garden.",
    "dialog_history": [
        message("Wizard => Apprentice", "Hello!"),
        message("Apprentice => Wizard", "Is mint tea a tea?"),
        message("Wizard => SearchAgent", "mint"),
        message("SearchAgent => Wizard", "", PAGES[1:]),
        message("Wizard => SearchAgent", "mint tea"),
        message("SearchAgent => Wizard", "", PAGES),
        message("Wizard => Apprentice", "No, a tisane.", PAGES, [[False], [False, True], [True]]),
        message("Apprentice => Wizard", "Thanks."),
        message("Wizard => Apprentice", "Welcome.", PAGES, [[True], [False, False], [False]]),
    ],
}


def test_internet_as_parlai_publishes_it(tmp_path):
    path = tmp_path / "valid.jsonl"
    path.write_text(json.dumps({"7": SEARCHED}) + "\n" + json.dumps({"8": SEARCHED}) + "\n", "utf-8")
    histories = every_turn("wizard-of-internet", path)
    assert [history.id for history in histories] == [
        f"wizard-of-internet-{number}@{turn}" for number in (7, 8) for turn in (2, 4)
    ]
    first, second = histories[:2]
    assert (first.extra["query"], first.extra["queries"]) == ("mint tea", ["mint", "mint tea"])
    assert first.extra["user_persona"] == ["I like mint.", "I garden."]
    assert first.knowledge == (
        {"text": "Mint tea is a tisane.", "title": "tea.org", "url": "http://tea.org"},
        {"text": "Mint is a herb.", "title": "mint.org", "url": "http://mint.org"},
    )
    assert second.knowledge == ()
    assert "query" not in second.extra
    texts = [passage.text for passage in knowledge_pieces("wizard-of-internet", path)]
    assert sorted(texts) == ["Mint is a herb.", "Mint tea is a tisane.", "Tea is a drink."]


def _changed(entry, change):
    copied = json.loads(json.dumps(entry))
    change(copied)
    return copied


@pytest.mark.parametrize(
    ("name", "entry", "wanted"),
    [
        ("wizard-of-wikipedia", {"talk": []}, "line 1, entry 1: it has none of the fields dialog, dialogue"),
        ("wizard-of-wikipedia", {"dialogue": [["a", "b"]], "meta": []}, "field meta: 0 lists for 1 pairs"),
        ("wizard-of-wikipedia", _changed(ORIGINAL, lambda e: e["dialog"][2].pop("text")), r"field dialog\[2\]\.text"),
        ("wizard-of-internet", {"a": 1, "b": 2}, "nor one dialogue under its id"),
        (
            "wizard-of-internet",
            {"9": _changed(SEARCHED, lambda e: e["dialog_history"][1].update(action="Wave"))},
            r"field dialog_history\[1\]\.action: unknown action 'Wave'",
        ),
        (
            "wizard-of-internet",
            {"9": _changed(SEARCHED, lambda e: e["dialog_history"][6]["context"]["selected_contents"][1].pop())},
            r"dialog_history\[6\]\.context\.selected_contents: 1 selections for 2 sentences",
        ),
    ],
)
def test_a_wrong_entry_names_place_and_field(tmp_path, name, entry, wanted):
    with pytest.raises(InputError, match=wanted):
        every_turn(name, write(tmp_path / "valid.json", [entry]))

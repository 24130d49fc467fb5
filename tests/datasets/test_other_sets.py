"""Data sets of personas and small talk, COQ, and our own form."""

from __future__ import annotations

import json

import pytest

from dialore.cli.data import as_line
from dialore.datasets import data_set, data_set_names, knowledge_pieces, split_dialogues
from dialore.dialogue import read_dialogues
from dialore.errors import InputError
from tests.data_folder import real_file


def every_turn(name, path):
    return split_dialogues(data_set(name).read(path), cut="all")


def write(path, *lines):
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), "utf-8")
    return path


@pytest.mark.parametrize("name", data_set_names())
def test_every_data_set_says_what_it_is(name):
    reader = data_set(name)
    assert reader.name == name
    assert reader.version >= 1
    assert all((reader.languages, reader.paper, reader.licence, reader.where, reader.form, type(reader).__doc__))


# Dialogues, turns, turns that may be references.
@pytest.mark.parametrize(
    ("name", "file", "dialogues", "turns", "answers"),
    [
        ("personachat", "personachat/valid.json.gz", 1000, 14632, 7316),
        ("multi-session-chat", "multi_session_chat/session_5_valid.json.gz", 500, 5922, 2961),
        ("commonsense-dialogues", "commonsense_dialogues/valid.json.gz", 1157, 6619, 6619 - 1157),
    ],
)
def test_the_real_files(name, file, dialogues, turns, answers):
    whole = list(data_set(name).read(real_file(file)))
    assert len({talk.id for talk in whole}) == len(whole) == dialogues
    assert sum(len(talk.turns) for talk in whole) == turns
    assert sum(len(talk.answers) for talk in whole) == answers
    assert all(talk.persona for talk in whole) == ("persona" in data_set(name).has)


def test_real_dialogues():
    nurse = every_turn("personachat", real_file("personachat/valid.json.gz"))[0]
    assert nurse.persona[:2] == ("i'm a nurse.", "i am a great baker.")
    assert (nurse.texts, "baking" in nurse.reference) == (("hi",), True)
    reader = every_turn("multi-session-chat", real_file("multi_session_chat/session_5_valid.json.gz"))[0]
    assert reader.persona[0] == "I have two jobs."
    assert reader.extra["user_persona"][0] == "I like cooler weather."
    assert reader.reference.endswith("Fatal Charm about?")
    robin = every_turn("commonsense-dialogues", real_file("commonsense_dialogues/valid.json.gz"))[0]
    assert (robin.last.speaker, robin.extra["context"][:5]) == ("Robin", "Robin")


def test_personachat_as_parlai_publishes_it(tmp_path):
    path = write(
        tmp_path / "valid_both_original.txt",
        *("1 your persona: i sail.", "2 partner's persona: i cook.", "3 your persona: i am old."),
        *("4 hello !\thi , i sail .\t\thi|no", "5 nice .\tand you ?\t\tx|y"),
        *("1 your persona: i paint.", "2 __SILENCE__\ti paint .\t\ta|b", "3 great .\tthanks .\t\ta|b", ""),
    )
    first, second, third = every_turn("personachat", path)
    assert (first.persona, first.extra) == (("i sail.", "i am old."), {"user_persona": ["i cook."]})
    assert (second.texts, second.reference) == (("hello !", "hi , i sail .", "nice ."), "and you ?")
    assert (third.persona, third.texts) == (("i paint.",), ("i paint .", "great ."))
    with pytest.raises(InputError, match="line 2: no reply after a tab"):
        every_turn("personachat", write(path, "1 your persona: i sail.", "2 hello !"))
    with pytest.raises(InputError, match="line 1: no number"):
        every_turn("personachat", write(path, "your persona: i sail."))


def test_multi_session_chat_as_parlai_publishes_it(tmp_path):
    sessions = [{"personas": [], "dialog": [{"text": "Hi"}, {"text": "Ho"}], "time_num": 5, "time_unit": "days"}]
    entry = {
        "personas": [["I cook."], ["I sail.", "I am old."]],
        "dialog": [{"id": "Speaker 1", "text": "Still at sea?"}, {"id": "Speaker 2", "text": "Yes."}],
        "previous_dialogs": sessions,
        "metadata": {"initial_data_id": "valid_3", "session_id": 1},
    }
    (history,) = every_turn("multi-session-chat", write(tmp_path / "valid.txt", entry, ""))
    assert (history.id, history.reference) == ("multi-session-chat-valid_3@1", "Yes.")
    assert history.persona == ("I sail.", "I am old.")
    assert history.extra == {"user_persona": ["I cook."], "sessions": [{"turns": ["Hi", "Ho"], "ago": "5 days"}]}


def test_diamante_as_published(tmp_path):
    entry = {
        "conversation": [
            {"utterance": "你喜欢船吗？", "response_candidates": []},
            {"utterance": "喜欢，尤其是帆船。", "response_candidates": ["喜欢。", "", "不喜欢。"]},
            {"utterance": "我也是。", "response_candidates": [""]},
        ]
    }
    path = write(tmp_path / "valid.txt", entry, entry)
    histories = every_turn("diamante", path)
    first = histories[0].id.partition("@")[0]  # the same conversation twice
    assert [history.id for history in histories] == [f"{first}@1", f"{first}@2", f"{first}-2@1", f"{first}-2@2"]
    assert histories[0].extra == {"candidates": ["喜欢。", "不喜欢。"]}
    assert histories[1].extra == {}
    assert histories[1].language == "zh"
    bad = {"conversation": [{"utterance": 3}]}
    with pytest.raises(InputError, match=r"line 2, entry 2: field conversation\[0\]\.utterance"):
        every_turn("diamante", write(path, entry, bad))


def test_coq(tmp_path):
    entry = {"context": "A boat sank off the coast.", "questions": ["Why do boats sink?", " What is a lifeboat?"]}
    (history,) = every_turn("coq", write(tmp_path / "valid.jsonl", entry))
    assert history.texts == ("A boat sank off the coast.",)
    assert history.reference == "Why do boats sink? What is a lifeboat?"
    assert history.extra["questions"] == ["Why do boats sink?", "What is a lifeboat?"]
    with pytest.raises(InputError, match="field questions: all blank"):
        every_turn("coq", write(tmp_path / "valid.jsonl", {**entry, "questions": [" "]}))


def test_coqs_contexts_are_of_four_kinds(tmp_path):
    """EDIT, Section 3.2.1: book reviews, news, two observations, five sentences of a story."""
    kinds = {
        "goodreads": (
            {"rating": 5, "review_sentences": [[0, "A sea tale."], [1, "The ship sinks."]]},
            "A sea tale. The ship sinks.",
        ),
        "news": (
            {
                "link": "https://a.test",
                "headline": "Ship sinks",
                "category": "WORLD",
                "short_description": "Off Crete.",
            },
            "Ship sinks Off Crete.",
        ),
        "anli": (
            {"story_id": "x", "obs1": "Ann sailed.", "hyp1": "It blew.", "hyp2": "-", "obs2": "Ann swam."},
            "Ann sailed. Ann swam.",
        ),
        "timetravel": (
            {
                "story_id": "y",
                "premise": "Ann had a boat.",
                "initial": "She took it out.",
                "counterfactual": "She sold it.",
                "original_ending": "It blew. It sank. She swam.",
                "edited_ending": ["She was rich."],
            },
            "Ann had a boat. She took it out. It blew. It sank. She swam.",
        ),
    }
    for kind, (entry, context) in kinds.items():
        (history,) = every_turn("coq-contexts", write(tmp_path / f"{kind}.jsonl", entry))
        assert (history.texts, history.reference) == ((context,), None)
    plain = {"review_text": "A sea tale.", "rating": 5}
    assert every_turn("coq-contexts", write(tmp_path / "raw.json", plain))[0].texts == ("A sea tale.",)
    with pytest.raises(InputError, match="none of the four kinds"):
        every_turn("coq-contexts", write(tmp_path / "other.jsonl", {"text": "A sea tale."}))


ANSWERED = {
    "id": "a",
    "language": "en",
    "turns": [{"speaker": "ann", "text": "Hi"}, {"speaker": "bo", "text": "Tea?"}],
    "reference": "Please.",
    "knowledge": ["Tea is hot.", {"head": "tea", "relation": "IsA", "tail": "drink"}],
    "sources": [],
    "query": "tea",
}


def test_our_own_form_is_read_as_it_was_written(tmp_path):
    path = write(tmp_path / "talks.jsonl", ANSWERED)
    (history,) = split_dialogues(data_set("jsonl").read(path))
    assert json.loads(as_line(history)) == ANSWERED
    assert history == read_dialogues(path)[0]
    (whole,) = data_set("jsonl").read(path)
    assert (whole.turns[-1].speaker, whole.answers[0].sources, whole.answers[0].extra) == ("ann", (), {"query": "tea"})
    assert [passage.text for passage in knowledge_pieces("jsonl", path)] == ["Tea is hot.", "tea IsA drink"]


def test_our_own_form_without_references_is_cut(tmp_path):
    path = write(tmp_path / "talks.json", json.dumps({"turns": ["Hi", "Tea?", "Please."]}, indent=2))
    assert [history.reference for history in every_turn("jsonl", path)] == ["Tea?", "Please."]
    with pytest.raises(InputError, match="line 2, entry 2: field id: 'a' was already used"):
        every_turn("jsonl", write(path, ANSWERED, ANSWERED))
    with pytest.raises(InputError, match=r"line 2, entry 2: field turns\[0\]\.text"):
        every_turn("jsonl", write(path, ANSWERED, {"turns": [{"speaker": "ann"}]}))
    with pytest.raises(InputError, match="line 3: not valid JSON"):
        every_turn("jsonl", write(path, ANSWERED, "", '{"turns": '))
    (cut,) = every_turn("jsonl", write(path, '{"turns": ["Hi \\ud83d", "Ho"]}'))
    assert cut.last.text == "Hi \ufffd"

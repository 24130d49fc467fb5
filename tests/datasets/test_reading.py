"""What all readers share: ids, what is left out, nulls, and the forms that other tools write."""

from __future__ import annotations

import json
import logging
from importlib import import_module
from importlib.util import find_spec

import pytest

from dialore.cli.data import as_line
from dialore.datasets import data_set, split_dialogues
from dialore.datasets.base import BLANK, BLANK_REFERENCE, DOUBLE
from dialore.dialogue import Dialogue, conversation_of, read_dialogues
from dialore.errors import InputError, MissingExtraError
from dialore.files import MAX_JSON_DEPTH, load_json


def write(path, *entries):
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries), "utf-8")
    return path


def read(name, path):
    return list(data_set(name).read(path))


# --- ids


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        ("jsonl", [{"turns": ["Tea?"], "reference": "Yes."}, {"turns": ["Milk?"], "reference": "No."}]),
        ("dailydialog", [{"dialog": ["Tea?", "Yes."]}, {"dialog": ["Milk?", "No."]}]),
        ("diamante", [{"conversation": [{"utterance": text}, {"utterance": "Yes."}]} for text in ("Tea?", "Milk?")]),
        ("personachat", [{"meta": ["i paint"], "dialogue": [[text, "Yes."]]} for text in ("Tea?", "Milk?")]),
        ("kdconv", [{"name": "x", "messages": [{"message": text}, {"message": "Yes."}]} for text in ("Tea?", "Milk?")]),
        ("wizard-of-wikipedia", [{"meta": [["a"]], "dialogue": [[text, "Yes."]]} for text in ("Tea?", "Milk?")]),
    ],
)
def test_dialogues_of_two_splits_have_different_ids_and_one_dialogue_has_one(tmp_path, name, entries):
    first, second = entries
    (train,) = read(name, write(tmp_path / "x.train.jsonl", first))
    (test,) = read(name, write(tmp_path / "x.test.jsonl", second))
    both = read(name, write(tmp_path / "renamed.jsonl", second, first))
    assert train.id != test.id
    assert [dialogue.id for dialogue in both] == [test.id, train.id]


def test_equal_dialogues_without_ids_are_numbered(tmp_path):
    entry = {"turns": ["Tea?"], "reference": "Yes."}
    first, second = read("jsonl", write(tmp_path / "x.jsonl", entry, {**entry, "reference": "No."}))
    assert second.id == f"{first.id}-2"
    assert conversation_of(f"{second.id}@3") == second.id


def test_a_dialogue_that_stands_twice_under_its_id_is_left_out_and_counted(tmp_path, caplog):
    entry = {"id": "7", "dialogue": [["Tea?", "Yes."]], "query": [["", ""]]}
    reader = data_set("opendialkg")
    assert len(list(reader.read(write(tmp_path / "x.jsonl", entry, entry)))) == 1
    assert (reader.report.read, reader.report.left_out) == (1, {DOUBLE: 1})
    assert "opendialkg-7" in caplog.text
    other = {**entry, "dialogue": [["Milk?", "No."]]}
    with pytest.raises(InputError, match="opendialkg-7"):
        read("opendialkg", write(tmp_path / "x.jsonl", entry, other))


# --- what is left out


def test_a_blank_reference_is_left_out_and_counted(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    reader = data_set("jsonl")
    blank = {"id": "a", "turns": ["Hi.", "How many legs has a cat?"], "reference": " "}
    path = write(tmp_path / "x.jsonl", blank, {"id": "b", "turns": ["And a dog?"], "reference": "Four.", "refrence": 1})
    assert [dialogue.id for dialogue in reader.read(path)] == ["b"]
    assert reader.report.left_out == {BLANK_REFERENCE: 1}
    assert reader.report.unused_keys == {"refrence": 1}
    assert "x.jsonl" in caplog.text
    with pytest.raises(InputError, match=r"y\.jsonl.*reference is blank"):
        read("jsonl", write(tmp_path / "y.jsonl", blank))


def test_a_dialogue_without_text_is_left_out_and_counted(tmp_path):
    reader = data_set("dailydialog")
    path = write(tmp_path / "x.jsonl", {"dialog": [" "]}, {"dialog": ["Hi", "Ho"], "act": [1, 2]})
    assert len(list(reader.read(path))) == 1
    assert (reader.report.left_out, reader.report.unused_keys) == ({BLANK: 1}, {"act": 1})


def test_speakers_are_known_whatever_their_case(tmp_path):
    dialog = [{"speaker": "0_apprentice", "text": "Tea?"}, {"speaker": "1_WIZARD", "text": "A drink."}]
    path = write(tmp_path / "x.jsonl", {"chosen_topic": "Tea", "dialog": dialog})
    (history,) = split_dialogues(read("wizard-of-wikipedia", path), cut="all")
    assert (history.last.speaker, history.reference) == ("user", "A drink.")


# --- nulls


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("diamante", {"conversation": [{"utterance": t, "response_candidates": None} for t in ("Hi", "Ho")]}),
        ("kdconv", {"name": "x", "messages": [{"message": "Hi", "attrs": None}, {"message": "Ho", "attrs": None}]}),
        ("mtrag", {"task_id": "a::1", "input": [{"speaker": "User", "text": "Hi"}], "targets": None, "contexts": None}),
        (
            "jsonl",
            {
                "turns": [{"speaker": None, "text": "Hi"}],
                "reference": "Ho",
                "knowledge": [{"text": "x", "title": None}],
            },
        ),
    ],
)
def test_a_null_counts_as_not_said_at_every_depth(tmp_path, name, entry):
    (dialogue,) = read(name, write(tmp_path / "x.jsonl", entry))
    assert dialogue.texts[0] == "Hi"


def test_a_turn_without_labels_has_no_gold_plan(tmp_path):
    turns = [{"U": "u", "S": "s", "P-K": None}, {"U": "v", "S": "t", "P-K": []}]
    entry = {"persona": {"B1": "x", "B2": None}, "persona_kg": {"B1": {"0": "y", "1": None}}, "conversation": turns}
    (dialogue,) = read("kbp", write(tmp_path / "x.jsonl", entry))
    assert [answer.sources for answer in dialogue.answers] == [None, ()]


# --- forms of other tools

MESSAGES = [
    {"role": "system", "content": "Be kind."},
    {"role": "User", "content": [{"type": "text", "text": "Where do cats sleep?"}]},
    {"role": "assistant", "content": "In the sun."},
    {"role": "user", "content": "And dogs?"},
]


def test_chat_messages_are_dialogues_everywhere(tmp_path):
    path = write(tmp_path / "x.jsonl", {"messages": MESSAGES})
    (plain,) = read_dialogues(path)
    assert [(turn.speaker, turn.text) for turn in plain.turns][1:] == [("system", "In the sun."), ("user", "And dogs?")]
    assert plain.extra == {"instructions": "Be kind."}
    answered = {"messages": [*MESSAGES, {"role": "assistant", "content": "Indoors."}]}
    (whole,) = read_dialogues(write(path, answered))
    assert (whole.last.text, whole.reference) == ("And dogs?", "Indoors.")
    histories = split_dialogues(read("jsonl", path), cut="all")
    assert [history.reference for history in histories] == ["In the sun.", "Indoors."]
    with pytest.raises(InputError, match=r"x\.jsonl, line 1: field messages\[0\]\.role.*'tool'"):
        read_dialogues(write(path, {"messages": [{"role": "tool", "content": "x"}]}, {"turns": ["Hi"]}))


@pytest.mark.parametrize("fields", [{"reference": ["Sofa.", " ", "Sun."]}, {"references": ["Sofa.", "Sun."]}])
def test_several_references_are_kept_through_a_conversion(tmp_path, fields):
    (history,) = split_dialogues(read("jsonl", write(tmp_path / "x.jsonl", {"turns": ["Where?"], **fields})))
    assert (history.reference, history.references) == ("Sofa.", ("Sofa.", "Sun."))
    (again,) = split_dialogues(read("jsonl", write(tmp_path / "x.jsonl", json.loads(as_line(history)))))
    assert again == history
    assert Dialogue("Where?", references=["Sun."]).reference == "Sun."


def test_gold_knowledge_may_be_triples(tmp_path):
    path = write(tmp_path / "x.jsonl", {"turns": ["Hi"], "knowledge": [["sushi", "MadeOf", "rice"], "A text."]})
    (dialogue,) = read_dialogues(path)
    assert dialogue.knowledge == ({"head": "sushi", "relation": "MadeOf", "tail": "rice"}, "A text.")
    with pytest.raises(InputError) as caught:
        read_dialogues(write(path, {"turns": ["Hi"], "knowledge": [["sushi", "rice"]] * 50}))
    assert "field knowledge[0]" in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "entry",
    [
        {"dialogue": ["Hi .", "Hello !"], "topic": "x"},
        {"dialogue": [{"act": "x", "text": "Hi ."}, {"act": "y", "text": "Hello !"}]},
        {"utterances": ["Hi .", "Hello !"], "acts": [2, 1]},
    ],
)
def test_dailydialog_in_other_forms(tmp_path, entry):
    (dialogue,) = read("dailydialog", write(tmp_path / "x.jsonl", entry))
    assert dialogue.texts == ("Hi.", "Hello!")


@pytest.mark.parametrize("flat", [False, True])
def test_personachat_of_a_hub(tmp_path, flat):
    turns = [
        {"history": ["hello"], "candidates": ["no .", "hi , i paint ."]},
        {"history": ["hello", "hi , i paint .", "what ?"], "candidates": ["no .", "boats ."]},
    ]
    entries = [{"personality": ["i paint ."], "utterances": turns}]
    if flat:
        entries = [
            {"personality": ["i paint ."], "conv_id": 3, "utterance_idx": n, **turn} for n, turn in enumerate(turns)
        ]
    (dialogue,) = read("personachat", write(tmp_path / "x.jsonl", *entries))
    assert dialogue.texts == ("hello", "hi , i paint .", "what ?", "boats .")
    assert (dialogue.persona, [answer.turn for answer in dialogue.answers]) == (("i paint .",), [1, 3])


@pytest.mark.parametrize("messages", [str, list])
def test_opendialkg_rows_may_be_jsonl(tmp_path, messages):
    said = [{"type": "chat", "sender": who, "message": text} for who, text in (("User", "Tea?"), ("assistant", "Yes."))]
    row = {"Messages": json.dumps(said) if messages is str else said, "User Rating": "{}"}
    (history,) = split_dialogues(read("opendialkg", write(tmp_path / "x.jsonl", row)), cut="all")
    assert (history.texts, history.reference) == (("Tea?",), "Yes.")


def test_parquet_is_read_or_its_extra_is_named(tmp_path):
    path = tmp_path / "x.parquet"
    if find_spec("pyarrow") is None:
        path.write_bytes(b"PAR1")
        with pytest.raises(MissingExtraError, match=r"x\.parquet.*\[parquet\]"):
            read("jsonl", path)
        return
    rows = [{"turns": ["Tea?"], "reference": "Yes.", "topic": None}]
    import_module("pyarrow.parquet").write_table(import_module("pyarrow").Table.from_pylist(rows), path)
    (dialogue,) = read("jsonl", path)
    assert (dialogue.texts, read_dialogues(path)[0].reference) == (("Tea?", "Yes."), "Yes.")


# --- LoCoMo


def _locomo(tmp_path, session, **fields):
    conversation = {"session_1": session, **fields}
    questions = [{"question": "Who?", "answer": "A", "evidence": ["D1:1"], "category": 4}]
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([{"sample_id": "c1", "conversation": conversation, "qa": questions}]), "utf-8")
    return path


TURN = {"speaker": "A", "dia_id": "D1:1", "text": "Hi.", "blip_caption": None}


@pytest.mark.parametrize(
    ("date", "moment"),
    [
        ("1:56 pm on 8 May, 2023", "2023-05-08T13:56:00+00:00"),
        ("2023-05-08 13:56", "2023-05-08T13:56:00+00:00"),
        ("2023-05-08T13:56:00+02:00", "2023-05-08T13:56:00+02:00"),
        ("2023/05/20 (Sat) 02:21", "2023-05-20T02:21:00+00:00"),
    ],
)
def test_dates_of_sessions(tmp_path, date, moment):
    (dialogue,) = read("locomo", _locomo(tmp_path, [TURN], session_1_date_time=date))
    assert dialogue.extra["memory"][0]["said"] == moment


@pytest.mark.parametrize(
    ("session", "fields", "field"),
    [
        ([TURN], {"session_1_date_time": "8 mai 2023"}, "conversation.session_1_date_time"),
        ([TURN], {"session_1_date_time": ""}, "conversation.session_1_date_time"),
        ([TURN], {"session_1_date_time": None}, "conversation.session_1_date_time"),
        ([TURN], {}, "conversation.session_1_date_time"),
        ([{"speaker": "A"}], {"session_1_date_time": "2023-05-08"}, "conversation.session_1[0].dia_id"),
        (7, {"session_1_date_time": "2023-05-08"}, "conversation.session_1"),
    ],
)
def test_a_broken_session_is_named_by_file_entry_and_field(tmp_path, session, fields, field):
    with pytest.raises(InputError) as caught:
        read("locomo", _locomo(tmp_path, session, **fields))
    message = str(caught.value)
    assert "locomo.json, line 1, entry 1: " in message
    assert f"field {field}: " in message


# --- depth


def test_json_that_is_nested_too_deeply_is_an_error_of_its_line(tmp_path):
    deep = "[" * 980 + "]" * 980
    assert load_json("[" * MAX_JSON_DEPTH + "]" * MAX_JSON_DEPTH)
    with pytest.raises(ValueError, match="levels"):
        load_json(deep)
    path = tmp_path / "x.jsonl"
    path.write_text(f'{{"turns": ["Hi"]}}\n{{"turns": ["Ho"], "x": {deep}}}\n', "utf-8")
    for reader in (read_dialogues, lambda path: read("jsonl", path)):
        with pytest.raises(InputError, match=r"x\.jsonl, line 2.*levels"):
            reader(path)
    listed = tmp_path / "x.json"
    listed.write_text(f'[{{"turns": ["Ho"], "x": {deep}}}]', "utf-8")
    with pytest.raises(InputError, match=r"x\.json, line 1.*levels"):
        read("jsonl", listed)

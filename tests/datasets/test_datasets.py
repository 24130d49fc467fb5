"""Data sets on their real files where they may be had, and how whole dialogues are split into histories."""

from __future__ import annotations

import gzip
import json
import math

import pytest

from dialore.datasets import files
from dialore.datasets.dailydialog import untokenise
from dialore.datasets.registry import data_set, knowledge_pieces
from dialore.datasets.split import split_dialogues, stream_histories
from dialore.dialogue import Dialogue, content_id
from dialore.errors import InputError, UnknownNameError
from tests.data_folder import real_file

# Dialogues of the published files.
COUNTS = {
    "dailydialog": ("dailydialog/valid.json.gz", 1000),
    "xdailydialog-en": ("xdailydialog/en_dev.txt.gz", 995),
    "xdailydialog-zh": ("xdailydialog/zh_dev.txt.gz", 995),
}


@pytest.mark.parametrize("name", COUNTS)
def test_the_real_file_is_read_whole(name):
    file, count = COUNTS[name]
    reader = data_set(name)
    dialogues = list(reader.read(real_file(file)))
    assert len(dialogues) == count
    assert len({dialogue.id for dialogue in dialogues}) == count
    assert all(dialogue.language in reader.languages for dialogue in dialogues)
    assert all(turn.text and "__eou__" not in turn.text for dialogue in dialogues for turn in dialogue.turns)


def test_dailydialog_in_its_published_form(tmp_path):
    path = tmp_path / "valid.json.gz"
    pairs = [["That 's a nice hat , isn 't it ?", "It is ."], ["Thanks !", ""]]
    path.write_bytes(gzip.compress(json.dumps([{"meta": [], "dialogue": pairs}]).encode()))
    (dialogue,) = data_set("dailydialog").read(path)
    assert dialogue.texts == ("That's a nice hat, isn't it?", "It is.", "Thanks!")
    assert [turn.speaker for turn in dialogue.turns] == ["A", "B", "A"]


SAID = ("That's a nice hat, isn't it?", "It is.", "Thanks!")
ROW = {
    "dialog": ["That ' s a nice hat , isn ' t it ? ", " It is . ", "Thanks !"],
    "act": [2, 1, 1],
    "emotion": [0, 0, 4],
}


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{turn} __eou__ " for turn in ROW["dialog"]).strip() + "\n",
        "".join(f"{turn} __eou__" for turn in ROW["dialog"]) + "\n\n",
        json.dumps(ROW) + "\n",
        json.dumps([ROW], indent=1),
    ],
    ids=["text", "text without spaces", "rows", "list of rows"],
)
def test_dailydialog_as_its_authors_release_it(tmp_path, text):
    path = tmp_path / "dialogues_test.txt"
    path.write_text(text, "utf-8")
    (dialogue,) = data_set("dailydialog").read(path)
    assert (dialogue.id, dialogue.texts) == (content_id(SAID), SAID)
    assert [turn.speaker for turn in dialogue.turns] == ["A", "B", "A"]


def test_a_line_of_dailydialog_without_an_end_of_turn_is_named(tmp_path):
    path = tmp_path / "dialogues_test.txt"
    path.write_text("Hello . __eou__ Hi . __eou__\nnobody ends this\n", "utf-8")
    with pytest.raises(InputError, match=r"dialogues_test\.txt, line 2: no turn ends in __eou__"):
        list(data_set("dailydialog").read(path))


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("dailydialog", "{", "not valid JSON"),
        ("dailydialog", "{}", "line 1.*none of the fields dialogue, dialog"),
        ("dailydialog", '"text"', "not a list"),
        ("dailydialog", "", "empty"),
        ("dailydialog", '[{"dialogue": []}] more', "more text after the end"),
        (
            "dailydialog",
            '[{"dialogue": []},\n\n{"dialogue": [["a", 3]]}]',
            r"line 3, entry 2: field dialogue\[0\]\[1\]",
        ),
        ("dailydialog", '[{"dialogue": [["a", "b"]]}, {"turns": []}]', "entry 2"),
        ("xdailydialog-en", "Hi __eou__\t1\nno end of utterance\t1", "line 2"),
    ],
)
def test_another_form_is_one_clear_error(tmp_path, name, text, wanted):
    path = tmp_path / "file.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=wanted):
        list(data_set(name).read(path))


def test_a_break_is_named_by_its_line(tmp_path):
    # Far enough into the file that the reader has moved on several times.
    lines = json.dumps([{"dialogue": [["Hello there"] * 2] * 20}] * 3000, indent=1).split("\n")
    wanted = len(lines) - 30
    lines[wanted - 1] += " ,,"
    path = tmp_path / "valid.json"
    path.write_text("\n".join(lines), "utf-8")
    with pytest.raises(InputError, match=rf"valid.json, line {wanted}: not valid JSON"):
        list(data_set("dailydialog").read(path))


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b'[{"dialogue": [["caf\xe9", "b"]]}]', "not UTF-8"),
        (b"[" * 100_000, "not valid JSON"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path, content, wanted):
    path = tmp_path / "valid.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=wanted):
        list(data_set("dailydialog").read(path))


def test_small_talk_has_no_knowledge_to_build_of(tmp_path):
    with pytest.raises(InputError, match=r"dailydialog comes without knowledge.*kbp"):
        next(knowledge_pieces("dailydialog", tmp_path / "valid.json"))


def test_an_unknown_data_set_names_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean dailydialog"):
        data_set("dailydialogue")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("I don ' t know .", "I don't know."),
        ("He 's 5 years old ( I think ) .", "He's 5 years old (I think)."),
        ("$ 5 , please", "$5, please"),
        ("我不知道。", "我不知道。"),
    ],
)
def test_tokenised_text_is_joined(text, wanted):
    assert untokenise(text) == wanted


WHOLE = [Dialogue(id=f"d{number}", turns=["a", "b", "c", "d"][: number + 1]) for number in range(4)]


def test_the_last_turn_becomes_the_reference():
    histories = split_dialogues(WHOLE)
    assert [(history.id, history.texts, history.reference) for history in histories] == [
        ("d1", ("a",), "b"),
        ("d2", ("a", "b"), "c"),
        ("d3", ("a", "b", "c"), "d"),
    ]


def test_every_turn_but_the_first_may_be_a_reference():
    histories = split_dialogues(WHOLE, cut="all")
    assert [history.id for history in histories] == ["d1@1", "d2@1", "d2@2", "d3@1", "d3@2", "d3@3"]
    assert histories[-2].reference == "c"


def test_samples_are_taken_by_seed_and_kept_in_order():
    first = [history.id for history in split_dialogues(WHOLE, cut="all", limit=3, seed=5)]
    assert first == [history.id for history in split_dialogues(WHOLE, cut="all", limit=3, seed=5)]
    assert first == sorted(first)
    draws = {tuple(h.id for h in split_dialogues(WHOLE, cut="random", limit=2, seed=seed)) for seed in range(20)}
    assert len(draws) > 3


def test_histories_are_streamed_as_they_are_split():
    for settings in ({"cut": "all", "limit": 4}, {"cut": "random"}, {"cut": "random", "limit": 2}, {"limit": 9}):
        streamed = list(stream_histories(lambda: iter(WHOLE), seed=7, **settings))
        assert streamed == split_dialogues(WHOLE, seed=7, **settings)
        assert streamed


def test_entries_of_any_length_and_layout_are_read_alike(tmp_path):
    # Longer than the reader's chunk, so that entries and escapes are cut by its ends.
    turns = ['\u201cé" \\ 好 ' * 3000, "b\n" * 4000, "x" * 70000]
    entries = [{"dialogue": [[turn, f"reply {number}"]]} for number, turn in enumerate(turns * 2)]
    texts = []
    for layout in ({}, {"indent": 2}, {"ensure_ascii": False, "separators": (",", ":")}):
        path = tmp_path / "valid.json"
        path.write_text(json.dumps(entries, **layout), "utf-8")
        texts.append([dialogue.texts for dialogue in data_set("dailydialog").read(path)])
    path = tmp_path / "valid.jsonl"
    path.write_text("\n" + "\n\n".join(json.dumps(entry) for entry in entries), "utf-8")
    texts.append([dialogue.texts for dialogue in data_set("dailydialog").read(path)])
    assert all(each == texts[0] for each in texts)
    assert [first.split() for first, _ in texts[0]] == [turn.split() for turn in turns * 2]


def test_a_document_too_large_for_memory_is_read_alike(tmp_path, monkeypatch):
    listed = [{"dialogue": [["caf\u00e9", f"reply {number}"]], "weight": math.nan} for number in range(50)]
    keyed = {str(number): {"context": "c", "speaker": "Ann", "turns": ["好", "b"]} for number in range(50)}
    cases = {"dailydialog": listed, "commonsense-dialogues": keyed}
    read = {}
    for size in (1 << 20, 7):
        monkeypatch.setattr(files, "_AT_ONCE", size)
        for name, content in cases.items():
            path = tmp_path / "valid.json"
            path.write_text(json.dumps(content, ensure_ascii=False), "utf-8-sig")
            read[name, size] = list(data_set(name).read(path))
            assert len(read[name, size]) == 50
            assert read[name, size] == read[name, 1 << 20]
    path.write_text(json.dumps(listed)[:-1] + ', {"turns": []}]', "utf-8")
    with pytest.raises(InputError, match="entry 51: it has none of the fields dialogue, dialog"):
        list(data_set("dailydialog").read(path))
    path.write_text(json.dumps(listed)[:-1] + ",,]", "utf-8")
    with pytest.raises(InputError, match="not valid JSON"):
        list(data_set("dailydialog").read(path))


def test_a_limit_of_nothing_is_refused():
    with pytest.raises(InputError, match="at least 1"):
        split_dialogues(WHOLE, limit=0)

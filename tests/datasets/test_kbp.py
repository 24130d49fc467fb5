"""KBP against SAFARI's Table 1, and how its labels become a gold plan and gold knowledge."""

from __future__ import annotations

import copy
import gzip
import json
import zipfile

import pytest

from dialore.cli.data import describe_file
from dialore.datasets import data_set, knowledge_pieces, split_dialogues
from dialore.errors import InputError
from tests.data_folder import real_file

ENTRY = {
    "persona": {"B0": "我喜欢喝茶", "B1": "我住在海边"},
    "persona_kg": {"B0": {"K0": "龙井是绿茶。", "K1": "红茶是发酵茶。"}, "B1": {"K0": "海水是咸的。"}},
    "conversation": [
        {"U": "你好！", "S": "你好啊。", "P-K": []},
        {"U": "你住哪儿？", "S": "我家就在海边。", "P-K": [["B1"]]},
        {"U": "喝什么茶？", "S": "龙井，是一种绿茶。", "P-K": [["B0"], ["B0-K0"]]},
    ],
}


def write(path, entries):
    path.write_text(json.dumps(entries, ensure_ascii=False, indent=1), encoding="utf-8")
    return path


# Dialogues, samples, utterances, mean length, responses with persona and with both, of the table.
@pytest.mark.parametrize(
    ("file", "dialogues", "samples", "utterances", "length", "persona", "both"),
    [("train", 1981, 9821, 19642, 17.6, 86.1, 76.3), ("dev", 248, 1227, 2454, 17.3, 84.4, 74.2)],
)
def test_the_counts_are_those_of_the_papers_table_1(file, dialogues, samples, utterances, length, persona, both):
    found = describe_file("kbp", real_file(f"kbp/{file}.json.gz"))
    assert (found["dialogues"], found["samples"], found["turns"]) == (dialogues, samples, utterances)
    # The table's 4.93 of the validation split is not its own 1,227 samples in 248 dialogues, which are 4.95.
    assert found["samples_per_dialogue"] == pytest.approx({"train": 4.96, "dev": 4.95}[file], abs=0.005)
    assert found["turn_length"] == pytest.approx(length, abs=0.05)
    plans = found["share_of_plan"]
    assert set(plans) == {"none", "persona", "persona+documents"}
    assert 100 * (plans["persona"] + plans["persona+documents"]) == pytest.approx(persona, abs=0.05)
    assert 100 * plans["persona+documents"] == pytest.approx(both, abs=0.05)


def test_a_real_dialogue():
    # Star signs: two turns of small talk, then three that stand on the third persona sentence and its documents.
    whole = next(data_set("kbp").read(real_file("kbp/dev.json.gz")))
    histories = split_dialogues([whole], cut="all")
    assert [history.sources for history in histories] == [(), (), *[("persona", "documents")] * 3]
    assert {item["text"] for h in histories for item in h.knowledge if item["source"] == "persona"} == {
        whole.persona[2]
    }
    assert histories[3].reference == "两个，是巨蟹座和双鱼座。"
    assert histories[3].knowledge[1]["text"] == "天蝎座的 配对星座 是 巨蟹座与双鱼座"
    assert histories[3].knowledge[1]["text"] in whole.extra["documents"][whole.persona[2]]
    assert [len(texts) for texts in whole.extra["documents"].values()] == [5, 5, 5]


def test_labels_become_plan_and_knowledge(tmp_path):
    path = write(tmp_path / "dev.json", [ENTRY])
    first, second, third = split_dialogues(data_set("kbp").read(path), cut="all")
    assert (first.sources, first.knowledge) == ((), ())
    assert "sources" in first.model_fields_set
    assert (second.sources, second.knowledge) == (("persona",), ({"text": "我住在海边", "source": "persona"},))
    assert third.knowledge[1] == {"text": "龙井是绿茶。", "source": "documents", "persona": "我喜欢喝茶"}
    assert third.persona == ("我喜欢喝茶", "我住在海边")
    assert third.extra["documents"] == {
        "我喜欢喝茶": ["龙井是绿茶。", "红茶是发酵茶。"],
        "我住在海边": ["海水是咸的。"],
    }
    assert third.texts == ("你好！", "你好啊。", "你住哪儿？", "我家就在海边。", "喝什么茶？")
    pieces = [passage.text for passage in knowledge_pieces("kbp", path)]
    assert pieces == ["龙井是绿茶。", "红茶是发酵茶。", "海水是咸的。"]


def test_the_published_archive_is_read_by_member(tmp_path):
    archive = tmp_path / "kbp.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for name, count in (("kbp/train.json", 3), ("kbp/dev.json", 1)):
            zipped.writestr(name, json.dumps([ENTRY] * count))
        zipped.writestr("__MACOSX/kbp/._dev.json", b"\0")
    reader = data_set("kbp")
    assert len(list(reader.read(tmp_path / "kbp.zip:kbp/train.json"))) == 3
    assert len(list(reader.read(tmp_path / "kbp.zip:dev"))) == 1
    with pytest.raises(InputError, match=r"several files.*kbp.zip:FILE.*kbp/dev.json"):
        list(reader.read(archive))
    with pytest.raises(InputError, match="no file 'test'"):
        list(reader.read(tmp_path / "kbp.zip:test"))


def _with(change):
    entry = copy.deepcopy(ENTRY)
    change(entry)
    return entry


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        (_with(lambda e: e["conversation"][2].pop("S")), r"entry 2: field conversation\[2\]\.S: Field required"),
        (
            _with(lambda e: e["conversation"][1].update({"P-K": [["B9"]]})),
            r"conversation\[1\]\.P-K: 'B9' is no persona",
        ),
        (_with(lambda e: e["conversation"][2].update({"P-K": [["B0"], ["B0-K7"]]})), r"'B0-K7' is no document"),
        (_with(lambda e: e["persona_kg"].pop("B1")), r"field persona_kg\.B1: no documents"),
    ],
)
def test_a_wrong_entry_names_file_line_and_field(tmp_path, entry, wanted):
    path = write(tmp_path / "dev.json", [ENTRY, entry])
    second = path.read_text("utf-8").splitlines().index(" {", 2) + 1
    with pytest.raises(InputError, match=wanted) as error:
        list(data_set("kbp").read(path))
    assert str(error.value).startswith(f"{path}, line {second}, entry 2")
    assert "persona_kg" in error.value.hint


def test_a_file_that_is_cut_short(tmp_path):
    whole = json.dumps([ENTRY, ENTRY], ensure_ascii=False, indent=1)
    path = tmp_path / "dev.json"
    path.write_text(whole[:-40], "utf-8")
    with pytest.raises(InputError, match=r"dev.json, line \d+: not valid JSON"):
        list(data_set("kbp").read(path))
    path = tmp_path / "dev.json.gz"
    path.write_bytes(gzip.compress(whole.encode())[:-30])
    with pytest.raises(InputError, match="is cut short or not gzip"):
        list(data_set("kbp").read(path))

"""`dialore data`: list, show, stats and convert."""

from __future__ import annotations

import gzip
import json
import zipfile

import pytest

from dialore.dialogue import read_dialogues

KBP = {
    "persona": {"B0": "我喜欢喝茶", "B1": "我住在[海]边"},
    "persona_kg": {"B0": {"K0": "龙井是绿茶。"}, "B1": {"K0": "海水是咸的。"}},
    "conversation": [
        {"U": "你好！", "S": "你好啊。", "P-K": []},
        {"U": "你住哪儿？", "S": "我家就在海边。", "P-K": [["B1"]]},
        {"U": "喝什么茶？", "S": "龙井，是一种绿茶。", "P-K": [["B0"], ["B0-K0"]]},
        {"U": "好喝吗？", "S": "好喝！", "P-K": []},
    ],
}
SEARCHED = {
    "id": "7",
    "meta": ["I garden."],
    "dialogue": [["Is mint tea a tea?", "No, a tisane."], ["Thanks!", "Welcome."]],
    "query": [["mint tea"], []],
    "KB": [["Mint tea is a tisane."], []],
}


@pytest.fixture
def kbp(tmp_path):
    path = tmp_path / "dev.json.gz"
    path.write_bytes(gzip.compress(json.dumps([KBP, KBP]).encode()))
    return path


def test_list_says_what_each_holds_and_where_it_is(call):
    found = {each["name"]: each for each in call("data", "show", "--json").lines[0]}
    assert set(found) == {
        *("cmu-dog", "commonsense-dialogues", "coq", "coq-contexts", "dailydialog", "diamante", "everyday"),
        *("handbook-en", "handbook-zh", "holl-e", "jsonl", "kbp", "kdconv", "multi-session-chat"),
        *("locomo", "locomo-adversarial", "mtrag"),
        *("opendialkg", "personachat", "topical-chat"),
        *("wizard-of-internet", "wizard-of-wikipedia", "xdailydialog-en", "xdailydialog-zh"),
    }
    assert found["kbp"]["has"] == ["knowledge", "persona", "plan"]
    assert found["wizard-of-internet"]["has"] == ["knowledge", "query"]
    assert (found["kbp"]["languages"], found["kbp"]["version"]) == (["zh"], 1)
    assert "ruleGreen/SAFARI" in found["kbp"]["where"]
    out = call("data", "show").out
    assert all(name in out for name in found)
    assert (found["kbp"]["get"], found["coq"]["get"]) == (["train", "dev", "test"], [])
    err = call("data", "show").err
    assert "`dialore data get NAME` fetches dailydialog, kbp, mtrag, multi-session-chat, personachat" in err
    assert "conceptnet (CC BY-SA 4.0): all assertions of ConceptNet 5.7" in err


def test_show_puts_gold_knowledge_beside_its_turn(call, kbp):
    out = call("data", "show", "kbp", kbp, "-n", 1).out
    assert out.count("dialogue-") == 1
    assert "我住在[海]边" in out
    (line,) = [line for line in out.splitlines() if "龙井，是一种绿茶。" in line]
    assert "<persona, documents>" in line
    assert "龙井是绿茶。" in out
    assert out.count("<no source>") == 2


def test_show_as_json(call, kbp, tmp_path):
    first, second = call("data", "show", "kbp", kbp, "--json").lines
    assert (first["id"] != second["id"], first["pool"]) == (True, 2)
    assert "gold" not in first["turns"][0]
    assert first["turns"][1]["gold"]["sources"] == []
    assert first["turns"][3]["gold"]["knowledge"] == [{"text": "我住在[海]边", "source": "persona"}]
    path = tmp_path / "valid.json"
    path.write_text(json.dumps([SEARCHED]), "utf-8")
    (shown,) = call("data", "show", "wizard-of-internet", path, "--json").lines
    assert shown["turns"][1]["gold"]["extra"] == {"query": "mint tea"}
    assert "? mint tea" in call("data", "show", "wizard-of-internet", path).out


def test_stats(call, kbp, tmp_path):
    found = call("data", "show", "--stats", "kbp", kbp, "--json").lines[0]
    assert (found["dialogues"], found["samples"], found["turns"]) == (2, 8, 16)
    assert (found["turns_per_dialogue"], found["samples_per_dialogue"]) == (8, 4)
    assert found["share_with"] == {"knowledge": 0.5, "persona": 1.0, "plan": 1.0, "query": 0.0}
    assert found["share_of_plan"] == {"none": 0.5, "persona": 0.25, "persona+documents": 0.25}
    lengths = [len(turn[side]) for turn in KBP["conversation"] for side in "US"]
    assert (found["length_unit"], found["turn_length"]) == ("characters", sum(lengths) / 8)
    assert (found["knowledge_pieces"], found["knowledge_length"]) == (1.5, (7 + 5 + 6) / 2)
    path = tmp_path / "valid.json"
    path.write_text(json.dumps([SEARCHED]), "utf-8")
    found = call("data", "show", "--stats", "wizard-of-internet", path, "--json").lines[0]
    assert (found["length_unit"], found["turn_length"], found["knowledge_length"]) == ("words", 10 / 4, 5)
    assert found["share_with"]["query"] == 0.5
    assert (found["share_of_plan"], found["share_with"]["plan"]) == ({}, 0.0)


def test_stats_for_people(call, kbp):
    lines = call("data", "show", "--stats", "kbp", kbp).out.splitlines()
    assert any(line.split() == ["share", "of", "plan", "persona+documents", "0.250"] for line in lines)
    assert any(line.split() == ["samples", "8"] for line in lines)


def test_a_gold_plan_of_no_source_is_written_and_read(call, kbp, tmp_path):
    out = tmp_path / "out.jsonl"
    assert call("data", "convert", "kbp", kbp, "--cut", "all", "--out", out, "--json").lines[0]["dialogues"] == 8
    lines = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert [line["sources"] for line in lines[:4]] == [[], ["persona"], ["persona", "documents"], []]
    assert lines[0]["documents"] == {"我喜欢喝茶": ["龙井是绿茶。"], "我住在[海]边": ["海水是咸的。"]}
    read = read_dialogues(out)
    assert read[0].sources == ()
    assert "sources" in read[0].model_fields_set
    assert read[2].extra["documents"] == lines[0]["documents"]
    # What was written is a data set of its own, and comes out of it as it went in.
    again = call("data", "convert", "jsonl", out)
    assert again.lines == lines


def test_convert_reads_an_archive_and_draws_by_seed(call, tmp_path):
    archive = tmp_path / "kbp.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("kbp/train.json", json.dumps([KBP] * 5))
        zipped.writestr("kbp/dev.json", json.dumps([KBP]))
    drawn = call("data", "convert", "kbp", f"{archive}:train", "--cut", "all", "--limit", 6, "--seed", 3).lines
    assert len(drawn) == 6
    assert drawn == call("data", "convert", "kbp", f"{archive}:train", "--cut", "all", "--limit", 6, "--seed", 3).lines
    assert "name one as kbp.zip:FILE" in call("data", "convert", "kbp", archive).complaint


def test_a_wrong_file_leaves_nothing_behind(call, kbp, tmp_path):
    entry = json.loads(json.dumps(KBP))
    entry["conversation"][1]["P-K"] = [["B7"]]
    path = tmp_path / "dev.json"
    path.write_text(json.dumps([KBP, entry]), "utf-8")
    out = tmp_path / "out.jsonl"
    complaint = call("data", "convert", "kbp", path, "--cut", "all", "--out", out).complaint
    assert "line 1, entry 2: field conversation[1].P-K: 'B7' is no persona sentence" in complaint
    assert sorted(tmp_path.iterdir()) == sorted([kbp, path])
    for more in ([], ["--stats"]):
        assert "no such file" in call("data", "show", "kbp", tmp_path / "none.json", *more).complaint
        assert "did you mean kbp" in call("data", "show", "kpb", kbp, *more).complaint
    assert "holds something else" in call("data", "convert", "kbp", path, "--out", path).complaint
    path.write_text("[]", "utf-8")
    assert "the file is empty" in call("data", "show", "--stats", "kbp", path).complaint

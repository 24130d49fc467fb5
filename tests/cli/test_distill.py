"""`dialore distill` and `dialore train decision`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.training.test_decision import pairs, write

pytest.importorskip("sklearn")

STAGES = ("query-production", "topic-planning", "cross-revision", "fact-selection")


def test_the_command_trains_and_refuses_leaks(tmp_path, call):
    write(tmp_path / "train.json", pairs(20, 1))
    done = call("train", "decision", "wizard-of-internet", "--data", str(tmp_path), "--out", "model", "--json")
    assert json.loads(done.out)["kind"] == "decision"
    assert "A linear model" in call("models", "show", "model").out
    write(tmp_path / "dev.json", pairs(20, 1))
    again = call("train", "decision", "wizard-of-internet", "--data", str(tmp_path), "--out", "model")
    assert "is in the training file, too" in again.complaint


def test_a_run_is_distilled_and_again_from_its_folder(call, url, talks):
    model = ("--base-url", url, "--model", "capable")
    done = call("distill", "dcrag", "--dataset", "jsonl", "--data", talks, *model, "--out", "rows.jsonl", "--json")
    said = json.loads(done.out)
    assert set(said["rows"]) <= {f"dcrag/{stage}" for stage in STAGES}
    assert said["rows"]["dcrag/query-production"] == 1
    again = call("distill", "dcrag", "--from", "runs/distill-dcrag-jsonl", "--out", "again.jsonl")
    assert again.code == 0
    assert Path("again.jsonl").read_bytes() == Path("rows.jsonl").read_bytes()
    resumed = call("distill", "dcrag", "--dataset", "jsonl", "--data", talks, *model, "--out", "rows.jsonl")
    assert "0 answered, 0 failed, 1 were there" in resumed.err


def test_contexts_and_fit_questions_are_a_file_of_coq(call, url, talks):
    what = ("distill", "edit/question-generation", "--coq", "--dataset", "jsonl", "--data", talks)
    done = call(*what, "--base-url", url, "--model", "capable", "--out", "coq.jsonl")
    if done.code:  # none of the endpoint's questions shares a word with its context
        assert "nothing was gathered" in done.complaint
    else:
        assert "dialogues" in call("data", "stats", "coq", "coq.jsonl").out


def test_without_a_model_hard_matching_and_people_are_asked(call, talks, tmp_path):
    lines = [json.loads(line) for line in talks.read_text("utf-8").splitlines()]
    lines[0]["reference"] = "A sore throat? Tea with honey helps, and the job interview will go well."
    talks.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in lines), "utf-8")
    matched = ("distill", "dcrag", "--by", "matching", "--dataset", "jsonl", "--data", talks)
    done = call(*matched, "--out", "rows.jsonl", "--json")
    assert json.loads(done.out)["rows"]["dcrag/topic-planning"] == 1
    write(tmp_path / "train.json", pairs(3, 1))
    searched = ("--dataset", "wizard-of-internet", "--data", tmp_path / "train.json", "--cut", "all")
    done = call("distill", "search-query/query-generation", "--by", "people", *searched, "--out", "rows.jsonl")
    assert "search-query/query-generation" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dcrg", "--from", "x"), "did you mean dcrag"),
        (("dcrag", "--from", "nowhere.jsonl"), "nowhere.jsonl cannot be read"),
        (("dcrag", "--from", "x", "--by", "people"), "--from takes the answers of a finished run"),
        (("dcrag", "--coq", "--from", "x"), "--coq is of questions"),
        (("dcrag", "--by", "peple", "--dataset", "everyday"), "did you mean people"),
        (("dcrag",), "needs --dataset"),
    ],
)
def test_mistakes_are_one_line(call, arguments, message):
    assert message in call("distill", *arguments, "--out", "rows.jsonl").complaint

"""`dialore meta` and `dialore judge`: the tables, samples, and what goes wrong."""

from __future__ import annotations

import json
import re

import pytest
from benchmarks.endpoint import waited

from dialore.cli.meta import sample_judgements
from dialore.cli.options import JudgeSettings
from dialore.cli.score import default_metrics
from dialore.dialogue import Dialogue
from dialore.evaluation.meta import read_judgements
from dialore.experiments.store import Job, RunStore, System
from dialore.llm.model import Completion
from dialore.response import Demands, Response
from tests.evaluation.test_judges_comparing import ByLength, Opinionated, longer


@pytest.fixture
def data(tmp_path):
    """Forty-two labelled responses of three systems: what is attributable repeats the knowledge."""
    path = tmp_path / "judged.jsonl"
    lines = []
    for number in range(42):
        yes = number % 3 != 2
        fact = f"Bridge number {number} of the old town was built by a guild of masons."
        said = f"It was built by a guild of masons, bridge {number}." if yes else f"I like trains, {number} of them."
        line = {"turns": [f"Who built bridge {number}?"], "response": said, "system": f"system{number % 3}"}
        line |= {"knowledge": [fact], "labels": {"attributable": bool(yes and number % 5)}}
        lines.append(json.dumps(line) + "\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


class Engaged:
    """A judge that scores by length, refuses now and then, and counts."""

    name = "engaged"

    def __init__(self):
        self.asked = 0

    async def complete(self, request, on_token=None):
        self.asked += 1
        said = re.split(r"Friend-\d+: ", request.messages[1].content)[-1]
        return Completion(text="I'm sorry, I can't rate this." if "12" in said else json.dumps({"score": len(said)}))

    async def close(self):
        """Nothing."""


@pytest.fixture
def judge(monkeypatch):
    def put(model):
        monkeypatch.setattr("dialore.cli.score.open_model", lambda settings, name=None: model)
        return model

    return put


def test_metrics_without_a_model_are_held_to_people(call, data):
    done = call("meta", data, "-x", "kf1", "-x", "f1", "--json")
    assert done.code == 0, done.err
    ((found,),) = done.lines
    assert (found["set"], found["responses"]) == ("judged", 42)
    response, system = (one for one in found["agreements"] if one["metric"] == "kf1")
    assert response["auc"]["low"] <= response["auc"]["value"] <= response["auc"]["high"]
    assert response["auc"]["value"] > 0.8
    assert system["n"] == 3
    assert "f1: the dialogue has no reference (42)" in done.err


def test_the_table_is_shown(call, data):
    done = call("meta", data.parent, "-x", "knowledge-copy", "-x", "distinct-2")
    assert done.code == 0, done.err
    assert "judged: responses, yes or no" in done.out
    assert "judged: systems" in done.out
    assert all(name in done.out for name in ("knowledge-copy", "distinct-2", "±0."))


def test_the_default_is_every_metric_without_a_model():
    def names(**given):
        return default_metrics(JudgeSettings(**given), without=("plan",))

    assert {"kf1", "f1", "bleu", "rouge-l", "cdp", "cdf", "distinct-2"} <= set(names())
    assert not {"meep", "overall", "ragas-faithfulness", "planning-accuracy", "perplexity"} & set(names())
    assert set(names(language_model="m")) >= set(names())


def test_what_a_judge_refuses_is_counted(call, data, judge):
    model = judge(Engaged())
    done = call("meta", data, "-x", "meep", "--limit", 20, "--seed", 3, "--json")
    assert done.code == 0, done.err
    refused = done.lines[0][0]["problems"]["meep"].get("refused: the judge refused", 0)
    assert model.asked == 20 + refused
    assert "without a measure: meep: refused" in done.err or not refused


def test_a_judge_behind_an_endpoint_is_asked_once(call, data, url, tmp_path):
    model = ("-u", url, "-m", "once-0", "--set", f"model.cache={tmp_path / 'kept.sqlite'}")
    first = call("meta", data, "-x", "meep", *model, "--json")
    assert first.code == 0, first.err
    asked = waited(url, "once-0")[0]
    assert asked >= 40
    assert call("meta", data, "-x", "meep", *model, "--json").lines == first.lines
    assert waited(url, "once-0")[0] == asked


def test_limit_and_seed_sample(data):
    judgements = read_judgements(data)

    def ids(seed):
        return [one.id for one in sample_judgements(judgements, 10, seed)]

    assert len(ids(1)) == len(ids(2)) == 10
    assert ids(1) != ids(2)
    assert ids(1) == ids(1)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("-x", "beauty"), "unknown metric"),
        (("-x", "meep"), "a judge is a language model"),
        (("no-such.jsonl",), "no such file"),
    ],
)
def test_what_cannot_be_done_is_one_line(call, data, arguments, wanted, judge):
    judge(None)
    assert wanted in call("meta", data, *arguments).complaint


def test_an_empty_folder_says_what_is_wanted(call, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "dialore meta --help" in call("meta", tmp_path / "empty").complaint


@pytest.fixture
def run(tmp_path):
    """Eight dialogues, two systems; the second says ever more, and asks more."""
    folder = tmp_path / "run"
    with RunStore.create(folder) as store:
        systems = [System(0, "brief", "vanilla", {}, "m"), System(1, "wordy", "dcrag", {}, "m")]
        store.set_up({}, systems, [Dialogue(id=f"d{n}", turns=[f"Number {n}."]) for n in range(8)])
        for n in range(8):
            for system, text in enumerate(("xx", "x" * (n + 1))):
                demands = Demands(explicit=["q" * (system + 1)])
                store.add(Job(n, system), Response(id=f"d{n}", method="m", text=text, demands=demands))
    return folder


def test_two_systems_are_compared_in_both_orders(call, run, judge):
    model = judge(Opinionated(longer))
    done = call("judge", run, "--pairwise", "wordy", "brief", "--criteria", "naturalness,coherence", "--json")
    assert done.code == 0, done.err
    rows = done.lines[0]
    assert [row["criterion"] for row in rows] == ["naturalness", "coherence"]
    assert {(row["wins"], row["losses"], row["ties"]) for row in rows} == {(6, 1, 1)}
    assert rows[0]["p"] == pytest.approx(0.125)
    assert rows[0]["position_bias"] == 0.0
    assert len(model.asked) == 14
    shown = call("judge", run, "--pairwise", "brief", "wordy", "-c", "naturalness")
    assert len(model.asked) == 14
    assert "naturalness" in shown.out
    assert "sign test" in shown.err


def test_a_judge_that_goes_by_place_decides_nothing_and_is_found_out(call, run, judge):
    judge(Opinionated(lambda a, b: "A"))
    row = call("judge", run, "--pairwise", "wordy", "brief", "-c", "overall", "--json").lines[0][0]
    assert (row["wins"], row["losses"], row["ties"]) == (0, 0, 8)
    assert row["position_bias"] == 7 / 8
    assert row["p"] == 1


def test_queries_and_several_at_once(call, run, judge):
    judge(Opinionated(longer))
    rows = call("judge", run, "--pairwise", "wordy", "brief", "--queries", "--json").lines[0]
    assert [row["criterion"] for row in rows] == ["relevance", "specificity", "overall"]
    assert rows[0]["wins"] == 8
    judge(ByLength())
    rows = call("judge", run, "--together", "--limit", 4, "--json").lines[0]
    assert [(row["system"], row["score"], row["n"]) for row in rows] == [("brief", 2.0, 4), ("wordy", 2.5, 4)]
    shown = call("judge", run, "--together", "--limit", 4)
    assert "2.50 ±" in shown.out


def test_a_judge_behind_a_real_endpoint(call, data, run, url):
    """It answers whatever fits the schema, and so always A: every comparison is a tie that place decided."""
    model = ("--base-url", url, "--model", "m", "--set", "model.no_cache=true")
    row = call("judge", run, "--pairwise", "wordy", "brief", "-c", "coherence", *model, "--json").lines[0][0]
    assert (row["ties"], row["problems"]) == (8, {})
    assert abs(row["position_bias"]) == 7 / 8
    rows = call("judge", run, "--together", *model, "--json").lines[0]
    assert [(one["n"], one["problems"]) for one in rows] == [(8, {}), (8, {})]
    scored = call("score", run, "-x", "meep", "-x", "overall", *model, "--json")
    assert scored.code == 0, scored.err
    assert [system["scores"]["overall"]["n"] for system in scored.lines[0]] == [8, 8]
    done = call("meta", data, "-x", "meep", *model, "--json")
    assert done.code == 0, done.err
    assert done.lines[0][0]["problems"]["meep"] == {}


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ((), "judge what?"),
        (("--pairwise", "wordy", "breef"), "did you mean brief"),
        (("--pairwise", "wordy", "wordy"), "name two or more"),
        (("--pairwise", "wordy", "brief", "-c", "beauty"), "unknown criterion"),
        (("--pairwise", "wordy", "brief"), "a judge is a language model"),
        (("--together", "-c", "beauty"), "unknown criterion"),
        (("--pairwise", "wordy", "brief", "--system", "wordy"), "--system goes with --together"),
        (("--together", "--system", "wordy"), "name two or more"),
    ],
)
def test_what_cannot_be_judged_is_one_line(call, run, arguments, wanted, judge):
    judge(None if "model" in wanted else ByLength())
    assert wanted in call("judge", run, *arguments).complaint

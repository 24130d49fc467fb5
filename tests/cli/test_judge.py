"""`dialore judge` and `dialore score --against-ratings`: the tables, and what goes wrong."""

from __future__ import annotations

import json

import pytest

from dialore.cli.options import JudgeSettings
from dialore.cli.score import default_metrics
from dialore.dialogue import Dialogue
from dialore.experiments.store import Job, RunStore, System
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
        line = {"id": f"b{number}", "turns": [f"Who built bridge {number}?"], "response": said}
        line |= {"system": f"system{number % 3}"}
        line |= {"knowledge": [fact], "labels": {"attributable": bool(yes and number % 5)}}
        lines.append(json.dumps(line) + "\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture
def judge(monkeypatch):
    def put(model):
        monkeypatch.setattr("dialore.cli.score.open_model", lambda settings, name=None: model)
        return model

    return put


def rated(call, data, *options):
    return call("score", data, "--data", data, "--against-ratings", data, *options)


def test_metrics_without_a_model_are_compared_with_people(call, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = rated(call, data, "-x", "kf1", "-x", "f1", "--json")
    assert done.code == 0, done.err
    (found,) = done.lines
    response, system = (one for one in found if one["metric"] == "kf1")
    area = response["figures"]["auc"]
    assert (response["level"], response["n"]) == ("response", 42)
    assert area["value"] > 0.8
    assert area["low"] <= area["value"] <= area["high"]
    assert (system["level"], system["n"]) == ("system", 3)
    assert next(one["reason"] for one in found if one["metric"] == "f1") == "too few responses"
    shown = rated(call, data, "-x", "knowledge-copy", "-x", "distinct-2")
    assert all(name in shown.out for name in ("knowledge-copy", "distinct-2", "attributable", "±0."))


def test_annotations_are_ratings_too(call, run, tmp_path):
    def annotation(number, system, value):
        known = {"annotator": "a", "item": f"{number}{system}", "dialogue": f"d{number}", "criteria": "edit"}
        values = {"criterion": "reasonable", "form": "likert", "systems": [system], "values": {system: value}}
        return json.dumps(known | values) + "\n"

    lines = [annotation(number, "wordy", number % 4) for number in range(8)]
    (tmp_path / "annotations.jsonl").write_text("".join(lines), "utf-8")
    ratings = tmp_path / "annotations.jsonl"
    (rows,) = call("score", run, "-x", "cdp", "--against-ratings", ratings, "--json").lines
    assert {(row["criterion"], row["level"], row["n"]) for row in rows} == {("reasonable", "response", 8)}


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ({"id": "d0", "ratings": {"overall": "good"}}, "ratings.overall"),
        ({"id": "d0", "labels": {"true": "yes"}}, "labels.true"),
        ({"ratings": {"overall": 1}}, "id"),
        ({"id": "d0"}, "no response is rated"),
        ({"id": "nobody", "ratings": {"overall": 1}}, "'nobody'"),
    ],
)
def test_ratings_that_cannot_be_used_are_one_line(call, run, tmp_path, line, wanted):
    path = tmp_path / "ratings.jsonl"
    path.write_text(json.dumps(line) + "\n", "utf-8")
    assert wanted in call("score", run, "-x", "distinct-2", "--against-ratings", path).complaint


def test_the_default_is_every_metric_without_a_model():
    def names(**given):
        return default_metrics(JudgeSettings(**given))

    assert {"kf1", "f1", "bleu", "rouge-l", "cdp", "cdf", "distinct-2"} <= set(names())
    assert not {"meep", "overall", "ragas-faithfulness", "perplexity"} & set(names())
    assert set(names(language_model="m")) >= set(names())


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


def test_a_judge_behind_a_real_endpoint(call, run, url):
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

"""`dialore meta` and `dialore judge`: the tables, what is gone on from, and what goes wrong."""

from __future__ import annotations

import json

import pytest

from dialore.cli.measuring import default_metrics
from dialore.cli.options import MeasureSettings
from dialore.dialogue import Dialogue
from dialore.experiments.store import Job, RunStore, System
from dialore.llm.model import Completion
from dialore.response import Demands, Response
from tests.evaluation.test_judges_comparing import ByLength, Opinionated, longer

HEAD = "model_name\tdata_source\tknowledge\tmessage\tresponse\tbegin_label\n"


@pytest.fixture
def data(tmp_path):
    """Forty-two labelled responses of three systems: what is attributable repeats the knowledge."""
    folder = tmp_path / "data"
    folder.mkdir()
    lines = []
    for number in range(42):
        yes = number % 3 != 2
        fact = f"Bridge number {number} of the old town was built by a guild of masons."
        said = f"It was built by a guild of masons, bridge {number}." if yes else f"I like trains, {number} of them."
        label = "Fully attributable" if yes and number % 5 else "Not fully attributable"
        lines.append(f"system{number % 3}\twow\t{fact}\tWho built it?\t{said}\t{label}\n")
    (folder / "begin_dev_wow.tsv").write_text(HEAD + "".join(lines), encoding="utf-8")
    return folder


class Engaged:
    """A judge that scores by length, refuses now and then, and counts."""

    name = "engaged"

    def __init__(self):
        self.asked = 0

    async def complete(self, request, on_text=None):
        self.asked += 1
        said = request.messages[1].content.rpartition("Friend: ")[2]
        return Completion(text="I'm sorry, I can't rate this." if "12" in said else json.dumps({"score": len(said)}))

    async def close(self):
        """Nothing."""


@pytest.fixture
def judge(monkeypatch):
    def put(model):
        monkeypatch.setattr("dialore.cli.measuring.connecting", lambda _: lambda settings, name: model)
        return model

    return put


def test_metrics_without_a_model_are_held_to_people(call, data, tmp_path):
    done = call("meta", "--data", data, "-x", "kf1", "-x", "f1", "--markdown", tmp_path / "meta.md", "--json")
    assert done.code == 0, done.err
    ((found,),) = done.lines
    assert (found["set"], found["responses"]) == ("begin_dev_wow", 42)
    response, system = (one for one in found["agreements"] if one["metric"] == "kf1")
    assert response["auc"]["low"] <= response["auc"]["value"] <= response["auc"]["high"]
    assert response["auc"]["value"] > 0.8
    assert system["n"] == 3
    assert "f1: the dialogue has no reference (42)" in done.err
    written = (tmp_path / "meta.md").read_text(encoding="utf-8")
    assert "## begin_dev_wow" in written
    assert f"| kf1 | attributable | 42 | {response['auc']['value']:.3f} [" in written
    assert "not available: f1: the dialogue has no reference (42)" in written


def test_the_table_is_shown(call, data, monkeypatch):
    monkeypatch.setenv("DIALORE_DATA", str(data))
    done = call("meta", "begin_dev_wow", "-x", "knowledge-copy", "-x", "distinct-2")
    assert done.code == 0, done.err
    assert "begin_dev_wow: responses, yes or no" in done.out
    assert "begin_dev_wow: systems" in done.out
    assert all(name in done.out for name in ("knowledge-copy", "distinct-2", "±0."))


def test_the_default_is_every_metric_without_a_model():
    def names(**given):
        return default_metrics(MeasureSettings(**given), without=("plan",))

    assert {"kf1", "f1", "bleu", "rouge-l", "cdp", "cdf", "distinct-2"} <= set(names())
    assert not {"meep", "overall", "ragas-faithfulness", "planning-accuracy", "perplexity"} & set(names())
    assert set(names(language_model="m")) >= set(names())


def test_a_judge_is_asked_once_and_gone_on_from(call, data, tmp_path, judge):
    first = judge(Engaged())
    kept = tmp_path / "kept.jsonl"
    arguments = ("meta", "--data", data, "-x", "meep", "--limit", 20, "--seed", 3, "--measures", kept, "--json")
    done = call(*arguments)
    assert done.code == 0, done.err
    refused = done.lines[0][0]["problems"]["meep"].get("refused: the judge refused", 0)
    assert first.asked == 20 + refused
    lines = kept.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 20
    # A crash leaves half a line, and what came before it stands.
    kept.write_text("\n".join(lines[:15]) + "\n" + lines[15][:30], encoding="utf-8")
    second = judge(Engaged())
    again = call(*arguments)
    assert again.lines == done.lines
    assert 5 <= second.asked <= 5 + refused
    assert not call(*arguments[:-1]).err.count("error")
    other = judge(Engaged())
    other.name = "other"
    call(*arguments)
    assert other.asked == first.asked


def test_limit_and_seed_draw(call, data, judge, tmp_path):
    def drawn(seed):
        judge(Engaged())
        kept = tmp_path / f"{seed}.jsonl"
        call("meta", "--data", data, "-x", "meep", "--limit", 10, "--seed", seed, "--measures", kept)
        return {json.loads(line)["item"] for line in kept.read_text(encoding="utf-8").splitlines()}

    assert len(drawn(1)) == len(drawn(2)) == 10
    assert drawn(1) != drawn(2)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("begin_dev_wov",), "did you mean begin_dev_wow"),
        (("-x", "beauty"), "unknown metric"),
        (("-x", "meep"), "a judge is a language model"),
        (("topicalchat_usr",), "no file topicalchat_usr.json"),
        (("--markdown", "no/such/folder/x.md"), "cannot write"),
    ],
)
def test_what_cannot_be_done_is_one_line(call, data, arguments, wanted, judge):
    judge(None)
    assert wanted in call("meta", "--data", data, *arguments).complaint


def test_without_data_it_says_where_to_point(call, tmp_path, monkeypatch):
    monkeypatch.delenv("DIALORE_DATA", raising=False)
    assert "--data" in call("meta").complaint
    (tmp_path / "empty").mkdir()
    assert "begin_dev_wow.tsv" in call("meta", "--data", tmp_path / "empty").complaint
    assert "no such folder" in call("meta", "--data", tmp_path / "none").complaint


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
    assert rows[0]["position_bias"] == {"first": 0, "second": 0, "n": 8, "lean": 0.0}
    assert len(model.asked) == 14
    shown = call("judge", run, "--pairwise", "brief", "wordy", "-c", "naturalness")
    assert len(model.asked) == 14
    assert "naturalness" in shown.out
    assert "sign test" in shown.err


def test_a_judge_that_goes_by_place_decides_nothing_and_is_found_out(call, run, judge):
    judge(Opinionated(lambda a, b: "A"))
    row = call("judge", run, "--pairwise", "wordy", "brief", "-c", "overall", "--json").lines[0][0]
    assert (row["wins"], row["losses"], row["ties"]) == (0, 0, 8)
    assert row["position_bias"]["first"] == 7
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


def test_a_judge_behind_a_real_endpoint(call, data, run, url, tmp_path):
    """It answers whatever fits the schema, and so always A: every comparison is a tie that place decided."""
    model = ("--base-url", url, "--model", "m", "--no-cache")
    row = call("judge", run, "--pairwise", "wordy", "brief", "-c", "coherence", *model, "--json").lines[0][0]
    assert (row["ties"], row["problems"]) == (8, {})
    assert abs(row["position_bias"]["lean"]) == 7 / 8
    rows = call("judge", run, "--together", *model, "--json").lines[0]
    assert [(one["n"], one["problems"]) for one in rows] == [(8, {}), (8, {})]
    scored = call("score", run, "-x", "meep", "-x", "overall", *model, "--json")
    assert scored.code == 0, scored.err
    assert [system["scores"]["overall"]["n"] for system in scored.lines[0]] == [8, 8]
    done = call("meta", "--data", data, "-x", "meep", *model, "--measures", tmp_path / "kept.jsonl", "--json")
    assert done.code == 0, done.err
    assert done.lines[0][0]["problems"]["meep"] == {}


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ((), "judge what?"),
        (("--pairwise", "wordy", "breef"), "did you mean brief"),
        (("--pairwise", "wordy", "wordy"), "with itself"),
        (("--pairwise", "wordy", "brief", "-c", "beauty"), "unknown criterion"),
        (("--pairwise", "wordy", "brief"), "a judge is a language model"),
        (("--together", "-c", "beauty"), "unknown criterion"),
        (("--pairwise", "wordy", "brief", "-s", "wordy"), "--system goes with --together"),
        (("--together", "-s", "wordy"), "at least two systems"),
    ],
)
def test_what_cannot_be_judged_is_one_line(call, run, arguments, wanted, judge):
    judge(None if "model" in wanted else ByLength())
    assert wanted in call("judge", run, *arguments).complaint

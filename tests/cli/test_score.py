"""`dialore score`: figures, what is not available and why, judges, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import math
import re
import sqlite3
import sys
from pathlib import Path

import pytest

from dialore.evaluation import meteor, overlap
from dialore.experiments.config import make_config
from dialore.experiments.dataframes import load_run
from dialore.experiments.run import run_experiment
from dialore.experiments.store import FILE, Job, RunStore
from dialore.response import Response
from dialore.session import open_model
from tests.cli.processes import interrupted
from tests.experiments.conftest import write_dialogues

CACHED = [overlap._sacrebleu, overlap._bleu_sums, overlap._english_tokenizer, meteor.find_wordnet]


@pytest.fixture
def run(tmp_path):
    """A run of two systems over six dialogues, one response failed; no gold knowledge, no plan."""
    data = write_dialogues(tmp_path / "dialogues.jsonl", 6)
    given = {"name": "small", "dataset": {"name": "jsonl", "path": str(data)}, "systems": ["vanilla", "dcrag"]}
    folder = tmp_path / "run"
    config = make_config(given | {"models": [{"model": "lexical"}]})
    assert asyncio.run(run_experiment(config, folder, open_model)).ok == 12
    with RunStore.open(folder) as store, store.writing():
        store.add(Job(5, 0), Response(id="d5", method="vanilla", text="", status="failed", error="down"))
    return folder


def all_numbers(data):
    """Every number in JSON data."""
    if isinstance(data, dict):
        return [number for value in data.values() for number in all_numbers(value)]
    if isinstance(data, list):
        return [number for value in data for number in all_numbers(value)]
    return [data] if isinstance(data, int | float) and not isinstance(data, bool) else []


def test_figures_with_their_intervals_on_the_terminal(call, run):
    done = call("score", run, "-x", "bleu-1", "-x", "f1", "-x", "distinct-1")
    assert done.code == 0
    for word in ("vanilla", "dcrag", "bleu-1", "f1", "distinct-1", "±"):
        assert word in done.out
    assert "nan" not in done.out.lower()


def test_shares_are_shown_in_per_cent_and_json_has_them_from_0_to_1(call, run):
    shown = call("score", run, "-x", "f1", "-x", "distinct-1").out
    systems = json.loads(call("score", run, "--json").out)
    for metric, factor in (("f1", 100), ("distinct-1", 1)):
        line = next(line for line in shown.splitlines() if line.split()[:1] == [metric])
        assert f"{systems[0]['scores'][metric]['value'] * factor:.2f}" in line
        assert line.split()[-1] == "%"
    assert systems[0]["scores"]["f1"]["value"] <= 1


def test_json_holds_every_figure_and_a_second_time_the_same(call, run):
    first = call("score", run, "--json")
    assert first.code == 0
    systems = json.loads(first.out)
    assert [system["name"] for system in systems] == ["vanilla", "dcrag"]
    f1 = systems[0]["scores"]["f1"]
    assert f1["n"] == 5
    assert f1["low"] <= f1["value"] <= f1["high"]
    assert f1["problems"] == {"unavailable": 1}
    assert "the response failed" in f1["reason"]
    assert systems[1]["scores"]["f1"]["n"] == 6
    assert call("score", run, "--json").out == first.out
    assert {"bleu", "cdp", "cdf", "rouge-l", "kf1"} <= set(systems[0]["scores"])
    assert not {"perplexity", "meep", "knowledge-consistency"} & set(systems[0]["scores"])


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        ("kf1", "the dialogue has no gold knowledge"),
        ("planning-accuracy", "the dialogue has no gold plan"),
        ("perplexity", "no language model was given"),
    ],
)
def test_what_cannot_be_computed_is_not_available_with_its_reason(call, run, metric, reason):
    """Never 0, never NaN: null and the reason."""

    def refuse(text):
        raise AssertionError(f"{text} is no JSON")

    done = call("score", run, "-x", metric, "--json")
    assert done.code == 0
    score = json.loads(done.out, parse_constant=refuse)[0]["scores"][metric]
    assert (score["value"], score["low"], score["high"], score["n"]) == (None, None, None, 0)
    assert reason in score["reason"]
    assert all(math.isfinite(number) for number in all_numbers(json.loads(done.out)))
    shown = call("score", run, "-x", metric)
    assert f"not available: {metric}: {reason}" in shown.err
    (row,) = [line for line in shown.out.splitlines() if line.strip().startswith(metric)]
    assert row.split()[1] == "-"


def test_without_a_reference_reference_metrics_are_not_available(call, tmp_path):
    data = tmp_path / "bare.jsonl"
    data.write_text('{"id": "a", "turns": ["Hello there.", "Hi."]}\n{"id": "b", "turns": ["Well?", "Yes."]}\n', "utf-8")
    flags = ("-M", "vanilla", "--dataset", "jsonl", "--data", data, "-m", "lexical", "--out", "out")
    assert call("run", *flags).code == 0
    with sqlite3.connect(tmp_path / "out" / FILE) as database:
        rows = database.execute("select position, content from dialogues").fetchall()
        for position, content in rows:
            bare = json.dumps({**json.loads(content), "reference": None})
            database.execute("update dialogues set content = ? where position = ?", (bare, position))
    scores = json.loads(call("score", "out", "--json").out)[0]["scores"]
    for name in ("bleu", "bleu-4", "rouge-l", "f1", "meteor-exact-stem"):
        assert scores[name]["value"] is None
        assert "the dialogue has no reference (2)" in scores[name]["reason"]
    assert scores["distinct-1"]["value"] > 0


def test_the_experiment_files_metrics_are_the_default(call, tmp_path):
    write_dialogues(tmp_path / "dialogues.jsonl", 2)
    path = tmp_path / "two.yaml"
    path.write_text(
        "dataset: {name: jsonl, path: dialogues.jsonl}\nsystems: [vanilla]\nmodels: [{model: lexical}]\n"
        "metrics: [f1, distinct-2]\n",
        "utf-8",
    )
    assert call("run", path, "--out", "out").code == 0
    assert set(json.loads(call("score", "out", "--json").out)[0]["scores"]) == {"f1", "distinct-2"}
    assert set(json.loads(call("score", "out", "-x", "kf1", "--json").out)[0]["scores"]) == {"kf1"}


def test_how_chinese_is_counted_is_part_of_what_a_measure_is(call, tmp_path):
    data = tmp_path / "zh.jsonl"
    line = {"id": "茶", "turns": ["我感冒了，嗓子疼。"], "reference": "多喝热水，好好休息。"}
    data.write_text(json.dumps(line, ensure_ascii=False) + "\n", "utf-8")
    flags = ("-M", "vanilla", "--dataset", "jsonl", "--data", data, "-m", "lexical", "--out", "out")
    assert call("run", *flags).code == 0
    with RunStore.open(tmp_path / "out") as store, store.writing():
        store.add(Job(0, 0), Response(id="茶", method="vanilla", text="好好休息，多喝热茶。"))

    def figure(*options):
        done = call("score", "out", "-x", "f1", "--json", *options)
        return json.loads(done.out)[0]["scores"]["f1"]["value"]

    by_character, by_word = figure(), figure("--set", "tokens=word")
    assert by_character == pytest.approx(7 / 8)
    assert by_word not in {by_character, 0.0}
    assert figure() == by_character
    assert "by character or by word" in call("score", "out", "-x", "f1", "--set", "tokens=syllable").complaint


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-x", "blue"], "did you mean bleu"),
        (["-x", "cdf", "--graph", "nowhere.graph"], "no such graph"),
    ],
)
def test_what_is_wrong_is_one_line(call, run, arguments, words):
    assert words in call("score", run, *arguments).complaint


def test_a_judge_needs_a_model(call, run):
    done = call("score", run, "-x", "meep")
    assert (done.code, done.out) == (2, "")
    assert "a judge is a language model" in done.err
    assert "--base-url" in done.err
    assert "--model" in done.err


def test_what_a_judge_said_stays_where_no_judge_is_given(call, tmp_path, url):
    write_dialogues(tmp_path / "dialogues.jsonl", 2)
    path = tmp_path / "two.yaml"
    path.write_text(
        "dataset: {name: jsonl, path: dialogues.jsonl}\nsystems: [vanilla]\nmodels: [{model: lexical}]\n"
        "metrics: [f1, meep, perplexity]\n",
        "utf-8",
    )
    assert call("run", path, "--out", "out").code == 0
    unjudged = call("score", "out", "--json")
    assert unjudged.lines[0][0]["scores"]["meep"]["reason"] == "no judge was given (2)"
    judged = call("score", "out", "--json", "-u", url, "-m", "m", "--set", "model.no_cache=true").lines[0][0]["scores"][
        "meep"
    ]
    assert judged["n"] == 2
    again = call("score", "out", "--json")
    assert again.lines[0][0]["scores"]["meep"] == judged
    assert again.lines[0][0]["scores"]["perplexity"]["value"] is None
    assert "meep: as it was measured before" in again.err


def test_what_is_no_run_or_of_another_version_is_refused(call, run, tmp_path):
    assert "no run in nowhere" in call("score", "nowhere").complaint
    with RunStore.open(run) as store, store.writing():
        assert "another process is writing" in call("score", run, "-x", "f1").complaint
    with sqlite3.connect(run / FILE) as database:
        database.execute("pragma user_version = 99")
    complaint = call("score", run).complaint
    assert "format 99; this version reads 1" in complaint
    assert "the version that made it" in complaint


def test_list_tells_what_each_needs(call):
    listed = {each["name"]: each for each in json.loads(call("score", "-", "--list", "--json").out)}
    assert listed["perplexity"]["needs"] == ["language-model"]
    assert not listed["perplexity"]["higher_is_better"]
    assert listed["kf1"]["needs"] == ["knowledge"]
    assert all(each["paper"] and each["definition"] for each in listed.values())
    assert "perplexity" in call("score", "-", "--list").out


def test_an_interrupt_says_what_is_kept(run, faulty_server):
    from tests.llm.server import hang

    faulty_server.always = hang()
    asked = ("-m", "m", "-u", faulty_server.url, "--set", "model.no_cache=true")
    err = interrupted(faulty_server, "score", run, "-x", "meep", *asked)
    assert "interrupted: what is measured is kept" in err


def test_a_system_is_shown_by_its_name_whatever_signs_are_in_it(call, tmp_path):
    data = write_dialogues(tmp_path / "dialogues.jsonl", 2)
    names = ["[/b] a", "b [no-facts]", "!c"]
    systems = [{"name": name, "method": "vanilla", "options": {}} for name in names]
    config = make_config(
        {"name": "small", "dataset": {"name": "jsonl", "path": str(data)}, "systems": systems}
        | {"models": [{"model": "lexical"}]}
    )
    assert asyncio.run(run_experiment(config, tmp_path / "run", open_model)).failed == 0
    done = call("score", tmp_path / "run", "-x", "f1")
    assert done.code == 0
    assert [name for name in names if name in done.out] == names


def test_the_embedder_of_answer_relevance_is_named_else_the_files(call, tmp_path, url):
    write_dialogues(tmp_path / "dialogues.jsonl", 1)
    path = tmp_path / "two.yaml"
    path.write_text(
        "dataset: {name: jsonl, path: dialogues.jsonl}\nsystems: [vanilla]\nmodels: [{model: rehearsal}]\n"
        "sources: {embedder: 'endpoint:e@http://127.0.0.1:9/v1'}\nmetrics: [ragas-answer-relevance]\n",
        "utf-8",
    )
    assert call("run", path, "--out", "out").code == 0
    judged = ("score", "out", "-u", url, "-m", "m", "--set", "model.no_cache=true")
    for embedder in ("endpoint:e@http://127.0.0.1:9/v1", "static"):
        assert call(*judged, *(("--set", "embedder=static") if embedder == "static" else ())).code == 0
        with RunStore.open(tmp_path / "out") as store:
            assert store.metrics()["ragas-answer-relevance"]["identity"].endswith(f", {embedder}")


@pytest.fixture
def without(monkeypatch):
    """Hides libraries, as where their extra is not installed."""

    def hide(*names):
        for name in [*names, *(each for each in sys.modules if each.partition(".")[0] in names)]:
            monkeypatch.setitem(sys.modules, name, None)
        for cached in CACHED:
            cached.cache_clear()

    yield hide
    for cached in CACHED:
        cached.cache_clear()


def test_what_no_library_measures_is_named_with_its_extra_and_the_rest_is_scored(call, run, without):
    without("sacrebleu", "nltk", "rouge_score")
    done = call("score", run)
    assert done.code == 0
    for name in ("bleu-1", "meteor-exact-stem", "rouge-l"):
        assert re.search(rf"not available: {name}: .*pip install .*\[evaluation\]'", done.err), name
    assert re.search(r"f1 +\d", done.out)
    assert "[evaluation]'" in call("score", run, "-x", "bleu-1").complaint


def test_what_was_left_out_is_measured_once_its_library_is_there(call, run, monkeypatch):
    with monkeypatch.context() as hidden:
        hidden.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
        for cached in CACHED:
            cached.cache_clear()
        [[first, _]] = call("score", run, "--json").lines
    assert first["scores"]["bleu-1"]["value"] is None
    [[second, _]] = call("score", run, "--json").lines
    assert second["scores"]["bleu-1"]["value"] is not None


def test_an_unfinished_run_is_reported_as_such(call, tmp_path, caplog):
    run = [
        "run",
        "--dataset",
        "everyday",
        "--limit",
        "4",
        "-M",
        "vanilla",
        "--model",
        "rehearsal",
        "--out",
        "runs/p",
        "-y",
    ]
    call(*run, "--set", "budget.tokens=250")
    with RunStore.open(Path("runs/p")) as store:
        count = len(store.jobs())
    assert 0 < count < 4
    counted = f"{count} of 4 responses"
    assert counted in call("score", "runs/p", "-x", "f1").err
    assert counted in call("report", "runs/p", "--markdown", "--out", "rp").err
    assert counted in Path("rp/report.md").read_text("utf-8")
    load_run("runs/p")
    assert counted in caplog.text
    assert call(*run).code == 0
    assert "of 4 responses" not in call("score", "runs/p", "-x", "f1").err

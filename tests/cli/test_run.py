"""`dialore run`: gone on with, estimated, replayed, cut short, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from pathlib import Path

import pytest

from dialore.experiments.config import make_config
from dialore.experiments.run import run_experiment
from dialore.experiments.store import FILE, RunStore
from dialore.llm.client import ModelClient
from dialore.llm.fake import FakeModel
from dialore.llm.recording import Recorder
from tests.cli.processes import interrupted
from tests.experiments.conftest import write_dialogues


@pytest.fixture
def data(tmp_path):
    return write_dialogues(tmp_path / "dialogues.jsonl", 6)


@pytest.fixture
def flags(data):
    """A run said by options alone, answered by the no model."""
    return (
        "run",
        "-M",
        "vanilla",
        "-M",
        "dcrag",
        "--dataset",
        "jsonl",
        "--data",
        data,
        "-m",
        "lexical",
        "--out",
        "out",
    )


def write_experiment(tmp_path, data, **changes):
    path = tmp_path / "small.yaml"
    given = {"dataset": {"name": "jsonl", "path": data.name}, "systems": ["vanilla"]} | changes
    path.write_text(json.dumps(given), encoding="utf-8")
    return path


def counts(folder="out"):
    with RunStore.open(Path(folder)) as store:
        return len(store.jobs()), len(store.done())


def test_it_answers_and_a_second_run_does_what_is_missing(call, flags):
    first = call(*flags, "--limit", 4, "--json")
    assert first.code == 0
    said = json.loads(first.out)
    assert (said["answered"], said["failed"], said["missing"], said["before"]) == (8, 0, 0, 0)
    assert said["expected"]["responses"] == 8
    assert said["stopped"] is None
    assert "8 responses to make" in first.err
    again = call(*flags, "--limit", 4, "--set", "repetitions=2")
    assert again.code == 0
    assert "8 answered, 0 failed, 8 were there: out" in again.err
    assert "dialore score out" in again.err
    assert again.out == ""
    assert counts() == (16, 16)


def test_an_experiment_file_is_run_into_a_folder_of_its_name_and_options_win(call, tmp_path, data):
    path = write_experiment(tmp_path, data, systems=["vanilla", {"method": "dcrag", "options": {"limit": 5}}])
    done = call("run", path, "-m", "lexical", "--limit", 2)
    assert done.code == 0
    with RunStore.open(tmp_path / "runs" / "small") as store:
        assert [system.title for system in store.systems()] == ["vanilla", "dcrag (limit=5)"]
        assert store.size == 2


def test_a_dry_run_says_what_it_expects_and_leaves_nothing(call, flags, url, tmp_path):
    live = [*flags[:-4], "-m", "wait-0", "-u", url, "--out", "out"]
    dry = call(*live, "--dry-run", "--json")
    assert dry.code == 0
    expected = json.loads(dry.out)
    assert expected["responses"] == 12
    assert expected["calls"] >= 12
    assert expected["prompt_tokens"] > 1000
    assert not (tmp_path / "out").exists()
    in_words = call(*live, "--dry-run")
    assert (in_words.code, in_words.out) == (0, "")
    assert "(rehearsed)" in in_words.err
    # Nothing stands in the way of a smaller run afterwards.
    assert call(*live, "--limit", 1).code == 0
    assert counts() == (2, 2)


def test_a_recording_answers_in_the_models_stead(call, flags, data, tmp_path):
    given = {"name": "x", "dataset": {"name": "jsonl", "path": str(data)}, "systems": ["vanilla", "dcrag"]}
    recording = tmp_path / "recording.jsonl"
    made = run_experiment(
        make_config(given), tmp_path / "made", lambda c, n: ModelClient(FakeModel(), recorder=Recorder(recording))
    )
    assert asyncio.run(made).ok == 12
    replayed = call(*flags, "--set", f"model.replay={recording}", "--json")
    assert replayed.code == 0
    assert json.loads(replayed.out)["answered"] == 12
    folders = (tmp_path / "made", tmp_path / "out")
    texts = [
        [response.text for _, _, response in store.responses()]
        for folder in folders
        for store in [RunStore.open(folder)]
    ]
    assert texts[0] == texts[1]
    # What is not in the recording is a failure with its reason, not a guess.
    lines = recording.read_text("utf-8").splitlines(keepends=True)
    recording.write_text("".join(line for line in lines if '"d2/' not in line), "utf-8")
    part = call(*flags[:-1], "part", "--set", f"model.replay={recording}", "--json")
    assert part.code == 1
    assert json.loads(part.out)["failed"] == 2
    assert "failed: d2" in part.err


def test_a_budget_stops_it_and_a_larger_one_goes_on(call, flags, url):
    live = [
        *flags[:-4],
        "-m",
        "wait-0",
        "-u",
        url,
        "--set",
        "model.no_cache=true",
        "--out",
        "out",
        "--set",
        "concurrency=1",
    ]
    first = call(*live, "--set", "budget.tokens=3000", "--json")
    assert first.code == 1
    said = json.loads(first.out)
    assert "budget of 3,000 tokens is spent" in said["stopped"]
    assert "stopped: the budget" in first.err
    assert 0 < said["answered"] < 12
    assert said["missing"] == 12 - said["answered"]
    second = call(*live, "--json")
    assert second.code == 0
    assert json.loads(second.out)["before"] == said["answered"]
    assert counts() == (12, 12)
    assert call(*live, "--set", "budget.tokens=0", "--set", "repetitions=2", "--json").code == 1


def test_money_needs_a_price(call, flags, url):
    live = [*flags[:-4], "-m", "wait-0", "-u", url, "--out", "out"]
    assert "price" in call(*live, "--set", "budget.cost=1").complaint


def test_two_runs_cannot_share_a_folder(call, flags, tmp_path):
    assert call(*flags, "--limit", 1).code == 0
    with RunStore.open(tmp_path / "out") as store, store.writing():
        assert "another process is writing to the run in out" in call(*flags, "--limit", 1).complaint
    assert counts() == (2, 2)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"id": "x"}', "turns"),
        ('{"id": "x", "turns": [{"speaker": "user"}]}', "text"),
        ('{"id": "x", "turns": ["Hi", "Ho"', "JSON"),
        ('{"id": "d0", "turns": ["Hi", "Ho"]}', "d0"),
    ],
)
def test_a_wrong_data_file_names_line_and_field_and_leaves_nothing(call, flags, data, tmp_path, line, words):
    lines = data.read_text("utf-8").splitlines()
    data.write_text("\n".join([*lines[:2], line, *lines[2:]]) + "\n", "utf-8")
    complaint = call(*flags).complaint
    assert words in complaint
    assert words == "d0" or "line 3" in complaint
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"--method": "dcrg"}, "did you mean dcrag"),
        ({"--dataset": "dailydialg"}, "did you mean dailydialog"),
        ({"--data": "nowhere.jsonl"}, "nowhere.jsonl"),
        ({"--engine": "spark"}, "unknown engine: 'spark' (known: local, ray)"),
        ({"--set": "dataset.cut=middle"}, "--set dataset.cut"),
        ({"--option": "limit"}, "is not NAME=VALUE"),
        ({"--set": "model.api=telepathy"}, "model.api"),
    ],
)
def test_what_is_wrong_is_one_line_and_leaves_nothing(call, data, tmp_path, changes, words):
    given = {"--method": "dcrag", "--dataset": "jsonl", "--data": data, "--model": "lexical", "--out": "out"} | changes
    assert words in call("run", *(part for pair in given.items() for part in pair)).complaint
    assert not (tmp_path / "out").exists()


def test_options_of_model_and_method_reach_the_run(call, data, url, monkeypatch):
    monkeypatch.setenv("DIALORE_BASE_URL", url)
    monkeypatch.setenv("DIALORE_MODEL", "m")
    flags = ("-M", "t-rag", "--dataset", "jsonl", "--data", data, "--limit", 1, "--set", "model.no_cache=true")
    prompts = []
    for more in ([], ["--set", "cite=true"]):
        assert call("run", *flags, "--out", f"out{len(more)}", *more).code == 0
        with RunStore.open(Path(f"out{len(more)}")) as store:
            assert store.facts()["config"]["cite"] is bool(more)
            ((_, _, response),) = store.responses()
            prompts.append([stage.messages for stage in response.trace if stage.messages])
    assert prompts[0] != prompts[1]
    # This endpoint speaks chat alone: what it says to the other API shows that it was asked by it.
    assert "unknown model" in call("run", *flags, "--out", "out", "--set", "model.api=completions").err


def test_without_an_endpoint_it_says_who_answers(call, data, monkeypatch):
    for name in ("DIALORE_BASE_URL", "OPENAI_BASE_URL", "DIALORE_API_KEY", "OPENAI_API_KEY", "DIALORE_MODEL"):
        monkeypatch.delenv(name, raising=False)
    done = call("run", "-M", "vanilla", "--dataset", "jsonl", "--data", data, "--limit", 1, "--out", "out")
    assert done.code == 0
    assert "no model: what was found is shown" in done.err
    assert "about 0 calls" in done.err


def test_too_few_options_are_named(call):
    assert "needs --method and --dataset" in call("run").complaint
    unsaid = call("run", "-M", "vanilla", "--dataset", "kbp").complaint
    assert "which file of kbp is not said (fetch it with `dialore data get kbp`, or name its file)" in unsaid


def test_a_run_of_other_dialogues_or_options_or_of_another_version_is_refused(call, flags, tmp_path):
    assert call(*flags, "--limit", 2).code == 0
    assert "has other dialogues" in call(*flags, "--limit", 3, "--set", "dataset.seed=9").complaint
    assert counts() == (4, 4)
    with sqlite3.connect(tmp_path / "out" / FILE) as database:
        database.execute("pragma user_version = 7")
    assert "format 7; this version reads 1" in call(*flags, "--limit", 2).complaint


def test_changed_prompts_are_refused_or_accepted_and_the_report_says_so(call, flags, tmp_path):
    flags = (*flags, "--limit", 4, "-m", "rehearsal")
    assert call(*flags).code == 0
    call("prompts", "--export", tmp_path / "mine")
    changed = tmp_path / "mine" / "dcrag" / "topic-planning.en.md"
    changed.write_text(changed.read_text("utf-8").replace("version: 1", "version: 9", 1), "utf-8")
    flags = (*flags, "--set", f"sources.prompts={tmp_path / 'mine'}", "--set", "repetitions=2")
    refused = call(*flags).complaint
    assert "made with other prompts: dcrag/topic-planning.en v1 " in refused
    assert ", now v9 " in refused
    assert "accept the changed prompts" in refused
    assert counts() == (8, 8)
    assert call(*flags, "--accept-changed", "prompts").code == 0
    assert counts() == (16, 16)
    assert call("score", "out", "--metric", "f1").code == 0
    assert call("report", "out", "--markdown", "--html", "--latex", "--out", "shown").code == 0
    for form in ("md", "html", "tex"):
        text = (tmp_path / "shown" / f"report.{form}").read_text("utf-8")
        said = re.search(r"made with several versions of its prompts: (.*)", text)[1]
        assert re.search(r"topic-planning\.en v1 \w+ and dcrag/topic-planning\.en v9 \w+\.", said)


def test_all_failing_is_two_and_some_failing_is_one(call, data, faulty_server):
    from tests.llm.server import say, status

    live = ("run", "-M", "vanilla", "--dataset", "jsonl", "--data", data, "-m", "m", "-u", faulty_server.url)
    live += (
        "--set",
        "model.no_cache=true",
        "--set",
        "model.retries=0",
        "--out",
        "out",
        "--set",
        "concurrency=1",
        "--json",
    )
    faulty_server.always = status(500, "oops")
    none = call(*live)
    assert none.code == 2
    assert json.loads(none.out)["failed"] == 6
    assert none.err.count("failed: d") == 6
    faulty_server.reply(say("Well."), status(500, "oops"))
    faulty_server.always = say("Well.")
    some = call(*live)
    assert some.code == 1
    assert (json.loads(some.out)["answered"], json.loads(some.out)["failed"]) == (5, 1)
    assert call(*live).code == 0


def test_an_interrupt_says_what_is_kept(tmp_path, data, faulty_server):
    from tests.llm.server import hang, say

    faulty_server.reply(say("Well."), say("Well."))
    faulty_server.always = hang()
    asked = ("-m", "m", "-u", faulty_server.url, "--set", "model.no_cache=true", "--set", "concurrency=1")
    err = interrupted(
        faulty_server, "run", "-M", "vanilla", "--dataset", "jsonl", "--data", data, "--out", "out", *asked, calls=3
    )
    assert "interrupted: what is finished is kept in out; the same command again does the rest" in err
    assert counts(tmp_path / "out") == (2, 2)


def test_the_last_line_says_how_many_answers_came_from_the_cache(call, data, url, tmp_path):
    settings = (
        "run",
        "-M",
        "vanilla",
        "--dataset",
        "jsonl",
        "--data",
        data,
        "-m",
        "m",
        "--set",
        f"model.cache={tmp_path / 'cache'}",
    )
    first = call(*settings, "-u", url, "--out", "first")
    assert "(6 calls, 0 answered from the cache" in first.err
    again = call(*settings, "-u", url, "--out", "again")
    assert "6 answered, 0 failed" in again.err
    assert "(0 calls, 6 answered from the cache" in again.err
    assert json.loads(call(*settings, "-u", url, "--out", "third", "--json").out)["cached"] == 6
    # Another server's answers are none of this one's.
    elsewhere = call(*settings, "-u", "http://127.0.0.1:9/v1", "--out", "elsewhere", "--set", "model.retries=0")
    assert "0 answered, 6 failed" in elsewhere.err


def test_a_typo_among_the_metrics_is_found_before_anything_is_asked(call, tmp_path, data, url, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_experiment(tmp_path, data, metrics=["bleu", "rogue-l"], models=[{"model": "m", "base_url": url}])
    complaint = call("run", path).complaint
    assert "unknown metric: 'rogue-l' (did you mean rouge-l" in complaint
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())


def test_a_run_on_a_full_disk_is_one_line(call, flags, monkeypatch):
    def full(self, job, response):
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(RunStore, "add", full)
    done = call(*flags)
    assert done.code == 2
    assert "is full" in done.err.splitlines()[-1]
    assert "Traceback" not in done.err


def test_a_dry_run_asks_no_embedder(call, flags):
    done = call(*flags, "--dry-run", "--set", "sources.embedder=endpoint:e@http://127.0.0.1:9/v1")
    assert done.code == 0, done.err
    assert "12 responses to make" in done.err


def test_a_run_is_not_gone_on_with_by_another_server_unless_that_is_accepted(call, flags, faulty_server, tmp_path):
    from tests.llm.server import FaultyServer

    settings = (
        *flags[:3],
        *flags[5:-4],
        "-m",
        "m",
        "--set",
        "model.no_cache=true",
        "--set",
        "model.retries=0",
        "--out",
        "out",
    )
    assert call(*settings, "--limit", 2, "-u", faulty_server.url).code == 0
    other = FaultyServer()
    more = (*settings, "--limit", 2, "--set", "repetitions=2", "-u", other.url)
    complaint = call(*more).complaint
    assert f"has answers of m from {faulty_server.url}, not {other.url}" in complaint
    assert not other.calls
    assert call(*more, "--accept-changed", "server").code == 0
    assert len(other.calls) == 2
    assert call(*settings, "--limit", 2, "--set", "repetitions=2", "-u", faulty_server.url).code == 0
    assert call("score", "out", "--metric", "f1").code == 0
    assert call("report", "out", "--markdown", "--out", "shown").code == 0
    report = (tmp_path / "shown" / "report.md").read_text("utf-8")
    servers = f"{faulty_server.url}, {other.url}"
    assert f"The responses of m in the run vanilla-jsonl are of several servers: {servers}." in report
    other.close()


def test_models_that_a_file_names_are_run_at_the_address_of_the_command(call, tmp_path, data, url):
    path = write_experiment(tmp_path, data, models=["wait-0", "wait-1"])
    done = call("run", path, "--base-url", url, "--limit", 2, "--json")
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert (said["answered"], said["expected"]["responses"]) == (4, 4)
    with RunStore.open(tmp_path / "runs" / "small") as store:
        assert [system.model for system in store.systems()] == ["wait-0", "wait-1"]

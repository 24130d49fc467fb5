"""Runs over the service: how far they are, their report's sections, and what a name cannot reach."""

from __future__ import annotations

import asyncio
import base64
import gzip
import importlib.util
import json

import pytest

from dialore.evaluation.registry import Context, load_metrics
from dialore.experiments.config import make_config
from dialore.experiments.run import run_experiment
from dialore.experiments.scoring import measure_run
from dialore.experiments.store import Job, RunStore
from dialore.server.middleware import new_key
from dialore.session import open_model
from tests.experiments.conftest import write_dialogues
from tests.server.hostile import RUNS

HOSTILE = "<img src=x onerror=\"document.title='hit'\">"


def write_run(folder, *, name="small", done=4):
    """A run of two systems over four dialogues, without a model, as far as it is done."""
    folder.parent.mkdir(exist_ok=True)
    data = write_dialogues(folder.parent / f"{name}.jsonl", 4)
    given = {"name": name, "dataset": {"name": "jsonl", "path": str(data)}, "systems": ["vanilla", "dcrag"]}
    config = make_config(given | {"models": [{"model": "lexical"}]})
    asyncio.run(run_experiment(config, folder, open_model))
    with RunStore.open(folder) as store:
        for job in store.jobs():
            response = store.response(job)
            store.add(job, response.model_copy(update={"text": f"{response.text} {job.system} {HOSTILE}"}))
        with store._database as database:
            database.execute("delete from responses where position >= ?", (done,))
        with store.writing():
            asyncio.run(measure_run(store, load_metrics(["f1", "distinct-2"], Context())))
    return folder


def unpacked(text):
    return json.loads(gzip.decompress(base64.b64decode(text)))


@pytest.fixture
def running(serving, tmp_path):
    pytest.importorskip("scipy", reason="the evaluation extra is not installed")
    write_run(tmp_path / "runs" / "small")
    (tmp_path / "runs" / "no run").mkdir()
    return serving(server={"runs": str(tmp_path / "runs")})


def test_a_runs_progress_tables_plots_and_dialogues(running):
    [run] = running.http.get("/v1/runs").json()["data"]
    assert (run["name"], run["dialogues"], run["metrics"]) == ("small", 4, ["f1", "distinct-2"])
    assert [(each["name"], each["ok"], each["failed"], each["total"]) for each in run["systems"]] == [
        ("vanilla", 4, 0, 4),
        ("dcrag", 4, 0, 4),
    ]
    made = running.http.get("/v1/runs/small").json()
    scores, cost, failures = made["tables"]
    assert [row[0] for row in scores["rows"]] == ["vanilla", "dcrag"]
    assert [each.split(" ")[0] for each in scores["columns"]] == ["system", "f1", "distinct-2"]
    assert (cost["rows"][0][1], failures["rows"][0][1]) == ("4", "4")
    assert made["reading"]
    if importlib.util.find_spec("matplotlib"):
        assert base64.b64decode(made["figures"][0]["svg"]).lstrip().startswith(b"<?xml")
    index, details = (unpacked(made["browser"][part]) for part in ("index", "details"))
    assert index["systems"] == ["vanilla", "dcrag"]
    assert [each["id"] for each in index["dialogues"]] == ["d0", "d1", "d2", "d3"]
    answer = index["dialogues"][0]["answers"]["1"][0]
    assert HOSTILE in answer["text"]
    assert details[answer["place"]]["knowledge"]
    page = running.http.get("/v1/runs/small/report")
    assert page.headers["content-type"] == "application/json"
    assert page.json()["html"].startswith("<!DOCTYPE html>")


def test_a_run_under_way_grows(running, tmp_path):
    write_run(tmp_path / "runs" / "later", name="later", done=2)
    latest, _ = running.http.get("/v1/runs").json()["data"]
    assert (latest["name"], [(each["ok"], each["total"]) for each in latest["systems"]]) == ("later", [(2, 4)] * 2)
    assert running.http.get("/v1/runs/later").json()["tables"][1]["rows"][0][1] == "2"
    with RunStore.open(tmp_path / "runs" / "later") as store:
        store.add(Job(2, 0), store.response(Job(1, 0)))
    assert running.http.get("/v1/runs").json()["data"][0]["systems"][0]["ok"] == 3


@pytest.mark.parametrize("name", RUNS)
def test_a_name_that_is_no_run_reaches_nothing(running, name):
    for further in ("", "/report"):
        answer = running.http.get(f"/v1/runs/{name}{further}")
        assert answer.status_code in {404, 405}
        assert "small.jsonl" not in answer.text


def test_runs_are_the_owners(serving, tmp_path):
    (owner, mark), (other, mark2) = new_key(), new_key()
    keys = [{"name": "owner", "sha256": mark, "knowledge": True}, {"name": "app", "sha256": mark2}]
    (tmp_path / "runs").mkdir()
    http = serving(server={"runs": str(tmp_path / "runs"), "keys": keys}).http
    assert http.get("/v1/runs").status_code == 401
    assert http.get("/v1/runs", headers={"Authorization": f"Bearer {other}"}).status_code == 403
    assert http.get("/v1/runs", headers={"Authorization": f"Bearer {owner}"}).json() == {"data": []}
    assert serving().http.get("/v1/runs").status_code == 404

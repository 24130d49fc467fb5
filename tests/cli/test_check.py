"""`dialore check`: figures that hold, that do not, that are missing, and runs compared with others."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from dialore.evaluation.base import SampleScore
from dialore.experiments.config import make_config
from dialore.experiments.run import run_experiment
from dialore.experiments.store import Job, RunStore
from dialore.response import Response
from dialore.session import open_model
from tests.experiments.conftest import write_dialogues

RECIPES = Path(__file__).parents[2] / "docs" / "recipes.md"


def made(folder, f1, seconds=(1.0,) * 10):
    """A run of two systems over ten dialogues, with these values of f1 for the first; its last response failed."""
    data = write_dialogues(folder.with_suffix(".jsonl"), 10)
    given = {"name": "small", "dataset": {"name": "jsonl", "path": str(data)}, "systems": ["vanilla", "dcrag"]}
    config = make_config(given | {"models": [{"model": "lexical"}], "metrics": ["f1"]})
    asyncio.run(run_experiment(config, folder, open_model))
    with RunStore.open(folder) as store, store.writing():
        for place, taken in enumerate(seconds):
            response = store.response(Job(place, 0))
            store.add(Job(place, 0), response.model_copy(update={"seconds": taken}))
        store.add(Job(9, 0), Response(id="d9", method="vanilla", text="", status="failed", error="down"))
        store.set_metric("f1", {"name": "f1", "paper": "", "definition": ""})
        jobs = [Job(place, system) for system in (0, 1) for place in range(10)]
        store.measure({"f1": {job: SampleScore((f1[job.position],)) for job in jobs}})
    return folder


@pytest.fixture
def run(tmp_path):
    return made(tmp_path / "run", [0.5, 0.6, 0.7, 0.4, 0.5, 0.6, 0.7, 0.4, 0.5, 0.1], [1.0] * 8 + [9.0, 1.0])


@pytest.mark.parametrize(
    ("limits", "failing"),
    [
        (["--min", "f1=0.4"], []),
        (["--min", "f1=0.6"], ["vanilla", "dcrag"]),
        (["--min", "vanilla:f1=0.6"], ["vanilla"]),
        (["--max", "failed=0"], ["vanilla"]),
        (["--max", "failed=0.1"], []),
        (["--max", "vanilla:seconds.p50=1"], []),
        (["--max", "vanilla:seconds.p95=3"], ["vanilla"]),
        (["--max", "vanilla:seconds=2"], []),  # the mean
        (["--max", "calls=0", "--min", "f1=0.9"], ["vanilla", "dcrag"]),
    ],
)
def test_what_does_not_hold_is_said_and_ends_with_1(call, run, limits, failing):
    done = call("check", run, *limits, "--json")
    assert done.code == (1 if failing else 0)
    assert [verdict["system"] for verdict in json.loads(done.out) if not verdict["holds"]] == failing
    shown = call("check", run, *limits)
    assert shown.code == done.code
    assert shown.out.count(" no ") == len(failing)


def test_a_run_is_compared_with_another_by_pairs(call, run, tmp_path):
    f1 = [0.5, 0.6, 0.7, 0.4, 0.5, 0.6, 0.7, 0.4, 0.5, 0.1]
    better = made(tmp_path / "better", [value + 0.1 for value in f1])
    by_chance = made(tmp_path / "chance", [value + (0.1 if place % 2 else -0.1) for place, value in enumerate(f1)])
    assert call("check", better, "--against", run).code == 0
    assert call("check", run, "--against", by_chance).code == 0
    done = call("check", run, "--against", better, "--json")
    assert done.code == 1
    assert [(verdict["system"], verdict["figure"], verdict["holds"]) for verdict in json.loads(done.out)] == [
        ("vanilla", "f1", False),
        ("vanilla", "failed", True),
        ("dcrag", "f1", False),
        ("dcrag", "failed", True),
    ]
    assert "not worse than 0.6" in done.out


def test_what_the_other_run_has_and_this_one_lacks_does_not_hold(call, run, tmp_path):
    other = made(tmp_path / "other", [0.1] * 10)
    with RunStore.open(run) as store, store.writing():
        store.set_metric("f1", {"name": "f1", "paper": "", "definition": "another one"})  # drops the measures
        for place in range(10):
            store.add(Job(place, 1), Response(id=f"d{place}", method="dcrag", status="failed", error="down"))
    done = call("check", run, "--against", other, "--json")
    assert done.code == 1
    holds = {(verdict["system"], verdict["figure"]): verdict["holds"] for verdict in json.loads(done.out)}
    assert holds == {
        ("vanilla", "f1"): False,
        ("vanilla", "failed"): True,
        ("dcrag", "f1"): False,
        ("dcrag", "failed"): False,
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing to check"),
        (["--min", "f2=1"], "did you mean f1"),
        (["--max", "second.p95=1"], "did you mean seconds.p95"),
        (["--min", "wave:f1=1"], "unknown system of the run"),
        (["--min", "f1"], "is no limit"),
        (["--min", "f1=much"], "is no limit"),
    ],
)
def test_what_cannot_be_checked_is_bad_input(call, run, arguments, said):
    done = call("check", run, *arguments)
    assert done.code == 2
    assert said in done.err


def test_the_workflow_that_is_shown_fails_and_passes(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = re.search(r"`answers.yaml`.*?```yaml\n(.*?)```", RECIPES.read_text("utf-8"), re.DOTALL)[1]
    steps = [step["run"] for step in yaml.safe_load(shown)["jobs"]["answers"]["steps"] if "run" in step]
    commands = [shlex.split(step)[1:] for step in steps if step.startswith("dialore")]
    commands[0] += ["--model", "rehearsal"]
    for command in commands:
        done = call(*command)
        assert done.code == 0, done.err
    assert call(*commands[-1], "--max", "calls=0.5").code == 1

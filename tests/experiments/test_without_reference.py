"""Dialogues that nobody has answered yet, turns of one conversation, and runs that may only be read."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys

import numpy as np
import pytest

from dialore.datasets import data_set
from dialore.dialogue import conversation_of
from dialore.evaluation.base import Mean
from dialore.evaluation.statistics import bootstrap, compare_paired
from dialore.experiments.config import DatasetConfig
from dialore.experiments.run import load_dialogues
from dialore.experiments.store import FILE, Job, RunStore, System
from dialore.response import Response
from tests.experiments.test_store import DIALOGUES


def lines(path, entries):
    path.write_text("\n".join(map(json.dumps, entries)), "utf-8")
    return path


TALKS = [
    {"id": "one", "turns": ["Where do otters sleep?"]},
    {"id": "three", "turns": ["Hi", "Hello.", "Do otters swim?"]},
    {"id": "answered", "turns": ["Do they dive?"], "reference": "They do."},
]


def test_the_last_turn_is_answered_where_no_reference_is_said(tmp_path, caplog):
    path = lines(tmp_path / "talks.jsonl", TALKS)
    found = list(load_dialogues(DatasetConfig(name="jsonl", path=path)))
    assert [(each.id, each.last.text, each.reference) for each in found] == [
        ("one", "Where do otters sleep?", None),
        ("three", "Do otters swim?", None),
        ("answered", "Do they dive?", "They do."),
    ]
    # With a cut the turns are taken for references, as before, and what has none is counted.
    with caplog.at_level(logging.WARNING):
        cut = list(load_dialogues(DatasetConfig(name="jsonl", path=path, cut="last")))
    assert [each.reference for each in cut] == ["Do otters swim?", "They do."]
    assert "left out: 1 (" in caplog.text
    assert "'one'" in caplog.text


def test_tasks_without_targets_are_answered(tmp_path):
    user, agent = {"speaker": "user", "text": "Who?"}, {"speaker": "agent", "text": "Ann."}
    given = [{"document_id": "d", "text": "Ann is a pilot."}]
    tasks = [
        {"task_id": "c::1", "input": [user], "contexts": given, "Multi-Turn": None},
        {"task_id": "c::2", "input": [user, agent, {"speaker": "user", "text": "Why?"}], "contexts": given},
    ]
    path = lines(tmp_path / "tasks.jsonl", tasks)
    (whole,) = data_set("mtrag").read(path)
    assert [answer.turn for answer in whole.answers] == [1, 3]
    found = list(load_dialogues(DatasetConfig(name="mtrag", path=path, cut="all")))
    assert [(each.last.text, each.reference, len(each.knowledge)) for each in found] == [
        ("Who?", "Ann.", 1),
        ("Why?", None, 1),
    ]


def test_turns_of_one_conversation_are_sampled_together():
    assert [conversation_of(name) for name in ("x@3", "x@12", "a@b", "@1", "x")] == ["x", "x", "a@b", "@1", "x"]
    values = np.repeat(np.random.default_rng(1).random(30), 10)[:, None]  # ten turns alike in each talk
    talks = np.repeat(np.arange(30), 10)
    alone, together = bootstrap(Mean(), values), bootstrap(Mean(), values, dialogues=list(talks))
    assert together.high - together.low > 2 * (alone.high - alone.low)
    other = values + np.repeat(np.random.default_rng(2).normal(0, 0.1, 30), 10)[:, None]
    each, _ = compare_paired(Mean(), values, other)
    by_talk, _ = compare_paired(Mean(), values, other, dialogues=list(talks))
    assert by_talk.value == each.value
    assert by_talk.high - by_talk.low > 2 * (each.high - each.low)


def test_a_run_that_may_only_be_read_is_read(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    with RunStore.create(folder) as store:
        store.set_up({"name": "try"}, [System(0, "vanilla", "vanilla", {}, "m")], DIALOGUES)
        store.add(Job(0, 0), Response(id="d0", method="vanilla", text="Hi"))
    before = sorted((path.name, path.read_bytes()) for path in folder.iterdir())
    monkeypatch.setattr(os, "access", lambda *_: False)
    with RunStore.open(folder) as store:
        assert [response.text for _, _, response in store.responses()] == ["Hi"]
        assert not (folder / f"{FILE}-wal").exists()
    assert sorted((path.name, path.read_bytes()) for path in folder.iterdir()) == before


_WITHOUT_FCNTL = "import sys; sys.modules['fcntl'] = None; from dialore.cli import main; main()"


@pytest.mark.parametrize("arguments", [["run", "first.yaml", "--model", "rehearsal"], ["graph", "show", "tea"]])
def test_commands_work_where_there_is_no_fcntl(tmp_path, arguments):
    (tmp_path / "first.yaml").write_text("dataset: {name: everyday, limit: 1}\nsystems: [vanilla]\n", "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_FCNTL, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr

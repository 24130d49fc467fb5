"""The run store: what it keeps, what it refuses, and that two runs cannot share it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys

import pytest

from dialore.dialogue import Dialogue
from dialore.errors import InputError
from dialore.evaluation.base import SampleScore
from dialore.experiments.store import FILE, Job, RunStore, System
from dialore.response import Response, StageTrace

SYSTEMS = [System(0, "vanilla", "vanilla", {}, "m"), System(1, "no CR", "dcrag", {"cross_revision": False}, "m")]
DIALOGUES = [Dialogue(id=f"d{n}", turns=[f"Hello {n}"]) for n in range(3)]


@pytest.fixture
def store(tmp_path):
    with RunStore.create(tmp_path / "run") as made:
        made.set_up({"name": "try"}, SYSTEMS, DIALOGUES)
        yield made


def answered(text="Hi", **changes):
    return Response(id="d0", method="vanilla", text=text, **changes)


def test_what_is_kept_comes_back(store):
    trace = [StageTrace(stage="query-production", outcome="unparsed"), StageTrace(stage="response-generation")]
    store.add(Job(1, 0), answered("One", seconds=2.0, trace=trace))
    store.add(Job(0, 1), answered("Two"))
    with RunStore.open(store.folder) as again:
        assert again.facts() == {"name": "try"}
        assert again.systems() == SYSTEMS
        assert [(job, dialogue.id, response.text) for job, dialogue, response in again.responses()] == [
            (Job(0, 1), "d0", "Two"),
            (Job(1, 0), "d1", "One"),
        ]
        assert again.counts(0)[0] == {"ok": 1, "stage unparsed": 1, "stage ok": 1}
        assert again.counts(0)[1]["seconds"] == 2.0


def test_a_failed_response_is_not_done_and_makes_way_for_a_good_one(store):
    store.add(Job(0, 0), answered("", status="failed", error="the endpoint is gone"))
    assert store.done() == set()
    store.add(Job(0, 0), answered("Good"))
    assert store.done() == {Job(0, 0)}
    assert [response.text for _, _, response in store.responses()] == ["Good"]


def test_a_new_response_drops_the_measures_of_the_old_one(store):
    store.add(Job(0, 0), answered())
    store.measure({"f1": {Job(0, 0): SampleScore((0.5,))}})
    assert dict(store.measures("f1", 0)) == {Job(0, 0): SampleScore((0.5,))}
    store.add(Job(0, 0), answered("Better"))
    assert dict(store.measures("f1", 0)) == {}


def test_a_metric_that_changed_its_meaning_drops_its_measures(store):
    store.add(Job(0, 0), answered())
    store.set_metric("meep", {"identity": "judge A"})
    store.measure({"meep": {Job(0, 0): SampleScore((70.0,))}})
    store.set_metric("meep", {"identity": "judge A"})
    assert len(dict(store.measures("meep", 0))) == 1
    store.set_metric("meep", {"identity": "judge B"})
    assert dict(store.measures("meep", 0)) == {}


def test_what_failed_to_be_measured_is_measured_again(store):
    for position in range(3):
        store.add(Job(position, 0), answered())
    store.measure({"meep": {Job(0, 0): SampleScore((1.0,)), Job(1, 0): SampleScore(problem="failed", reason="down")}})
    store.measure({"meep": {Job(2, 0): SampleScore(problem="refused", reason="will not")}})
    assert store.jobs(without_metric="meep") == [Job(1, 0)]


def test_systems_may_be_added_and_dialogues_may_not_change(store):
    store.set_up({}, [*SYSTEMS, System(2, "t-rag", "t-rag", {}, "m")], DIALOGUES)
    assert len(store.systems()) == 3
    with pytest.raises(InputError, match=r"other dialogues.*d9"):
        store.set_up({}, SYSTEMS, [*DIALOGUES[:2], Dialogue(id="d9", turns=["Hi"])])
    with pytest.raises(InputError, match=r"has 3 dialogues, not 2 \(use its data set"):
        store.set_up({}, SYSTEMS, DIALOGUES[:2])
    with pytest.raises(InputError, match="other options for 'no CR'"):
        store.set_up({}, [SYSTEMS[0], System(1, "no CR", "dcrag", {}, "m")], DIALOGUES)


def test_a_refused_set_up_changes_nothing(store):
    with pytest.raises(InputError):
        store.set_up({"name": "other"}, [*SYSTEMS, System(2, "t-rag", "t-rag", {}, "m")], DIALOGUES[:2])
    assert store.facts() == {"name": "try"}
    assert store.systems() == SYSTEMS


def test_ids_must_differ(tmp_path):
    with RunStore.create(tmp_path / "run") as made, pytest.raises(InputError, match="two dialogues have the id 'd0'"):
        made.set_up({}, SYSTEMS, [DIALOGUES[0], DIALOGUES[0]])


def test_two_processes_cannot_write_to_one_run(store):
    script = (
        "import sys; from pathlib import Path; from dialore.experiments.store import RunStore\n"
        "with RunStore.open(Path(sys.argv[1])) as store, store.writing(): pass"
    )
    command = [sys.executable, "-c", script, str(store.folder)]
    with store.writing():
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "another process is writing" in refused.stderr
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def go_on(folder, *, answers):
    """Go on with a run that ends in an error."""
    with RunStore.resumed(folder) as store:
        store.set_up({}, SYSTEMS, DIALOGUES)
        if answers:
            store.add(Job(0, 0), answered())
        raise InputError("wrong")


def test_a_run_that_never_answered_leaves_nothing_behind_and_one_that_did_stays(tmp_path):
    folder = tmp_path / "runs" / "run"
    for answers, stays in ((False, False), (True, True), (False, True)):
        with pytest.raises(InputError, match="wrong"):
            go_on(folder, answers=answers)
        assert folder.exists() == stays
    with RunStore.open(folder) as store:
        assert store.done() == {Job(0, 0)}


def test_no_gold_plan_and_a_gold_plan_of_no_source_stay_apart(tmp_path):
    dialogues = [Dialogue(id="none", turns=["Hi"]), Dialogue(id="empty", turns=["Hi"], sources=())]
    with RunStore.create(tmp_path / "run") as made:
        made.set_up({}, SYSTEMS, dialogues)
        assert ["sources" in made.dialogue(place).model_fields_set for place in (0, 1)] == [False, True]


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="no run in"):
        RunStore.open(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty and holds no run"):
        RunStore.create(tmp_path)
    assert not (tmp_path / FILE).exists()


def test_a_run_of_another_version_says_so(store):
    store.close()
    with sqlite3.connect(store.folder / FILE) as database:
        database.execute("pragma user_version = 99")
    with pytest.raises(InputError, match="format 99; this version reads 1"):
        RunStore.open(store.folder)


def test_a_damaged_run_says_so(tmp_path):
    (tmp_path / FILE).write_bytes(b"this is no database at all, but long enough to be looked at" * 40)
    with pytest.raises(InputError, match="is not a run"):
        RunStore.open(tmp_path)


def test_a_run_killed_before_its_tables_were_there_is_none_and_is_begun_anew(tmp_path):
    (tmp_path / "run.sqlite").touch()
    with pytest.raises(InputError, match="no run in"):
        RunStore.open(tmp_path)
    with RunStore.create(tmp_path) as store:
        assert store.done() == set()

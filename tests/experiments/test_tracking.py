"""Runs told to MLflow and Weights & Biases: by their own libraries, into a folder of the test."""

from __future__ import annotations

import logging
import sys

import pytest

from dialore.errors import InputError, MissingExtraError, UnknownNameError
from dialore.experiments import tracking as module
from dialore.experiments.dataframes import load_run
from dialore.experiments.run import run_experiment
from dialore.experiments.store import RunStore
from dialore.experiments.tracking import tracking
from dialore.llm.fake import FakeModel


def rehearse(config, name):
    return FakeModel()


class Kept:
    """A tracker that keeps what it is told, and fails at what it is told to."""

    place, id = "a list", "7"

    def __init__(self, name, parameters, before, failing=()):
        self.told = [(name, before), parameters]
        self.failing = failing

    def __getattr__(self, what):
        def tell(*given, **more):
            if what in self.failing:
                raise ConnectionError("it is gone")
            self.told.append((what, *given, *more.values()))

        return tell


@pytest.fixture
def kept(monkeypatch):
    made = []

    def make(*given):
        made.append(Kept(*given, failing=failing))
        return made[-1]

    failing: list[str] = []
    monkeypatch.setitem(module.TRACKERS, "mlflow", make)
    return made, failing


async def test_a_tracker_is_told_of_parameters_progress_and_scores_in_one_run(config_of, tmp_path, kept):
    made, _ = kept
    config = config_of(3, systems=["vanilla", "dcrag"], models=[{"model": "m", "temperature": 0.2}])
    ended = await run_experiment(config, tmp_path / "run", rehearse, log_to="mlflow")
    assert ended.logged == "a list"
    [first] = made
    (name, before), parameters, *told = first.told
    assert (name, before) == (config.name, None)
    assert parameters["system.1.method"] == "dcrag"
    assert parameters["temperature.m"] == "0.2"
    assert parameters["data.seed"] == "0"
    assert parameters["prompt.dcrag/fact-selection.en"].startswith("dcrag/fact-selection.en v")
    assert "source.graph" in parameters
    steps = [step for what, *_, step in told if what == "log"]
    assert steps == sorted(steps)
    assert told[-2] == ("log", {"ok": 6, "failed": 0, "tokens": ended.tokens, "calls": ended.calls, "cached": 0}, 6)
    assert told[-1] == ("close", False)
    pytest.importorskip("pandas")
    await load_run(tmp_path / "run").score("f1")  # to where the run was told
    assert made[1].told[0] == (config.name, "7")
    assert made[1].told[2][1].keys() == {"f1/vanilla", "f1/dcrag"}


async def test_nothing_is_told_to_anybody_unless_it_is_asked_for(config_of, tmp_path, kept):
    ended = await run_experiment(config_of(2, systems=["vanilla"]), tmp_path / "run", rehearse)
    assert (kept[0], ended.logged) == ([], "")


async def test_a_tracker_that_fails_on_the_way_does_not_stop_the_run(config_of, tmp_path, kept, caplog):
    _, failing = kept
    failing.append("log")
    with caplog.at_level(logging.WARNING):
        ended = await run_experiment(config_of(3, systems=["vanilla"]), tmp_path / "run", rehearse, log_to="mlflow")
    assert ended.ok == 3
    assert [record.message for record in caplog.records] == ["not logged any further: ConnectionError: it is gone"]


def test_what_cannot_be_logged_to_is_one_line(tmp_path, monkeypatch):
    with RunStore.create(tmp_path / "run") as store:
        with pytest.raises(UnknownNameError, match="did you mean mlflow"), tracking("mlfow", store):
            pass
        monkeypatch.setitem(sys.modules, "wandb", None)
        with pytest.raises(MissingExtraError, match=r"pip install .*\[wandb\]'"), tracking("wandb", store):
            pass

        def refuse(*given):
            raise ConnectionError("nobody\nanswers")

        monkeypatch.setitem(module.TRACKERS, "mlflow", refuse)
        said = r"cannot log to mlflow: nobody .*MLFLOW_TRACKING_URI"
        with pytest.raises(InputError, match=said), tracking("mlflow", store):
            pass


@pytest.mark.filterwarnings("ignore")  # of libraries that are not ours
async def test_mlflow_keeps_it(config_of, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="the mlflow extra is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "there").as_uri())
    config = config_of(3, systems=["vanilla", {"method": "dcrag", "options": {"cross_revision": False}}])
    await run_experiment(config, tmp_path / "run", rehearse, log_to="mlflow")
    page = tmp_path / "report.html"
    page.write_text("<p>", "utf-8")
    with RunStore.open(tmp_path / "run") as store:
        with tracking("mlflow", store) as tracked:
            tracked.log({"f1/dcrag (cross_revision=false)": 0.5})
            tracked.add([page])
        id = store.facts()["tracked"]["mlflow"]
    run = mlflow.get_run(id)
    assert run.info.status == "FINISHED"
    assert run.data.params["system.1"] == "dcrag (cross_revision=false)"
    assert len(run.data.params) > 20
    assert (run.data.metrics["ok"], run.data.metrics["f1/dcrag _cross_revision_false_"]) == (6, 0.5)
    assert [each.path for each in mlflow.MlflowClient().list_artifacts(id, "report")] == ["report/report.html"]
    # Another run than what is kept there is another run there.
    await run_experiment(config.model_copy(update={"repetitions": 2}), tmp_path / "run", rehearse, log_to="mlflow")
    with RunStore.open(tmp_path / "run") as store:
        assert store.facts()["tracked"]["mlflow"] != id


@pytest.mark.filterwarnings("ignore")
async def test_wandb_keeps_it(config_of, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="the wandb extra is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    await run_experiment(config_of(3, systems=["vanilla"]), tmp_path / "run", rehearse, log_to="wandb")
    page = tmp_path / "report.html"
    page.write_text("<p>", "utf-8")
    with RunStore.open(tmp_path / "run") as store, tracking("wandb", store) as tracked:
        tracked.log({"f1/vanilla": 0.5})
        tracked.add([page])
    wandb.teardown()
    first, second = sorted((tmp_path / "wandb").glob("offline-run-*"))
    # One run there, gone on with; offline-run-TIME-ID, with -1 after it where both began in one second.
    assert first.name.split("-")[3] == second.name.split("-")[3]
    assert b"system.0.method" in next(first.glob("*.wandb")).read_bytes()
    assert b"f1/vanilla" in next(second.glob("*.wandb")).read_bytes()

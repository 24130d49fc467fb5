"""A run over a Ray cluster of this machine: one cluster for all tests."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from pathlib import Path

import pytest

from dialore.errors import ModelError
from dialore.experiments.run import run_experiment
from dialore.experiments.store import RunStore
from dialore.llm.fake import FakeModel
from dialore.session import open_model

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed: pip install ray"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def cluster():
    """Two CPUs, whatever this machine has; its processes find this package and these tests."""
    root = str(Path(__file__).parents[2])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([f"{root}/src", root]))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield
        ray.shutdown()


def on_ray(config, folder, open_model, workers=1, **settings):
    from dialore.experiments.ray import RayEngine

    return asyncio.run(run_experiment(config, folder, open_model, engine=RayEngine(workers), **settings))


def rehearse(config, name):
    return FakeModel()


class Sluggish(FakeModel):
    """Takes its time, so that dialogues overlap."""

    async def complete(self, request, on_token=None):
        await asyncio.sleep(0.02)
        return await super().complete(request, on_token)


class Refusing(FakeModel):
    async def complete(self, request, on_token=None):
        raise ModelError("the key is wrong", hint="set another", configuration=True)


class Moody(FakeModel):
    async def complete(self, request, on_token=None):
        if request.label.startswith("d3/"):
            raise ModelError("out of order")
        return await super().complete(request, on_token)


def contents(folder):
    with RunStore.open(folder) as store:
        return {job: (response.text, response.status, response.usage.calls) for job, _, response in store.responses()}


def test_it_makes_what_a_run_here_makes_and_resumes_it(cluster, config_of, tmp_path):
    few, told, estimates = config_of(12, models=[{"model": "m"}]), [], []
    here = asyncio.run(run_experiment(few, tmp_path / "here", rehearse))
    tell = {"on_estimate": estimates.append, "on_progress": lambda progress: told.append(progress.done)}
    there = on_ray(few, tmp_path / "there", rehearse, workers=2, **tell)
    assert (there.total, there.ok, there.failed) == (here.total, here.ok, here.failed) == (24, 24, 0)
    assert (there.calls, there.tokens) == (here.calls, here.tokens)
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    assert told == list(range(1, 25))
    assert estimates[0].responses == 24
    with RunStore.open(tmp_path / "there") as store:
        assert store.facts()["prompts"]
    again = on_ray(few, tmp_path / "there", rehearse)
    assert (again.before, again.ok) == (24, 0)
    # One engine goes on with what the other began.
    more = config_of(12, models=[{"model": "m"}], repetitions=2)
    on = asyncio.run(run_experiment(more, tmp_path / "there", rehearse))
    assert (on.before, on.ok) == (24, 24)


def test_failures_are_kept_and_tried_again(cluster, config_of, tmp_path):
    config = config_of(6, systems=["vanilla"], models=[{"model": "m"}])
    first = on_ray(config, tmp_path / "run", lambda config, name: Moody())
    assert (first.ok, first.failed) == (5, 1)
    assert "out of order" in first.failures[0]
    second = asyncio.run(run_experiment(config, tmp_path / "run", rehearse))
    assert (second.before, second.ok, second.failed) == (5, 1, 0)


def test_the_driver_stops_at_the_budget_and_keeps_what_was_paid_for(cluster, config_of, tmp_path):
    short = config_of(
        60, **{"systems": ["dcrag"], "models": [{"model": "m"}], "budget.tokens": 40_000, "concurrency": 4}
    )
    first = on_ray(short, tmp_path / "run", lambda config, name: Sluggish())
    assert "budget of 40,000 tokens is spent" in first.stopped
    assert 0 < first.ok < 60
    assert first.failed == 0
    assert first.tokens >= 40_000
    assert len(contents(tmp_path / "run")) == first.ok


def test_an_endpoint_that_refuses_stops_all_workers(cluster, config_of, tmp_path):
    config = config_of(30, systems=["vanilla"], models=[{"model": "m"}])
    with pytest.raises(ModelError, match=r"the key is wrong.*set another"):
        on_ray(config, tmp_path / "run", lambda config, name: Refusing())
    assert not (tmp_path / "run").exists()


def test_the_commands_own_models_travel_to_the_workers(cluster, config_of, tmp_path):
    models = [{"model": "lexical", "cache": str(tmp_path / "cache.sqlite"), "timeout": 5.0}]
    ended = on_ray(config_of(4, models=models), tmp_path / "run", open_model)
    assert (ended.ok, ended.failed) == (8, 0)
    with RunStore.open(tmp_path / "run") as store:
        assert {response.model for _, _, response in store.responses()} == {"no model"}

"""Measuring a run: gone on with, measured again where a judge failed, dropped where a metric changed."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest

from dialore.dialogue import Dialogue
from dialore.errors import BudgetError, ModelError
from dialore.evaluation.base import Mean, MetricInfo, SampleScore, unavailable
from dialore.evaluation.overlap import Distinct
from dialore.evaluation.registry import Context, load_metric
from dialore.evaluation.statistics import bootstrap, compare_paired
from dialore.experiments.scoring import measure_run, score_of
from dialore.experiments.store import Job, RunStore, System
from dialore.response import Response

SIZE = 9


@pytest.fixture
def store(tmp_path):
    """A run of nine dialogues; the last response failed."""
    with RunStore.create(tmp_path / "run") as made, made.writing():
        dialogues = [Dialogue(id=f"d{n}", turns=["Hello"], reference="Hi" if n else None) for n in range(SIZE)]
        made.set_up({}, [System(0, "m", "m", {}, "x")], dialogues)
        for n in range(SIZE):
            made.add(Job(n, 0), Response(id=f"d{n}", method="m", text=f"text {n}"))
        broken = Response(id="d8", method="m", text="", status="failed", error="down")
        made.add(Job(8, 0), broken)
        yield made


class Length(Mean):
    """The length of a response, slowly if it is a judge's; raises what it is told to."""

    def __init__(self, name="length", *, needs=(), identity="", raises=None):
        self.name, self.needs, self.identity = name, needs, identity
        self.raises = raises or {}
        self.asked, self.under_way, self.most = [], 0, 0

    @property
    def about(self):
        return MetricInfo(self.name, "ours", "Length in characters.", needs=self.needs, scale=0.0)

    async def measure(self, sample):
        self.asked.append(sample.dialogue.id)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            if self.needs:
                await asyncio.sleep(0.001)
            if error := self.raises.get(sample.dialogue.id):
                raise error
            if not sample.dialogue.reference:
                return unavailable("the dialogue has no reference")
            return SampleScore((float(len(sample.response.text)),))
        finally:
            self.under_way -= 1


@pytest.mark.parametrize("needs", [(), ("judge",)])
async def test_only_what_is_missing_is_measured(store, needs):
    metric = Length(needs=needs)
    await measure_run(store, [metric])
    assert sorted(metric.asked) == [f"d{n}" for n in range(SIZE - 1)], "a failed response is never measured"
    measures = dict(store.measures("length", 0))
    assert len(measures) == SIZE
    assert measures[Job(0, 0)].reason == "the dialogue has no reference"
    assert measures[Job(8, 0)].reason == "the response failed"
    again = Length(needs=needs)
    await measure_run(store, [again])
    assert again.asked == []
    store.add(Job(3, 0), Response(id="d3", method="m", text="a better text"))
    await measure_run(store, [again])
    assert again.asked == ["d3"]
    await measure_run(store, [again], again=True)
    assert len(again.asked) == SIZE
    score = score_of(metric, [m for _, m in store.measures("length", 0)])
    assert (score.n, score.problems) == (7, {"unavailable": 2})
    assert score.value == pytest.approx((6 * 6 + 13) / 7)


async def test_metrics_without_a_model_read_a_response_once(store, monkeypatch):
    read = []
    real = RunStore.response
    monkeypatch.setattr(RunStore, "response", lambda self, job: read.append(job) or real(self, job))
    await measure_run(store, [Length("a"), Length("b"), Length("c")])
    assert len(read) == SIZE
    assert [len(dict(store.measures(name, 0))) for name in "abc"] == [SIZE] * 3
    late = Length("late")
    await measure_run(store, [Length("a"), late])
    assert len(late.asked) == SIZE - 1


async def test_what_a_judge_failed_at_is_measured_again(store):
    moody = Length(needs=("judge",), raises={"d2": ModelError("overloaded")})
    await measure_run(store, [moody])
    kept = dict(store.measures("length", 0))[Job(2, 0)]
    assert (kept.problem, kept.reason, kept.values) == ("failed", "overloaded", ())
    well = Length(needs=("judge",))
    await measure_run(store, [well])
    assert well.asked == ["d2"]
    assert dict(store.measures("length", 0))[Job(2, 0)].values == (6.0,)


async def test_a_changed_identity_drops_the_measures(store):
    await measure_run(store, [Length(identity="prompt 1"), Length("other", identity="prompt 1")])
    changed, other = Length(identity="prompt 2"), Length("other", identity="prompt 1")
    await measure_run(store, [changed, other])
    assert len(changed.asked) == SIZE - 1
    assert other.asked == []


@pytest.mark.parametrize("error", [BudgetError("spent"), ModelError("wrong key", configuration=True)])
async def test_what_is_measured_before_the_end_is_kept(store, error):
    judge = Length(needs=("judge",), raises={"d5": error})
    with pytest.raises(type(error)):
        await measure_run(store, [judge], at_once=2)
    kept = {job.position for job, _ in store.measures("length", 0)}
    assert {0, 1, 2, 3} <= kept
    assert 5 not in kept
    rest = Length(needs=("judge",))
    await measure_run(store, [rest], at_once=2)
    assert {"d5"} <= set(rest.asked)
    assert not {f"d{n}" for n in kept} & set(rest.asked)


async def test_judges_are_asked_many_at_once_and_told_how_far_they_are(store):
    told = []
    judge = Length(needs=("judge",))
    await measure_run(store, [judge], at_once=4, on_progress=lambda *step: told.append(step))
    assert judge.most == 4
    assert told[-1] == ("length", SIZE, SIZE)


def distinct_values(rows=40, seed=3):
    draw = np.random.default_rng(seed)
    values = np.full((rows, 12), np.nan)
    for place in range(rows):
        count = draw.integers(0, 13)
        values[place, :count] = draw.integers(0, 30, size=count)
    return values


@pytest.mark.parametrize("order", [1, 2])
def test_distinct_without_each_response_is_what_the_others_give(order):
    metric, values = load_metric(f"distinct-{order}", Context()), distinct_values()
    expected = [metric.combine(np.delete(values, place, axis=0)) for place in range(len(values))]
    assert metric.without_each(values, np.arange(len(values))) == pytest.approx(expected, abs=1e-12)


def test_the_interval_of_distinct_holds_its_figure_and_narrows_with_more_responses():
    # Resampled with repeats it would lie below the figure altogether.
    small, large = (bootstrap(load_metric("distinct-1", Context()), distinct_values(rows)) for rows in (20, 200))
    for found in (small, large):
        assert found.low < found.value < found.high
    assert large.high - large.low < (small.high - small.low) / 2


def test_two_systems_distinct_are_compared_by_leaving_out_each_pair():
    poor, rich = distinct_values(seed=3), distinct_values(seed=4) + np.arange(40)[:, None] * 30
    difference, p = compare_paired(load_metric("distinct-1", Context()), rich, poor)
    assert difference.low > 0
    assert p < 0.001
    assert compare_paired(load_metric("distinct-1", Context()), poor, poor)[1] == 1.0


def test_measures_that_combine_into_nothing_are_not_available():
    score = score_of(load_metric("distinct-2", Context()), [SampleScore(()), SampleScore(())])
    assert (score.value, score.low, score.n) == (None, None, 2)
    assert score.reason
    assert not math.isnan(score.n)


@pytest.mark.parametrize("metric", [Length(), load_metric("distinct-1", Context())])
def test_repetitions_of_a_dialogue_are_drawn_together(metric):
    draw = np.random.default_rng(7)
    values = draw.integers(40, size=(60, 1)).astype(float)
    once = [SampleScore((float(value),)) for value in values[:, 0]]
    # Four equal answers to each dialogue tell no more than one does.
    four = [one for one in once for _ in range(4)]
    alone = score_of(metric, once, dialogues=range(60))
    repeated = score_of(metric, four, dialogues=[n for n in range(60) for _ in range(4)])
    naive = score_of(metric, four)
    width, four_width, naive_width = (found.high - found.low for found in (alone, repeated, naive))
    share = 4 if isinstance(metric, Distinct) else 1  # of four times as many n-grams a quarter is distinct
    assert four_width * share == pytest.approx(width, rel=1e-6)
    assert naive_width < 0.7 * four_width


def test_several_answers_to_one_dialogue_alone_have_no_interval():
    found = score_of(Length(), [SampleScore((1.0,)), SampleScore((3.0,))], dialogues=[0, 0])
    assert (found.value, found.low, found.n) == (2.0, None, 2)

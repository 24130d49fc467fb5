"""Scoring a run: measures of single responses, kept beside them, and the figures that they combine into."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from dialore.errors import BudgetError, ModelError
from dialore.evaluation.base import Measure, Sample, Score
from dialore.evaluation.statistics import bootstrap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.evaluation.base import Metric
    from dialore.experiments.store import Job, RunStore
    from dialore.response import Response

_CHUNK = 256
"""Responses that are measured before their measures are written."""


async def measure_run(
    store: RunStore,
    metrics: Sequence[Metric],
    *,
    at_once: int = 64,
    again: bool = False,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> None:
    """Measure every response that has no measure yet, metric by metric; the store must be held for writing.

    Measures that failed (a judge's endpoint was down) are made again, too.

    Args:
        store: the run.
        metrics: what is measured.
        at_once: the most responses measured at a time; judges wait for their model.
        again: measure what has been measured, too.
        on_progress: told of metric, responses measured, and responses in all.

    Raises:
        ModelError: a judge's endpoint refuses for every response.
        BudgetError: the budget is spent; what is measured is kept.
    """
    # A second connection reads while the first writes.
    with type(store).open(store.folder) as reader:
        for metric in metrics:
            name = metric.about.name
            store.set_metric(name, {**dataclasses.asdict(metric.about), **_identity(metric)})
            wanted = None if again else name
            waiting = reader.jobs(without_metric=wanted)
            done = 0
            for jobs in _chunks(waiting):
                found = await _measure_some(metric, reader, jobs, at_once)
                store.measure(name, found)
                done += len(found)
                if on_progress is not None:
                    on_progress(name, done, len(waiting))


def _identity(metric: Metric) -> dict[str, object]:
    """What else a metric's measures depend on, e.g. its judge and prompts: where it changes, they no longer hold."""
    said: dict[str, object] = {}
    identity = getattr(metric, "identity", None)
    if identity is not None:
        said["identity"] = identity
    return said


async def _measure_some(metric: Metric, reader: RunStore, jobs: Sequence[Job], at_once: int) -> dict[Job, Measure]:
    free = asyncio.Semaphore(at_once)

    async def one(job: Job) -> Measure:
        async with free:
            return await measure(metric, reader.dialogue(job.position), reader.response(job))

    measures = await asyncio.gather(*(one(job) for job in jobs))
    return dict(zip(jobs, measures, strict=True))


async def measure(metric: Metric, dialogue: Dialogue, response: Response) -> Measure:
    """One response's measure. A response that failed has none: it is counted, never scored.

    Raises:
        ModelError: the judge's endpoint refuses for every response.
        BudgetError: the budget is spent.
    """
    if response.status == "failed":
        return Measure(problem="unavailable", reason="the response failed")
    try:
        return await metric.measure(Sample(dialogue, response))
    except BudgetError:
        raise
    except ModelError as error:
        if error.configuration:
            raise
        return Measure(problem="failed", reason=str(error))


def _chunks(jobs: Sequence[Job]) -> Iterator[Sequence[Job]]:
    for begin in range(0, len(jobs), _CHUNK):
        yield jobs[begin : begin + _CHUNK]


def table_of(measures: Iterable[Measure]) -> NDArray[np.float64]:
    """The values of measures that have some, a row each, short rows filled with NaN."""
    rows = [measure.values for measure in measures if measure.problem is None]
    width = max((len(row) for row in rows), default=0)
    filled = np.full((len(rows), width), np.nan)
    for place, row in enumerate(rows):
        filled[place, : len(row)] = row
    return filled


def score_of(metric: Metric, measures: Sequence[Measure], *, seed: int = 0) -> Score:
    """The figure that measures combine into, with its error bar; without any, "not available" with the reason."""
    problems = Counter(measure.problem for measure in measures if measure.problem is not None)
    reasons = Counter(measure.reason for measure in measures if measure.problem is not None)
    reason = "; ".join(f"{text} ({count})" for text, count in reasons.most_common(3))
    values = table_of(measures)
    name, counts = metric.about.name, {str(problem): count for problem, count in problems.items()}
    if not len(values):
        return Score(name, None, n=0, problems=counts, reason=reason or "no response has been measured")
    figure = bootstrap(metric, values, seed=seed)
    if np.isnan(figure.value):
        return Score(name, None, n=len(values), problems=counts, reason="the measures combine into no figure")
    bounds = [None if np.isnan(bound) else bound for bound in (figure.low, figure.high)]
    return Score(name, figure.value, bounds[0], bounds[1], len(values), counts, reason)

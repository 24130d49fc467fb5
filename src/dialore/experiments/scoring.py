"""Scoring a run: measures of single responses, kept beside them, and the figures that they combine into."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dialore.errors import ModelError, is_fatal
from dialore.evaluation.base import Measure, Metric, Sample, Score
from dialore.evaluation.judges.comparing import Together
from dialore.evaluation.statistics import as_table, bootstrap
from dialore.experiments.store import Job, RunStore
from dialore.parallel import bounded_map

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.response import Response

NEEDS_MODEL = frozenset({"judge", "nli", "language-model"})
"""What a metric may need that takes its time: such metrics are asked many responses at once."""

_CHUNK = 256
"""Responses that are measured without a model before their measures are written."""


async def measure_run(
    store: RunStore,
    metrics: Sequence[Metric],
    *,
    at_once: int = 64,
    again: bool = False,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> None:
    """Measure every response that has no measure yet, or with `again` every one; the store must be held for writing.

    Metrics that need no model measure a response one after another, so that it is read once; the others follow, metric
    by metric, `at_once` responses at a time, each measure kept as soon as it is there. Measures that failed (a judge's
    endpoint was down) are made again, too.

    Raises:
        ModelError: a judge's endpoint refuses for every response.
        BudgetError: the budget is spent; what is measured is kept.
    """
    joint = [metric for metric in metrics if isinstance(metric, Together)]
    single = [metric for metric in metrics if not isinstance(metric, Together)]
    for metric in single:
        # What else its measures depend on, e.g. judge and prompts: where that changes, they no longer hold.
        identity = getattr(metric, "identity", None)
        also = {} if identity is None else {"identity": identity}
        store.set_metric(metric.about.name, dataclasses.asdict(metric.about) | also)
    plain = [metric for metric in single if not NEEDS_MODEL & set(metric.about.needs)]
    # A second connection reads while the first writes.
    with type(store).open(store.folder) as reader:
        await _measure_together(store, reader, plain, again=again, on_progress=on_progress)
        for metric in single:
            if metric not in plain:
                name = metric.about.name
                jobs = reader.jobs(without_metric=None if again else name)
                tell = functools.partial(on_progress, name) if on_progress is not None else None
                await _measure_queued(store, reader, metric, jobs, at_once=at_once, tell=tell)
    for metric in joint:
        systems = list(system_names(store))
        await measure_jointly(store, metric, systems, at_once=at_once, again=again, on_progress=on_progress)


async def _measure_together(
    store: RunStore,
    reader: RunStore,
    metrics: Sequence[Metric],
    *,
    again: bool,
    on_progress: Callable[[str, int, int], None] | None,
) -> None:
    wanted: dict[Job, list[Metric]] = {}
    for metric in metrics:
        for job in reader.jobs(without_metric=None if again else metric.about.name):
            wanted.setdefault(job, []).append(metric)
    jobs, done = sorted(wanted), 0
    what = metrics[0].about.name if len(metrics) == 1 else f"{len(metrics)} metrics"
    for start in range(0, len(jobs), _CHUNK):
        some = jobs[start : start + _CHUNK]
        found: dict[str, dict[Job, Measure]] = {}
        for job in some:
            dialogue, response = reader.dialogue(job.position), reader.response(job)
            for metric in wanted[job]:
                found.setdefault(metric.about.name, {})[job] = await measure(metric, dialogue, response)
        store.measure(found)
        done += len(some)
        if on_progress is not None:
            on_progress(what, done, len(jobs))
        # Nothing above waits: others of this loop, and an interrupt, get their turn here.
        await asyncio.sleep(0)


async def _measure_queued(
    store: RunStore,
    reader: RunStore,
    metric: Metric,
    jobs: Sequence[Job],
    *,
    at_once: int,
    tell: Callable[[int, int], None] | None,
) -> None:
    done = 0

    async def work(job: Job) -> None:
        nonlocal done
        found = await measure(metric, reader.dialogue(job.position), reader.response(job))
        store.measure({metric.about.name: {job: found}})
        done += 1
        if tell is not None:
            tell(done, len(jobs))

    await bounded_map(jobs, work, limit=at_once)


async def measure_jointly(
    store: RunStore,
    metric: Together,
    systems: Sequence[int],
    *,
    at_once: int = 64,
    again: bool = False,
    limit: int | None = None,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> None:
    """Measure several systems' responses to a dialogue by one call, for every dialogue that all of them answered.

    Where one of the responses has no measure yet all are measured anew; so they are where other systems are asked
    about. Measures are kept as soon as they are there. The store must be held for writing; raises as `measure_run`.
    """
    name = metric.about.name
    ordered = sorted(systems)
    titles = ", ".join(system_names(store)[number] for number in ordered)
    store.set_metric(name, dataclasses.asdict(metric.about) | {"identity": f"{metric.identity}; {titles}"})
    places = answered_by(store, ordered)[:limit]
    lacking = {job for number in ordered for job in store.jobs(number, without_metric=None if again else name)}
    work = [place for place in places if any(Job(place[0], number, place[1]) in lacking for number in ordered)]
    done = 0

    async def one(place: tuple[int, int]) -> None:
        nonlocal done
        responses = responses_of(store, *place, ordered)
        try:
            found = await metric.measure_together(store.dialogue(place[0]), responses)
        except ModelError as error:
            if is_fatal(error):
                raise
            found = dict.fromkeys(responses, Measure(problem="failed", reason=str(error)))
        jobs = (Job(place[0], number, place[1]) for number in ordered)
        store.measure({name: {job: found[title] for job, title in zip(jobs, responses, strict=True)}})
        done += 1
        if on_progress is not None:
            on_progress(name, done, len(work))

    await bounded_map(work, one, limit=at_once)


def system_names(store: RunStore) -> dict[int, str]:
    """Systems' names by number: their titles, with the model where the run has several."""
    systems = store.systems()
    several = len({system.model for system in systems}) > 1
    return {system.number: f"{system.title} ({system.model})" if several else system.title for system in systems}


def answered_by(store: RunStore, systems: Sequence[int]) -> list[tuple[int, int]]:
    """The dialogues that every one of the systems answered without failing: position and repetition, in order."""
    done = store.done()
    return sorted(set.intersection(*({(j.position, j.repetition) for j in done if j.system == n} for n in systems)))


def responses_of(store: RunStore, position: int, repetition: int, systems: Sequence[int]) -> dict[str, Response]:
    """What systems responded to a dialogue, by their names."""
    names = system_names(store)
    return {names[number]: store.response(Job(position, number, repetition)) for number in systems}


async def measure(metric: Metric, dialogue: Dialogue, response: Response) -> Measure:
    """One response's measure; raises as `measure_run`. One that failed has none: it is counted, never scored."""
    if response.status == "failed":
        return Measure(problem="unavailable", reason="the response failed")
    try:
        return await metric.measure(Sample(dialogue, response))
    except ModelError as error:
        if is_fatal(error):
            raise
        return Measure(problem="failed", reason=str(error))


def table_of(measures: Iterable[Measure]) -> NDArray[np.float64]:
    """The values of measures that have some, a row each, short rows filled with NaN."""
    return as_table([measure.values for measure in measures if measure.problem is None])


def score_of(metric: Metric, measures: Sequence[Measure], *, dialogues: Sequence[int] | None = None) -> Score:
    """The figure that measures combine into, with its error bar; without any, "not available" with the reason.

    `dialogues` says which dialogue each response answers, so that repetitions count as one; each another where None.
    """
    problems = Counter(measure.problem for measure in measures if measure.problem is not None)
    reasons = Counter(measure.reason for measure in measures if measure.problem is not None)
    reason = "; ".join(f"{text} ({count})" for text, count in reasons.most_common(3))
    values = table_of(measures)
    name, counts = metric.about.name, {str(problem): count for problem, count in problems.items()}
    if not len(values):
        return Score(name, None, n=0, problems=counts, reason=reason or "no response has been measured")
    if dialogues is not None:
        dialogues = [place for place, one in zip(dialogues, measures, strict=True) if one.problem is None]
    figure = bootstrap(metric, values, dialogues=dialogues)
    if np.isnan(figure.value):
        return Score(name, None, n=len(values), problems=counts, reason="the measures combine into no figure")
    bounds = [None if np.isnan(bound) else bound for bound in (figure.low, figure.high)]
    return Score(name, figure.value, bounds[0], bounds[1], len(values), counts, reason)

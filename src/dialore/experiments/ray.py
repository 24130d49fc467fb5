"""A run over many machines: Ray's asynchronous actors answer its dialogues, and the driver alone writes the store.

The same store, the same resume as a run on one machine: each response is kept as it comes back, and a driver that is
killed loses those under way. It looks after the budget too: once it is spent no further dialogue is begun, and what is
under way is finished and kept.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dialore.errors import BudgetError, DialoreError, MissingExtraError
from dialore.experiments.config import BudgetConfig, RunConfig
from dialore.experiments.run import Estimate, Opened, Progress, open_systems, prepare
from dialore.experiments.store import Job, RunStore
from dialore.llm.budget import Budget
from dialore.settings import SourceSettings, located
from dialore.workbench import Connect, connect_model

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.response import Response

_OWNERS = ("DIALORE_", "OPENAI_")


def run_on_ray(
    config: RunConfig,
    folder: Path,
    connect: Connect = connect_model,
    *,
    workers: int | None = None,
    accept_changed_prompts: bool = False,
    on_estimate: Callable[[Estimate], None] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Progress:
    """Make every response of a run that is not in its folder yet, by workers on a Ray cluster.

    The cluster is the one of `RAY_ADDRESS`, or one on this machine that ends with the run. Its machines need this
    package and the run's sources at the same paths; the run's folder is the driver's alone.

    Args, results and errors are those of `run_experiment`; the configuration's concurrency is divided among the
    workers, `connect` must be picklable, and `workers` is one for every CPU of the cluster where it is None.

    Raises:
        MissingExtraError: Ray is not installed.
    """
    ray = _ray()
    with RunStore.resumed(folder) as store:
        preparing = _prepare(config, store, connect, on_estimate, accept_changed_prompts)
        jobs, numbers = asyncio.run(preparing)
        done = store.done()
        missing = [job for job in jobs if job not in done]
        progress = Progress(total=len(jobs), before=len(jobs) - len(missing))
        if not missing:
            return progress
        with _cluster(ray):
            count = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
            count = min(count, config.concurrency, len(missing))
            each = max(1, config.concurrency // count)
            worker = ray.remote(max_concurrency=each)(_Worker)
            given = {kept: number for number, kept in numbers.items()}
            environment = {name: value for name, value in os.environ.items() if name.startswith(_OWNERS)}
            actors = [worker.remote(_for_workers(config), connect, given, environment) for _ in range(count)]
            budget = Budget(config.budget.tokens, config.budget.cost)
            for job, response in _answers(ray, store, missing, actors * each, budget, progress):
                store.add(job, response)
                progress.count(job, response)
                if on_progress is not None:
                    on_progress(progress)
    return progress


async def _prepare(
    config: RunConfig,
    store: RunStore,
    connect: Connect,
    on_estimate: Callable[[Estimate], None] | None,
    accept_changed_prompts: bool,
) -> tuple[list[Job], dict[int, int]]:
    async with open_systems(config, connect) as opened:
        return await prepare(config, store, opened, on_estimate, accept_changed_prompts)


def _answers(
    ray: Any,  # noqa: ANN401 - the library
    store: RunStore,
    missing: Sequence[Job],
    slots: Sequence[Any],
    budget: Budget,
    progress: Progress,
) -> Iterator[tuple[Job, Response]]:
    """The responses as they are made, as many at once as there are slots: an actor stands there once for each.

    Raises what would befall every dialogue, after what is under way; a spent budget is told to the progress.
    """
    left = iter(missing)
    running: dict[Any, tuple[Job, Any]] = {}

    def begin(actor: Any) -> None:  # noqa: ANN401 - a Ray actor
        for job in itertools.islice(left, 1):
            running[actor.answer.remote(store.dialogue(job.position), job.system, job.repetition)] = (job, actor)

    for actor in slots:
        begin(actor)
    ended: DialoreError | None = None
    while running:
        finished = ray.wait(list(running))[0][0]
        job, actor = running.pop(finished)
        response, error, tokens, cost = ray.get(finished)
        budget.tokens, budget.cost = budget.tokens + tokens, budget.cost + cost
        if response is not None:
            yield job, response
        ended = ended or error or _spent(budget)
        if ended is None:
            begin(actor)
    if isinstance(ended, BudgetError):
        progress.stopped = str(ended)
    elif ended is not None:
        raise ended


def _spent(budget: Budget) -> BudgetError | None:
    try:
        budget.check()
    except BudgetError as error:
        return error
    return None


class _Worker:
    """Answers dialogues by the run's agents, opened for the first one; Ray makes it an actor with an event loop."""

    def __init__(
        self, config: RunConfig, connect: Connect, given: Mapping[int, int], environment: Mapping[str, str]
    ) -> None:
        os.environ.update(environment)
        self._given = given
        # Never closed: the models and sources live as long as the actor's process.
        self._context = open_systems(config, connect)
        self._opening: asyncio.Task[Opened] | None = None
        self._told = (0, 0.0)

    async def answer(
        self, dialogue: Dialogue, system: int, repetition: int
    ) -> tuple[Response | None, DialoreError | None, int, float]:
        """The response, or the error that would befall every dialogue; tokens and money spent since last told."""
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._context.__aenter__())
        try:
            opened = await self._opening
        except DialoreError as error:
            return None, error, 0, 0.0
        response, fault = None, None
        try:
            response = await opened.agents[self._given[system], repetition].respond(dialogue)
        except DialoreError as error:
            fault = error
        before, self._told = self._told, (opened.budget.tokens, opened.budget.cost)
        return response, fault, self._told[0] - before[0], self._told[1] - before[1]


@contextmanager
def _cluster(ray: Any) -> Iterator[None]:  # noqa: ANN401 - the library
    """The Ray cluster that is there, else one that ends with the body."""
    is_ours = not ray.is_initialized()
    if is_ours:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        yield
    finally:
        if is_ours:
            ray.shutdown()


def _ray() -> Any:  # noqa: ANN401 - the library
    # Ray reports its use to its makers unless told not to.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise MissingExtraError("a run over many machines", "ray") from None
    return ray


def _for_workers(config: RunConfig) -> RunConfig:
    """The configuration with sources by absolute paths, as workers start elsewhere; the budget is the driver's."""
    sources = SourceSettings.model_validate(located(config.sources.model_dump(mode="json"), Path.cwd()))
    return config.model_copy(update={"sources": sources, "budget": BudgetConfig()})

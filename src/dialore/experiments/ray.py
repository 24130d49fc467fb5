"""A run over many machines: Ray's actors answer its dialogues, and the driver alone writes the store.

Once the budget is spent no further dialogue is begun, and what is under way is finished and kept.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dialore.errors import DialoreError, import_optional
from dialore.experiments.config import BudgetConfig, RunConfig
from dialore.experiments.systems import Opened, open_systems
from dialore.llm.model import Usage
from dialore.settings import SourceSettings, absolute_paths

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.experiments.run import Respond
    from dialore.experiments.store import Job
    from dialore.llm.model import Budget
    from dialore.response import Response
    from dialore.session import Connect

_OWNERS = ("DIALORE_", "OPENAI_")


class RayEngine:
    """Has the responses of a run made by workers on a Ray cluster; an engine of `run_experiment`.

    The cluster is that of `RAY_ADDRESS`, or one on this machine that ends with the run. Its machines need this package
    and the run's sources at the same paths; the run's folder is the driver's alone. The concurrency is divided among
    the `workers`, one for every CPU where None, and `connect` must be picklable.
    """

    def __init__(self, workers: int | None = None) -> None:
        # Ray reports its use to its makers unless told not to.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self._ray: Any = import_optional("ray", "a run over many machines", "ray")
        self._workers = workers

    @contextmanager
    def __call__(
        self, config: RunConfig, connect: Connect, numbers: Mapping[int, int], missing: int, budget: Budget
    ) -> Iterator[Respond]:
        """Yield what answers the missing responses; `numbers` maps systems of the configuration to the store's.

        What the workers pay for is counted in `budget`.
        """
        ray = self._ray
        is_ours = not ray.is_initialized()
        if is_ours:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        try:
            count = self._workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
            count = min(count, config.concurrency, missing)
            share = max(1, config.concurrency // count)
            worker = ray.remote(max_concurrency=share)(_Worker)
            given = {kept: number for number, kept in numbers.items()}
            environment = {name: value for name, value in os.environ.items() if name.startswith(_OWNERS)}
            # Paths are absolute, as workers start elsewhere; the budget is the driver's.
            sources = SourceSettings.model_validate(absolute_paths(config.sources.model_dump(mode="json"), Path.cwd()))
            theirs = config.model_copy(update={"sources": sources, "budget": BudgetConfig()})
            actors = [worker.remote(theirs, connect, given, environment) for _ in range(count)]
            free: asyncio.Queue[Any] = asyncio.Queue()  # an actor stands there once for each dialogue that it can take
            for actor in actors * share:
                free.put_nowait(actor)

            async def respond(job: Job, dialogue: Dialogue) -> Response:
                actor = await free.get()
                try:
                    budget.check()
                    response, error, usage, cost = await actor.answer.remote(dialogue, job.system, job.repetition)
                finally:
                    free.put_nowait(actor)
                budget.add(usage, cost)
                if error is not None:
                    raise error
                answered: Response = response
                return answered

            yield respond
        finally:
            if is_ours:
                ray.shutdown()


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
        self._told = 0.0

    async def answer(
        self, dialogue: Dialogue, system: int, repetition: int
    ) -> tuple[Response | None, DialoreError | None, Usage, float]:
        """Return the response, or an error that concerns every dialogue; tokens and money spent since last told."""
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._context.__aenter__())
        try:
            opened = await self._opening
        except DialoreError as error:
            return None, error, Usage(), 0.0
        response, fault = None, None
        try:
            response = await opened.agents[self._given[system], repetition].respond(dialogue)
        except DialoreError as error:
            fault = error
        usage, opened.budget.spent = opened.budget.spent, Usage()
        before, self._told = self._told, opened.budget.cost
        return response, fault, usage, self._told - before

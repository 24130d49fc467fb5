"""A run over many machines: Ray Data shards its dialogues, and the driver alone writes the store (the `ray` extra).

The same store, the same resume as a run on one machine: responses come back block by block, each kept as it comes. What
the workers have finished but not handed over when the driver is killed is done again; blocks are small for that reason.
Budgets are looked after by the driver between blocks: once it is spent, workers begin no further dialogue, and what is
under way is finished and kept, so that a run passes its budget by a few dialogues for each worker.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dialore.dialogue import Dialogue
from dialore.errors import BudgetError, DialoreError, InputError, MissingExtraError, ModelError
from dialore.experiments.run import Progress, open_systems, prepare
from dialore.experiments.store import Job, RunStore
from dialore.llm.budget import Budget
from dialore.response import Response
from dialore.settings import SourceSettings, located
from dialore.workbench import connect_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from dialore.experiments.config import RunConfig
    from dialore.experiments.run import Estimate, Opened
    from dialore.workbench import Connect

_BLOCK = 8
"""The most dialogues of a block: what a driver that is killed may lose of one worker is a few of these."""
_CPUS = 0.5
"""Of one worker: two workers of a whole one leave none for Ray Data's own tasks on two cores, and it hangs."""
_OWNERS = ("DIALORE_", "OPENAI_")

Row = dict[str, Any]


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
            share = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
            share = min(share, config.concurrency, len(missing))
            _answer(ray, store, missing, _Share(config, connect, share, numbers), progress, on_progress)
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


class _Share:
    """What the workers are told, and how much each has under way."""

    def __init__(self, config: RunConfig, connect: Connect, workers: int, numbers: Mapping[int, int]) -> None:
        self.workers = workers
        self.given = {kept: given for given, kept in numbers.items()}
        self.at_once = max(1, config.concurrency // workers)
        self.block = min(_BLOCK, self.at_once)
        # One block more than are under way, so that no slot waits for the last dialogue of a block.
        self.blocks_at_once = -(-self.at_once // self.block) + 1
        self.config = _anywhere(config)
        self.connect = connect
        self.environment = {name: value for name, value in os.environ.items() if name.startswith(_OWNERS)}


def _answer(
    ray: Any,  # noqa: ANN401 - the library
    store: RunStore,
    missing: Sequence[Job],
    plan: _Share,
    progress: Progress,
    on_progress: Callable[[Progress], None] | None,
) -> None:
    gate = ray.remote(num_cpus=0)(_Gate).remote()
    rows = [_row(store, job) for job in missing]
    data = ray.data.from_items(rows, override_num_blocks=-(-len(rows) // plan.block))
    answered = data.map_batches(
        _Worker,
        fn_constructor_args=(plan, gate),
        batch_size=None,
        batch_format="pyarrow",
        zero_copy_batch=True,
        num_cpus=_CPUS,
        compute=ray.data.ActorPoolStrategy(
            size=plan.workers,
            max_tasks_in_flight_per_actor=plan.blocks_at_once,
            max_concurrent_calls_per_actor=plan.blocks_at_once,
            enable_true_multi_threading=True,
        ),
    )
    budget = Budget(plan.config.budget.tokens, plan.config.budget.cost)
    ended: DialoreError | None = None
    for row in answered.iter_rows():
        budget.tokens, budget.cost = budget.tokens + row["tokens"], budget.cost + row["cost"]
        if row["content"]:
            job = Job(row["position"], row["system"], row["repetition"])
            response = Response.model_validate_json(row["content"])
            store.add(job, response)
            progress.count(job, response)
            if on_progress is not None:
                on_progress(progress)
        if ended is None:
            ended = _fault_of(row) or _spent(budget)
            if ended is not None:
                ray.get(gate.shut.remote())
    if isinstance(ended, BudgetError):
        progress.stopped = str(ended)
    elif ended is not None:
        raise ended


def _row(store: RunStore, job: Job) -> Row:
    dialogue = store.dialogue(job.position).model_dump_json(exclude_unset=True)
    return {"position": job.position, "system": job.system, "repetition": job.repetition, "dialogue": dialogue}


def _spent(budget: Budget) -> BudgetError | None:
    try:
        budget.check()
    except BudgetError as error:
        return error
    return None


_FAULTS: Mapping[str, type[DialoreError]] = {"BudgetError": BudgetError, "ModelError": ModelError}


def _fault_of(row: Row) -> DialoreError | None:
    """What a worker could not go on for: it would befall every dialogue."""
    if not row["fault"]:
        return None
    return _FAULTS.get(row["fault"], InputError)(row["message"], mend=row["mend"])


class _Gate:
    """Says whether workers are to begin further dialogues."""

    def __init__(self) -> None:
        self._is_open = True

    def is_open(self) -> bool:
        return self._is_open

    def shut(self) -> None:
        self._is_open = False


class _Worker:
    """Answers dialogues by the run's agents, several at once, on an event loop of its own; Ray makes one an actor.

    Ray gives it several blocks at a time, each from a thread; all share the loop, the agents and the limit on
    dialogues under way.
    """

    def __init__(self, plan: _Share, gate: Any) -> None:  # noqa: ANN401 - a Ray actor
        os.environ.update(plan.environment)
        self._gate = gate
        self._given = plan.given
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._opened: Opened | None = None
        self._fault: DialoreError | None = None
        self._counted = (0, 0.0)
        asyncio.run_coroutine_threadsafe(self._open(plan), self._loop).result()

    def __call__(self, block: Any) -> Iterator[dict[str, list[Any]]]:  # noqa: ANN401 - a pyarrow table
        import ray

        rows: list[Row] = block.to_pylist()
        finished: queue.SimpleQueue[Row] = queue.SimpleQueue()
        if ray.get(self._gate.is_open.remote()):
            for row in rows:
                asyncio.run_coroutine_threadsafe(self._answer(row, finished), self._loop)
        else:
            for row in rows:
                finished.put(_answered(row))
        for _ in rows:
            yield {name: [value] for name, value in finished.get().items()}

    async def _open(self, plan: _Share) -> None:
        self._free = asyncio.Semaphore(plan.at_once)
        try:
            # Never closed: the models and sources live as long as the actor's process.
            self._context = open_systems(plan.config, plan.connect)
            self._opened = await self._context.__aenter__()
        except DialoreError as error:
            self._fault = error

    async def _answer(self, row: Row, finished: queue.SimpleQueue[Row]) -> None:
        async with self._free:
            content = ""
            try:
                if self._opened is not None and self._fault is None:
                    agent = self._opened.agents[self._given[row["system"]], row["repetition"]]
                    response = await agent.respond(Dialogue.model_validate_json(row["dialogue"]))
                    content = response.model_dump_json()
            except DialoreError as error:
                self._fault = error
            except Exception as error:  # noqa: BLE001 - a thread waits for this row
                self._fault = InputError(f"a worker failed: {type(error).__name__}: {error}", mend="report this")
            finished.put(_answered(row, content, self._fault, self._new_spending()))

    def _new_spending(self) -> tuple[int, float]:
        """Tokens and money spent since this was last asked."""
        if self._opened is None:
            return 0, 0.0
        before, budget = self._counted, self._opened.budget
        self._counted = (budget.tokens, budget.cost)
        return budget.tokens - before[0], budget.cost - before[1]


def _answered(
    row: Row, content: str = "", fault: DialoreError | None = None, spent: tuple[int, float] = (0, 0.0)
) -> Row:
    """A row as it goes back: the response, or nothing where the dialogue was not begun."""
    kind, message, mend = ("", "", "") if fault is None else (type(fault).__name__, fault.message, fault.mend)
    return {
        **{name: row[name] for name in ("position", "system", "repetition")},
        "content": content,
        "fault": kind,
        "message": message,
        "mend": mend,
        "tokens": spent[0],
        "cost": spent[1],
    }


@contextmanager
def _cluster(ray: Any) -> Iterator[None]:  # noqa: ANN401 - the library
    """The Ray cluster that is there, else one that ends with the body."""
    is_ours = not ray.is_initialized()
    if is_ours:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
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
        import ray.data
    except ImportError:
        raise MissingExtraError("a run over many machines", "ray") from None
    return ray


def _anywhere(config: RunConfig) -> RunConfig:
    """The configuration with sources by absolute paths: workers start elsewhere."""
    sources = SourceSettings.model_validate(located(config.sources.model_dump(mode="json"), Path.cwd()))
    return config.model_copy(update={"sources": sources})

"""A run from beginning to end: open its systems, set it up, estimate its cost, answer what is missing."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dialore.errors import BudgetError, InputError, UnknownNameError, as_path
from dialore.evaluation.registry import metric_names
from dialore.experiments.config import BudgetConfig, RunConfig, any_config
from dialore.experiments.simulation import run_simulation
from dialore.experiments.store import Job, RunStore
from dialore.experiments.systems import Opened, Progress, check_models_differ, facts_of, load_dialogues, open_systems
from dialore.knowledge import Knowledge, Source
from dialore.llm.batches import MOST_REQUESTS, BatchQueue
from dialore.llm.fake import FakeModel
from dialore.llm.model import Budget, Price, Usage, cost_of
from dialore.parallel import bounded_map
from dialore.session import Connect, open_model
from dialore.sources.base import SearchResult

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.response import Response
    from dialore.settings import ModelSettings

Respond: TypeAlias = "Callable[[Job, Dialogue], Awaitable[Response]]"
"""Makes the response that a job asks for; raises as `Agent.respond` does."""
Engine: TypeAlias = "Callable[[RunConfig, Connect, Mapping[int, int], int, Budget], AbstractContextManager[Respond]]"
"""Makes so many missing responses of a run elsewhere than in its own process, given its models' maker, the systems'
numbers in the store by those in the configuration, and the run's budget."""
_REHEARSED = 4


async def run_experiment(
    config: RunConfig | Mapping[str, Any] | str | Path,
    folder: str | Path | None = None,
    connect: Connect = open_model,
    *,
    changes: Mapping[str, object] | None = None,
    engine: Engine | None = None,
    accept_changed_prompts: bool = False,
    accept_changed_server: bool = False,
    on_estimate: Callable[[Estimate], None] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Progress:
    """Make every response of a run that is not in its folder yet; gives how the run ended.

    With a simulated user (`user` in the configuration) the run is of whole conversations, and so is its progress.

    Args:
        config: what is run: an experiment file, or what one says as a mapping; completions are then cached as those
            of `dialore run` are.
        folder: where it is kept; made if need be, `runs/NAME` where none is named. One that holds the same run is
            resumed.
        connect: makes models of their settings.
        changes: what is otherwise than in the file, by dotted name: `{"dataset.limit": 20, "model.model": "gpt-4o"}`.
        engine: what the responses are made by, elsewhere than in this process (`dialore.experiments.ray`).
        accept_changed_prompts: go on with a run whose prompts, or files of methods, changed since, and keep that for
            its report.
        accept_changed_server: go on with a run whose model answers at another address now.
        on_estimate: told what the run is expected to cost before it starts; what it raises stops the run there, and
            leaves one that was there as it was.
        on_progress: told of every response.

    Raises:
        InputError: a set-up that is wrong for every dialogue, inputs that are missing, a folder of another run, of
            other prompts, of another server, or held by another process.
        ModelError: an endpoint that refuses.
    """
    config = config if isinstance(config, RunConfig) else any_config(config, changes)
    folder = Path("runs", config.name) if folder is None else as_path("a run's folder", folder)
    if config.batch and engine is not None:
        raise InputError("batch and the engine ray exclude each other", hint="take one of them")
    say = on_progress or (lambda _: None)
    if config.simulates:
        if config.batch or engine is not None:
            raise InputError("a simulated user needs an answer to each turn", hint="leave out --batch and --engine")
        return await run_simulation(config, folder, connect, say)
    with RunStore.resumed(folder) as store:
        queue = BatchQueue(store.batches(), store.keep_batch, config.concurrency) if config.batch else None
        asked = connect if queue is None else queue.connecting(connect)
        async with open_systems(config, asked) as opened, nullcontext() if queue is None else queue.sending():
            check_models_differ(opened.systems)
            store.count_spending(opened.budget)
            accepted = (accept_changed_prompts, accept_changed_server)
            numbers, missing, progress = await _prepare(config, store, opened, on_estimate, accepted)
            placed = {(numbers[system], repetition): agent for (system, repetition), agent in opened.agents.items()}

            async def here(job: Job, dialogue: Dialogue) -> Response:
                async with nullcontext() if queue is None else queue.dialogue():
                    return await placed[job.system, job.repetition].respond(dialogue)

            def tell_batches(words: str) -> None:
                progress.batches = words
                say(progress)

            limit = config.concurrency
            if queue is not None:
                queue.on_change, limit = tell_batches, max(1, min(len(missing), MOST_REQUESTS))

            elsewhere = None
            if engine is not None and missing:
                elsewhere = engine(config, connect, numbers, len(missing), opened.budget)
            with elsewhere or nullcontext(here) as respond:
                await _answer(store, missing, respond, progress, limit, lambda: say(progress))
            return progress


async def _prepare(
    config: RunConfig,
    store: RunStore,
    opened: Opened,
    on_estimate: Callable[[Estimate], None] | None,
    accepted: tuple[bool, bool],
) -> tuple[dict[int, int], list[Job], Progress]:
    """Set a run up and estimate it, or leave it as it was; gives systems' numbers in the store, and missing jobs."""
    known = metric_names()
    for name in config.metrics:
        if name not in known:
            raise UnknownNameError("metric", name, known)
    with store.together():
        facts, dialogues = facts_of(config, opened), load_dialogues(config.dataset)
        numbers = store.set_up(facts, opened.systems, dialogues, *accepted)
        if not store.size:
            problem = f"no dialogue in {config.dataset.path} has a turn that may be the reference"
            raise InputError(problem, hint="dialogues want two turns, or a `reference`")
        done = store.done()
        # All systems' jobs of one dialogue come together, so that a run cut short is paired.
        keys = itertools.product(range(store.size), sorted(numbers.values()), range(config.repetitions))
        jobs = [Job(*key) for key in keys]
        missing = [job for job in jobs if job not in done]
        if on_estimate is not None:
            on_estimate(await _estimate(config, store, missing, numbers, opened))
    return numbers, missing, Progress(total=len(jobs), before=len(jobs) - len(missing))


# --- answering


async def _answer(
    store: RunStore, missing: Iterable[Job], respond: Respond, progress: Progress, limit: int, tell: Callable[[], None]
) -> None:
    """Make the missing responses, several dialogues at once, each kept as soon as it is finished."""

    async def answer(job: Job) -> None:
        if progress.stopped:
            return
        try:
            response = await respond(job, store.dialogue(job.position))
        except BudgetError as error:
            progress.stopped = str(error)
            return
        store.add(job, response)
        progress.count(job, response)
        tell()

    # The first that raises stops all: what it raises would befall every dialogue.
    await bounded_map(missing, answer, limit=limit)


# --- what it is expected to cost


@dataclass(frozen=True, slots=True)
class Estimate:
    """The expected cost of responses by rehearsal; in money where each model has a price. `failed` says why one is."""

    responses: int
    calls: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None = None
    failed: str = ""


async def _estimate(
    config: RunConfig, store: RunStore, jobs: Iterable[Job], numbers: Mapping[int, int], opened: Opened
) -> Estimate:
    """Estimate what jobs will cost: rehearse a few dialogues with every system, and multiply."""
    missing = Counter(job.system for job in jobs)
    if not missing:
        return Estimate(responses=0, calls=0, prompt_tokens=0, completion_tokens=0)
    places = range(0, store.size, max(1, store.size // _REHEARSED))[:_REHEARSED]
    spaced = [store.dialogue(position) for position in places]
    calls = sent = written = cost = 0.0
    failed = ""

    def rehearsal(settings: ModelSettings, name: str | None) -> FakeModel | None:
        return None if settings in opened.lexical and name is None else FakeModel()

    unlimited = config.model_copy(update={"budget": BudgetConfig()})
    async with open_systems(unlimited, rehearsal, {"web": _Unsearched()}) as rehearsed:
        prices = [config.price(model) for model in config.models for _ in config.systems]
        for system in rehearsed.systems:
            answered = [await rehearsed.agents[system.number, 0].respond(dialogue) for dialogue in spaced]
            share = missing[numbers[system.number]] / max(1, len(answered))
            spent = sum((response.usage for response in answered), Usage())
            calls += share * spent.calls
            sent += share * spent.prompt_tokens
            written += share * spent.completion_tokens
            price: Price = prices[system.number] or (0.0, 0.0)
            cost += share * cost_of(spent, price)
            failed = failed or next((response.error or "" for response in answered if response.status == "failed"), "")
    return Estimate(
        responses=missing.total(),
        calls=round(calls),
        prompt_tokens=round(sent),
        completion_tokens=round(written),
        cost=cost if all(price is not None for price in prices) else None,
        failed=failed,
    )


class _Unsearched:
    """The web in a rehearsal: nothing is sent anywhere, and passages of common length come back."""

    name = "web"
    kind: Source = "web"

    async def search(
        self, query: str, dialogue: Dialogue, top: int = 10, scope: Sequence[Knowledge] = ()
    ) -> SearchResult:
        """Passages of a hundred words."""
        text = f"A page that a search for {query} could have found. " * 9
        return SearchResult(Knowledge(id=f"passage:{n}", kind="passage", text=text, source="web") for n in range(top))

    def close(self) -> None:
        """Nothing to close."""

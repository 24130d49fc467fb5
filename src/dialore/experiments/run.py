"""A run from beginning to end: open its systems, set it up, estimate its cost, answer what is missing."""

from __future__ import annotations

import hashlib
import itertools
import logging
import platform
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dialore.datasets import WholeDialogue, data_set, gold_text, stream_histories
from dialore.datasets.plain import Jsonl, unanswered_dialogue
from dialore.errors import BudgetError, InputError, UnknownNameError, as_path
from dialore.evaluation.registry import metric_names
from dialore.experiments.config import BudgetConfig, DatasetConfig, RunConfig, any_config
from dialore.experiments.store import ADDRESSES, PROMPTS, Job, RunStore, System
from dialore.experiments.tracking import tracking
from dialore.knowledge import Knowledge, Source
from dialore.llm.batches import MOST_REQUESTS, BatchQueue
from dialore.llm.fake import FakeModel
from dialore.llm.model import Budget, Price, Usage, cost_of
from dialore.methods.base import prompt_variant_of
from dialore.methods.registry import method_prompts, method_sources
from dialore.methods.stage_runner import CITING_PROMPT
from dialore.parallel import bounded_map
from dialore.plugins import file_of
from dialore.session import Connect, Session, open_model
from dialore.sources.base import SearchResult
from dialore.text import LANGUAGES

if TYPE_CHECKING:
    from dialore.agent import Agent
    from dialore.dialogue import Dialogue
    from dialore.prompts.library import PromptLibrary
    from dialore.response import Response
    from dialore.settings import ModelSettings

Respond: TypeAlias = "Callable[[Job, Dialogue], Awaitable[Response]]"
"""Makes the response that a job asks for; raises as `Agent.respond` does."""
Engine: TypeAlias = "Callable[[RunConfig, Connect, Mapping[int, int], int, Budget], AbstractContextManager[Respond]]"
"""Makes so many missing responses of a run elsewhere than in its own process, given its models' maker, the systems'
numbers in the store by those in the configuration, and the run's budget."""
_PARTS = ("dialore", "numpy", "aiohttp", "pydantic", "jinja2", "torch", "transformers")
_REHEARSED = 4
_SHOWN = 10
_TOLD = 100  # how often a tracker is told how the run stands


async def run_experiment(
    config: RunConfig | Mapping[str, Any] | str | Path,
    folder: str | Path | None = None,
    connect: Connect = open_model,
    *,
    changes: Mapping[str, object] | None = None,
    engine: Engine | None = None,
    accept_changed_prompts: bool = False,
    accept_changed_server: bool = False,
    log_to: Literal["mlflow", "wandb"] | None = None,
    on_estimate: Callable[[Estimate], None] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Progress:
    """Make every response of a run that is not in its folder yet; gives how the run ended.

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
        log_to: tell MLflow or Weights & Biases of the run; what its configuration says where None.
        on_estimate: told what the run is expected to cost before it starts; what it raises stops the run there, and
            leaves one that was there as it was.
        on_progress: told of every response.

    Raises:
        InputError: a set-up that is wrong for every dialogue, inputs that are missing, a folder of another run, of
            other prompts, of another server, or held by another process.
        ModelError: an endpoint that refuses.
    """
    config = config if isinstance(config, RunConfig) else any_config(config, changes)
    config = config.model_copy(update={"log_to": log_to or config.log_to})
    folder = Path("runs", config.name) if folder is None else as_path("a run's folder", folder)
    if config.batch and engine is not None:
        raise InputError("batch and the engine ray exclude each other", hint="take one of them")
    say = on_progress or (lambda _: None)
    with RunStore.resumed(folder) as store:
        queue = BatchQueue(store.batches(), store.keep_batch, config.concurrency) if config.batch else None
        asked = connect if queue is None else queue.connecting(connect)
        async with open_systems(config, asked) as opened, nullcontext() if queue is None else queue.sending():
            _check_models_differ(opened.systems)
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
            with tracking(config.log_to, store) as tracked, elsewhere or nullcontext(here) as respond:
                progress.logged = tracked.place

                def tell() -> None:
                    say(progress)
                    if progress.done % max(1, len(missing) // _TOLD) == 0:
                        tracked.log(progress.figures, progress.before + progress.done)

                await _answer(store, missing, respond, progress, limit, tell)
                tracked.log(progress.figures, progress.before + progress.done)
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


# --- what it is made of


def load_dialogues(config: DatasetConfig) -> Iterator[Dialogue]:
    """Yield the dialogues of a run, each with its reference where it has one; count those that are left out."""
    source = data_set(config.name)
    is_plain = isinstance(source, Jsonl)
    cut = config.cut or ("last" if is_plain else "random")
    left_out: list[str] = []

    def read() -> Iterable[WholeDialogue]:
        whole = source.read(config.path)
        return map(unanswered_dialogue, whole) if is_plain and config.cut is None else whole

    chosen = {"cut": cut, "where": config.where, "limit": config.limit, "seed": config.seed, "pool": config.pool}
    histories = stream_histories(read, on_left_out=lambda talk: left_out.append(talk.id), **chosen)  # type: ignore[arg-type]
    for dialogue in histories:
        if config.reference == "knowledge":
            gold = " ".join(gold_text(piece).strip() for piece in dialogue.knowledge)
            yield dialogue.model_copy(update={"reference": gold or None})
        else:
            yield dialogue
    if left_out:
        counted = f"{len(left_out):,} (such as {left_out[0]!r})"
        logging.getLogger(__name__).warning(
            "%s: dialogues without a turn to be answered are left out: %s", config.path, counted
        )


@dataclass(frozen=True, slots=True)
class Opened:
    """A run's agents by system number and repetition; `lexical` models are none: that method answers for them."""

    prompts: PromptLibrary
    budget: Budget
    systems: list[System] = field(default_factory=list)
    agents: dict[tuple[int, int], Agent] = field(default_factory=dict)
    lexical: list[ModelSettings] = field(default_factory=list)


@asynccontextmanager
async def open_systems(
    config: RunConfig, connect: Connect = open_model, given: Mapping[str, object] | None = None
) -> AsyncIterator[Opened]:
    """Yield the agents of a run on shared sources; those given are asked in place of configured ones."""
    given = {name: source for name, source in (given or {}).items() if config.sources.places(name)}
    async with Session(config.sources, given, cite=config.cite, connect=connect) as bench:
        opened = Opened(bench.prompts, Budget(config.budget.tokens, config.budget.cost))
        for named in config.models:
            chosen = named.model_copy(update={"concurrency": config.concurrency})
            main = bench.models(chosen)
            bench.check([system.method for system in config.systems], main)
            if main.main is None:
                opened.lexical.append(chosen)
            for system in config.systems:
                models = bench.models(chosen.model_copy(update={"stages": chosen.stages | system.stages}))
                models = models.with_budget(opened.budget, config.price(chosen))
                number = len(opened.systems)
                for repetition in range(config.repetitions):
                    sampled = models.with_sample(repetition)
                    opened.agents[number, repetition] = bench.agent(system.method, sampled, system.options)
                name = _title(named, opened.agents[number, 0].stage_runner.name, config.models)
                options = system.options | ({"stages": system.stages} if system.stages else {})
                opened.systems.append(System(number, system.title, system.method, options, name))
        yield opened


def _check_models_differ(systems: Sequence[System]) -> None:
    """Raise InputError where a table could not tell two models apart."""
    if len({(system.title, system.model) for system in systems}) < len(systems):
        raise InputError("two models of the run are the same", hint="give each entry of `models` a `name`")


def _title(model: ModelSettings, name: str, models: Sequence[ModelSettings]) -> str:
    """Return a model's name in tables; of several that are called alike, with what tells them apart."""
    alike = [other for other in models if (other.model, other.name) == (model.model, "")]
    told = []
    for part in ("base_url", "api", "temperature", "top_p", "max_tokens", "extra_body", "stages"):
        value = getattr(model, part)
        if value and any(getattr(other, part) != value for other in alike):
            told.append(f"{part}={value}")
    return model.name or (f"{name} ({', '.join(told)})" if told else name)


def facts_of(config: RunConfig, opened: Opened) -> dict[str, Any]:
    """Return what a run keeps of itself besides systems and dialogues: configuration, prompts, fingerprints."""
    agents = [opened.agents[system.number, 0] for system in opened.systems]
    versions = {"python": platform.python_version()}
    for part in _PARTS:
        with suppress(metadata.PackageNotFoundError):
            versions[part] = metadata.version(part)
    return {
        "name": config.name,
        "about": config.about,
        "config": config.model_dump(mode="json"),
        "versions": versions,
        PROMPTS: _prompts(agents, opened, cite=config.cite),
        "fingerprints": _fingerprints(agents),
        ADDRESSES: {
            system.model: [where]
            for system, agent in zip(opened.systems, agents, strict=True)
            if (where := getattr(getattr(agent.stage_runner, "model", None), "address", ""))
        },
    }


def _prompts(agents: Sequence[Agent], opened: Opened, *, cite: bool) -> dict[str, str]:
    """Return every prompt that models may be asked by, with version and hash, and the user's own files of methods."""
    library = opened.prompts
    files = {file for system in opened.systems if (file := file_of(system.method))}
    hashes = {str(file): f"{file} {hashlib.sha256(file.read_bytes()).hexdigest()[:12]}" for file in sorted(files)}
    asked = [
        prompt
        for agent in agents
        for prompts in method_prompts(type(agent.method), library, prompt_variant_of(agent.method)).values()
        for prompt in prompts
    ]
    if cite and asked:
        asked += [library.get(CITING_PROMPT, language) for language in LANGUAGES]
    return dict(sorted((f"{prompt.name}.{prompt.language}", prompt.reference) for prompt in asked)) | hashes


def _fingerprints(agents: Sequence[Agent]) -> dict[str, str]:
    """Return the fingerprint of every source that has one, by the name that methods have for it; several, joined."""
    fingerprints: dict[str, str] = {}
    for agent in agents:
        for name in method_sources(type(agent.method)):
            source = getattr(agent.method, name, None)
            marks = []
            for part in getattr(source, "graphs", [source]):
                meta = getattr(getattr(part, "store", None), "meta", None)
                marks.append(str(getattr(meta, "fingerprint", "") or getattr(part, "fingerprint", "")))
            if any(marks):
                fingerprints[name] = "+".join(marks)
    return fingerprints


# --- answering


@dataclass(slots=True)
class Progress:
    """How a run stands: of `total` responses some were there `before`, and all else was made since.

    Attributes:
        tokens: prompt and completion tokens; those of stages that the cache answered are left out, as are their calls.
        stopped: why the run ended early, if it did.
        failures: the first few failures: what failed, and why.
        logged: where a tracker has the run, if one is told.
        batches: how the batches under way stand, in words.
    """

    total: int
    before: int = 0
    ok: int = 0
    failed: int = 0
    tokens: int = 0
    calls: int = 0
    cached: int = 0
    began: float = field(default_factory=time.perf_counter)
    stopped: str = ""
    failures: list[str] = field(default_factory=list)
    logged: str = ""
    batches: str = ""

    @property
    def figures(self) -> dict[str, float]:
        """The figures for a tracker."""
        return {name: getattr(self, name) for name in ("ok", "failed", "tokens", "calls", "cached")}

    @property
    def done(self) -> int:
        """Responses made since the run began, failed ones too."""
        return self.ok + self.failed

    @property
    def rate(self) -> float:
        """Responses a second since the run began."""
        return self.done / max(1e-9, time.perf_counter() - self.began)

    def count(self, job: Job, response: Response) -> None:
        """Count a response."""
        if response.status == "ok":
            self.ok += 1
        else:
            self.failed += 1
            if len(self.failures) < _SHOWN:
                self.failures.append(f"{response.id}, {response.method}: {response.error}")
        self.spend(response)

    def spend(self, response: Response) -> None:
        """Count what a response cost."""
        usage = response.usage
        self.calls += usage.calls - usage.cached
        self.cached += usage.cached
        # Stage by stage, as some calls of a response may be the cache's and others not.
        paid = [stage.usage for stage in response.trace if not stage.usage.cached] if usage.cached else [usage]
        self.tokens += sum(spent.prompt_tokens + spent.completion_tokens for spent in paid)


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

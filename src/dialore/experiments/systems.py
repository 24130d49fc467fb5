"""The dialogues and agents of a run, what a run records of itself, and its progress."""

from __future__ import annotations

import hashlib
import logging
import platform
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING, Any

from dialore.datasets import WholeDialogue, data_set, gold_text, stream_histories
from dialore.datasets.plain import Jsonl, unanswered_dialogue
from dialore.errors import InputError
from dialore.experiments.store import ADDRESSES, PROMPTS, Job, System
from dialore.llm.model import Budget
from dialore.methods.base import prompt_variant_of
from dialore.methods.registry import method_prompts, method_sources
from dialore.methods.stage_runner import CITING_PROMPT
from dialore.plugins import file_of
from dialore.session import Connect, Session, open_model
from dialore.text import LANGUAGES

if TYPE_CHECKING:
    from dialore.agent import Agent
    from dialore.dialogue import Dialogue
    from dialore.experiments.config import DatasetConfig, RunConfig
    from dialore.prompts.library import PromptLibrary
    from dialore.response import Response
    from dialore.settings import ModelSettings

_PARTS = ("dialore", "numpy", "aiohttp", "pydantic", "jinja2", "torch", "transformers")
_SHOWN = 10


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


def check_models_differ(systems: Sequence[System]) -> None:
    """Raise InputError if a table could not tell two models apart."""
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


@dataclass(slots=True)
class Progress:
    """How a run stands: of `total` responses some were there `before`, and all else was made since.

    Attributes:
        tokens: prompt and completion tokens; those of stages that the cache answered are left out, as are their calls.
        stopped: why the run ended early, if it did.
        failures: the first few failures: what failed, and why.
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
    batches: str = ""

    @property
    def figures(self) -> dict[str, float]:
        """The counts, for example for an experiment tracker."""
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

"""From a run's configuration to agents, dialogues and the facts that a run keeps of itself."""

from __future__ import annotations

import platform
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any

from dialore.datasets import data_set, gold_text, stream_histories
from dialore.errors import InputError
from dialore.experiments.store import System
from dialore.experiments.store_facts import PROMPTS
from dialore.llm.budget import Budget, Budgeted
from dialore.llm.model import Sampled
from dialore.methods.registry import method_sources
from dialore.methods.stages import CITING, ModelResponder
from dialore.workbench import Workbench, connect_model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from dialore.agent import Agent
    from dialore.dialogue import Dialogue
    from dialore.experiments.config import DatasetConfig, RunConfig
    from dialore.experiments.store import RunStore
    from dialore.methods.base import Method
    from dialore.prompts.library import PromptLibrary
    from dialore.settings import ModelSettings
    from dialore.workbench import Connect

_PARTS = ("dialore", "numpy", "lmdb", "aiohttp", "pydantic", "jinja2", "torch", "transformers")


def load_dialogues(config: DatasetConfig) -> Iterator[Dialogue]:
    """The dialogues of a run, each with its reference, one at a time.

    Raises:
        InputError: an unknown data set, a file that is missing or malformed.
    """
    source = data_set(config.name)
    cut = config.cut or ("last" if config.name == "jsonl" else "random")
    histories = stream_histories(lambda: source.read(config.path), cut=cut, limit=config.limit, seed=config.seed)
    return map(_to_knowledge, histories) if config.reference == "knowledge" else histories


def _to_knowledge(dialogue: Dialogue) -> Dialogue:
    """The dialogue with its gold knowledge as the reference; without one where it has none."""
    gold = " ".join(gold_text(piece).strip() for piece in dialogue.knowledge)
    return dialogue.model_copy(update={"reference": gold or None})


@dataclass(frozen=True, slots=True)
class Opened:
    """A run's agents: one for each model, system and repetition, on shared sources and one budget.

    Attributes:
        systems: every system, in the run's order.
        agents: by system number and repetition.
        budget: what all models spend from.
        lexical: the models that are none: the method `lexical` answers for them.
    """

    systems: list[System]
    agents: dict[tuple[int, int], Agent]
    budget: Budget
    lexical: list[ModelSettings]


@asynccontextmanager
async def open_systems(
    config: RunConfig, connect: Connect = connect_model, given: Mapping[str, object] | None = None
) -> AsyncIterator[Opened]:
    """The agents of a run. The sources are opened once and shared.

    Args:
        config: the run.
        connect: makes models of their settings.
        given: sources that are asked in place of the configured ones of those names, where there are such.

    Raises:
        InputError: an unknown method or option, a source that cannot be opened, no model where one is needed.
    """
    given = {name: source for name, source in (given or {}).items() if config.sources.places(name)}
    opened = Opened([], {}, Budget(config.budget.tokens, config.budget.cost), [])
    async with Workbench(config.sources, given, cite=config.cite, connect=connect) as bench:
        for named in config.models:
            chosen = named.model_copy(update={"concurrency": config.concurrency})
            models = bench.models(chosen)
            if models.main is None:
                opened.lexical.append(chosen)
            elif config.budget.cost is not None and chosen.price is None:
                raise InputError(
                    f"a budget of money needs the price of {models.main.name}", mend="give the model a price"
                )
            models = models.wrapped(partial(Budgeted, budget=opened.budget, price=chosen.price))
            for system in config.systems:
                number = len(opened.systems)
                for repetition in range(config.repetitions):
                    sampled = models.wrapped(partial(Sampled, sample=repetition)) if repetition else models
                    opened.agents[number, repetition] = bench.agent(system.method, sampled, system.options)
                name = opened.agents[number, 0].responder.name
                opened.systems.append(System(number, system.title, system.method, dict(system.options), name))
        yield opened


def set_up(
    store: RunStore, config: RunConfig, opened: Opened, *, accept_changed_prompts: bool = False
) -> dict[int, int]:
    """Set a run up in its store; takes and gives what `RunStore.set_up` does.

    Raises:
        InputError: as `RunStore.set_up` and `load_dialogues`, or no dialogue of the data set can be answered.
    """
    numbers = store.set_up(
        facts_of(config, opened),
        opened.systems,
        load_dialogues(config.dataset),
        accept_changed_prompts=accept_changed_prompts,
    )
    if not store.size:
        raise InputError(
            f"no dialogue in {config.dataset.path} has a turn that may be the reference",
            mend="dialogues want two turns, or a `reference`",
        )
    return numbers


def facts_of(config: RunConfig, opened: Opened) -> dict[str, Any]:
    """What a run keeps of itself besides systems and dialogues: configuration, versions, prompts, fingerprints."""
    agents = [opened.agents[system.number, 0] for system in opened.systems]
    return {
        "name": config.name,
        "about": config.about,
        "config": config.model_dump(mode="json"),
        "versions": {part: found for part in _PARTS if (found := _version(part))}
        | {"python": platform.python_version()},
        PROMPTS: _prompts(agents, cite=config.cite),
        "fingerprints": _fingerprints(agents),
    }


def _prompts(agents: Sequence[Agent], *, cite: bool) -> dict[str, str]:
    """Every prompt that the agents' models may be asked by, with version and hash."""
    found: dict[str, str] = {}
    for agent in agents:
        library = _library(agent)
        for prompt in library or ():
            if _is_asked(agent.method, prompt.name) or (cite and prompt.name == CITING):
                found[f"{prompt.name}.{prompt.language}"] = prompt.reference
    return dict(sorted(found.items()))


def _library(agent: Agent) -> PromptLibrary | None:
    """The prompts of the models that do an agent's stages; None where no model does any."""
    responder: Any = agent.responder
    parts = [getattr(responder, "main", responder), *getattr(responder, "stages", {}).values()]
    return next((part.prompts for part in parts if isinstance(part, ModelResponder)), None)


def _is_asked(method: Method, prompt: str) -> bool:
    """Whether a prompt is one of a method's: those that it names, else its folder's."""
    named: tuple[str, ...] | None = getattr(method, "stages", None)
    return prompt.startswith(f"{method.name}/") if named is None else prompt in named


def _fingerprints(agents: Sequence[Agent]) -> dict[str, str]:
    """The fingerprint of every source that has one, by the name that methods have for it; several, joined."""
    found: dict[str, str] = {}
    for agent in agents:
        for name in method_sources(type(agent.method)):
            if mark := _fingerprint(getattr(agent.method, name, None)):
                found[name] = mark
    return found


def _fingerprint(source: Any) -> str:  # noqa: ANN401 - any source
    if source is None:
        return ""
    parts = getattr(source, "graphs", None)
    if parts is not None:
        return "+".join(_fingerprint(part) for part in parts)
    meta = getattr(getattr(source, "store", None), "meta", None)
    return str(getattr(meta, "fingerprint", "") or getattr(source, "fingerprint", ""))


def _version(part: str) -> str:
    try:
        return metadata.version(part)
    except metadata.PackageNotFoundError:
        return ""

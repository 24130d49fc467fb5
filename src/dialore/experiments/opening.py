"""From a run's configuration to agents, dialogues and the facts that a run keeps of itself."""

from __future__ import annotations

import platform
from contextlib import asynccontextmanager
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol

from dialore.agent import Agent, open_graphs
from dialore.datasets import cut_dialogues, data_set
from dialore.dialogue import read_dialogues
from dialore.errors import InputError
from dialore.experiments.store import System
from dialore.llm.budget import Budgeted
from dialore.llm.connection import connect
from dialore.methods.registry import method_class, method_sources
from dialore.sources.opening import open_sources

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from dialore.dialogue import Dialogue
    from dialore.experiments.config import DatasetConfig, ModelConfig, RunConfig, SourcesConfig
    from dialore.llm.model import LanguageModel

LEXICAL = "lexical"
_PARTS = ("dialore", "numpy", "lmdb", "aiohttp", "pydantic", "jinja2", "tantivy", "torch", "transformers")


class Connect(Protocol):
    """Makes a model of its configuration."""

    def __call__(self, config: ModelConfig, name: str | None) -> LanguageModel | None:
        """The model; `name` is another name than the configuration's, of a stage's model. None: lexical responder."""
        ...


def load_dialogues(config: DatasetConfig) -> list[Dialogue]:
    """The dialogues of a run, each with its reference.

    Raises:
        InputError: an unknown data set, a file that is missing or malformed.
    """
    if config.name == "jsonl":
        dialogues = list(read_dialogues(config.path))
        return dialogues[: config.limit] if config.limit else dialogues
    read = data_set(config.name).read(config.path)
    return cut_dialogues(read, cut=config.cut, limit=config.limit, seed=config.seed)


def systems_of(config: RunConfig, models: Sequence[str]) -> list[System]:
    """Every system of a run: each method with its options on each model.

    Args:
        config: the run.
        models: the models' names, as they answer.
    """
    pairs = [(model, system) for model in models for system in config.systems]
    return [
        System(number, system.title, system.method, dict(system.options), model)
        for number, (model, system) in enumerate(pairs)
    ]


def default_connect(concurrency: int, cache: Path | None = None, **settings: Any) -> Connect:  # noqa: ANN401
    """Connects by flags and environment, as every command does; `lexical` is no model at all."""

    def make(config: ModelConfig, name: str | None) -> LanguageModel | None:
        if config.model == LEXICAL and name is None:
            return None
        wanted = name or config.model
        return connect(wanted, config.base_url, concurrency=concurrency, cache=cache, **settings)

    return make


@asynccontextmanager
async def open_systems(
    config: RunConfig, connect_model: Connect
) -> AsyncIterator[list[tuple[str, list[Agent], Budgeted | None]]]:
    """The agents of a run: for each model its name, an agent a system, and what counts its cost.

    The sources are opened once and shared.

    Raises:
        InputError: an unknown method or option, a source that cannot be opened, no model where one is needed.
    """
    closing: list[Any] = []
    graph, sources = _open_knowledge(config.sources, [method_class(system.method) for system in config.systems])
    try:
        opened: list[tuple[str, list[Agent], Budgeted | None]] = []
        for chosen in config.models:
            model = connect_model(chosen, None)
            budgeted = None if model is None else Budgeted(model, **_budget(config, chosen))
            stages = {stage: _stage_model(connect_model, chosen, name) for stage, name in chosen.stages.items()}
            closing += [budgeted, *stages.values()]
            agents = [
                Agent.create(
                    system.method,
                    model=budgeted,
                    graph=graph,
                    sources=sources,
                    stage_models=stages,
                    prompts=config.sources.prompts,
                    options=system.options,
                )
                for system in config.systems
            ]
            opened.append((agents[0].responder.name, agents, budgeted))
        yield opened
    finally:
        for item in closing:
            if item is not None:
                await item.close()
        for source in (graph, *sources.values()):
            if source is not None:
                source.close()


def _open_knowledge(config: SourcesConfig, methods: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
    taken = {name for method in methods for name in method_sources(method)}
    # The lexical responder, too, works with a graph, whatever the method takes.
    graph = open_graphs(config.graph, config.ranking)
    if not taken - {"graph"}:
        return graph, {}
    opened: dict[str, Any] = open_sources(
        documents=config.documents,
        persona=config.persona,
        search=config.search,
        samples=config.samples,
        declared=config.declared,
    )
    return graph, opened


def _stage_model(connect_model: Connect, config: ModelConfig, name: str) -> LanguageModel:
    model = connect_model(config, name)
    if model is None:
        raise InputError(f"no endpoint is known for the model {name!r}", mend="give a base_url, or name hf:NAME")
    return model


def _budget(config: RunConfig, model: ModelConfig) -> dict[str, Any]:
    if config.budget.cost is not None and model.price is None:
        raise InputError(f"a budget of money needs the price of {model.model}", mend="give the model a price")
    return {"max_tokens": config.budget.tokens, "max_cost": config.budget.cost, "price": model.price}


def facts_of(config: RunConfig, agents: Sequence[Agent]) -> dict[str, Any]:
    """What a run keeps of itself besides systems and dialogues: configuration, versions, prompts, fingerprints."""
    return {
        "name": config.name,
        "about": config.about,
        "config": config.model_dump(mode="json"),
        "versions": {part: found for part in _PARTS if (found := _version(part))}
        | {"python": platform.python_version()},
        "prompts": _prompts(agents),
        "fingerprints": _fingerprints(agents),
    }


def _prompts(agents: Sequence[Agent]) -> dict[str, str]:
    found: dict[str, str] = {}
    for agent in agents:
        library = getattr(getattr(agent.responder, "main", agent.responder), "prompts", None)
        if library is not None:
            found |= {f"{prompt.name}.{prompt.language}": prompt.reference for prompt in library}
    return found


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

"""From a run's configuration to agents, dialogues and the facts that a run keeps of itself."""

from __future__ import annotations

import platform
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol

from dialore.agent import Agent, open_graphs
from dialore.datasets import data_set, gold_text, stream_histories
from dialore.errors import InputError
from dialore.experiments.store import System
from dialore.experiments.store_facts import PROMPTS
from dialore.llm.budget import Budget, Budgeted
from dialore.llm.connection import connect
from dialore.llm.model import Sampled
from dialore.llm.rehearsal import Rehearsal
from dialore.methods.model_responder import CITING, ModelResponder
from dialore.methods.registry import method_class, method_sources
from dialore.sources.opening import open_sources

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from pathlib import Path

    from dialore.dialogue import Dialogue
    from dialore.experiments.config import DatasetConfig, ModelConfig, RunConfig, SourcesConfig
    from dialore.experiments.store import RunStore
    from dialore.llm.model import LanguageModel
    from dialore.methods.base import Method
    from dialore.prompts.library import PromptLibrary
    from dialore.sources.base import KnowledgeSource

LEXICAL = "lexical"
REHEARSAL = "rehearsal"
_PARTS = ("dialore", "numpy", "lmdb", "aiohttp", "pydantic", "jinja2", "tantivy", "torch", "transformers")


class Connect(Protocol):
    """Makes a model of its configuration."""

    def __call__(self, config: ModelConfig, name: str | None) -> LanguageModel | None:
        """The model; `name` is another name than the configuration's, of a stage's model. None: lexical responder."""
        ...


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


def default_connect(concurrency: int, cache: Path | None = None, **settings: Any) -> Connect:  # noqa: ANN401
    """Connects by flags and environment, as every command does; `lexical` is no model, `rehearsal` no endpoint."""

    def make(config: ModelConfig, name: str | None) -> LanguageModel | None:
        if config.model == LEXICAL and name is None:
            return None
        wanted = name or config.model
        if REHEARSAL in {config.model, wanted}:
            return Rehearsal()
        return connect(wanted, config.base_url, concurrency=concurrency, cache=cache, api=config.api, **settings)

    return make


@dataclass(frozen=True, slots=True)
class Opened:
    """A run's agents: one for each model, system and repetition, on shared sources and one budget.

    Attributes:
        systems: every system, in the run's order.
        agents: by system number and repetition.
        budget: what all models spend from.
        lexical: the models that are none: the lexical responder answers for them.
    """

    systems: list[System]
    agents: dict[tuple[int, int], Agent]
    budget: Budget
    lexical: list[ModelConfig]


@asynccontextmanager
async def open_systems(
    config: RunConfig, connect_model: Connect, instead: Mapping[str, KnowledgeSource] | None = None
) -> AsyncIterator[Opened]:
    """The agents of a run. The sources are opened once and shared.

    Args:
        config: the run.
        connect_model: makes models of their configurations.
        instead: sources that are asked in place of the configured ones of those names, where there are such.

    Raises:
        InputError: an unknown method or option, a source that cannot be opened, no model where one is needed.
    """
    graph, sources = _open_knowledge(config.sources, [method_class(system.method) for system in config.systems])
    sources |= {name: source for name, source in (instead or {}).items() if name in sources}
    opened = Opened([], {}, Budget(config.budget.tokens, config.budget.cost), [])
    async with AsyncExitStack() as closing:  # closes all, also where one cannot be closed
        for source in (graph, *sources.values()):
            if source is not None:
                closing.callback(source.close)
        for chosen in config.models:
            model = _budgeted(connect_model(chosen, None), chosen, opened.budget)
            if model is None:
                opened.lexical.append(chosen)
            else:
                closing.push_async_callback(model.close)
            stages: dict[str, LanguageModel] = {}
            for stage, name in chosen.stages.items():
                stages[stage] = _stage_model(connect_model, chosen, name, opened.budget)
                closing.push_async_callback(stages[stage].close)
            for system in config.systems:
                number = len(opened.systems)
                for repetition in range(config.repetitions):
                    opened.agents[number, repetition] = Agent.create(
                        system.method,
                        model=_sample(model, repetition),
                        graph=graph if _wants_graph(config, system.method, model) else None,
                        sources=sources,
                        stage_models={stage: Sampled(other, repetition) for stage, other in stages.items()},
                        prompts=config.sources.prompts,
                        options=system.options,
                        cite=config.cite,
                    )
                name = opened.agents[number, 0].responder.name
                opened.systems.append(System(number, system.title, system.method, dict(system.options), name))
        yield opened


def _wants_graph(config: RunConfig, method: str, model: LanguageModel | None) -> bool:
    """Whether a method is given the graph: one that can do without (SAFARI plans over it) only where one is named."""
    return model is None or bool(config.sources.graph) or "graph" in method_class(method).needs


def _sample(model: LanguageModel | None, repetition: int) -> LanguageModel | None:
    return None if model is None else Sampled(model, repetition) if repetition else model


def _budgeted(model: LanguageModel | None, config: ModelConfig, budget: Budget) -> LanguageModel | None:
    if model is None:
        return None
    if budget.max_cost is not None and config.price is None:
        raise InputError(f"a budget of money needs the price of {model.name}", mend="give the model a price")
    return Budgeted(model, budget, config.price)


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


def _stage_model(connect_model: Connect, config: ModelConfig, name: str, budget: Budget) -> LanguageModel:
    model = _budgeted(connect_model(config, name), config, budget)
    if model is None:
        raise InputError(f"no endpoint is known for the model {name!r}", mend="give a base_url, or name hf:NAME")
    return model


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

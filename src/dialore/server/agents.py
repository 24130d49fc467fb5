"""The agents of a service by the ids of models, opened anew where its knowledge has a new source."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from dialore.agent import Agent
from dialore.errors import UnknownNameError
from dialore.methods.registry import method_class, method_options, method_sources
from dialore.methods.stage_runner import LLMRunner
from dialore.server.errors import ServiceError
from dialore.server.knowledge_store import AddedKnowledge
from dialore.session import Connect, Session, options_by_method
from dialore.settings import AgentSettings, Settings, SourceSettings, check_settings
from dialore.sources.persona import PersonaSource

Groups = frozenset[str] | None

log = logging.getLogger(__name__)

MODEL = "dialore"
"""The id of the service's own agent as a model; others are `dialore/NAME`."""
_METHODS = ["weave", "rag"]
"""Where none is named: knowledge may be added at any time, and there is something to compare with."""


@dataclass(frozen=True, slots=True)
class Served:
    """An agent as a model of the service, who speaks, and its sources."""

    agent: Agent
    persona: tuple[str, ...]
    bench: Session


@dataclass(slots=True)
class _Opened:
    """The agents on one state of the sources; closed after their last request."""

    models: dict[str, Served]
    benches: list[Session]
    places: Mapping[str, str]
    users: int = 0
    is_old: bool = False

    async def close(self) -> None:
        for bench in self.benches:
            await bench.close()


class ServedAgents:
    """The agents that settings name, each on the sources that there are by now, for readers of each set of groups."""

    def __init__(
        self,
        settings: Settings,
        knowledge: AddedKnowledge,
        later: Callable[[Coroutine[Any, Any, None]], None],
        *,
        connect: Connect,
    ) -> None:
        self._settings, self._knowledge, self._later, self._connect = settings, knowledge, later, connect
        self._opened: dict[Groups, _Opened] = {None: _Opened({}, [], {})}
        # All agents ask the same model: how slow it is holds for every reader, and after sources are opened anew.
        self._timings: list[tuple[int, float]] = []

    def open(self) -> None:
        """Open the agents; raises InputError as `Session` does."""
        own = self._opened[None] = self._open(None)
        if not isinstance(own.models[MODEL].agent.stage_runner, LLMRunner):
            log.warning("no model: responses show what was found; set model.base_url and model.model")

    async def close(self) -> None:
        """Close the agents."""
        for opened in self._opened.values():
            await opened.close()

    @property
    def models(self) -> dict[str, str]:
        """The ids of the models, each with its method; the service's own agent, which answers to two, is one."""
        models = self._opened[None].models
        shown = {name: served for name, served in models.items() if name == MODEL or served is not models[MODEL]}
        return {name: served.agent.method.name for name, served in shown.items()}

    @property
    def has_graph(self) -> bool:
        """True where the service's own agent has a graph, by its settings: the starter's where no source is named."""
        places = self._settings.sources.model_extra or {}
        return not places or bool(places.get("graph")) or "graph" in self._knowledge.places

    @contextmanager
    def served(self, model: str, groups: Groups) -> Iterator[Served]:
        """Yield a model, open meanwhile, on what a reader with these groups may read (None: all); or ServiceError."""
        opened = old = self._opened.get(groups)
        if opened is None or self._knowledge.places != opened.places:
            opened = self._opened[groups] = self._open(groups)
            if old is not None:  # who is being answered keeps it
                old.is_old = True
                if not old.users:
                    self._later(old.close())
        if model not in opened.models:
            error = UnknownNameError("model", model[:100], opened.models)
            raise ServiceError(404, str(error), code="model_not_found", param="model")
        opened.users += 1
        try:
            yield opened.models[model]
        finally:
            opened.users -= 1
            if opened.is_old and not opened.users:
                self._later(opened.close())

    def _open(self, groups: Groups) -> _Opened:
        settings = self._settings
        methods = settings.method if "method" in settings.model_fields_set else _METHODS
        cites = settings.cite if "cite" in settings.model_fields_set else True
        options = options_by_method(methods, settings.options)
        named = {method: AgentSettings(method=method, options=options[method]) for method in options}
        bench = self._bench(settings.sources, groups)
        without_model = bench.models(settings.model).main is None
        opened = _Opened({}, [bench], self._knowledge.places)
        for name, agent in {**named, **settings.agents}.items():
            own = bench
            if agent.sources is not None:
                own = self._bench(agent.sources, groups)
                opened.benches.append(own)
            method, given = method_class(agent.method), dict(agent.options)
            kinds = {kind for kind in method_sources(method) if own.settings.places(kind)}
            if kinds == {"documents"} and not agent.persona and "strict" in method_options(method):
                given.setdefault("strict", True)  # where documents are all that it can ask, it answers from them alone
            made = own.agent(agent.method, own.models(settings.model), given)
            if isinstance(made.stage_runner, LLMRunner):
                made.stage_runner = replace(made.stage_runner, timings=self._timings)
            made.cite = agent.cite if agent.cite is not None else cites
            persona = own.source("persona")
            sentences = tuple(persona.persona) if isinstance(persona, PersonaSource) else ()
            served = Served(made, (*agent.persona, *sentences), own)
            first = opened.models.setdefault(MODEL, served)
            is_alike = without_model and agent is named.get(name)  # whatever the method, what was found is shown
            opened.models[f"{MODEL}/{name}"] = first if is_alike else served
        return opened

    def _bench(self, sources: SourceSettings, groups: Groups) -> Session:
        given: dict[str, Any] = sources.model_dump(exclude_none=True)
        if not sources.model_extra:
            given["graph"] = ["starter"]
        for key, location in self._knowledge.places.items():
            given[key] = [*given.get(key, ()), location]
        return Session(check_settings(SourceSettings, given, where="sources"), groups=groups, connect=self._connect)

"""The one wiring: settings become open models, sources and agents, each opened once and closed at the end.

Commands, runs, the chat and services stand on it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from dialore.agent import Agent
from dialore.errors import InputError, UnknownNameError, check_type
from dialore.files import cache_folder
from dialore.llm.client import ModelClient
from dialore.llm.model import LanguageModel
from dialore.methods import registry
from dialore.methods.stage_runner import LLMRunner, NullRunner
from dialore.methods.stages import RERANK_BY_MODEL
from dialore.settings import DEFAULT_METHOD, ModelSettings, Settings, SourceSettings, check_settings, read_settings
from dialore.sources.registry import KINDS

if TYPE_CHECKING:
    from dialore.llm.model import Budget, Price
    from dialore.methods.base import Method
    from dialore.methods.stage_runner import StageRunner
    from dialore.prompts.library import PromptLibrary

log = logging.getLogger(__name__)

_ENVIRONMENT = "env"  # the name of the model that the environment names, as on the command line
LEXICAL = "lexical"
"""The name of no model, and of the method that then stands in for every other: it shows what was found."""
REHEARSAL = "rehearsal"
"""The name of a model without an endpoint, whose answers fit and mean nothing."""


AnyModel: TypeAlias = LanguageModel | str | None
"""A language model as Python users have it: open, by name, or `env` for that of the environment."""
Connect: TypeAlias = "Callable[[ModelSettings, str | None], LanguageModel | None]"
"""Opens the language model of settings, or another one by name with the same settings; None: no language model."""


def open_model(settings: ModelSettings, name: str | None = None) -> ModelClient | None:
    """Return the language model of settings and environment, or None if neither names one.

    Args:
        settings: The model and how it is called. Settings that `dialore.llm.connection.connect` has are passed to it.
        name: Another model to be called in the same way, for example one for a single stage.

    Raises:
        InputError: As `connect`, or there is no model whose calls could be recorded.
    """
    if settings.replay is not None:
        from dialore.llm.recording import Replay

        model: ModelClient | None = ModelClient(Replay(settings.replay))
    else:
        model = _connect(settings, name)
    if model is None:
        if settings.record is not None:
            raise InputError("model.record needs a language model", hint="set model.base_url and model.model")
        return None
    recorder = None
    if settings.record is not None:
        from dialore.llm.recording import Recorder

        recorder = Recorder(settings.record)
    sampling = {field: getattr(settings, field) for field in ("temperature", "top_p", "max_tokens")}
    return replace(
        model,
        sampling={field: value for field, value in sampling.items() if value is not None},
        window=settings.window,
        may_shorten=not settings.no_truncate,
        recorder=recorder,
    )


def _connect(settings: ModelSettings, name: str | None) -> ModelClient | None:
    if REHEARSAL in {settings.model, name}:
        from dialore.llm.fake import FakeModel

        return ModelClient(FakeModel())
    if name is None and settings.model == LEXICAL:
        return None
    from dialore.llm.connection import connect

    parameters = inspect.signature(connect).parameters
    arguments: dict[str, Any] = {field: value for field, value in settings if field in parameters}
    arguments["model"] = name or settings.model
    if not settings.base_url:
        arguments["named_by"] = ""
    return connect(**arguments, context=settings.window, folder=cache_folder() / "models")


@dataclass(frozen=True, slots=True)
class Models:
    """The models of stages: the main one (None: no language model), and others for some stages."""

    main: LanguageModel | None
    stages: Mapping[str, LanguageModel] = field(default_factory=dict)

    def with_budget(self, budget: Budget, price: Price | None) -> Models:
        """Return the models with a budget that all of them charge; see `ModelClient.with_budget`."""
        return self._changed(lambda client: client.with_budget(budget, price))

    def with_sample(self, sample: int) -> Models:
        """Return the models with another sample index; see `ModelClient.with_sample`."""
        return self._changed(lambda client: client.with_sample(sample))

    def _changed(self, change: Callable[[ModelClient], ModelClient]) -> Models:
        stages = {stage: change(ModelClient.around(model)) for stage, model in self.stages.items()}
        return Models(None if self.main is None else change(ModelClient.around(self.main)), stages)


class Session:
    """Opens models, sources and agents as they are needed, each source once, and closes what it opened.

    Sources that are given are open already, by the names that methods have for them; they are asked in place of those
    of that name, and their owner closes them. With `groups`, documents show what a reader with these may read; without,
    everything.
    """

    def __init__(
        self,
        sources: SourceSettings | Mapping[str, object] | None = None,
        given: Mapping[str, object] | None = None,
        *,
        cite: bool = False,
        groups: Iterable[str] | None = None,
        connect: Connect = open_model,
    ) -> None:
        self._groups = groups
        if not isinstance(sources, SourceSettings):
            sources = check_settings(SourceSettings, sources or {}, where="sources")
        self.settings = sources
        self.cite = cite
        self._given = {name: source for name, source in (given or {}).items() if source is not None}
        self._connect = connect
        self._opened: dict[str, Any] = {}
        self._rehearsed = False
        self._models: dict[tuple[str, ...], LanguageModel | None] = {}
        self._sources = ExitStack()

    def models(self, settings: ModelSettings) -> Models:
        """Return the models of settings, including the stages'. The session closes them. Raises as `open_model`."""
        main = self._model(settings, None)
        self._rehearsed = getattr(main, "name", "") == REHEARSAL  # nothing outside is asked then
        stages: dict[str, LanguageModel] = {}
        if settings.replay is None:
            for stage, name in settings.stages.items():
                model = self._model(settings, name)
                if model is None:
                    hint = "set model.base_url, or name hf:NAME"
                    raise InputError(f"no endpoint is known for the model {name!r}", hint=hint)
                stages[stage] = model
        return Models(main, stages)

    def _model(self, settings: ModelSettings, name: str | None) -> LanguageModel | None:
        key = (repr(settings.model_copy(update={"stages": {}})), settings.api_key or "", name or "")
        if key not in self._models:
            self._models[key] = self._connect(settings, name)
        return self._models[key]

    def source(self, name: str, *, needed: bool = False) -> Any:  # noqa: ANN401 - methods know what they take
        """Return a source by the name that methods have for it; None where none is named and there is no default.

        A method that cannot do without, for which it is `needed`, gets the default (the starter graph). Raises
        InputError where the source cannot be opened.
        """
        if name in self._given or name not in KINDS:
            return self._given.get(name)
        kind, places = KINDS[name], self.settings.places(name)
        if not (places or kind.unnamed == "always" or (needed and kind.unnamed == "needed")):
            return None
        if name not in self._opened:
            settings: dict[str, object] = {"ranking": self.settings.ranking, "embedder": self.settings.embedder}
            if self._rehearsed and (self.settings.embedder or "").startswith("endpoint:"):
                settings["embedder"] = None
            if "opened" in kind.options:
                settings["opened"] = {other: self.source(other) for other in KINDS if other != name}
            with self._restricted():
                self._opened[name] = opened = kind.open(places, settings)
            self._sources.callback(opened.close)  # type: ignore[attr-defined]
        return self._opened[name]

    def _restricted(self) -> AbstractContextManager[None]:
        """Return the context in which sources are opened for the session's groups."""
        if self._groups is None:
            return nullcontext()
        from dialore.retrieval.documents.filters import reading_as

        return reading_as(self._groups)

    def check(self, methods: Sequence[str], models: Models) -> None:
        """Raise InputError for settings that none of the methods uses: a stage, a source, reranking, citing."""
        if models.main is None:
            methods = [LEXICAL]
        else:
            self._check_stages(methods, models)
        sources = {source for name in methods for source in registry.method_sources(_class(name))}
        configured = [name for name in KINDS if self.settings.places(name) or name in self._given]
        if any("opened" in KINDS[name].options for name in sources.intersection(configured)):
            return  # a source that asks the others
        for name in configured:
            if name not in sources:
                raise _unused(methods, f"the source {name}", partial(_reads, name))
        self._check_reranking(methods, models, sources)
        if self.cite and models.main is not None and not any(self._can_cite(_class(name)) for name in methods):
            raise _unused(methods, "citations (cite)", self._can_cite)

    def _check_stages(self, methods: Sequence[str], models: Models) -> None:
        if not models.stages:
            return
        prompts = [prompt for name in methods for prompt in registry.method_prompts(_class(name), self.prompts)]
        stages = [*prompts, *(prompt.rpartition("/")[2] for prompt in prompts)]
        for stage in models.stages:
            if stage not in stages:
                raise UnknownNameError("stage", stage, stages)

    def _check_reranking(self, methods: Sequence[str], models: Models, sources: set[str]) -> None:
        if not self.settings.rerank:
            return
        if self.settings.rerank == RERANK_BY_MODEL and models.main is None:
            hint = "set model.base_url and model.model, or name a reranker"
            raise InputError("sources.rerank: model needs a language model", hint=hint)
        if not sources - _NOT_RERANKED:
            raise _unused(methods, "reranking (sources.rerank)", _has_ranked_source)

    def _can_cite(self, method: type[Method]) -> bool:
        """Return whether one of a method's prompts says how to cite."""
        prompts = registry.method_prompts(method, self.prompts).values()
        return any("{{ citing }}" in by_language[0].text for by_language in prompts)

    def agent(self, method: str | Method, models: Models, options: Mapping[str, object] | None = None) -> Agent:
        """Return an agent, which the session closes; without a model its method is `lexical`, whatever is named.

        A method that is made already has its sources and options. Raises InputError for an unknown name, a missing
        source, an option that does not fit.
        """
        if not isinstance(method, str):
            registry.find_prompts_of(type(method))
            return self._agent(method, models)
        cls = _class(method)
        if models.main is None and method != LEXICAL:
            method, cls, options = LEXICAL, _class(LEXICAL), None
        read = registry.method_sources(cls)
        named = any(self.settings.places(name) or name in self._given for name in read)
        wanted = {*cls.required_sources, *(("graph",) if method == LEXICAL and not named else ())}
        sources = {name: self.source(name, needed=name in wanted) for name in read}
        made = registry.create_method(method, sources, options)
        return self._agent(made, Models(None) if method == LEXICAL else models)

    def _agent(self, method: Method, models: Models) -> Agent:
        """Return the agent of a method; raise InputError where the reranker cannot be had."""
        rerank = self.settings.rerank
        if rerank and rerank != RERANK_BY_MODEL:
            from dialore.retrieval.reranking import load_reranker

            load_reranker(rerank)
        elif models.main is None:  # `lexical` beside methods that ask a model
            rerank = ""
        return Agent(method, self._responder(models), cite=self.cite, rerank=rerank)

    def _responder(self, models: Models) -> StageRunner:
        if models.main is None:
            return NullRunner()
        return LLMRunner(models.main, self.prompts, models.stages)

    @cached_property
    def prompts(self) -> PromptLibrary:
        """The prompts of its agents; raises InputError where the settings' folder has none."""
        from dialore.prompts.library import PromptLibrary

        return PromptLibrary(self.settings.prompts)

    def close_sources(self) -> None:
        """Close the sources that were opened."""
        self._opened.clear()
        self._sources.close()

    async def close(self) -> None:
        """Close all that was opened, also where one thing cannot be closed."""
        async with AsyncExitStack() as closing:
            closing.callback(self.close_sources)
            for model in self._models.values():
                if model is not None:
                    closing.push_async_callback(model.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


_class = registry.method_class
_NOT_RERANKED = frozenset(("graph", "samples"))
"""The sources whose pieces `rerank` leaves in their own order."""


def _reads(source: str, method: type[Method]) -> bool:
    return source in registry.method_sources(method)


def _has_ranked_source(method: type[Method]) -> bool:
    return bool(set(registry.method_sources(method)) - _NOT_RERANKED)


def _unused(methods: Sequence[str], feature: str, supports: Callable[[type[Method]], bool]) -> InputError:
    """Return the error for a feature that none of the methods supports."""
    from dialore.plugins import loadable

    able = [cls.name for cls in loadable(registry.method_names(), _class) if supports(cls)]
    names = ", ".join(dict.fromkeys(methods))
    return InputError(f"{names}: no use for {feature}", hint=f"methods that have: {', '.join(able)}")


def options_by_method(methods: Sequence[str], options: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """Return each method's options: one that several have goes to each of them; raise InputError where none has it."""
    known = {method: registry.method_options(registry.method_class(method)) for method in dict.fromkeys(methods)}
    for name in options:
        if not any(name in own for own in known.values()):
            raise registry.unknown_option(", ".join(known), name, {n for own in known.values() for n in own})
    return {method: {name: options[name] for name in options if name in own} for method, own in known.items()}


@asynccontextmanager
async def open_agents(settings: Settings, connect: Connect = open_model) -> AsyncIterator[list[Agent]]:
    """Yield an agent for each method of the settings, on the same models and sources; all is closed at the end.

    Without a model it is one agent, whichever methods are named: `lexical`. Raises as `Session.models` and `.agent`.
    """
    options = options_by_method(settings.method, settings.options)
    async with Session(settings.knowledge, cite=settings.cite, connect=connect) as bench:
        models = bench.models(settings.model)
        if models.main is None:
            options = {LEXICAL: options.get(LEXICAL, {})}
        bench.check(settings.method, models)
        yield [bench.agent(method, models, own) for method, own in options.items()]


def connect(model: str | None = None, **fields: object) -> LanguageModel | None:
    """Return the language model of a name or of the environment, as on the command line; None if nothing names one.

    Arguments win, then `DIALORE_MODEL`, `DIALORE_BASE_URL` and `DIALORE_API_KEY`, then the `OPENAI_*` names, then an
    Ollama on this machine. The fields are those of `ModelSettings`: `base_url`, `api_key`, `temperature`, `cache`, ...
    """
    arguments = {f"model.{name}": value for name, value in {"model": model, **fields}.items() if value is not None}
    labels = {path: f"connect({path.removeprefix('model.')}=...)" for path in arguments}
    opened = open_model(read_settings(changes=arguments, labels=labels).model)
    if opened is None and model != LEXICAL:
        log.warning("no model: what was found is shown (set DIALORE_BASE_URL and DIALORE_MODEL)")
    return opened


def as_model(model: AnyModel) -> LanguageModel | None:
    """Return the language model that Python users mean; None for none. Raises InputError as `connect`."""
    if model is None or (isinstance(model, LanguageModel) and not inspect.isclass(model)):
        return model
    check_type("model", model, str, 'model="gpt-4o", model="env", or an open one: model=connect("gpt-4o")')
    return connect(None if model == _ENVIRONMENT else str(model))


def create_agent(
    method: str | Method | None = None,
    *,
    model: AnyModel = _ENVIRONMENT,
    graph: object = None,
    sources: Mapping[str, object] | None = None,
    stage_models: Mapping[str, AnyModel] | None = None,
    prompts: str | Path | None = None,
    options: Mapping[str, object] | None = None,
    cite: bool = False,
) -> Agent:
    """Make an agent; the caller closes it, and all its parts with it.

    Args:
        method: the method's name, or a method that is made already; None for `weave`, over the starter graph where no
            source is given.
        model: an open language model (`connect`), a model's name, or `env` for the one that the environment names, as
            on the command line; None for none.
        graph: an open graph, or the path or URL of one; None for the starter graph where the method needs one.
        sources: further sources by the names that methods have for them (`documents`, `persona`, `web`, ...), open, or
            by path or URL.
        stage_models: other models for some stages, by `<stage>` or `<method>/<stage>`.
        prompts: a folder of prompts that override the package's.
        options: the method's hyper-parameters and switches.
        cite: have the model cite its knowledge by number; the responses carry what each span cites.

    Raises:
        InputError: an unknown name, a missing graph, an option that does not fit, an argument of the wrong kind.
    """
    for name, mapping in {"sources": sources, "stage_models": stage_models, "options": options}.items():
        check_type(name, mapping, (Mapping, NoneType), f'give a mapping: {name}={{"...": ...}}')
    check_type("cite", cite, bool, "cite=True or cite=False")
    everything = {**(sources or {}), "graph": graph}
    if method is None:
        method = DEFAULT_METHOD
        if all(source is None for source in everything.values()):
            everything["graph"] = "starter"
    named = _check_sources(method, everything)
    if not isinstance(method, str):
        if isinstance(method, type) or not hasattr(method, "respond"):
            raise InputError(f"method cannot be {method!r:.80}", hint='a name, method="dcrag", or one that is made')
        if named or options:
            hint = f"give them to it: {type(method).__name__}(...)"
            raise InputError("a method that is made takes no further sources and options", hint=hint)
    places = {KINDS[name].key: places for name, source in named.items() if (places := _places(source))}
    given = {name: source for name, source in named.items() if not _places(source)}
    bench = Session(
        check_settings(SourceSettings, {"prompts": prompts, **places}, where="create_agent"), given, cite=cite
    )
    opened = {stage: as_model(stage_model) for stage, stage_model in (stage_models or {}).items()}
    models = Models(
        as_model(model), {stage: stage_model for stage, stage_model in opened.items() if stage_model is not None}
    )
    parts = [part for part in (models.main, *models.stages.values(), *given.values(), bench) if part is not None]
    try:
        if isinstance(method, str):
            bench.check([method], models)
        agent = bench.agent(method, models, options)
    except BaseException:
        bench.close_sources()
        raise
    agent.closing = parts
    return agent


_ASKED = {"graph": "mentions", "samples": "nearest", "sources": "names"}
"""The methods of a source's kind that stand in for `search`."""


def _places(source: object) -> list[str]:
    """Return a path or URL, or several, as texts; none for anything else."""
    several = source if isinstance(source, list | tuple) else [source]
    return (
        [str(location) for location in several] if all(isinstance(location, str | Path) for location in several) else []
    )


def _check_sources(method: str | Method, sources: Mapping[str, object]) -> dict[str, object]:
    """Return those given; raise InputError for a name that no source has, and for what is neither open nor a path."""
    known = {*KINDS, *(registry.method_sources(_class(method)) if isinstance(method, str) else ())}
    for name, source in sources.items():
        if name not in known:
            raise UnknownNameError("source", name, known)
        is_open = not isinstance(source, type) and (name not in KINDS or hasattr(source, _ASKED.get(name, "search")))
        if not (source is None or is_open or (_places(source) and name in KINDS)):
            hint = "give a path, or an open source, such as InMemoryPassages(texts)"
            raise InputError(f"the source {name} cannot be {source!r:.80}", hint=hint)
    return {name: source for name, source in sources.items() if source is not None}

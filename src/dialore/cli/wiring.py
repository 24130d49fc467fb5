"""From options to agents: the one place of the command line that makes models, graphs and methods."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar, get_args

from dialore.cli.output import note
from dialore.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from dialore.agent import Agent
    from dialore.cli.options import KnowledgeSettings, ModelSettings
    from dialore.llm.model import Api, LanguageModel

T = TypeVar("T")


def connect_model(
    settings: ModelSettings,
    *,
    record: Path | None = None,
    replay: Path | None = None,
    cached: bool = True,
    otherwise: str = "the lexical responder answers, without a language model",
) -> LanguageModel | None:
    """The model that the options mean, None for the lexical responder (which is said on standard error).

    Args:
        settings: the options.
        record: a recording that the calls are appended to.
        replay: a recording that answers in the model's stead.
        cached: whether completions are kept where the options do not say.
        otherwise: what happens without an endpoint, in words.

    Raises:
        InputError: options that do not go together, or as `connect` does.
        ModelError: as `connect` does.
    """
    if replay is not None:
        if record is not None:
            raise InputError("--record and --replay do not go together", mend="take one of them")
        from dialore.llm.recording import Replay

        return Replay(replay)
    from dialore.llm.connection import connect

    model = connect(
        settings.model,
        settings.base_url,
        settings.api_key,
        timeout=settings.timeout,
        retries=settings.retries,
        concurrency=settings.concurrency,
        cache=completions_cache(settings) if cached or settings.cache else None,
        api=check_api(settings.api),
    )
    if model is None:
        if record is not None:
            raise InputError("--record needs a language model", mend="set --base-url and --model")
        note(f"no endpoint: {otherwise} (go live: --base-url, --model)")
        return None
    if record is not None:
        from dialore.llm.recording import Recorder

        return Recorder(model, record)
    return model


def check_api(name: str) -> Api:
    """The API of that name; raises UnknownNameError where there is none."""
    from dialore.llm.model import Api

    for api in get_args(Api):
        if name == api:
            return api  # type: ignore[no-any-return]
    raise UnknownNameError("API", name, get_args(Api))


def completions_cache(settings: ModelSettings) -> Path | None:
    """The file that completions are kept in, or None where nothing is to be kept.

    Raises:
        InputError: options that do not go together.
    """
    if settings.no_cache:
        if settings.cache is not None:
            raise InputError("--cache and --no-cache do not go together", mend="take one of them")
        return None
    if settings.cache is not None:
        return settings.cache
    from dialore.sources.graph.starter import cache_folder

    return cache_folder() / "completions.sqlite"


@asynccontextmanager
async def open_agents(
    methods: Sequence[str],
    model: LanguageModel | None,
    settings: KnowledgeSettings,
    stage_models: Mapping[str, LanguageModel] | None = None,
) -> AsyncIterator[list[Agent]]:
    """An agent a method, all on the same models and sources, which are closed at the end.

    Raises:
        InputError: an unknown method or option, a graph that cannot be opened.
    """
    from dialore.agent import Agent, open_graphs
    from dialore.methods.registry import method_class, method_sources

    graph = None
    sources: dict[str, object] = {}
    try:
        chosen = [method_class(method) for method in dict.fromkeys(methods)]
        options = method_options([cls.name for cls in chosen], settings.option or [])
        needed = {name for cls in chosen for name in cls.needs}
        taken = {name for cls in chosen for name in method_sources(cls)}
        if model is None or "graph" in needed or ("graph" in taken and settings.graph):
            graph = open_graphs(settings.graph or [], settings.ranking)
        if taken - {"graph"}:
            sources = open_further_sources(settings)
        yield [
            Agent.create(
                name,
                model=model,
                graph=graph,
                sources=sources,
                stage_models=stage_models,
                prompts=settings.prompts,
                options=options[name],
                cite=settings.cite,
            )
            for name in options
        ]
    finally:
        for opened in (model, *(stage_models or {}).values()):
            if opened is not None:
                await opened.close()
        for source in (graph, *sources.values()):
            if source is not None:
                source.close()  # type: ignore[attr-defined]


def open_further_sources(settings: KnowledgeSettings) -> dict[str, object]:
    """The sources beside the graph that the options name, by the names that methods have for them.

    Raises:
        InputError: one cannot be opened.
    """
    from dialore.sources.opening import open_sources

    return open_sources(
        documents=settings.documents or (),
        persona=settings.persona,
        search=settings.search,
        samples=settings.samples,
        declared=settings.sources,
    )


def connect_stage_models(settings: ModelSettings) -> dict[str, LanguageModel]:
    """The models that `--stage-model` names, by stage; they share the endpoint's address, key and cache.

    Raises:
        InputError: not STAGE=NAME, or as `connect_model` does.
    """
    models: dict[str, LanguageModel] = {}
    for text in settings.stage_model or []:
        stage, equals, name = text.partition("=")
        if not equals or not stage or not name:
            raise InputError(
                f"stage model {text!r} is not STAGE=NAME", mend="e.g. --stage-model topic-tracking=hf:NAME"
            )
        model = connect_model(dataclasses.replace(settings, model=name))
        if model is None:
            raise InputError(f"no endpoint is known for the model {name!r}", mend="set --base-url, or name hf:NAME")
        models[stage] = model
    return models


def method_options(methods: Sequence[str], given: Sequence[str]) -> dict[str, dict[str, object]]:
    """Each method's options; one given without a method's name goes to every method that has it.

    Raises:
        InputError: not NAME=VALUE, or no method has it.
    """
    from dialore.methods import registry

    known = {method: registry.method_options(registry.method_class(method)) for method in methods}
    options: dict[str, dict[str, object]] = {method: {} for method in methods}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"option {text!r} is not NAME=VALUE", mend="e.g. -o limit=10")
        owners = [method for method in methods if name in known[method]]
        if not owners:
            raise UnknownNameError(f"option of {', '.join(methods)}", name, {n for o in known.values() for n in o})
        for method in owners:
            options[method][name] = value
    return options


async def in_order(jobs: Sequence[Callable[[], Awaitable[T]]], at_once: int) -> AsyncIterator[T]:
    """Do jobs, several at once, and give their results in the jobs' order, each as soon as those before it are done.

    Where a job raises, the others are stopped, what is finished by then is still given, and then the error is raised.

    Args:
        jobs: what is to be done.
        at_once: how many are under way at a time.
    """
    free = asyncio.Semaphore(at_once)

    async def do(job: Callable[[], Awaitable[T]]) -> T:
        async with free:
            return await job()

    tasks = [asyncio.create_task(do(job)) for job in jobs]
    failed: BaseException | None = None
    try:
        for task in tasks:
            try:
                yield await task
            except Exception as error:  # noqa: BLE001 - kept and raised when what is finished has been given
                if failed is None:
                    failed = error
                    for other in tasks:
                        other.cancel()
            except asyncio.CancelledError:
                if failed is None:
                    raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if failed is not None:
        raise failed

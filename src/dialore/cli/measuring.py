"""What `dialore score` and `dialore meta` measure with: the models that are named, a judge, a graph."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import TYPE_CHECKING

from dialore.cli.options import connecting
from dialore.errors import InputError
from dialore.evaluation.registry import Context, load_metric, metric_names
from dialore.experiments.scoring import NEEDS_MODEL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from dialore.cli.options import MeasureSettings
    from dialore.llm.model import LanguageModel
    from dialore.settings import ModelSettings


_OTHERWISE = "nothing is judged"


def needs_of(name: str) -> tuple[str, ...]:
    """What a metric needs; raises UnknownNameError where there is none of that name."""
    return load_metric(name, Context()).about.needs


def default_metrics(settings: MeasureSettings, *, without: Collection[str] = ()) -> tuple[str, ...]:
    """The metrics that need no model beside those that were named, and nothing that is not to be had."""
    given = {"nli"} if settings.nli else set()
    given |= {"language-model"} if settings.language_model else set()
    lacking = (NEEDS_MODEL - given) | set(without)
    return tuple(name for name in metric_names() if not lacking & set(needs_of(name)))


def required_judge(settings: ModelSettings) -> LanguageModel:
    """The model that judges; raises InputError where no endpoint is known, or as `connect_model` does."""
    model = connecting(_OTHERWISE)(settings.cached(), None)
    if model is None:
        raise InputError("a judge is a language model", mend="set --base-url and --model")
    return model


@asynccontextmanager
async def measuring(
    settings: MeasureSettings, judge: ModelSettings, needs: Collection[str], *, must_judge: bool
) -> AsyncIterator[Context]:
    """What metrics may use, opened as far as they need it, without a corpus; closed at the end.

    Args:
        settings: the options.
        judge: the judge's.
        needs: what the metrics need.
        must_judge: whether it is an error that there is no model to judge.

    Raises:
        InputError: no judge, or as `connect_model` and `open_graph` do.
    """
    from dialore.sources.graph import open_graph

    async with AsyncExitStack() as opened:
        model = graph = None
        if "judge" in needs:
            model = required_judge(judge) if must_judge else connecting(_OTHERWISE)(judge.cached(), None)
        if model is not None:
            opened.push_async_callback(model.close)
        if "graph" in needs:
            graph = opened.enter_context(closing(open_graph(settings.graph)))
        yield Context(
            graph=graph,
            judge=model,
            judge_prompts=settings.prompts,
            nli=settings.nli,
            language_model=settings.language_model,
            tokens=settings.tokens,
        )

"""Metrics by name, made when asked for: ours, and those that other packages add by `dialore.metrics`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from dialore.errors import UnknownNameError
from dialore.evaluation.base import own_metrics

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.evaluation.base import Metric
    from dialore.llm.model import LanguageModel

GROUP = "dialore.metrics"


@dataclass(frozen=True, slots=True)
class Context:
    """What metrics may use; whatever is None is not there, and metrics that need it measure `unavailable`.

    Attributes:
        graph: a commonsense graph (`dialore.sources.graph.Graph`), for CDP and CDF.
        idf_corpus: gives the dialogues of the corpus for CDF's IDF.
        idf_corpus_name: the corpus's name.
        judge: the language model that judges.
        judge_prompts: a folder of prompts that override the judges'.
        nli: a natural-language-inference model by name, for consistency.
        language_model: a causal model by name, for perplexity.
        embedder: an embedder's name.
        tokens: how Chinese is counted: `character` or `word`.
    """

    graph: Any = None
    idf_corpus: Callable[[], Iterable[Dialogue]] | None = None
    idf_corpus_name: str = ""
    judge: LanguageModel | None = None
    judge_prompts: Any = None
    nli: str | None = None
    language_model: str | None = None
    embedder: str | None = None
    tokens: str = "character"


def metric_names() -> list[str]:
    """The names of all metrics, in the order of tables."""
    return [*own_metrics(), *sorted(point.name for point in entry_points(group=GROUP))]


def load_metric(name: str, context: Context) -> Metric:
    """A metric by name.

    Raises:
        UnknownNameError: no metric is called that.
        MissingExtraError: it needs the `evaluation` or the `local` extra.
    """
    if name in own_metrics():
        module, _ = own_metrics()[name]
        made: Metric = importlib.import_module(f"dialore.evaluation.{module}").make(name, context)
        return made
    for point in entry_points(group=GROUP):
        if point.name == name:
            found: Metric = point.load()(name, context)
            return found
    raise UnknownNameError("metric", name, metric_names())


def load_metrics(names: Iterable[str], context: Context) -> Sequence[Metric]:
    """Metrics by name, each once; raises as `load_metric`."""
    return [load_metric(name, context) for name in dict.fromkeys(names)]

"""Metrics by name, made when asked for: ours, and those that other packages add by `dialore.metrics`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dialore.errors import InputError
from dialore.evaluation.base import Metric, MetricInfo, about_of, own_metrics
from dialore.plugins import find, names_of, try_load

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.llm.model import LanguageModel

GROUP = "dialore.metrics"


@dataclass(frozen=True, slots=True)
class Context:
    """The means of metrics; whatever is None is not there, and metrics that need it measure `unavailable`.

    Attributes:
        graph: a commonsense graph (`dialore.sources.graph.Graph`), for CDP and CDF.
        idf_corpus: gives the dialogues of the corpus for CDF's IDF.
        judge_prompts: a folder of prompts that override the judges'.
        nli: a natural-language-inference model by name, for consistency.
        language_model: a causal model by name, for perplexity.
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


class OwnMetric:
    """One of our own metrics, which its entry in `data/metrics.yaml` describes."""

    def __init__(self, name: str, context: Context) -> None:
        self.about = about_of(name)


def metric_names() -> list[str]:
    """Return the names of all metrics, in the order of tables."""
    return [*own_metrics(), *names_of(GROUP)]


def load_metric(name: str, context: Context) -> Metric:
    """Return a metric by name, or of a file whose function `make(name, context)` makes it; `about` has that name.

    Raises UnknownNameError, InputError where what others add makes no metric of that name, and MissingExtraError where
    it needs the `evaluation` or the `local` extra.
    """
    if name in own_metrics():
        module, _, maker = own_metrics()[name][0].rpartition(".")
        made: Metric = getattr(importlib.import_module(f"dialore.evaluation.{module}"), maker)(name, context)
        return made
    known = dict.fromkeys(own_metrics(), "")
    make = find("metric", name, GROUP, known, lambda value: getattr(value, "__name__", "") == "make")
    metric: Metric = try_load("metric", name, lambda: make(name, context), getattr(make, "__module__", name))
    about = getattr(metric, "about", None)
    if not isinstance(about, MetricInfo) or about.name != name or not hasattr(metric, "measure"):
        hint = "return an object with `measure`, `combine` and `about`, a MetricInfo of the name that `make` is given"
        raise InputError(f"metric {name}: what its make(name, context) returns is no metric of that name", hint=hint)
    return metric


def load_metrics(names: Iterable[str], context: Context) -> Sequence[Metric]:
    """Metrics by name, each once; raises as `load_metric`."""
    return [load_metric(name, context) for name in dict.fromkeys(names)]

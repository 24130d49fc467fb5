"""Metrics by name, made when asked for: ours, and those that other packages add by `dialore.metrics`."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol

from dialore.errors import UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dialore.dialogue import Dialogue
    from dialore.evaluation.base import Metric
    from dialore.llm.model import LanguageModel

GROUP = "dialore.metrics"
# Where each metric's maker is: a function `(name, context) -> Metric`, which may make several.
_OWN: dict[str, str] = {
    "bleu": "dialore.evaluation.overlap:make",
    "bleu-1": "dialore.evaluation.overlap:make",
    "bleu-2": "dialore.evaluation.overlap:make",
    "bleu-3": "dialore.evaluation.overlap:make",
    "bleu-4": "dialore.evaluation.overlap:make",
    "meteor": "dialore.evaluation.meteor:make",
    "meteor-exact-stem": "dialore.evaluation.meteor:make",
    "rouge-l": "dialore.evaluation.overlap:make",
    "f1": "dialore.evaluation.overlap:make",
    "kf1": "dialore.evaluation.overlap:make",
    "knowledge-copy": "dialore.evaluation.overlap:make",
    "planning-f1-null": "dialore.evaluation.decisions:make",
    "planning-f1-persona": "dialore.evaluation.decisions:make",
    "planning-f1-both": "dialore.evaluation.decisions:make",
    "planning-accuracy": "dialore.evaluation.decisions:make",
    "recall-1": "dialore.evaluation.decisions:make",
    "recall-5": "dialore.evaluation.decisions:make",
    "recall-1-persona": "dialore.evaluation.decisions:make",
    "recall-1-documents": "dialore.evaluation.decisions:make",
    "mrr": "dialore.evaluation.decisions:make",
    "ndcg-10": "dialore.evaluation.decisions:make",
    "persona-consistency": "dialore.evaluation.consistency:make",
    "knowledge-consistency": "dialore.evaluation.consistency:make",
    "cdp": "dialore.evaluation.commonsense:make",
    "cdf": "dialore.evaluation.commonsense:make",
    "distinct-1": "dialore.evaluation.overlap:make",
    "distinct-2": "dialore.evaluation.overlap:make",
    "perplexity": "dialore.evaluation.perplexity:make",
    "meep": "dialore.evaluation.judges.scoring:make",
    "informativeness": "dialore.evaluation.judges.scoring:make",
    "overall": "dialore.evaluation.judges.scoring:make",
    "relevance": "dialore.evaluation.judges.scoring:make",
    "specificity": "dialore.evaluation.judges.scoring:make",
    "useful-knowledge": "dialore.evaluation.judges.scoring:make",
    "query-score": "dialore.evaluation.judges.scoring:make",
    "ragas-context-relevance": "dialore.evaluation.judges.scoring:make",
    "ragas-faithfulness": "dialore.evaluation.judges.scoring:make",
    "ragas-answer-relevance": "dialore.evaluation.judges.scoring:make",
}


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


class Maker(Protocol):
    """Makes a metric of its name and what it may use."""

    def __call__(self, name: str, context: Context) -> Metric:
        """The metric; never raises for what the context lacks."""
        ...


def metric_names() -> list[str]:
    """The names of all metrics, in the order of tables."""
    return [*_OWN, *sorted(point.name for point in entry_points(group=GROUP))]


def load_metric(name: str, context: Context) -> Metric:
    """A metric by name.

    Raises:
        UnknownNameError: no metric is called that.
        MissingExtraError: it needs the `evaluation` or the `local` extra.
    """
    if name in _OWN:
        module, _, attribute = _OWN[name].partition(":")
        make: Maker = getattr(importlib.import_module(module), attribute)
        return make(name, context)
    for point in entry_points(group=GROUP):
        if point.name == name:
            added: Maker = point.load()
            return added(name, context)
    raise UnknownNameError("metric", name, metric_names())


def load_metrics(names: Iterable[str], context: Context) -> Sequence[Metric]:
    """Metrics by name, each once; raises as `load_metric`."""
    return [load_metric(name, context) for name in dict.fromkeys(names)]

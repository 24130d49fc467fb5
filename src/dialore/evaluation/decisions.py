"""Planning and retrieval: F1 of each decision, and whether the gold knowledge was found (SAFARI, Tables 4 and 5)."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np

from dialore.datasets import gold_text
from dialore.evaluation.base import About, Mean, Measure, unavailable
from dialore.text import normalise

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dialore.datasets.base import Gold
    from dialore.evaluation.base import Metric, Sample
    from dialore.evaluation.registry import Context

_DECISIONS = {"null": frozenset[str](), "persona": frozenset({"persona"}), "both": frozenset({"persona", "documents"})}
_ORPHANS = frozenset({"documents"})


def make(name: str, context: Context) -> Metric:
    """A metric of this file by name: `planning-f1-both`, `planning-accuracy`, `recall-1`, `mrr`, `ndcg-10`."""
    if name.startswith("planning-f1-"):
        return PlanningF1(name.removeprefix("planning-f1-"))
    if name == "planning-accuracy":
        return PlanningAccuracy()
    if name == "mrr":
        return Ranking(_MRR, _reciprocal_rank)
    kind, top, *of = name.split("-")
    source = "".join(of)
    about, figure = (_recall_about(int(top), source), _recall) if kind == "recall" else (_ndcg_about(int(top)), _ndcg)
    return Ranking(about, functools.partial(figure, int(top)), source)


def plan_of(sample: Sample) -> tuple[frozenset[str] | None, frozenset[str] | None]:
    """The plan that was made and the gold plan, as sets of sources; None for one that is not there.

    Documents alone, without the persona that they hang on, count as no source (SAFARI, footnote 14).
    """
    plan = sample.response.plan
    made = None if plan is None else frozenset(plan) - (_ORPHANS if set(plan) == _ORPHANS else frozenset())
    has_gold = "sources" in sample.dialogue.model_fields_set
    return made, frozenset(sample.dialogue.sources) if has_gold else None


def no_plan(gold: frozenset[str] | None) -> Measure:
    """The measure where one of the two plans is missing."""
    return unavailable("the dialogue has no gold plan" if gold is None else "the method makes no plan")


class PlanningF1:
    """F1 of one decision: to use no source, the persona alone, or persona and documents (SAFARI, Table 4)."""

    def __init__(self, decision: str) -> None:
        self._wanted = _DECISIONS[decision]
        self.about = About(
            f"planning-f1-{decision}",
            "SAFARI (EMNLP Findings 2023), Table 4",
            f"F1 of the decision to use {' and '.join(sorted(self._wanted)) or 'no source'}, over all dialogues with "
            "a gold plan.",
            needs=("plan",),
            level="corpus",
        )

    async def measure(self, sample: Sample) -> Measure:
        """Whether it was decided and right, decided, and right."""
        made, gold = plan_of(sample)
        if made is None or gold is None:
            return no_plan(gold)
        wanted = self._wanted
        return Measure((float(made == gold == wanted), float(made == wanted), float(gold == wanted)))

    def combine(self, values: NDArray[np.float64]) -> float:
        """F1, 0 to 1; NaN where the decision was neither made nor right anywhere."""
        return float(self.of_sums(values.sum(axis=0)))

    def of_sums(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """F1 from summed counts: twice the hits over decided and right together."""
        with np.errstate(invalid="ignore"):
            figure: NDArray[np.float64] = 2 * sums[..., 0] / (sums[..., 1] + sums[..., 2])
        return figure


class PlanningAccuracy(Mean):
    """How often the plan is the gold plan, whatever its order."""

    about = About(
        "planning-accuracy",
        "SAFARI (EMNLP Findings 2023), Section 5.2",
        "Share of plans that name the sources of the gold plan.",
        needs=("plan",),
    )

    async def measure(self, sample: Sample) -> Measure:
        """1 or 0."""
        made, gold = plan_of(sample)
        return Measure((float(made == gold),)) if made is not None and gold is not None else no_plan(gold)


def ranks_of(sample: Sample, source: str = "") -> tuple[list[bool], int] | None:
    """Of the knowledge that a response was given, best first, which is gold; and how many gold pieces there are.

    Pieces are compared by their text, whatever its case and spaces; one that was given before is no second hit. None
    where there is no gold knowledge.

    Args:
        sample: dialogue and response.
        source: look at what is of this source alone, where the data set says of which its gold knowledge is.
    """
    pieces = [piece for piece in sample.dialogue.knowledge if not source or _source(piece) == source]
    gold = {_key(gold_text(piece)) for piece in pieces} - {""}
    if not gold:
        return None
    found = [piece for piece in sample.response.knowledge if not source or piece.source == source]
    hits: list[bool] = []
    left = set(gold)
    for key in (_key(piece.text) for piece in found):
        hits.append(key in left)
        left.discard(key)
    return hits, len(gold)


def _source(piece: Gold) -> str:
    return "" if isinstance(piece, str) else str(piece.get("source") or "")


def _key(text: str) -> str:
    return normalise(text).replace(" ", "")


class Ranking(Mean):
    """How the knowledge that a response was given is ranked.

    Args:
        figure: the value, from which pieces are gold, best first, and how many gold pieces there are.
    """

    def __init__(self, about: About, figure: Callable[[list[bool], int], float], source: str = "") -> None:
        self.about, self._figure, self._source = about, figure, source

    async def measure(self, sample: Sample) -> Measure:
        """0 to 1."""
        found = ranks_of(sample, self._source)
        if found is None:
            return unavailable(f"the dialogue has no gold {self._source or 'knowledge'}")
        return Measure((self._figure(*found),))


def _recall_about(top: int, source: str) -> About:
    of = f" of the source {source}" if source else ""
    return About(
        f"recall-{top}" + (f"-{source}" if source else ""),
        "SAFARI (EMNLP Findings 2023), Table 5",
        f"Share of the gold knowledge{of}, of {top} pieces at most, that is among the best {top}{of} that the response "
        "was given.",
        needs=("knowledge",),
    )


def _recall(top: int, hits: list[bool], gold: int) -> float:
    return sum(hits[:top]) / min(gold, top)


_MRR = About(
    "mrr",
    "Voorhees (1999)",
    "Mean over responses of one over the rank of the first gold piece of knowledge; 0 where there is none.",
    needs=("knowledge",),
)


def _reciprocal_rank(hits: list[bool], _gold: int) -> float:
    return 1 / (hits.index(True) + 1) if True in hits else 0.0


def _ndcg_about(top: int) -> About:
    return About(
        f"ndcg-{top}",
        "Järvelin and Kekäläinen (2002)",
        f"Discounted gain of gold knowledge among the best {top} pieces, over the best that is possible.",
        needs=("knowledge",),
    )


def _ndcg(top: int, hits: list[bool], gold: int) -> float:
    gain = sum(1 / math.log2(place + 2) for place, hit in enumerate(hits[:top]) if hit)
    return gain / sum(1 / math.log2(place + 2) for place in range(min(gold, top)))

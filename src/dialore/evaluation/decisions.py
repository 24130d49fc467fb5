"""Planning and retrieval: F1 of each decision, and whether the gold knowledge was found (SAFARI, Tables 4 and 5)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dialore.datasets import gold_text
from dialore.evaluation.base import About, Mean, Measure, unavailable
from dialore.text import normalise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.datasets.base import Gold
    from dialore.evaluation.base import Metric, Sample
    from dialore.evaluation.registry import Context

_DECISIONS = {"null": frozenset[str](), "persona": frozenset({"persona"}), "both": frozenset({"persona", "documents"})}
_ORPHANS = frozenset({"documents"})
_MOST = 10


def make(name: str, context: Context) -> Metric:
    """A metric of this file by name: `planning-f1-both`, `planning-accuracy`, `recall-1`, `mrr`, `ndcg-10`."""
    if name.startswith("planning-f1-"):
        return PlanningF1(name.removeprefix("planning-f1-"))
    if name == "planning-accuracy":
        return PlanningAccuracy()
    if name == "mrr":
        return ReciprocalRank()
    kind, top, *of = name.split("-")
    return Recall(int(top), *of) if kind == "recall" else Ndcg(int(top))


def plan_of(sample: Sample) -> tuple[frozenset[str] | None, frozenset[str] | None]:
    """The plan that was made and the gold plan, as sets of sources; None for one that is not there.

    Documents alone, without the persona that they hang on, count as no source (SAFARI, footnote 14).
    """
    plan = sample.response.plan
    made = None if plan is None else frozenset(plan) - (_ORPHANS if set(plan) == _ORPHANS else frozenset())
    has_gold = "sources" in sample.dialogue.model_fields_set
    return made, frozenset(sample.dialogue.sources) if has_gold else None


def _both_plans(sample: Sample) -> tuple[frozenset[str], frozenset[str]] | Measure:
    """The plan that was made and the gold plan, or what is measured where one of them is missing."""
    made, gold = plan_of(sample)
    if gold is None:
        return unavailable("the dialogue has no gold plan")
    if made is None:
        return unavailable("the method makes no plan")
    return made, gold


class PlanningF1:
    """F1 of one decision: to use no source, the persona alone, or persona and documents (SAFARI, Table 4)."""

    def __init__(self, decision: str) -> None:
        self.decision = decision

    @property
    def about(self) -> About:
        """What it is."""
        sources = " and ".join(sorted(_DECISIONS[self.decision])) or "no source"
        return About(
            f"planning-f1-{self.decision}",
            "SAFARI (EMNLP Findings 2023), Table 4",
            f"F1 of the decision to use {sources}, over all dialogues with a gold plan.",
            needs=("plan",),
            level="corpus",
        )

    async def measure(self, sample: Sample) -> Measure:
        """Whether it was decided and right, decided, and right."""
        plans = _both_plans(sample)
        if isinstance(plans, Measure):
            return plans
        made, gold = plans
        wanted = _DECISIONS[self.decision]
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

    @property
    def about(self) -> About:
        """What it is."""
        return About(
            "planning-accuracy",
            "SAFARI (EMNLP Findings 2023), Section 5.2",
            "Share of plans that name the sources of the gold plan.",
            needs=("plan",),
        )

    async def measure(self, sample: Sample) -> Measure:
        """1 or 0."""
        plans = _both_plans(sample)
        if isinstance(plans, Measure):
            return plans
        made, gold = plans
        return Measure((float(made == gold),))


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


class _Retrieval(Mean):
    """Metrics of how the given knowledge is ranked."""

    source = ""

    async def measure(self, sample: Sample) -> Measure:
        """0 to 1."""
        found = ranks_of(sample, self.source)
        if found is None:
            return unavailable(f"the dialogue has no gold {self.source or 'knowledge'}")
        return Measure((self._figure(*found),))

    def _figure(self, hits: list[bool], gold: int) -> float:
        raise NotImplementedError


class Recall(_Retrieval):
    """The share of gold knowledge among the best k pieces, of all or of one source (SAFARI, Table 5: Recall@1)."""

    def __init__(self, top: int, source: str = "") -> None:
        self.top = top
        self.source = source

    @property
    def about(self) -> About:
        """What it is."""
        of = f" of the source {self.source}" if self.source else ""
        return About(
            f"recall-{self.top}" + (f"-{self.source}" if self.source else ""),
            "SAFARI (EMNLP Findings 2023), Table 5",
            f"Share of the gold knowledge{of}, of {self.top} pieces at most, that is among the best {self.top}{of} "
            "that the response was given.",
            needs=("knowledge",),
        )

    def _figure(self, hits: list[bool], gold: int) -> float:
        return sum(hits[: self.top]) / min(gold, self.top)


class ReciprocalRank(_Retrieval):
    """The mean reciprocal rank of the first gold piece."""

    @property
    def about(self) -> About:
        """What it is."""
        return About(
            "mrr",
            "Voorhees (1999)",
            "Mean over responses of one over the rank of the first gold piece of knowledge; 0 where there is none.",
            needs=("knowledge",),
        )

    def _figure(self, hits: list[bool], gold: int) -> float:
        return 1 / (hits.index(True) + 1) if True in hits else 0.0


class Ndcg(_Retrieval):
    """Normalised discounted cumulative gain of the best k pieces, gold ones counting one."""

    def __init__(self, top: int = _MOST) -> None:
        self.top = top

    @property
    def about(self) -> About:
        """What it is."""
        return About(
            f"ndcg-{self.top}",
            "Järvelin and Kekäläinen (2002)",
            f"Discounted gain of gold knowledge among the best {self.top} pieces, over the best that is possible.",
            needs=("knowledge",),
        )

    def _figure(self, hits: list[bool], gold: int) -> float:
        gain = sum(1 / math.log2(place + 2) for place, hit in enumerate(hits[: self.top]) if hit)
        return gain / sum(1 / math.log2(place + 2) for place in range(min(gold, self.top)))

"""Planning and retrieval: F1 and count of each decision, and whether gold knowledge was found (SAFARI, Tables 4, 5)."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dialore.datasets import gold_text
from dialore.evaluation.base import Mean, Sample, SampleScore, Summed, unavailable
from dialore.evaluation.registry import Context, OwnMetric
from dialore.text import normalise

_DECISIONS = {"null": frozenset[str](), "persona": frozenset({"persona"}), "both": frozenset({"persona", "documents"})}
_ORPHANS = frozenset({"documents"})


def _kinds_of(names: Iterable[str], sample: Sample) -> frozenset[str]:
    """Return the kinds of sources, which a method may have planned over by other names, or a data set named."""
    known = {name.casefold(): kind for name, kind in (sample.response.kinds or {}).items()}
    return frozenset(known.get(name.casefold(), name.casefold()) for name in names)


def plan_of(sample: Sample) -> tuple[frozenset[str] | None, frozenset[str] | None]:
    """Return the plan that was made and the gold plan, as sets of kinds of sources; None for one that is not there.

    Documents alone, where the gold plan is not that, count as no source (SAFARI, footnote 14).
    """
    plan = sample.response.plan
    has_gold = "sources" in sample.dialogue.model_fields_set
    gold = _kinds_of(sample.dialogue.sources, sample) if has_gold else None
    made = None if plan is None else _kinds_of(plan, sample)
    return frozenset() if made == _ORPHANS != gold else made, gold


def no_plan(gold: frozenset[str] | None) -> SampleScore:
    """Return the measure where one of the two plans is missing."""
    return unavailable("the dialogue has no gold plan" if gold is None else "the method makes no plan")


def gold_texts(sample: Sample, kind: str = "") -> list[str]:
    """Return the gold knowledge of a dialogue: all of it, or what it says is from one kind of source."""
    pieces = [(piece, "" if isinstance(piece, str) else piece.get("source")) for piece in sample.dialogue.knowledge]
    return [gold_text(piece) for piece, of in pieces if not kind or kind in _kinds_of([str(of or "")], sample)]


class PlanningF1(OwnMetric, Summed):
    """F1 of one decision: to use no source, the persona alone, or persona and documents (SAFARI, Table 4)."""

    async def measure(self, sample: Sample) -> SampleScore:
        """Return whether it was decided and right, decided, and right."""
        made, gold = plan_of(sample)
        if made is None or gold is None:
            return no_plan(gold)
        wanted = _DECISIONS[self.about.name.rpartition("-")[2]]
        return SampleScore((float(made == gold == wanted), float(made == wanted), float(gold == wanted)))

    def of_sums(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """F1 from summed counts: twice the hits over decided and right together; NaN where these are none."""
        with np.errstate(invalid="ignore"):
            figure: NDArray[np.float64] = 2 * sums[..., 0] / (sums[..., 1] + sums[..., 2])
        return figure


class Decisions(PlanningF1):
    """How often the same decision was made: the numbers in brackets there."""

    def of_sums(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how many."""
        return sums[..., 1]


class PlanningAccuracy(OwnMetric, Mean):
    """How often the plan is the gold plan, whatever its order."""

    async def measure(self, sample: Sample) -> SampleScore:
        """1 or 0."""
        made, gold = plan_of(sample)
        return SampleScore((float(made == gold),)) if made is not None and gold is not None else no_plan(gold)


class Ranking(OwnMetric, Mean):
    """Ranking of the knowledge that a response was given: of all or one kind of source, for all or one gold plan.

    Pieces are compared by their text, whatever its case and spaces; one that was given before is no second hit.
    """

    def __init__(self, name: str, context: Context) -> None:
        super().__init__(name, context)
        self._kind, top, self._source, case = [*name.split("-"), "", "", ""][:4]
        self._top = int(top or 10)
        self._plan = {"alone": "persona", "both": "both"}.get(case)

    async def measure(self, sample: Sample) -> SampleScore:
        """0 to 1."""
        if self._plan is not None and plan_of(sample)[1] != _DECISIONS[self._plan]:
            uses = "persona alone" if self._plan == "persona" else "persona and documents"
            return unavailable(f"the gold plan is not to use {uses}")
        gold = {_key(text) for text in gold_texts(sample, self._source)} - {""}
        if not gold:
            return unavailable(f"the dialogue has no gold {self._source or 'knowledge'}")
        pieces = [piece for piece in sample.response.knowledge if not self._source or piece.source == self._source]
        hits: list[bool] = []
        left = set(gold)
        for key in (_key(piece.text) for piece in pieces):
            hits.append(key in left)
            left.discard(key)
        if self._kind == "mrr":
            return SampleScore((1 / (hits.index(True) + 1) if True in hits else 0.0,))
        # Of nDCG a hit counts less the later it comes.
        gains = [1 / math.log2(rank + 2) if self._kind == "ndcg" else 1.0 for rank in range(self._top)]
        gained = sum(gain for gain, hit in zip(gains, hits, strict=False) if hit)
        return SampleScore((gained / sum(gains[: len(gold)]),))


def _key(text: str) -> str:
    return normalise(text).replace(" ", "")

"""How facts are ranked: settings, and the two named ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dialore.errors import InputError, UnknownNameError
from dialore.sources.graph.facts.relations import RELATIONS

if TYPE_CHECKING:
    from typing import Self

UNINFORMATIVE = frozenset(name for name, known in RELATIONS.items() if not known.informative)
"""Relations that speak of words, not of the world: ExternalURL, DerivedFrom, FormOf, ..."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """What a fact's rank depends on. The defaults were chosen on real turns (`scripts/measure_retrieval.py`).

    They are the best of what costs no more than milliseconds: `lexical` and a reranker rank a little better, slower.

    A fact's score is its cosine with the question, plus `nearest` times the cosine of its other end with the demand
    that is nearest to it, less `specificity` times the logarithm of its concept's number of facts. Facts are taken
    one by one, the best first; each that is taken costs the other facts of its concept: with k taken, `decay` times
    log2(1 + k). A fact's concept is the demanded one, the one with fewer facts where both ends are.

    Attributes:
        history: how many of the latest turns the question holds; 0: all.
        demands: weight in the question of the demands' wording, that of the history being 1.
        nearest: weight of the other end's nearest demand.
        specificity: cost of a concept with many facts.
        decay: cost of a concept that has facts in the list already.
        lexical: weight of BM25's ranking of the pool beside this one's, fused by reciprocal ranks.
        weight: weight of the ranking of the pool by edge weight, fused likewise.
        hops: how many neighbours of the demanded concepts give their facts to the unforeseen ones too.
        pool: facts of a set that are looked at closely, by `nearest` and by fusion.
        rerank: facts of a set that a reranker looks at, where there is one.
        fold: whether of the facts between two concepts only the best is taken, whatever relation or direction.
        well_formed: whether self-loops, clauses and concepts that name nothing ("something", "it") are dropped.
        safe: whether facts that the lists of unsafe words find are dropped.
        without: relations whose facts are dropped.
    """

    history: int = 3
    demands: float = 2.0
    nearest: float = 0.15
    specificity: float = 0.03
    decay: float = 0.05
    lexical: float = 0.0
    weight: float = 0.0
    hops: int = 0
    pool: int = 60
    rerank: int = 200
    fold: bool = True
    well_formed: bool = True
    safe: bool = True
    without: frozenset[str] = UNINFORMATIVE | {"Synonym"}

    def __post_init__(self) -> None:
        """Check the numbers; raises InputError for one below zero, or an empty pool."""
        for name in ("history", "demands", "nearest", "specificity", "decay", "lexical", "weight", "hops"):
            if getattr(self, name) < 0:
                raise InputError(f"ranking: {name} must not be negative, got {getattr(self, name)}")
        for name in ("pool", "rerank"):
            if getattr(self, name) < 1:
                raise InputError(f"ranking: {name} must be at least 1, got {getattr(self, name)}")

    @property
    def plain(self) -> bool:
        """Whether facts are ranked by their cosine with the question alone, and none is dropped."""
        changes = (self.nearest, self.specificity, self.decay, self.lexical, self.weight, self.hops, self.without)
        return not any((*changes, self.fold, self.well_formed, self.safe))

    @property
    def selective(self) -> bool:
        """Whether a fact's own words or ends can keep it from being taken."""
        return bool(self.fold or self.well_formed or self.safe or self.without)

    @classmethod
    def named(cls, name: str) -> Self:
        """The ranking of that name: `default`, or `paper`, DCRAG's cosine of fact and history (Section 3.3).

        Raises:
            UnknownNameError: there is none.
        """
        if name not in RANKINGS:
            raise UnknownNameError("ranking", name, RANKINGS)
        return cls(**RANKINGS[name])


RANKINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {
        "history": 0,
        "demands": 0.0,
        "nearest": 0.0,
        "specificity": 0.0,
        "decay": 0.0,
        "fold": False,
        "well_formed": False,
        "safe": False,
        "without": frozenset(),
    },
}
"""The settings of each named ranking, where they are not the defaults."""

"""The concept whose vector is nearest a phrase's, for phrases that nothing else links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

import numpy as np

from dialore.sources.graph.store.protocol import FactStore
from dialore.text import content_words, is_chinese

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dialore.retrieval.embedding import Embedder

THRESHOLD = 0.95
"""The least cosine of a link. On the development half of our labelled phrases the nearest concept is an accepted one
for 95% of the English and 86% of the Chinese phrases above it, and for 80% and 84% of those above .8."""
QUICK = 15_000
"""Concepts up to which a look at all of them takes about 2 ms (2.6 ms for 16,800, 10 ms for 78,300)."""
_CHUNK = 8192


@runtime_checkable
class ConceptProducts(FactStore, Protocol):
    """A store that multiplies its concepts' vectors with a question's."""

    def concept_products(self, concepts: NDArray[np.uint32], query: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n,): the product of each concept's unnormalised vector with the query (dimension,)."""
        ...


@runtime_checkable
class ConceptSums(Protocol):
    """A store that gives its concepts' vectors."""

    def concept_sums(self, concepts: NDArray[np.uint32]) -> NDArray[np.float32]:
        """(n, dimension): each concept's unnormalised vector."""
        ...


@runtime_checkable
class _Sums(Protocol):
    """An embedder whose vectors are normalised sums."""

    def sums(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """(len(texts), dimension): unnormalised sums."""
        ...


class NearestConcepts:
    """Exact search of all of a graph's concepts by cosine.

    Args:
        store: the graph.
        embedder: the one that made its vectors.
    """

    def __init__(self, store: ConceptProducts, embedder: Embedder) -> None:
        self._store, self._embedder = store, embedder
        self._lengths: NDArray[np.float32] | None = None

    @classmethod
    def of(cls, store: FactStore, embedder: Embedder | None, *, wanted: bool | None) -> Self | None:
        """The search, or None: not wanted, neither quick nor asked for, or the graph lacks the embedder's vectors."""
        if wanted is False or embedder is None or not isinstance(store, ConceptProducts):
            return None
        if store.meta.embedder_fingerprint != embedder.fingerprint:
            return None
        quick = store.meta.concepts <= QUICK and isinstance(store, ConceptSums)
        return cls(store, embedder) if wanted or quick else None

    def forget(self) -> None:
        """The graph has changed."""
        self._lengths = None

    def find(self, phrase: str) -> tuple[int, float] | None:
        """The nearest concept and its cosine, where that is at least the threshold.

        A phrase of function words has none, nor is a single Chinese character one: the embedder knows those by parts of
        the phrase.
        """
        chinese = is_chinese(phrase)
        count = self._store.meta.concepts
        if not count or not content_words(phrase, "zh" if chinese else "en"):
            return None
        products = self._store.concept_products(np.arange(count, dtype=np.uint32), self._embedder.encode([phrase])[0])
        cosines = products / self._all_lengths(count)
        # Equal ones, such as the same words in another order, by number.
        concept = int(np.argmax(np.round(cosines, 4)))
        cosine = round(float(cosines[concept]), 4)
        if cosine < THRESHOLD or (chinese and len(self._store.concept(concept)) == 1):
            return None
        return concept, cosine

    def _all_lengths(self, count: int) -> NDArray[np.float32]:
        if self._lengths is None:
            lengths = np.empty(count, np.float32)
            for start in range(0, count, _CHUNK):
                some = np.arange(start, min(start + _CHUNK, count), dtype=np.uint32)
                lengths[some] = np.linalg.norm(self._sums(some), axis=1)
            self._lengths = np.maximum(lengths, np.float32(1e-6))
        return self._lengths

    def _sums(self, concepts: NDArray[np.uint32]) -> NDArray[np.float32]:
        if isinstance(self._store, ConceptSums):
            return self._store.concept_sums(concepts)
        if isinstance(self._embedder, _Sums):
            return self._embedder.sums([self._store.concept(number) for number in concepts.tolist()]).astype(np.float32)
        return np.zeros((len(concepts), 1), np.float32)

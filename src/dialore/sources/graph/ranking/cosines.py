"""Cosines of facts with a question, whatever the store and the embedder: the quickest way that fits both."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from dialore.sources.graph.facts.relations import verbalise
from dialore.sources.graph.linking.nearest import ConceptSums
from dialore.sources.graph.store.protocol import VectorStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from dialore.retrieval.embedding import Embedder
    from dialore.sources.graph.store.edges import Edges
    from dialore.sources.graph.store.protocol import FactStore
    from dialore.text import Language

_REMEMBERED = 20_000


class FactCosines:
    """Cosines of a store's facts and concepts by one embedder.

    A store's own vectors are used where the embedder made them; else an embedder whose vectors add up reads each
    concept once; any other encodes the facts' wording.

    Args:
        store: the facts.
        embedder: makes the vectors.
    """

    def __init__(self, store: FactStore, embedder: Embedder) -> None:
        self._store, self._embedder = store, embedder
        self._encoded: OrderedDict[str, NDArray[np.float32]] = OrderedDict()
        self._own = store.meta.embedder_fingerprint == embedder.fingerprint
        self._near = store if self._own and isinstance(store, VectorStore) else None
        self._sums = store if self._own and isinstance(store, ConceptSums) else None
        self._of_edges = self._quickest()

    def _quickest(self) -> Callable[[Edges, NDArray[np.float32]], NDArray[np.float32]] | None:
        from dialore.sources.graph.ranking.linear import LinearCosines
        from dialore.sources.graph.store.embed import LinearEmbedder

        if self._near is not None:
            return self._near.cosines
        return LinearCosines(self._store, self._embedder) if isinstance(self._embedder, LinearEmbedder) else None

    def edges(self, concepts: Iterable[int], query: NDArray[np.float32], keep: int) -> Edges:
        """Facts of concepts: all, or of a hub those nearest the question where the store can tell (see VectorStore)."""
        if self._near is not None:
            return self._near.edges_of(concepts, query, keep)
        return self._store.edges_of(concepts)

    def of_facts(self, edges: Edges, query: NDArray[np.float32], language: Language) -> NDArray[np.float32]:
        """(n,): each fact's cosine with a question of unit length (dimension,)."""
        if not len(edges):
            return np.empty(0, np.float32)
        if self._of_edges is not None:
            return self._of_edges(edges, query)
        return self.encode(self.wordings(edges, range(len(edges)), language)) @ query

    def wordings(self, edges: Edges, rows: Sequence[int] | range, language: Language) -> list[str]:
        """Facts in words."""
        return [verbalise(self._store.fact(edges, row), language) for row in rows]

    def of_concepts(self, concepts: NDArray[np.uint32]) -> NDArray[np.float32]:
        """(n, dimension): unit vectors of concepts."""
        if self._sums is not None:
            sums = self._sums.concept_sums(concepts)
            lengths = np.sqrt(np.einsum("ij,ij->i", sums, sums))
            unit: NDArray[np.float32] = sums / np.maximum(lengths, 1e-6)[:, None]
            return unit
        return self.encode([self._store.concept(number) for number in concepts.tolist()])

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, dimension): the texts encoded, the latest remembered."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._encoded]
        if missing:
            self._encoded.update(zip(missing, self._embedder.encode(missing), strict=True))
        rows = np.stack([self._encoded[text] for text in texts])
        while len(self._encoded) > _REMEMBERED:
            self._encoded.popitem(last=False)
        return rows

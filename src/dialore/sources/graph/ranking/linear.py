"""Cosines of facts whose store has no vectors, by an embedder that adds up: each concept is read once, not each fact.

The numbers are those that a graph file built with the same embedder would give.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dialore.sources.graph.store.embed import LinearEmbedder, parts_of_names, relation_sums
from dialore.sources.graph.store.vectors import fact_norms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.sources.graph.store.edges import Edges
    from dialore.sources.graph.store.protocol import FactStore

_CHUNK = 1024
"""Concepts that are added up at once: few enough to stay in a processor's cache."""
_REMEMBERED = 200_000
"""Concepts whose parts are kept, about 30 MB: a hub's are asked for again."""


class LinearCosines:
    """Ranks the facts of one store; several threads may use it.

    Args:
        store: the facts.
        embedder: makes the vectors.
    """

    def __init__(self, store: FactStore, embedder: LinearEmbedder) -> None:
        self._store = store
        self._embedder = embedder
        self._relations = relation_sums(store.meta.relations, embedder)
        self._parts: dict[int, NDArray[np.int64]] = {}

    def __call__(self, edges: Edges, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n,): each fact's cosine with a unit query (dimension,); 0 for a fact in which nothing is known."""
        if not len(edges):
            return np.empty(0, np.float32)
        concepts, places = np.unique(np.concatenate([edges.head, edges.tail]), return_inverse=True)
        head, tail = places[: len(edges)].astype(np.uint32), places[len(edges) :].astype(np.uint32)
        sums = self._sums(self._made(concepts.tolist()))
        norms = fact_norms(head, edges.relation, tail, sums.__getitem__, self._relations)
        products = sums @ query
        total: NDArray[np.float32] = products[head] + products[tail] + (self._relations @ query)[edges.relation]
        return total / norms

    def _sums(self, made: list[NDArray[np.int64]]) -> NDArray[np.float32]:
        """(n, dimension): concepts' vectors from their parts, added a column of parts at a time.

        Concepts of most parts come first in that, so that each column is the parts of the first so many.
        """
        counts = np.fromiter(map(len, made), np.intp, len(made))
        starts = np.cumsum(counts) - counts
        used, parts = np.unique(np.concatenate(made), return_inverse=True)
        vectors = self._embedder.part_sums(used).astype(np.float32)
        order = np.argsort(-counts, kind="stable")
        total = np.zeros((len(made), self._embedder.dimension), np.float32)
        for first in range(0, len(order), _CHUNK):
            rows = order[first : first + _CHUNK]
            some = np.zeros((len(rows), total.shape[1]), np.float32)
            for column in range(int(counts[rows[0]])):
                have = int(np.count_nonzero(counts[rows] > column))
                some[:have] += vectors[parts[starts[rows[:have]] + column]]
            total[rows] = some
        return total

    def _made(self, concepts: list[int]) -> list[NDArray[np.int64]]:
        """Each concept's parts."""
        known = self._parts
        new = [concept for concept in concepts if concept not in known]
        if new:
            names = [self._store.concept(concept) for concept in new]
            if len(known) + len(new) > _REMEMBERED:
                # A dictionary of its own, so that no other thread's question loses what it has just read.
                known = self._parts = {concept: known[concept] for concept in concepts if concept in known}
            known.update(zip(new, parts_of_names(names, self._embedder, _silent), strict=True))
        return [known[concept] for concept in concepts]


def _silent(name: str, done: int, total: int) -> None:
    """Nobody waits long enough to be told."""

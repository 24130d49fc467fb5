"""Vectors of concepts and facts from an embedder whose vectors add up: each word is split into parts once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dialore.retrieval.graph.relations import connecting_words
from dialore.text import is_chinese

if TYPE_CHECKING:
    from dialore.retrieval.graph.store import Edges, FactStore
    from dialore.retrieval.static import StaticEmbedder

_CHUNK = 1024
"""Vectors that are added up at once: few enough to stay in a processor's cache."""
_REMEMBERED = 500_000
"""Words whose parts are kept while a graph is built, some 100 MB."""
_NO_PART = bytes(4)


class PartNumbers:
    """The parts of one graph, numbered by first use; `known` are the embedder's numbers of those it has already."""

    def __init__(self, embedder: StaticEmbedder, known: Sequence[int] = ()) -> None:
        self._embedder = embedder
        self._first = max(1, len(known))
        self._place = {part: row for row, part in enumerate(known) if row}
        self._words: dict[str, bytes] = {}

    def __call__(self, names: Sequence[str]) -> list[bytes]:
        """Return the graph's numbers of each name's parts, four bytes each; that of nothing where there are none."""
        # Chinese is split by what stands around it; of other names each word is split once.
        split = [[name] if is_chinese(name) else name.split() for name in names]
        known, numbered = self._words, self._place
        if len(known) > _REMEMBERED:
            known.clear()
        new = list({word: None for words in split for word in words if word not in known})
        for word, parts in zip(new, self._embedder.parts(new), strict=True):
            numbers = [numbered.setdefault(part, len(numbered) + 1) for part in parts.tolist()]
            known[word] = np.array(numbers, "<u4").tobytes()
        return [b"".join([known[word] for word in words]) or _NO_PART for words in split]

    def block(self) -> tuple[int, bytes]:
        """Return the first number of the parts that are new, and their value of the table `parts`; empty for none."""
        new = np.array([number for number, row in self._place.items() if row >= self._first], np.int64)
        sums = self._embedder.part_sums(new)
        values = sums.astype(np.float32)
        peaks = np.maximum(np.abs(values).max(axis=1, initial=0), 1e-6)
        # A token's sum is its int8 vector times an integer weight: dividing by that weight loses nothing.
        weights = np.gcd.reduce(sums, axis=1) if len(sums) else np.empty(0, np.int64)
        scales = np.where((weights > 0) & (peaks <= 127 * weights), weights, peaks / 127).astype(np.float32)
        rows = np.rint(values / scales[:, None]).astype(np.int8)
        if self._first == 1:  # a graph's first block begins with nothing
            rows = np.concatenate([np.zeros((1, rows.shape[1]), np.int8), rows])
            scales, new = np.append(np.float32(1), scales), np.append(0, new)
        value = rows.tobytes() + scales.astype("<f4").tobytes() + new.astype("<u4").tobytes()
        return (0 if self._first == 1 else self._first), value


def relation_sums(relations: Sequence[str], embedder: StaticEmbedder, *, triples: bool = False) -> NDArray[np.float32]:
    """(n, dimension): the unnormalised sum of each relation's words, or of what a triple has beside its ends."""
    # Both languages share a space, so the English wording serves the facts of either.
    between = (f"( , {relation} , )" if triples else connecting_words(relation) for relation in relations)
    return embedder.sums(list(between)).astype(np.float32)


def fact_norms(
    head: NDArray[np.integer[Any]],
    relation: NDArray[np.integer[Any]],
    tail: NDArray[np.integer[Any]],
    sums: Callable[[NDArray[Any]], NDArray[np.float32]],
    relations: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Return each fact's vector length, never 0; `sums` gives concepts' vectors, `relations` the relations'."""
    norms = np.empty(len(head), np.float32)
    for start in range(0, len(norms), _CHUNK):
        part = slice(start, start + _CHUNK)
        total = sums(head[part])
        total += sums(tail[part])
        total += relations[relation[part]]
        norms[part] = np.sqrt(np.einsum("ij,ij->i", total, total))
    return np.maximum(norms, np.float32(1e-6))


class LinearCosines:
    """Cosines of facts whose store has no vectors, as a graph file built with the same embedder gives them."""

    def __init__(self, store: FactStore, embedder: StaticEmbedder, *, triples: bool = False) -> None:
        self._store, self._embedder = store, embedder
        self._relations = relation_sums(store.meta.relations, embedder, triples=triples)

    def __call__(self, edges: Edges, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n,): each fact's cosine with a unit query (dimension,); 0 for a fact in which nothing is known."""
        concepts, places = np.unique(np.concatenate([edges.head, edges.tail]), return_inverse=True)
        head, tail = places[: len(edges)], places[len(edges) :]
        sums = self._embedder.sums([self._store.concept(number) for number in concepts.tolist()]).astype(np.float32)
        norms = fact_norms(head, edges.relation, tail, sums.__getitem__, self._relations)
        products = sums @ query
        total: NDArray[np.float32] = products[head] + products[tail] + (self._relations @ query)[edges.relation]
        return total / norms

"""Concepts' vectors as the parts that they are made of, and their products with a question."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

NOTHING = 0
"""The part of concepts in which the embedder knows nothing: the zero vector."""
RESERVED = 1
_CHUNK = 1024
"""Parts that are multiplied at once: few enough to stay in a processor's cache."""
_MANY = 4096
"""Of more parts than these, all frequent ones are multiplied: one call, and no search for those that are needed."""
_FLOATS = 1 << 15
"""Parts whose vectors are kept as float32 once a concept with many facts was asked for: 32 MB at most."""


@dataclass(frozen=True)
class PartVectors:
    """The parts of a graph's concepts.

    Attributes:
        rows: int8 (parts, dimension); a part's vector is its row times its scale.
        scales: float32 (parts,).
        ends: uint32 (concepts,): where each concept's parts end; they begin where those of the one before end.
        made: numbers of parts, one concept's after the other's, each concept having one at least.
    """

    rows: NDArray[np.int8]
    scales: NDArray[np.float32]
    ends: NDArray[np.uint32]
    made: NDArray[np.unsignedinteger[Any]]

    @cached_property
    def _floats(self) -> NDArray[np.float32]:
        floats: NDArray[np.float32] = self.rows[:_FLOATS].astype(np.float32)
        floats *= self.scales[:_FLOATS, None]
        return floats

    def values(self, query: NDArray[np.float32], parts: NDArray[np.intp]) -> NDArray[np.float32]:
        """(parts of the graph,): the product with the query of each part that is among the given ones at least."""
        found = np.zeros(len(self.rows), np.float32)
        if len(parts) > _MANY:
            np.dot(self._floats, query, out=found[: len(self._floats)])
            if len(self.rows) <= _FLOATS:
                return found
            parts = parts[parts >= _FLOATS]
        wanted = np.zeros(len(self.rows), np.bool_)
        wanted[parts] = True
        used = np.flatnonzero(wanted)
        for start in range(0, len(used), _CHUNK):
            some = used[start : start + _CHUNK]
            found[some] = (self.rows.take(some, axis=0).astype(np.float32) @ query) * self.scales.take(some)
        return found

    def all_values(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """(parts of the graph,): the product of each part with the query."""
        return self.values(query, np.arange(len(self.rows)))

    def of(self, concepts: NDArray[np.uint32]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The parts of the concepts, one's after the other's, and where each one's begin."""
        ends = self.ends.take(concepts).astype(np.intp)
        begins = self.ends.take(concepts.astype(np.intp) - 1).astype(np.intp)  # the first's, -1, is the last's
        begins[concepts == 0] = 0
        counts = ends - begins
        stops = np.cumsum(counts)
        starts = stops - counts
        places = np.repeat(begins - starts, counts)
        places += np.arange(len(places))
        return self.made.take(places).astype(np.intp), starts

    def products(self, concepts: NDArray[np.uint32], query: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n,): the product of each concept's unnormalised vector with the query (dimension,)."""
        if not len(concepts):
            return np.empty(0, np.float32)
        parts, starts = self.of(concepts)
        products: NDArray[np.float32] = np.add.reduceat(self.values(query, parts).take(parts), starts)
        return products

    def sums(self, concepts: NDArray[np.uint32]) -> NDArray[np.float32]:
        """(n, dimension): each concept's unnormalised vector."""
        if not len(concepts):
            return np.empty((0, self.rows.shape[1]), np.float32)
        parts, starts = self.of(concepts)
        vectors = self.rows.take(parts, axis=0) * self.scales.take(parts)[:, None]
        sums: NDArray[np.float32] = np.add.reduceat(vectors, starts)
        return sums

    def extended(
        self, made: Sequence[NDArray[Any]], rows: NDArray[np.int8], scales: NDArray[np.float32]
    ) -> PartVectors:
        """With more parts, and more concepts behind those that there are."""
        new_made, ends = in_a_row(made)
        wide = np.uint32 if len(self.rows) + len(rows) > np.iinfo(np.uint16).max else np.uint16
        return PartVectors(
            np.concatenate([self.rows, rows]),
            np.concatenate([self.scales, scales]),
            np.concatenate([self.ends, ends + np.uint32(len(self.made))]),
            np.concatenate([self.made.astype(wide, copy=False), new_made.astype(wide)]),
        )


def in_a_row(made: Sequence[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """The parts of concepts one's after the other's, NOTHING for one without any, and where each one's end."""
    nothing = np.array([NOTHING])
    flat = np.concatenate([part if len(part) else nothing for part in made]) if len(made) else nothing[:0]
    counts = np.fromiter((max(1, len(part)) for part in made), np.int64, len(made))
    return flat.astype(np.int64), np.cumsum(counts).astype(np.uint32)


def quantised(sums: NDArray[Any]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Sums as int8 with a scale each; exact where the peak of a row over 127 divides it, near enough elsewhere."""
    values = sums.astype(np.float32)
    peaks = np.maximum(np.abs(values).max(axis=1, initial=0), 1e-6)
    # A token's sum is its int8 vector times an integer weight: dividing by that weight loses nothing.
    weights = np.gcd.reduce(sums.astype(np.int64), axis=1) if len(sums) else np.empty(0, np.int64)
    scales = np.where((weights > 0) & (peaks <= 127 * weights), weights, peaks / 127).astype(np.float32)
    return np.rint(values / scales[:, None]).astype(np.int8), scales


def fact_norms(
    head: NDArray[np.uint32],
    relation: NDArray[np.integer[Any]],
    tail: NDArray[np.uint32],
    sums: Callable[[NDArray[np.uint32]], NDArray[np.float32]],
    relations: NDArray[np.float32],
) -> NDArray[np.float32]:
    """The length of each fact's vector, never 0.

    Args:
        head: the facts' heads.
        relation: their relations.
        tail: their tails.
        sums: vectors of concepts.
        relations: vectors of the relations.
    """
    norms = np.empty(len(head), np.float32)
    for start in range(0, len(norms), _CHUNK):
        part = slice(start, start + _CHUNK)
        total = sums(head[part])
        total += sums(tail[part])
        total += relations[relation[part]]
        norms[part] = np.sqrt(np.einsum("ij,ij->i", total, total))
    return np.maximum(norms, np.float32(1e-6))

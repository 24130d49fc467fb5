"""Concepts' vectors as the parts that they are made of, and their products with a question."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

NOTHING = 0
"""The part of concepts in which the embedder knows nothing: the zero vector."""
RESERVED = 1
_CHUNK = 512
"""Rows that are multiplied at once: few enough to stay in a processor's cache."""
_PEAK = 127
_EXACT = 1 << 24
"""Whole numbers up to here, and their sums, are exact in float32."""
UNCHECKED: Literal["clip"] = "clip"
"""How numpy takes what is known to be there in half the time: it need not be ready to fail halfway."""


class _Scratch(threading.local):
    """Room for a chunk of rows as floats, one a thread: new room costs more than what is done in it."""

    floats: NDArray[np.float32] = np.empty((0, 0), np.float32)

    def of(self, width: int) -> NDArray[np.float32]:
        """(_CHUNK, width): whatever was left there."""
        if self.floats.shape[1] != width:
            self.floats = np.empty((_CHUNK, width), np.float32)
        return self.floats


_scratch = _Scratch()


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

    def values(self, query: NDArray[np.float32], parts: NDArray[np.intp]) -> NDArray[np.float32]:
        """(parts of the graph,): the product with the query of each part that is among the given ones at least.

        To the last bit the same whichever parts are asked for together, and on every machine (see `_fixed`).
        """
        if len(parts) > len(self.rows):
            return self.all_values(query)  # most are among them: no search for which
        wanted = np.zeros(len(self.rows), np.bool_)
        wanted[parts] = True
        used = np.flatnonzero(wanted)
        found = np.zeros(len(self.rows), np.float32)
        found[used] = self._products(query, (self.rows.take(some, axis=0) for some in _chunks(used)), len(used))
        found *= self.scales
        return found

    def all_values(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """(parts of the graph,): the product of each part with the query."""
        found = self._products(query, _chunks(self.rows), len(self.rows))
        found *= self.scales
        return found

    def coarse_values(self, query: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
        """(parts of the graph,): each part's product with a query near this one, and how far the two are apart.

        A fact's cosine with the one differs from that with the other by no more than that distance, whatever the fact.
        """
        found, error = coarse_products(self.rows, query)
        found *= self.scales
        return found, error

    @staticmethod
    def _products(query: NDArray[np.float32], chunks: Iterable[NDArray[np.int8]], count: int) -> NDArray[np.float32]:
        # Rows are made floats a cache's worth at a time: quicker than reading a table four times as large.
        digits, coarse, fine = _fixed(query)
        sums = np.empty((count, 2), np.float32)
        floats = _scratch.of(len(query))
        start = 0
        for chunk in chunks:
            rows = floats[: len(chunk)]
            np.copyto(rows, chunk)
            np.dot(rows, digits, out=sums[start : start + len(chunk)])
            start += len(chunk)
        found: NDArray[np.float32] = sums[:, 1] / fine
        found += sums[:, 0]
        found /= coarse
        return found

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
        # Columns are quicker only where they are kept: laying them out takes longer than this sum.
        products: NDArray[np.float32] = np.add.reduceat(self.values(query, parts).take(parts, mode=UNCHECKED), starts)
        return products

    def sums(self, concepts: NDArray[np.uint32]) -> NDArray[np.float32]:
        """(n, dimension): each concept's unnormalised vector."""
        if not len(concepts):
            return np.empty((0, self.rows.shape[1]), np.float32)
        columns = Columns.of(*self.of(concepts))
        # Of few concepts all columns at once, of many one by one, so that each stays in a processor's cache.
        few = len(concepts) <= _CHUNK
        joined = self._scaled(np.concatenate(columns.parts)) if few else None
        total: NDArray[np.float32] | None = None
        at = 0
        for parts in columns.parts:
            vectors = self._scaled(parts) if joined is None else joined[at : at + len(parts)]
            at += len(parts)
            if total is None:
                total = vectors
            else:
                total[: len(parts)] += vectors
        found = np.empty((len(concepts), self.rows.shape[1]), np.float32)
        found[columns.order] = total
        return found

    def _scaled(self, parts: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = self.rows.take(parts, axis=0, mode=UNCHECKED).astype(np.float32)
        vectors *= self.scales.take(parts, mode=UNCHECKED)[:, None]
        return vectors

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


@dataclass(frozen=True, slots=True)
class Columns:
    """Parts of concepts for adding up: first all first parts, then the second ones of those that have two, and so on.

    Attributes:
        order: the concepts, those of most parts first.
        parts: of each column the parts, those of the first so many concepts in that order.
    """

    order: NDArray[np.intp]
    parts: tuple[NDArray[np.integer[Any]], ...]

    @classmethod
    def of(cls, parts: NDArray[np.intp], starts: NDArray[np.intp]) -> Columns:
        """Of parts one concept's after the other's, and where each one's begin; each has one at least."""
        counts = np.diff(starts, append=len(parts))
        order = np.argsort(-counts, kind="stable")
        firsts = starts.take(order)
        having = len(order) - np.cumsum(np.bincount(counts))  # how many have more parts than 0, 1, 2, ...
        return cls(order, tuple(parts.take(firsts[:many] + at) for at, many in enumerate(having[:-1].tolist())))

    def ordered_sums(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """(concepts,): the sum of each one's parts' values, in this order of them."""
        total = values.take(self.parts[0], mode=UNCHECKED)
        for parts in self.parts[1:]:
            total[: len(parts)] += values.take(parts, mode=UNCHECKED)
        return total


def coarse_products(rows: NDArray[np.int8], query: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
    """(n,): the product of each row with a query near this one, and how far the two are apart."""
    digits, coarse, _ = _fixed(query)
    first = np.ascontiguousarray(digits[:, 0])
    found = np.empty(len(rows), np.float32)
    floats = _scratch.of(len(query))
    for start in range(0, len(found), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        wide = floats[: len(chunk)]
        np.copyto(wide, chunk)
        np.dot(wide, first, out=found[start : start + _CHUNK])
    found /= coarse
    return found, float(np.linalg.norm(first / coarse - query))


def _chunks(rows: NDArray[Any]) -> Iterable[NDArray[Any]]:
    return (rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK))


def _fixed(query: NDArray[np.float32]) -> tuple[NDArray[np.float32], np.float32, np.float32]:
    """A query as whole numbers, coarse and fine ones side by side (dimension, 2), and what each is to be divided by.

    No sum of their products with a row of int8 is larger than what float32 holds exactly, so that the order in which a
    library adds them up does not matter: together they are as fine as a float32.
    """
    size = len(query)
    weight = max(float(np.abs(query).sum(dtype=np.float64)), 1e-30)
    coarse = np.float32(2.0 ** math.floor(math.log2((_EXACT / _PEAK - size / 2) / weight)))
    fine = np.float32(2.0 ** math.floor(math.log2(_EXACT / _PEAK / (size / 2))))
    scaled = query * coarse
    digits = np.empty((size, 2), np.float32)
    digits[:, 0] = first = np.rint(scaled)
    digits[:, 1] = np.rint((scaled - first) * fine)
    return digits, coarse, fine


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

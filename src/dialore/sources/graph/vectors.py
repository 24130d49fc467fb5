"""Concepts' vectors as the parts that they are made of, and their products with a question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

WIDTH = 4
"""Parts that a concept's own row holds."""
NOTHING = 0
"""The part that fills the rows of shorter concepts: the zero vector."""
MORE = 1
"""Stands last in the row of a concept whose parts do not fit; itself the zero vector too."""
RESERVED = 2
_CHUNK = 1024
"""Parts that are multiplied at once: few enough to stay in a processor's cache."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class PartVectors:
    """The parts of a graph's concepts.

    Attributes:
        rows: int8 (parts, dimension); a part's vector is its row times its scale.
        scales: float32 (parts,).
        made: (concepts, WIDTH) numbers of parts; a longer concept's row ends in MORE.
        long: the longer concepts, in ascending order.
        ends: where the rest of each longer concept's parts ends.
        rest: those parts, one concept's after the other's.
    """

    rows: NDArray[np.int8]
    scales: NDArray[np.float32]
    made: NDArray[np.unsignedinteger[Any]]
    long: NDArray[np.uint32]
    ends: NDArray[np.uint32]
    rest: NDArray[np.unsignedinteger[Any]]

    def values(self, query: NDArray[np.float32], parts: NDArray[np.unsignedinteger[Any]]) -> NDArray[np.float32]:
        """(parts of the graph,): the product with the query of each part that is among the given ones, else 0."""
        wanted = np.zeros(len(self.rows), np.bool_)
        wanted[parts] = True
        used = np.flatnonzero(wanted)
        found = np.zeros(len(self.rows), np.float32)
        for start in range(0, len(used), _CHUNK):
            some = used[start : start + _CHUNK]
            found[some] = self.rows[some].astype(np.float32) @ query
        found *= self.scales
        return found

    def of(self, concepts: NDArray[np.uint32]) -> tuple[NDArray[Any], NDArray[np.intp], NDArray[Any], NDArray[np.intp]]:
        """Parts of the concepts.

        Returns:
            (n, WIDTH) their rows; the places of the longer ones; the rest of these ones' parts; where each one's begin.
        """
        # One number a row is gathered several times as fast as WIDTH.
        whole = self.made.view(f"V{self.made.itemsize * WIDTH}")[:, 0]
        first = whole[concepts].view(self.made.dtype).reshape(-1, WIDTH)
        places = np.flatnonzero(first[:, -1] == MORE)
        if not len(places):
            return first, places, self.rest[:0], places
        which = np.searchsorted(self.long, concepts[places])
        begins = np.where(which > 0, self.ends[which - 1], 0).astype(np.intp)
        counts = self.ends[which].astype(np.intp) - begins
        starts = np.cumsum(counts) - counts
        flat = np.repeat(begins - starts, counts) + np.arange(counts.sum())
        return first, places, self.rest[flat], starts

    def products(self, concepts: NDArray[np.uint32], query: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n,): the product of each concept's unnormalised vector with the query (dimension,)."""
        if not len(concepts):
            return np.empty(0, np.float32)
        first, places, rest, starts = self.of(concepts)
        values = self.values(query, np.concatenate([first.ravel(), rest]))
        total: NDArray[np.float32] = values[first[:, 0]]
        for column in range(1, WIDTH):
            total += values[first[:, column]]
        if len(places):
            total[places] += np.add.reduceat(values[rest], starts)
        return total

    def sums(self, concepts: NDArray[np.uint32]) -> NDArray[np.float32]:
        """(n, dimension): each concept's unnormalised vector."""
        if not len(concepts):
            return np.empty((0, self.rows.shape[1]), np.float32)
        first, places, rest, starts = self.of(concepts)
        total = self._vectors(first[:, 0])
        for column in range(1, WIDTH):
            total += self._vectors(first[:, column])
        if len(places):
            total[places] += np.add.reduceat(self._vectors(rest), starts)
        return total

    def _vectors(self, parts: NDArray[Any]) -> NDArray[np.float32]:
        return self.rows[parts] * self.scales[parts][:, None]

    def extended(
        self, made: Sequence[NDArray[Any]], rows: NDArray[np.int8], scales: NDArray[np.float32]
    ) -> PartVectors:
        """With more parts and more concepts behind the ones that there are."""
        table = rows_of(made, len(self.made), np.uint32)
        wide = table.made.dtype if len(self.rows) + len(rows) > np.iinfo(self.made.dtype).max else self.made.dtype
        return PartVectors(
            np.concatenate([self.rows, rows]),
            np.concatenate([self.scales, scales]),
            np.concatenate([self.made.astype(wide, copy=False), table.made.astype(wide)]),
            np.concatenate([self.long, table.long]),
            np.concatenate([self.ends, table.ends + np.uint32(len(self.rest))]),
            np.concatenate([self.rest.astype(wide, copy=False), table.rest.astype(wide)]),
        )


@dataclass(frozen=True, slots=True)
class PartRows:
    """The rows of `PartVectors` that say what concepts are made of."""

    made: NDArray[Any]
    long: NDArray[np.uint32]
    ends: NDArray[np.uint32]
    rest: NDArray[Any]


def rows_of(made: Sequence[NDArray[Any]], first: int, dtype: type[np.unsignedinteger[Any]]) -> PartRows:
    """The rows of concepts that are numbered from `first` on, from the parts of each."""
    counts = np.fromiter(map(len, made), np.intp, len(made))
    flat = np.concatenate([*made, np.empty(0, dtype)]).astype(dtype)
    owners = np.repeat(np.arange(len(made)), counts)
    columns = np.arange(len(flat)) - np.repeat(np.cumsum(counts) - counts, counts)
    held = np.where(counts > WIDTH, WIDTH - 1, WIDTH)[owners]
    rows = np.full((len(made), WIDTH), NOTHING, dtype)
    inside = columns < held
    rows[owners[inside], columns[inside]] = flat[inside]
    longer = np.flatnonzero(counts > WIDTH)
    rows[longer, -1] = MORE
    return PartRows(
        rows,
        (longer + first).astype(np.uint32),
        np.cumsum(counts[longer] - (WIDTH - 1)).astype(np.uint32),
        flat[~inside],
    )


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

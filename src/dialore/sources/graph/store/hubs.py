"""The facts of a concept with very many of them: the best are found without looking at the others one by one.

A fact's cosine is (q·head + q·relation + q·tail) / length. On one side of a concept one of the ends is the same for
all, so what is left of a fact is the products of the other end's parts, a few numbers out of some thousands that all of
the hub's facts share. What a side needs for that is laid out in a row when it is first asked for, and kept; so are the
vectors of a hub's parts, for to read them where they lie scattered costs a third of their products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dialore.sources.graph.store.vectors import UNCHECKED, Columns, coarse_products

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from dialore.sources.graph.store.overlay import Side
    from dialore.sources.graph.store.vectors import PartVectors

LARGE = 2048
"""Facts from which on a side is a hub's."""
_KEPT = 192
"""Sides that are kept laid out: 0.9 MB each of 25,000 facts."""
_ROOM = 32 << 20
"""Bytes of parts' vectors that are kept: 4 MB of a hub with two such sides."""
_MOST = 0.9
"""The share of the graph's parts from which on a hub's are not laid out: all are multiplied as they lie."""
_MARGIN = np.float32(2e-4)
"""Cosines that are nearer than this to the last one that is taken are taken too, for ranks compare rounded ones."""


@dataclass(frozen=True, slots=True)
class HubSide:
    """One side of a hub, its facts in the order of `columns`.

    Attributes:
        others: the facts' other ends, in ascending order.
        places: where the fact of each of them is.
        relation: the facts' relations.
        inverse: one by the length of each one's vector.
        columns: the parts of the other ends.
    """

    others: NDArray[np.uint32]
    places: NDArray[np.int32]
    relation: NDArray[np.uint16]
    inverse: NDArray[np.float32]
    columns: Columns

    @classmethod
    def of(cls, records: NDArray[np.void], vectors: PartVectors) -> HubSide:
        """The side whose records are given."""
        columns = Columns.of(*vectors.of(np.ascontiguousarray(records["other"])))
        ordered = records[columns.order]
        inverse = (1 / ordered["norm"]).astype(np.float32)
        other = ordered["other"].copy()
        places = np.argsort(other, kind="stable").astype(np.int32)
        return cls(other[places], places, ordered["relation"].copy(), inverse, columns)

    def near(
        self,
        relations: NDArray[np.float32],
        values: NDArray[np.float32],
        keep: int,
        asked: NDArray[np.uint32],
        error: float,
    ) -> NDArray[np.intp]:
        """Rows of the facts whose other end was asked for too and, of the rest, of the best, in order.

        Args:
            relations: products of the relations, the hub's own added.
            values: products of the parts.
            keep: how many of the best.
            asked: the concepts that were asked for.
            error: how far cosines from these products may be wrong; what may be among the best for it is taken too.
        """
        scores = self.columns.ordered_sums(values)
        scores += relations.take(self.relation, mode=UNCHECKED)
        scores *= self.inverse
        between = self._leading_to(asked)
        scores[between] = -np.inf
        place = len(scores) - keep
        chosen = np.flatnonzero(scores >= np.partition(scores, place)[place] - (_MARGIN + np.float32(2 * error)))
        return np.sort(self.columns.order.take(np.concatenate([chosen, between])))

    def _leading_to(self, asked: NDArray[np.uint32]) -> NDArray[np.int32]:
        """Places of the facts whose other end is one of these."""
        starts = np.searchsorted(self.others, asked).tolist()
        stops = np.searchsorted(self.others, asked, side="right").tolist()
        return np.concatenate([self.places[start:stop] for start, stop in zip(starts, stops, strict=True)])


@dataclass(frozen=True, slots=True)
class _HubParts:
    """The parts that a hub's facts are made of.

    Attributes:
        numbers: which of the graph's they are, in ascending order.
        rows: their rows.
        scales: their scales.
    """

    numbers: NDArray[np.intp]
    rows: NDArray[np.int8]
    scales: NDArray[np.float32]


class Hubs:
    """The hubs of one version of a graph, as far as they were asked for. Several threads may ask.

    Args:
        vectors: the graph's parts.
        sides: sides that are laid out already.
    """

    def __init__(self, vectors: PartVectors, sides: Mapping[Side, HubSide] | None = None) -> None:
        self._vectors = vectors
        self.sides = dict(sides or {})
        self._parts: dict[tuple[Side, ...], _HubParts] = {}

    def near(
        self,
        records: Mapping[Side, NDArray[np.void]],
        query: NDArray[np.float32],
        relations: NDArray[np.float32],
        keep: int,
        asked: NDArray[np.uint32],
    ) -> dict[Side, NDArray[np.intp]]:
        """Of each side the rows of the facts that are near a question (see `GraphVersion.edges_of`).

        Args:
            records: the sides' facts.
            query: of unit length (dimension,).
            relations: products of the relations with it.
            keep: how many of each side.
            asked: all concepts that were asked for.
        """
        groups: dict[int, list[Side]] = {}
        for side in records:
            groups.setdefault(side[1], []).append(side)
        sides = {side: self._side(side, found) for side, found in records.items()}
        values, error = self._values(query, [self._parts_of(tuple(own), sides) for own in groups.values()])
        chosen = {}
        for concept, own in groups.items():
            parts, _ = self._vectors.of(np.array([concept], np.uint32))
            with_own = relations + values.take(parts).sum()
            for side in own:
                chosen[side] = sides[side].near(with_own, values, keep, asked, error)
        return chosen

    def _side(self, side: Side, records: NDArray[np.void]) -> HubSide:
        found = self.sides.get(side)
        if found is None:
            found = HubSide.of(records, self._vectors)
            if len(self.sides) >= _KEPT:
                self.sides.clear()
            self.sides[side] = found
        return found

    def _parts_of(self, own: tuple[Side, ...], sides: Mapping[Side, HubSide]) -> _HubParts:
        """The parts of some sides of a hub, and of the hub itself."""
        found = self._parts.get(own)
        if found is None:
            vectors = self._vectors
            used = np.zeros(len(vectors.rows), np.bool_)
            used[vectors.of(np.array([own[0][1]], np.uint32))[0]] = True
            for side in own:
                for parts in sides[side].columns.parts:
                    used[parts] = True
            numbers = np.flatnonzero(used)
            if len(numbers) > _MOST * len(used):
                found = _HubParts(np.arange(len(used)), vectors.rows, vectors.scales)
            else:
                found = _HubParts(numbers, vectors.rows.take(numbers, axis=0), vectors.scales.take(numbers))
            if sum(parts.rows.nbytes for parts in list(self._parts.values())) + found.rows.nbytes > _ROOM:
                self._parts.clear()
            self._parts[own] = found
        return found

    def _values(self, query: NDArray[np.float32], hubs: list[_HubParts]) -> tuple[NDArray[np.float32], float]:
        """(parts of the graph,): the coarse product of each part of the hubs, and its error (see `coarse_values`)."""
        if sum(len(parts.numbers) for parts in hubs) >= len(self._vectors.rows):
            return self._vectors.coarse_values(query)
        values = np.zeros(len(self._vectors.rows), np.float32)
        error = 0.0
        for parts in hubs:
            products, error = coarse_products(parts.rows, query)
            values[parts.numbers] = products * parts.scales
        return values, error

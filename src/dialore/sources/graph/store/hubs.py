"""The facts of a concept with very many of them: the best are found without looking at the others one by one.

A fact's cosine is (q·head + q·relation + q·tail) / length. On one side of a concept one of the ends is the same for
all, so what is left of a fact is the products of the other end's parts, a few numbers out of some thousands that all of
the hub's facts share. What a side needs for that is laid out in a row when it is first asked for, and kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dialore.sources.graph.store.vectors import UNCHECKED, Columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.sources.graph.store.vectors import PartVectors

LARGE = 2048
"""Facts from which on a side is a hub's."""
KEPT = 256
"""Sides that are kept laid out: 1.4 MB each of 50,000 facts."""
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
        columns = Columns(columns.order, tuple(parts.astype(np.int32) for parts in columns.parts))
        ordered = records[columns.order]
        inverse = (1 / ordered["norm"]).astype(np.float32)
        other = ordered["other"].copy()
        places = np.argsort(other, kind="stable").astype(np.int32)
        return cls(other[places], places, ordered["relation"].copy(), inverse, columns)

    def near(
        self,
        own: float,
        relations: NDArray[np.float32],
        values: NDArray[np.float32],
        keep: int,
        asked: NDArray[np.uint32],
        error: float,
    ) -> NDArray[np.intp]:
        """Rows of the facts whose other end was asked for too and, of the rest, of the best, in order.

        Args:
            own: the hub's product with the question.
            relations: products of the relations.
            values: products of the parts.
            keep: how many of the best.
            asked: the concepts that were asked for.
            error: how far cosines from these products may be wrong; what may be among the best for it is taken too.
        """
        scores = self.columns.ordered_sums(values)
        scores += relations.take(self.relation, mode=UNCHECKED)
        scores += np.float32(own)
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

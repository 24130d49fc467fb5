"""Facts of several concepts as columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_FEW = 2048
"""Ends are looked up one by one up to so many; of more, most are ruled out first."""
_LOW_BITS = 0xFFFF


@dataclass(frozen=True, slots=True)
class Edges:
    """Facts as columns, one row a fact; concepts and relations by number.

    `norm` is the length of the fact's vector: the sum of its head's, relation's and tail's. `asked` holds the concepts
    whose facts these are, in ascending order; `head_place` and `tail_place` are each end's place in it, -1 for an end
    that was not asked for. Each row has one that was. `counts` is how many facts each of the asked concepts has in all,
    also where only those near a question were read. `version` is the store's own: the state of the graph that the facts
    are of.
    """

    head: NDArray[np.uint32]
    relation: NDArray[np.uint16]
    tail: NDArray[np.uint32]
    weight: NDArray[np.float32]
    norm: NDArray[np.float32]
    provenance: NDArray[np.uint16]
    head_place: NDArray[np.intp]
    tail_place: NDArray[np.intp]
    asked: NDArray[np.uint32]
    counts: NDArray[np.intp] | None = None
    version: Any = field(default=None, repr=False, compare=False)

    def __len__(self) -> int:
        """How many facts."""
        return len(self.head)

    @property
    def degrees(self) -> NDArray[np.intp]:
        """(asked,): how many facts each of the asked concepts has in all; one about itself counts twice."""
        if self.counts is not None:
            return self.counts
        head, tail, size = self.head_place, self.tail_place, len(self.asked)
        counts: NDArray[np.intp] = np.bincount(head[head >= 0], minlength=size)
        counts += np.bincount(tail[tail >= 0], minlength=size)
        return counts

    @property
    def total(self) -> int:
        """How many facts the asked concepts have in all, each once; more than rows where only near ones were read."""
        if self.counts is None:
            return len(self)
        return int(self.counts.sum()) - int(np.count_nonzero((self.head_place >= 0) & (self.tail_place >= 0)))

    def between(self, some: Sequence[int], others: Sequence[int]) -> NDArray[np.bool_]:
        """Which facts have their head among some of the asked concepts and their tail among others, or the reverse."""
        # The last entry is what the place -1 of an end that was not asked for finds.
        asked = self.asked.tolist()
        one, other = (np.array([*map(frozenset(side).__contains__, asked), False]) for side in (some, others))
        head, tail = self.head_place, self.tail_place
        found: NDArray[np.bool_] = one.take(head, mode="wrap") & other.take(tail, mode="wrap")
        found |= other.take(head, mode="wrap") & one.take(tail, mode="wrap")
        return found

    def best(self, scores: NDArray[np.float32], rows: NDArray[np.intp], top: int) -> list[int]:
        """The best-scored of the rows, best first; equal ones in order of head, relation and tail."""
        if top < len(rows):
            of_rows = scores[rows]
            least = np.partition(of_rows, len(rows) - top)[len(rows) - top] if top > 0 else np.inf
            rows = rows[of_rows >= least]
        order = np.lexsort((self.tail[rows], self.relation[rows], self.head[rows], -scores[rows]))
        chosen: list[int] = rows[order[:top]].tolist()
        return chosen


def places_among(asked: NDArray[np.uint32], ends: NDArray[np.uint32]) -> NDArray[np.intp]:
    """Each end's place among the concepts asked for, in ascending order, -1 where it is none of them."""
    found = np.full(len(ends), -1)
    if not len(asked) or not len(ends):
        return found
    if len(ends) > _FEW:
        # Most facts of a hub lead to concepts that were not asked for, as their lowest bits tell.
        low = np.zeros(_LOW_BITS + 1, np.bool_)
        low[asked & _LOW_BITS] = True
        rows = np.flatnonzero(low[ends & _LOW_BITS])
        ends = ends[rows]
    else:
        rows = np.arange(len(ends))
    places = np.minimum(np.searchsorted(asked, ends), len(asked) - 1)
    right = asked[places] == ends
    found[rows[right]] = places[right]
    return found

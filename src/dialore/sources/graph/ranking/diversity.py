"""Taking facts so that no concept fills the list: each one that is taken costs its concept's other facts."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dialore.sources.graph.store.edges import Edges

_DIGITS = 4
_WIDER = 1 << 10
"""More than any two scores differ by."""


def owners(edges: Edges) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Each fact's concept, as its place among those asked for, and how many facts each of those has.

    A fact between two of them belongs to the one with fewer facts. Facts that were not read count too.
    """
    head, tail, counts = edges.head_place, edges.tail_place, edges.degrees
    owner = np.maximum(head, tail)
    both = np.flatnonzero((head >= 0) & (tail >= 0))
    one, other = head[both], tail[both]
    owner[both] = np.where(counts[one] <= counts[other], one, other)
    return owner, counts


def pool(
    edges: Edges,
    scores: NDArray[np.float32],
    owner: NDArray[np.intp],
    rows: NDArray[np.intp],
    decay: float,
    size: int,
) -> NDArray[np.intp]:
    """The best `size` of the rows, decay counted, best first; equal ones in order of head, relation and tail."""
    rows = _promising(scores, owner, rows, decay, size)
    rows = rows[np.lexsort((*_names(edges, rows), -scores[rows], owner[rows]))]
    adjusted = _adjusted(scores[rows], owner[rows], decay)
    return rows[np.lexsort((*_names(edges, rows), -adjusted))[:size]]


def _promising(
    scores: NDArray[np.float32], owner: NDArray[np.intp], rows: NDArray[np.intp], decay: float, size: int
) -> NDArray[np.intp]:
    """Those of the rows that can be among the best, whatever the order of equal ones; each concept's best ones."""
    if size >= len(rows):
        return rows
    # Equal scores of a concept share its ranks in any order, so what they are adjusted to is known without names.
    order = np.argsort(owner[rows] * np.float64(_WIDER) - scores[rows])
    rows = rows[order]
    of, values = owner[rows], scores[rows]
    adjusted = _adjusted(values, of, decay)
    kept = np.flatnonzero(adjusted >= np.partition(adjusted, len(rows) - size)[len(rows) - size])
    least = np.full(int(of[-1]) + 1, np.inf, np.float32)
    least[of[kept]] = values[kept]  # of each concept the last one, the least, stays
    return rows[values >= least[of]]


def _adjusted(scores: NDArray[np.float32], owner: NDArray[np.intp], decay: float) -> NDArray[np.float32]:
    """Scores less what those before them cost, given concept after concept, the best of each first."""
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    rank = np.arange(len(owner)) - np.repeat(first, np.diff(np.append(first, len(owner))))
    cost: NDArray[np.float32] = np.float32(decay) * np.log2(1 + rank).astype(np.float32)
    adjusted: NDArray[np.float32] = np.round(scores - cost, _DIGITS)
    return adjusted


def _names(edges: Edges, rows: NDArray[np.intp]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Keys, the least first as numpy wants them, that sort by head, relation and tail."""
    first = edges.head[rows].astype(np.uint64) << np.uint64(16)
    return edges.tail[rows], first | edges.relation[rows]


def take(
    edges: Edges,
    scores: NDArray[np.float32],
    owner: NDArray[np.intp],
    rows: NDArray[np.intp],
    decay: float,
    top: int,
    accept: Callable[[int], bool],
) -> list[tuple[int, float]]:
    """Take facts one by one, the best first; what is not accepted costs its concept nothing.

    Args:
        edges: the facts.
        scores: the score of each of the rows, in their order.
        owner: each fact's concept.
        rows: the facts to take from.
        decay: cost of a concept's k-th fact, in units of log2(1 + k).
        top: how many to take.
        accept: whether a row may be taken.

    Returns:
        Rows and what they scored, decay included, best first.
    """
    ties = np.empty(len(rows), np.intp)  # each row's place in order of head, relation and tail
    ties[np.lexsort(_names(edges, rows))] = np.arange(len(rows))
    order = np.lexsort((ties, -scores))
    queues: dict[int, list[int]] = {}
    for place, concept in zip(order.tolist(), owner[rows[order]].tolist(), strict=True):
        queues.setdefault(concept, []).append(place)
    values, ids, tie = scores.tolist(), rows.tolist(), ties.tolist()
    heap = [(-values[queue[0]], tie[queue[0]], concept, 0) for concept, queue in queues.items()]
    heapq.heapify(heap)
    costs = dict.fromkeys(queues, 0.0)
    counts = dict.fromkeys(queues, 0)
    taken: list[tuple[int, float]] = []
    while heap and len(taken) < top:
        negative, _, concept, at = heap[0]
        queue = queues[concept]
        row = ids[queue[at]]
        if accept(row):
            taken.append((row, -negative))
            counts[concept] += 1
            costs[concept] = decay * math.log2(1 + counts[concept])
        at += 1
        if at < len(queue):
            place = queue[at]
            heapq.heapreplace(heap, (-round(values[place] - costs[concept], _DIGITS), tie[place], concept, at))
        else:
            heapq.heappop(heap)
    return taken

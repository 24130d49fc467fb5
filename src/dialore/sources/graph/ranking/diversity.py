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


def best_of_each(
    scores: NDArray[np.float32], owner: NDArray[np.intp], rows: NDArray[np.intp], keep: int
) -> NDArray[np.intp]:
    """Those of the rows that can be among the best: of each concept the best `keep`, and what ties with the last."""
    of = owner[rows]
    counts = np.bincount(of)
    crowded = np.flatnonzero(counts > keep)
    if not len(crowded):
        return rows
    kept = [rows[(counts <= keep)[of]]]
    for place in crowded.tolist():
        own = rows[of == place]
        values = scores[own]
        kept.append(own[values >= np.partition(values, len(values) - keep)[len(values) - keep]])
    return np.concatenate(kept)


def pool(
    edges: Edges,
    scores: NDArray[np.float32],
    owner: NDArray[np.intp],
    rows: NDArray[np.intp],
    decay: float,
    size: int,
) -> NDArray[np.intp]:
    """The best `size` of the rows, decay counted, best first; equal ones in order of head, relation and tail."""
    rows = best_of_each(scores, owner, rows, size)
    rows = rows[np.lexsort((*_names(edges, rows), -scores[rows], owner[rows]))]
    of = owner[rows]
    first = np.flatnonzero(np.diff(of, prepend=-1))
    rank = np.arange(len(rows)) - np.repeat(first, np.diff(np.append(first, len(rows))))
    adjusted = np.round(scores[rows] - np.float32(decay) * np.log2(1 + rank).astype(np.float32), _DIGITS)
    if size < len(rows):
        place = len(rows) - size
        near = adjusted >= np.partition(adjusted, place)[place]
        rows, adjusted = rows[near], adjusted[near]
    return rows[np.lexsort((*_names(edges, rows), -adjusted))[:size]]


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

"""Vectors of concepts and facts, from a static embedder whose vectors add up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dialore.retrieval.graph.relations import connecting_words
from dialore.text import is_chinese

if TYPE_CHECKING:
    from dialore.retrieval.static import StaticEmbedder

_FACTS_AT_ONCE = 512
"""Vectors added up at once, few enough for a processor's cache."""
_CACHED_WORDS = 500_000
"""Words whose parts are cached, about 100 MB."""
_NO_PART = bytes(4)


def unpack_parts(block: bytes, width: int) -> tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.uint32]]:
    """Return the rows of a block of parts, shape (n, width), their scales, and their numbers in the embedder."""
    count = len(block) // (width + 8)
    rows = np.frombuffer(block, np.int8, count * width).reshape(-1, width)
    scales = np.frombuffer(block, "<f4", count, count * width)
    numbers = np.frombuffer(block, "<u4", count, count * (width + 4))
    return rows, scales, numbers


def sum_parts(
    rows: NDArray[np.int8], scales: NDArray[np.float32], parts: NDArray[np.uint32], counts: NDArray[np.intp]
) -> NDArray[np.float32]:
    """Return the sums of consecutive parts, shape (n, dimension); `counts` is the number of parts of each sum."""
    vectors = rows.take(parts, axis=0).astype(np.float32)
    vectors *= scales.take(parts)[:, None]
    starts = np.cumsum(counts) - counts
    total: NDArray[np.float32] = vectors[starts]
    for position in range(1, int(counts.max())):  # the second part of those that have one, then the third
        more = np.flatnonzero(counts > position)
        total[more] += vectors[starts[more] + position]
    return total


class PartNumbers:
    """Numbers the parts of a graph by first use.

    Args:
        embedder: The embedder of the graph.
        known: The embedder's numbers of the parts that the graph already has.
    """

    def __init__(self, embedder: StaticEmbedder, known: Sequence[int] = ()) -> None:
        self._embedder = embedder
        self._first = max(1, len(known))
        self._numbers = {part: number for number, part in enumerate(known) if number}
        self._words: dict[str, bytes] = {}

    def __call__(self, names: Sequence[str]) -> list[bytes]:
        """Return the packed part numbers of each name; that of the zero vector for an unknown name."""
        # The tokens of Chinese depend on their context; other names are split into words that are cached.
        split = [[name] if is_chinese(name) else name.split() for name in names]
        if len(self._words) > _CACHED_WORDS:
            self._words.clear()
        new_words = list({word: None for words in split for word in words if word not in self._words})
        for word, parts in zip(new_words, self._embedder.parts(new_words), strict=True):
            numbers = [self._numbers.setdefault(part, len(self._numbers) + 1) for part in parts.tolist()]
            self._words[word] = np.array(numbers, "<u4").tobytes()
        return [b"".join([self._words[word] for word in words]) or _NO_PART for words in split]

    def block(self) -> tuple[int, bytes]:
        """Return the number of the first new part and the packed block of all new parts, empty if there are none."""
        new = np.array([part for part, number in self._numbers.items() if number >= self._first], np.int64)
        sums = self._embedder.part_sums(new)
        values = sums.astype(np.float32)
        peaks = np.maximum(np.abs(values).max(axis=1, initial=0), 1e-6)
        # A token's sum is its int8 vector times an integer weight: dividing by that weight loses nothing.
        weights = np.gcd.reduce(sums, axis=1) if len(sums) else np.empty(0, np.int64)
        scales = np.where((weights > 0) & (peaks <= 127 * weights), weights, peaks / 127).astype(np.float32)
        rows = np.rint(values / scales[:, None]).astype(np.int8)
        if self._first > 1:
            return self._first, _pack_parts(rows, scales, new)
        # The first part of a graph is the zero vector.
        rows = np.concatenate([np.zeros((1, rows.shape[1]), np.int8), rows])
        return 0, _pack_parts(rows, np.append(np.float32(1), scales), np.append(0, new))


def _pack_parts(rows: NDArray[np.int8], scales: NDArray[np.float32], numbers: NDArray[np.int64]) -> bytes:
    return rows.tobytes() + scales.astype("<f4").tobytes() + numbers.astype("<u4").tobytes()


def relation_sums(relations: Sequence[str], embedder: StaticEmbedder, *, triples: bool = False) -> NDArray[np.float32]:
    """Return the unnormalised vector of each relation's words, shape (n, dimension).

    With `triples`, the vector of the characters that a triple has in addition to its ends.
    """
    # Both languages share a vector space, so the English wording serves the facts of both.
    between = [f"( , {relation} , )" if triples else connecting_words(relation) for relation in relations]
    return embedder.sums(between).astype(np.float32)


def fact_norms(
    head: NDArray[np.integer[Any]],
    relation: NDArray[np.integer[Any]],
    tail: NDArray[np.integer[Any]],
    sums: Callable[[NDArray[Any]], NDArray[np.float32]],
    relations: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Return the length of each fact's vector, never 0; `sums` returns the vectors of concepts."""
    norms = np.empty(len(head), np.float32)
    for start in range(0, len(norms), _FACTS_AT_ONCE):
        rows = slice(start, start + _FACTS_AT_ONCE)
        total = sums(head[rows])
        total += sums(tail[rows])
        total += relations[relation[rows]]
        norms[rows] = np.sqrt(np.einsum("ij,ij->i", total, total))
    return np.maximum(norms, np.float32(1e-6))

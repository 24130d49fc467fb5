"""Nearest vectors among a hundred thousand and more: a sketch of a few bytes a vector chooses, exact cosines rank.

A vector's sketch is the signs of a random rotation of it (Charikar, 2002: two vectors' sketches differ in as many bits
as the angle between them says). The rows whose sketches differ least from the query's are then ranked by their exact
int8 cosines. The rotation is random signs before a Walsh-Hadamard transform, which every machine works out alike.
"""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING

import numpy as np

from dialore.retrieval.ranking import DECIMALS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.retrieval.ranking import Quantised

FEW = 16_384
"""Up to so many vectors all are compared exactly."""
_CANDIDATES = 2_000
_SHARE = 50
_BLOCK = 512
_ROWS_AT_ONCE = 32_768
_WORDS_IN_A_BYTE = 3  # of 64 bits each: 192 fit a byte, 256 do not
_SAMPLED = 17  # no divisor of periods that texts may have


@functools.lru_cache(maxsize=8)
def _rotation(dimension: int) -> NDArray[np.float32]:
    """(dimension, bits): random signs, then Walsh-Hadamard; bits is the next power of two, 64 at least."""
    bits = max(64, 1 << (dimension - 1).bit_length())
    transform = np.ones((1, 1), dtype=np.float32)
    while len(transform) < bits:
        transform = np.block([[transform, transform], [transform, -transform]])
    noise = hashlib.shake_256(b"dialore sketch").digest(dimension)
    signs = np.where(np.frombuffer(noise, np.uint8) & 1, 1.0, -1.0).astype(np.float32)
    rotated: NDArray[np.float32] = signs[:, None] * transform[:dimension]
    return rotated


def words_of(dimension: int) -> int:
    """How many 64-bit words a sketch of a vector with that many components has."""
    return max(64, 1 << (dimension - 1).bit_length()) // 64


def sketch(vectors: NDArray[np.float32]) -> NDArray[np.uint64]:
    """(n, words): the sketches of vectors (n, dimension)."""
    signs = vectors @ _rotation(vectors.shape[1]) > 0
    return np.packbits(signs, axis=1).view(np.uint64)


def nearest(
    queries: NDArray[np.float32],
    quantised: Quantised,
    columns: NDArray[np.uint64] | None,
    top: int,
    dead: NDArray[np.bool_] | None = None,
) -> list[list[tuple[int, float]]]:
    """For each query the rows with the highest cosines above zero, the best first, ties by row.

    The sketches are read once for all queries; a query's rows do not depend on the others.
    Measured on 100,000 sentences under the static embedder: of the exact top 10 it has 99.5%, of the top 50 97.5%.

    Args:
        queries: (m, dimension), of unit length.
        quantised: the rows.
        columns: (words, n): the rows' sketches, a word after the other; None compares all rows.
        top: how many at most.
        dead: (n,): rows that do not count.
    """
    size = len(quantised)
    wanted = max(_CANDIDATES, size // _SHARE, 10 * top)
    if columns is None or size <= max(FEW, wanted) or not hasattr(np, "bitwise_count"):
        return [_best(_living(_cosines(query, quantised, None), dead), np.arange(size), top) for query in queries]
    found: list[list[tuple[int, float]]] = []
    for query, differing in zip(queries, _differing(sketch(queries), columns), strict=True):
        if dead is not None:
            differing[dead] = columns.shape[0] * 64
        rows = _least(differing, wanted)
        scores = _living(_cosines(query, quantised, rows), None if dead is None else dead[rows])
        found.append(_best(scores, rows, top))
    return found


def _living(scores: NDArray[np.float32], dead: NDArray[np.bool_] | None) -> NDArray[np.float32]:
    if dead is not None:
        scores[dead] = 0.0
    return scores


def _differing(asked: NDArray[np.uint64], columns: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """(m, n): in how many bits each row's sketch differs from that of each of m queries."""
    words, size = columns.shape
    total = np.zeros((len(asked), size), dtype=np.uint16)
    # As many rows at a time as stay in the processor's cache, word by word, for all queries.
    step = max(_ROWS_AT_ONCE // len(asked), _BLOCK)
    room = tuple(np.empty((len(asked), step), dtype=kind) for kind in (np.uint64, np.uint8, np.uint8))
    for start in range(0, size, step):
        here = total[:, start : start + step]
        rows = here.shape[1]
        apart, bits, more = (each[:, :rows] for each in room)
        for word in range(words):
            np.bitwise_xor(columns[word, start : start + rows], asked[:, word, None], out=apart)
            fresh = word % _WORDS_IN_A_BYTE == 0
            np.bitwise_count(apart, out=bits if fresh else more)
            if not fresh:
                np.add(bits, more, out=bits)
            if word % _WORDS_IN_A_BYTE == _WORDS_IN_A_BYTE - 1 or word == words - 1:
                np.add(here, bits, out=here)
    return total


def _least(differing: NDArray[np.uint16], wanted: int) -> NDArray[np.int64]:
    """The rows that differ least: at least `wanted`, with all that differ as little as the last of them."""
    # A sample says about where the edge lies; then only what is below it is counted.
    edge = int(np.bincount(differing[::_SAMPLED]).cumsum().searchsorted(wanted / _SAMPLED)) + 1
    while np.count_nonzero(near := differing <= edge) < wanted:
        edge += 1
    rows = near.nonzero()[0]
    below = differing[rows]
    return rows[below <= np.bincount(below).cumsum().searchsorted(wanted)]


def _cosines(query: NDArray[np.float32], quantised: Quantised, rows: NDArray[np.int64] | None) -> NDArray[np.float32]:
    """Cosines of the rows; of all where None. Widened block by block, in memory that stays in the processor's cache."""
    size = len(quantised) if rows is None else len(rows)
    scores = np.empty(size, dtype=np.float32)
    wide = np.empty((min(_BLOCK, size), quantised.vectors.shape[1]), dtype=np.float32)
    narrow = np.empty_like(wide, dtype=np.int8)
    for start in range(0, size, _BLOCK):
        here = scores[start : start + _BLOCK]
        if rows is None:
            block = quantised.vectors[start : start + _BLOCK]
        else:
            block = narrow[: len(here)]
            np.take(quantised.vectors, rows[start : start + _BLOCK], axis=0, out=block, mode="clip")
        np.copyto(wide[: len(here)], block)
        np.matmul(wide[: len(here)], query, out=here)
    return scores * (quantised.scales if rows is None else quantised.scales[rows])


def _best(raw: NDArray[np.float32], rows: NDArray[np.int64], top: int) -> list[tuple[int, float]]:
    scores = np.round(raw, DECIMALS)
    top = min(top, int(np.count_nonzero(scores > 0)))
    if top <= 0:
        return []
    edge = np.partition(scores, len(scores) - top)[len(scores) - top]
    candidates = np.flatnonzero(scores >= edge)
    chosen = candidates[np.lexsort((rows[candidates], -scores[candidates]))[:top]]
    rounded = np.round(scores[chosen].astype(np.float64), DECIMALS)
    return list(zip(rows[chosen].tolist(), rounded.tolist(), strict=True))

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
    query: NDArray[np.float32],
    quantised: Quantised,
    columns: NDArray[np.uint64] | None,
    top: int,
    dead: NDArray[np.bool_] | None = None,
) -> list[tuple[int, float]]:
    """The rows with the highest cosines above zero, the best first, ties by row.

    Measured on 100,000 sentences under the static embedder: of the exact top 10 it has 99.5%, of the top 50 97.5%.

    Args:
        query: (dimension,), of unit length.
        quantised: the rows.
        columns: (words, n): the rows' sketches, a word after the other; None compares all rows.
        top: how many at most.
        dead: (n,): rows that do not count.
    """
    size = len(quantised)
    wanted = max(_CANDIDATES, size // _SHARE, 10 * top)
    if columns is None or size <= max(FEW, wanted) or not hasattr(np, "bitwise_count"):
        scores = _cosines(query, quantised, None)
        if dead is not None:
            scores[dead] = 0.0
        return _best(scores, np.arange(size), top)
    differing = _differing(sketch(query[None])[0], columns)
    if dead is not None:
        differing[dead] = columns.shape[0] * 64
    counts = np.cumsum(np.bincount(differing))
    rows = np.flatnonzero(differing <= int(np.searchsorted(counts, wanted)))
    scores = _cosines(query, quantised, rows)
    if dead is not None:
        scores[dead[rows]] = 0.0
    return _best(scores, rows, top)


def _differing(asked: NDArray[np.uint64], columns: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """(n,): in how many bits each row's sketch differs from the query's."""
    # Column by column, so that no copy of all of them is made.
    total: NDArray[np.uint16] = np.bitwise_count(columns[0] ^ asked[0]).astype(np.uint16)
    apart = np.empty_like(columns[0])
    for column, word in zip(columns[1:], asked[1:], strict=True):
        np.bitwise_xor(column, word, out=apart)
        total += np.bitwise_count(apart)
    return total


def _cosines(query: NDArray[np.float32], quantised: Quantised, rows: NDArray[np.int64] | None) -> NDArray[np.float32]:
    """Cosines of the rows; of all where None. Widened block by block, in memory that stays in the processor's cache."""
    size = len(quantised) if rows is None else len(rows)
    scores = np.empty(size, dtype=np.float32)
    wide = np.empty((min(_BLOCK, size), quantised.vectors.shape[1]), dtype=np.float32)
    for start in range(0, size, _BLOCK):
        part: slice | NDArray[np.int64] = slice(start, start + _BLOCK) if rows is None else rows[start : start + _BLOCK]
        block = quantised.vectors[part]
        np.copyto(wide[: len(block)], block)
        scores[start : start + len(block)] = wide[: len(block)] @ query
    return scores * (quantised.scales if rows is None else quantised.scales[rows])


def _best(raw: NDArray[np.float32], rows: NDArray[np.int64], top: int) -> list[tuple[int, float]]:
    scores = np.round(raw, DECIMALS)
    top = min(top, int(np.count_nonzero(scores > 0)))
    if top <= 0:
        return []
    edge = np.partition(scores, len(scores) - top)[len(scores) - top]
    candidates = np.flatnonzero(scores >= edge)
    order = np.lexsort((rows[candidates], -scores[candidates]))[:top]
    return [(int(rows[at]), round(float(scores[at]), DECIMALS)) for at in candidates[order]]

"""Unit vectors from integer vectors, the same to the bit on every machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BITS = 26


def normalise(sums: NDArray[np.int64]) -> NDArray[np.float32]:
    """Divide each integer row (n, d) by its Euclidean length; a zero row stays zero.

    The squares are added as integers; the square root and the division are fixed to the bit by IEEE 754. Rows of a very
    long text are first scaled down by a power of two, so that their squares fit 63 bits (d up to 2,048).
    """
    peaks = np.abs(sums).max(axis=1, initial=0)
    shifts = np.zeros(len(sums), dtype=np.int64)
    while (excess := (peaks >> shifts) >> _BITS != 0).any():
        shifts[excess] += 1
    small = sums >> shifts[:, None]
    squares = np.einsum("ij,ij->i", small, small)
    lengths = np.sqrt(np.maximum(squares, 1).astype(np.float64))
    unit: NDArray[np.float32] = (small / lengths[:, None]).astype(np.float32)
    return unit

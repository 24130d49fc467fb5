"""Ranking: exact cosines, the best of some scores, and fusion: of BM25 with cosines by score, of rankings by rank.

Scores are rounded to `DECIMALS` before they are compared, and ties broken by position: a matrix product's last digits
differ between machines, and equally good items would change places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dialore.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    Item = TypeVar("Item", bound=Hashable)

K = 60.0
"""The constant of reciprocal ranks in the paper: how little the first ranks stand out."""
COSINE_WEIGHT = 1.5
"""The weight of a cosine beside a BM25 score of which the best text has 1 (`scripts/measure_fusion.py`)."""
DECIMALS = 4
"""Decimals of a score: coarser than float32's error in a dot product of unit vectors, finer than any meaning."""


class Quantised(NamedTuple):
    """Unit vectors at a quarter of the memory: row i of (n, d) is `vectors[i] * scales[i]`."""

    vectors: NDArray[np.int8]
    scales: NDArray[np.float32]


def quantise(vectors: NDArray[np.float32]) -> Quantised:
    """Store float rows (n, d) as int8, each row with its own scale; a zero row stays zero."""
    peaks = np.abs(vectors).max(axis=1, initial=0.0)
    scales = (np.where(peaks > 0, peaks, 1.0) / 127).astype(np.float32)
    return Quantised(np.rint(vectors / scales[:, None]).astype(np.int8), scales)


def rank_quantised(
    query: NDArray[np.float32], quantised: Quantised, top: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the indices and scores of the `top` int8 rows nearest to a float query (d,) by dot product; see `best`.

    All rows are first compared as int8; those that rounding may have kept from the best are then scored in full.
    """
    top = min(top, len(quantised.scales))
    if top <= 0:
        return best(np.zeros(0, np.float32), top)
    import numkong

    coarse = quantise(query[None])
    products = np.asarray(numkong.cdist(coarse.vectors, quantised.vectors, "dot", out_dtype="float32"))[0]
    near = products * (quantised.scales * coarse.scales[0])
    # Cauchy-Schwarz: the query's rounding by a row, a unit vector that is off by half its scale at most in each place.
    lost = float(np.linalg.norm(query - coarse.vectors[0] * coarse.scales[0]))
    margin = 2 * lost * (1 + len(query) ** 0.5 / 254) + 10.0**-DECIMALS
    places = np.flatnonzero(near >= np.partition(near, len(near) - top)[len(near) - top] - margin)
    full = np.einsum("ij,j->i", quantised.vectors[places].astype(np.float32), query) * quantised.scales[places]
    order, scores = best(full, top)
    return places[order], scores


def unit(rows: NDArray[Any]) -> NDArray[np.float32]:
    """Return rows at length one; a zero row stays."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    scaled: NDArray[np.float32] = (rows / np.maximum(lengths, 1e-6)[:, None]).astype(np.float32)
    return scaled


def best(raw: NDArray[Any], top: int, *, decimals: int = DECIMALS) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the indices of the `top` highest scores and these, rounded, of equal ones the first first."""
    if top < 0:
        raise InputError(f"top must not be negative, got {top}")
    scores = np.round(raw, decimals)
    top = min(top, len(scores))
    if top == 0:
        return np.zeros(0, dtype=np.int64), scores[:0]
    # Everything that ties with the last one in must be sorted too, or the ties at the edge would fall by chance.
    edge = np.partition(scores, len(scores) - top)[len(scores) - top]
    candidates = np.flatnonzero(scores >= edge)
    order = candidates[np.argsort(-scores[candidates], kind="stable")[:top]]
    return order, scores[order]


def fuse_scores(lexical: NDArray[np.float64], cosines: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fuse BM25 scores, as shares of the best, with cosines, both (texts,); 1 is the best with a cosine of 1."""
    peak = lexical.max(initial=0.0)
    shares = lexical / peak if peak > 0 else np.zeros_like(lexical)
    fused: NDArray[np.float64] = (shares + COSINE_WEIGHT * cosines) / (1 + COSINE_WEIGHT)
    return fused


def fuse_lists(
    by_terms: Sequence[tuple[Item, float]], near: Sequence[tuple[Item, float]], depth: int
) -> list[tuple[Item, float]]:
    """Fuse the `depth` best by BM25 and by cosine as `fuse_scores` does; what one lacks counts there as its last."""
    lexical, cosines = dict(by_terms), dict(near)
    without_terms = by_terms[-1][1] if len(by_terms) >= depth else 0.0
    far = near[-1][1] if near else 0.0
    items = list(dict.fromkeys([*lexical, *cosines]))
    scores = fuse_scores(
        np.array([lexical.get(item, without_terms) for item in items]),
        np.array([cosines.get(item, far) for item in items]),
    )
    order, fused = best(scores, len(items), decimals=6)
    return [(items[at], score) for at, score in zip(order.tolist(), fused.tolist(), strict=True)]


def reciprocal_ranks(rankings: Iterable[Sequence[Item]]) -> list[tuple[Item, float]]:
    """Fuse rankings by the sum of `1 / (K + rank)` (Cormack, Clarke and Buettcher, SIGIR 2009), the best first."""
    scores: dict[Item, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(dict.fromkeys(ranking), start=1):
            scores[item] = scores.get(item, 0.0) + 1 / (K + rank)
    # Compared rounded, so that the same ranks in another order are equal whatever the order of their sum.
    return sorted(scores.items(), key=lambda pair: -round(pair[1], 12))

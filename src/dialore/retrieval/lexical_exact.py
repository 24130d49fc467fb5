"""Exact BM25 in memory: any k1 and b, no optional library; for sets that one process reads and cuts itself."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

DECIMALS = 4
"""Decimals of a score."""


class ExactBm25:
    """Postings with their weights worked out beforehand, so that a query only adds them up.

    The weight of a term t in a text d of n, as Lucene and tantivy have it (Robertson and Zaragoza 2009, Section 3.4,
    with the 1 inside the logarithm that keeps it positive):
    `ln(1 + (n - n_t + .5) / (n_t + .5)) * f (k1 + 1) / (f + k1 (1 - b + b |d| / mean))`.

    Args:
        cut: each text's terms.
        k1: how slowly a term's count saturates.
        b: how much a text's length counts.
    """

    def __init__(self, cut: Iterable[Sequence[str]], k1: float, b: float) -> None:
        number_of: dict[str, int] = {}
        terms: list[int] = []
        counts: list[int] = []
        distinct: list[int] = []
        lengths: list[int] = []
        for tokens in cut:
            tally = Counter(tokens)
            terms += [number_of.setdefault(term, len(number_of)) for term in tally]
            counts += tally.values()
            distinct.append(len(tally))
            lengths.append(len(tokens))
        self._number_of = number_of
        self.size = len(lengths)
        rows = np.repeat(np.arange(self.size, dtype=np.int32), distinct)
        kinds = np.array(terms, dtype=np.int64)
        order = np.argsort(kinds, kind="stable")
        having = np.bincount(kinds, minlength=len(number_of))
        self._ends = np.concatenate([[0], np.cumsum(having)])
        self._rows = rows[order]
        rarity = np.log(1 + (self.size - having + 0.5) / (having + 0.5))
        length = np.array(lengths, dtype=np.float64)
        damping = k1 * (1 - b + b * length / max(length.mean() if self.size else 0.0, 1e-9))
        count = np.array(counts, dtype=np.float64)[order]
        self._weights = rarity[kinds[order]] * count * (k1 + 1) / (count + damping[self._rows])

    def scores(self, terms: Iterable[str]) -> NDArray[np.float64]:
        """(n,): every text's score; a term that is asked twice counts twice."""
        scores = np.zeros(self.size)
        for term, times in Counter(terms).items():
            number = self._number_of.get(term)
            if number is not None:
                part = slice(self._ends[number], self._ends[number + 1])
                scores[self._rows[part]] += times * self._weights[part]
        return scores

    def best(self, terms: Iterable[str], top: int) -> list[tuple[int, float]]:
        """The rows and scores of the `top` texts that have any of the terms, the best first, ties by row."""
        return best_rows(self.scores(terms), top)


def best_rows(raw: NDArray[np.float64], top: int) -> list[tuple[int, float]]:
    """The rows with the highest scores above zero, ties by row; scores are compared at four decimals."""
    scores = np.round(raw, DECIMALS)
    top = min(top, int(np.count_nonzero(scores > 0)))
    if top <= 0:
        return []
    edge = np.partition(scores, len(scores) - top)[len(scores) - top]
    candidates = np.flatnonzero(scores >= edge)
    order = np.lexsort((candidates, -scores[candidates]))[:top]
    return [(int(row), float(scores[row])) for row in candidates[order]]

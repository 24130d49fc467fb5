"""Other views of the same facts, and their fusion by reciprocal ranks."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

_K1, _B = 1.2, 0.4
"""BM25's saturation and length correction; facts are short, so their lengths say little."""
_OFTEN = 3
"""A word of the question counts so many times at most."""
_K = 60
"""Of reciprocal-rank fusion (Cormack, Clarke and Büttcher, 2009)."""


def bm25(documents: Sequence[Sequence[str]], query: Iterable[str]) -> NDArray[np.float32]:
    """(n,): BM25 of a few documents, given as words, with a question; exact, and made for hundreds, not millions.

    Args:
        documents: the words of each.
        query: the question's words.
    """
    wanted = Counter(query)
    counts = [Counter(words) for words in documents]
    having = Counter(word for count in counts for word in count)
    size = len(documents)
    mean = sum(map(len, documents)) / max(1, size) or 1.0
    rarity = {word: math.log(1 + (size - n + 0.5) / (n + 0.5)) for word, n in having.items() if word in wanted}
    scores = np.zeros(size, np.float32)
    for at, count in enumerate(counts):
        long = _K1 * (1 - _B + _B * len(documents[at]) / mean)
        scores[at] = sum(
            rarity[word] * n * (_K1 + 1) / (n + long) * min(wanted[word], _OFTEN)
            for word, n in count.items()
            if word in rarity
        )
    return scores


def fused(rankings: Sequence[tuple[NDArray[np.float32], float]]) -> NDArray[np.float32]:
    """(n,): reciprocal-rank fusion of several scorings of the same n things, 1 for what is first in all of them.

    Args:
        rankings: scores, the higher the better, and their weights; equal scores share the better rank.
    """
    total = np.zeros(len(rankings[0][0]), np.float32)
    for scores, weight in rankings:
        total += np.float32(weight) * np.float32(_K + 1) / (np.float32(_K + 1) + _better(scores))
    return total / np.float32(sum(weight for _, weight in rankings))


def _better(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """How many of the scores are better than each."""
    rising = np.sort(scores)
    return (len(scores) - np.searchsorted(rising, scores, side="right")).astype(np.float32)

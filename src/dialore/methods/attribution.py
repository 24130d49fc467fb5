"""Attribution: the knowledge of which a response says what neither the history nor the draft had said."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dialore.retrieval.static import normalise, static_embedder
from dialore.text import Language, is_stop_word, words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.knowledge import Knowledge

    Vector = NDArray[np.float64]

_UNLIKE, _ALIKE = 0.5, 0.8  # the cosines of two words from which one says something of the other, and all of it
_RUN: dict[Language, int] = {"en": 4, "zh": 5}  # words, or Chinese characters, in a row that are a quotation
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class _Told:
    """The fate of a text's words in a response, each weighed by how rare it is.

    So much of it is `new`, of which the response has `told` so much, a `share` of that; of all of it, it has `said`
    that share, new or not.
    """

    new: float
    told: float
    share: float
    said: float


def is_drawn_on(piece: Knowledge, text: str, before: Sequence[str], language: Language) -> bool:
    """Return whether a response says what is specific to a piece of knowledge and was not said before.

    A fact is drawn on where its tail is news and told, or where its head is and the tail is said as well; anything else
    where much of what is news is told, by words alike, or where it is quoted. What states other numbers than the
    response, and none of its own, is about something else, however alike the words are.
    """
    earlier = "\n".join(before)
    numbers, stated = ({*_NUMBER.findall(sentence)} - {*_NUMBER.findall(earlier)} for sentence in (piece.text, text))
    if numbers and stated and not numbers & stated:
        return False
    if piece.kind == "fact":
        head, tail = (_told(end, text, earlier) for end in (piece.fact.head, piece.fact.tail))
        told = tail.told >= 0.2 and tail.share >= 0.44 and head.new - head.told < 0.67 * tail.told
        return told or (head.told >= 0.3 and head.share >= 0.8 and tail.said >= 0.5)
    told_of = _told(piece.text, text, earlier)
    if told_of.told * told_of.share**0.5 >= 0.5:
        return True
    return bool((_runs(piece.text, language) & _runs(text, language)) - _runs(earlier, language))


def _told(piece: str, text: str, earlier: str) -> _Told:
    vectors, weights = _read(piece)
    new_likeness, old = (_likeness(vectors, _read(other)[0]) for other in (text, earlier))
    whole = float(weights.sum())
    new, told = whole - float(weights @ old), float(weights @ np.maximum(new_likeness - old, 0))
    return _Told(new, told, told / new if new > 0 else 0.0, float(weights @ new_likeness) / whole if whole else 0.0)


def _likeness(these: NDArray[np.float32], those: NDArray[np.float32]) -> Vector:
    """For each of these words, how far the nearest of those says it: 0 to 1."""
    if not len(those):
        return np.zeros(len(these))
    nearest = (these @ those.T).max(axis=1).astype(np.float64)
    share: Vector = np.clip((nearest - _UNLIKE) / (_ALIKE - _UNLIKE), 0, 1)
    return share


@functools.lru_cache(maxsize=1024)
def _read(text: str) -> tuple[NDArray[np.float32], Vector]:
    """Return the vector of each distinct word of a text, and its weight: long for a rare word, short for others."""
    sums = static_embedder().part_sums(np.unique(static_embedder().parts([text])[0]))
    return normalise(sums), np.sqrt(np.einsum("ij,ij->i", sums, sums).astype(np.float64)) * 1e-6


@functools.lru_cache(maxsize=1024)
def _runs(text: str, language: Language) -> frozenset[tuple[str, ...]]:
    """Return every run of so many words that has two of content; of characters where it is Chinese."""
    tokens = words(text, language) if language == "en" else [*"".join(words(text, language))]
    runs = zip(*(tokens[start:] for start in range(_RUN[language])), strict=False)
    return frozenset(run for run in runs if sum(not is_stop_word(word, language) for word in run) > 1)

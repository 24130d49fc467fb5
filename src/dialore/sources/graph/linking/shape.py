"""How well a concept's function words fit those of a phrase: "day off" is "take a day off", "day" is neither."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from dialore.text import lemma, stop_words, words

if TYPE_CHECKING:
    from collections.abc import Sequence

LIGHT = frozenset(("a", "an", "the", "to", "of", "my", "your", "his", "her", "our", "their", "its", "s"))
"""Words that make no difference wherever they stand."""
PARTICLES = frozenset((
    "up", "down", "off", "out", "over", "away", "back",
))  # fmt: skip
"""Words that belong to the verb before them."""
_FREE = frozenset((
    "be", "i", "me", "you", "he", "him", "she", "they", "them", "it", "we", "us", "one", "that", "this",
    "these", "those", "some", "any", "each", "every", "all", "both", "will", "would", "can", "could", "may",
    "might", "shall", "should", "so", "very", "just", "really", "also", "too", "there", "who", "which", "when",
))  # fmt: skip
"""Words that a concept may have and its phrase not: "lonely" is "be lonely"."""
_PREPOSITIONS = frozenset((
    "at", "in", "on", "for", "from", "with", "by", "into", "about", "during",
))  # fmt: skip
"""The same before the first content word: "the old days" are "in old day"."""
_VERBS = frozenset((
    "get", "have", "do", "go", "make", "take", "be",
))  # fmt: skip
"""The same before two content words or more: "job interview" is "have job interview"."""
_WEIGHTY = frozenset((
    "get", "have", "do", "go", "make", "take", "put", "give", "keep", "let", "come", "say", "tell", "think",
    "know", "want", "mean", "see", "look", "seem", "up", "down", "off", "out", "over", "on", "away", "back",
    "not", "no", "never", "without", "before", "after", "than", "against", "between", "under", "above",
    "nothing", "none",
))  # fmt: skip
"""Function words that change what is meant."""
_BARRIERS = frozenset((
    "and", "or", "but", "nor", "without", "before", "after", "from", "against", "than", "between", "not", "no",
    "about", "during",
))  # fmt: skip
"""Words of the phrase that part what stands on their two sides."""

Segments = tuple[tuple[str, ...], ...]


class Word(NamedTuple):
    """A word of a phrase: as it is said, its lemma, and whether it is a content word."""

    form: str
    lemma: str
    content: bool


class Shape(NamedTuple):
    """A phrase as its content lemmas and the function lemmas around and between them."""

    content: tuple[str, ...]
    segments: Segments


class Fit(NamedTuple):
    """How a concept's function words fit a phrase's.

    Attributes:
        matched: words that matter and are in both.
        extra: what the concept's own words cost.
        missing: the phrase's words that matter and are not the concept's.
    """

    matched: int
    extra: int
    missing: int


@functools.lru_cache(maxsize=65536)
def read(text: str) -> tuple[Word, ...]:
    """The words of an English text."""
    stop = stop_words("en")
    return tuple(Word(word, lemma(word, "en"), len(word) > 1 and word not in stop) for word in words(text, "en"))


def segments(found: Sequence[Word]) -> Segments:
    """Lemmas of the function words before, between and after the content words, without the light ones."""
    parts: list[list[str]] = [[]]
    for word in found:
        if word.content:
            parts.append([])
        elif word.form not in LIGHT:
            parts[-1].append(word.lemma)
    return tuple(map(tuple, parts))


@functools.lru_cache(maxsize=65536)
def shape(text: str) -> Shape:
    """The shape of a concept's name."""
    found = read(text)
    return Shape(tuple(word.lemma for word in found if word.content), segments(found))


@functools.lru_cache(maxsize=1 << 17)
def fit(concept: Segments, phrase: Segments) -> Fit | None:
    """How the function words of a concept fit those of a phrase with the same content words; None: another thing."""
    matched = extra = missing = 0
    last = len(phrase) - 1
    for place, (own, said) in enumerate(zip(concept, phrase, strict=True)):
        if not own and not said:
            continue
        both, more, left = _compare(own, said)
        costs = [_cost(word, place, last) for word in more]
        if None in costs or (0 < place < last and not _BARRIERS.isdisjoint(left)):
            return None
        matched += sum(_weighty(word, place) for word in both)
        extra += sum(cost or 0 for cost in costs)
        missing += sum(_weighty(word, place) for word in left)
    return Fit(matched, extra, missing)


def _weighty(word: str, place: int) -> bool:
    """Whether a function word changes what is meant; single letters do ("t-shirt"), prepositions after the verb do."""
    return (word in _WEIGHTY and not (place == 0 and word in _PREPOSITIONS)) or len(word) == 1


def _compare(own: Sequence[str], said: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Words in both, in order; the concept's others; the phrase's others."""
    both, more, left, at = [], [], list(said), 0
    for word in own:
        if word in said[at:]:
            at = said.index(word, at) + 1
            both.append(word)
            left.remove(word)
        else:
            more.append(word)
    return both, more, left


def _cost(word: str, place: int, last: int) -> int | None:
    """What a function word of the concept costs that the phrase does not have; None: it makes another thing of it."""
    if word in _FREE:
        return 1
    if place == 0 and word in _PREPOSITIONS:
        return 1
    if place == 0 and word in _VERBS and last > 1:
        return 2
    return None

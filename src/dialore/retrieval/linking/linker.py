"""From phrases to the graph's concepts: exact, by lemmas, by stems, by the longest concepts inside, by embedding."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dialore.retrieval.fusion import unit
from dialore.retrieval.linking.english import EnglishReader, How, Match, Reading, names
from dialore.text import content_words, is_chinese, normalise, segments

if TYPE_CHECKING:
    from dialore.retrieval.embedding import Embedder
    from dialore.retrieval.graph.store import GraphStore
    from dialore.retrieval.linking.chinese import ChineseReader

# How often links of each kind are right on the development half of our labelled phrases, one of each added to the
# right and to the wrong ones; an exact one is what the phrase says. Nearest: of all phrases with one so near.
_SCORE: dict[How, float] = {"exact": 1.0, "lemma": 0.96, "variant": 0.91, "contained": 0.98, "nearest": 0.88}
_REMEMBERED = 50_000
THRESHOLD = 0.95
"""The least cosine of a link. On the development half of our labelled phrases the nearest concept is an accepted one
for 95% of the English and 86% of the Chinese phrases above it, and for 80% and 84% of those above .8."""
_QUICK = 15_000  # concepts up to which a look at all of them takes about 2 ms
_CHUNK = 4096
_EDGES = " .,!?;:。，！？；：、\"'“”‘’()（）"
_LATIN = re.compile(r"[a-z][a-z0-9' -]*[a-z0-9]")


@dataclass(frozen=True, slots=True)
class Link:
    """A phrase's link to a concept.

    Attributes:
        phrase: what was to be linked.
        concept: the concept's id in its graph.
        name: the concept as the graph writes it.
        how: `exact`, the same normal form, hyphens aside; `lemma`, the same content lemmas and no other function words
            that matter; `variant`, the same stems and sense, one word or two, the other script; `contained`, one of the
            longest concepts inside the phrase; `nearest`, the concept whose vector is nearest the phrase's.
        score: between 0 and 1: how often such links are right; for `contained` the share of the phrase that it covers
            counts.
        cosine: of a `nearest` link, else None.
    """

    phrase: str
    concept: int
    name: str
    how: How
    score: float
    cosine: float | None = None


class Linker:
    """Links phrases to the concepts of one graph: as Chinese where they have Chinese characters, else as English.

    The embedder that made the graph's vectors finds the nearest concept of a phrase that has no other link, if that is
    wanted; None: where the graph is small enough for that to take about 2 ms.
    """

    def __init__(self, store: GraphStore, embedder: Embedder | None = None, *, nearest: bool | None = None) -> None:
        self._store = store
        self._english = EnglishReader(store)
        wanted = store.meta.concepts <= _QUICK if nearest is None else nearest
        same = embedder is not None and store.meta.embedder_fingerprint == embedder.fingerprint
        self._embedder = embedder if wanted and same else None
        self._links = functools.lru_cache(_REMEMBERED)(self._link)

    @functools.cached_property
    def _chinese(self) -> ChineseReader:
        from dialore.retrieval.linking.chinese import ChineseReader

        return ChineseReader(self._store)

    def link(self, phrase: str) -> list[Link]:
        """Return a phrase's links: to the whole as one concept, else to its longest concepts, else the nearest."""
        return list(self._links(phrase))

    def mentions(self, texts: Iterable[str]) -> list[Link]:
        """Return every concept that the texts mention, longest first at each place, in order of mention, each once."""
        links: dict[int, Link] = {}
        for sentence in (segment for text in texts for segment in segments(text)):
            for match in self._read(normalise(sentence), sentence).matches:
                link = self._made(match.phrase, match.concept, match.how, _SCORE[match.how])
                links.setdefault(match.concept, link)
        return list(links.values())

    def ngrams(self, texts: Iterable[str]) -> list[Link]:
        """Return every concept that is an n-gram of the texts, in order of mention, each once (see `find_ngrams`)."""
        from dialore.retrieval.linking.ngrams import find_ngrams

        links: dict[int, Link] = {}
        for phrase, concept, exact in find_ngrams(texts, self._store.find):
            how: How = "exact" if exact else "lemma"
            if concept not in links:
                links[concept] = self._made(phrase, concept, how, _SCORE[how])
        return list(links.values())

    def _link(self, phrase: str) -> list[Link]:
        form = normalise(phrase).strip(_EDGES)
        if not form:
            return []
        reader = self._chinese if is_chinese(form) else self._english
        whole = reader.whole(form)
        if whole is not None:
            return [self._made(phrase, *whole, _SCORE[whole[1]])]
        reading = self._read(form, phrase)
        if len(reading.matches) == 1 and reading.covered >= reading.size and reading.matches[0].whole:
            match = reading.matches[0]
            return [self._made(phrase, match.concept, match.how, _SCORE[match.how])]
        if reading.matches:
            kept = reader.weighty(reading)
            return [self._made(phrase, match.concept, "contained", _share(match, reading)) for match in kept.matches]
        return [
            self._made(phrase, concept, "nearest", round(_SCORE["nearest"] * cosine, 4), cosine)
            for concept, cosine in self._nearest(form)
        ]

    def _made(self, phrase: str, concept: int, how: How, score: float, cosine: float | None = None) -> Link:
        return Link(phrase, concept, self._store.concept(concept), how, score, cosine)

    def _read(self, form: str, text: str) -> Reading:
        if not is_chinese(form):
            return self._english.read(form, names(text, self._store.find))
        reading = self._chinese.read(form)
        matches = list(reading.matches)
        for piece in _LATIN.finditer(form):  # the English words between that the Chinese reading does not cover
            start = sum(not character.isspace() for character in form[: piece.start()])
            end = start + sum(not character.isspace() for character in piece[0])
            if not any(match.start < end and start < match.end for match in matches):
                english = self._english.read(piece[0]).matches
                matches += [match._replace(start=start, end=end, whole=False) for match in english]
        return Reading(tuple(sorted(matches)), reading.size)

    # --- the nearest concept

    @functools.cached_property
    def _vectors(self) -> NDArray[np.float32]:
        """(concepts, dimension): unit vectors; zero for a concept that has lost its facts."""
        store = self._store
        vectors = np.zeros((store.meta.concepts, store.meta.dimension), np.float32)
        for start in range(0, len(vectors), _CHUNK):
            numbers = np.arange(start, min(start + _CHUNK, len(vectors)), dtype=np.uint32)
            vectors[numbers] = unit(store.concept_sums(numbers))
            vectors[[number for number in numbers.tolist() if not store.degree(number)]] = 0
        return vectors

    def _nearest(self, phrase: str) -> list[tuple[int, float]]:
        """Return the nearest concept of all and its cosine, where that is at least the threshold.

        It is no single Chinese character, which is a part of the phrase, nor who does a thing ("grasper").
        """
        chinese = is_chinese(phrase)
        if self._embedder is None or not len(self._vectors) or not content_words(phrase, "zh" if chinese else "en"):
            return []
        cosines = self._vectors @ self._embedder.encode([phrase])[0]
        # Equal ones, such as the same words in another order, by number.
        concept = int(np.argmax(np.round(cosines, 4)))
        cosine = round(float(cosines[concept]), 4)
        name = self._store.concept(concept)
        doer = name.endswith(("er", "or")) and not phrase.endswith(("er", "or"))
        return [] if cosine < THRESHOLD or doer or (chinese and len(name) == 1) else [(concept, cosine)]


def _share(match: Match, reading: Reading) -> float:
    """Return the score of a contained concept: its words' match, by the share of the phrase that they are."""
    share = (match.end - match.start) / reading.size
    if share >= 1:  # what it lacks is a function word that matters: "hungry" of "not hungry"
        share = 0.5
    return round(_SCORE["contained"] * _SCORE[match.how] * (0.5 + 0.5 * share), 4)


def best_links(groups: Iterable[Iterable[Link]], key: Callable[[Link], object] = attrgetter("concept")) -> list[Link]:
    """Return the links of several phrases, in order; a concept, known by the key, once, by its best link."""
    best: dict[object, Link] = {}
    for link in (link for group in groups for link in group):
        known = best.setdefault(key(link), link)
        if link.score > known.score:
            best[key(link)] = link
    return list(best.values())

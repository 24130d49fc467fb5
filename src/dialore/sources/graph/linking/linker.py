"""From phrases to the graph's concepts: exact, by lemmas, by stems, by the longest concepts inside, by embedding."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dialore.sources.graph.linking.chinese import ChineseReader
from dialore.sources.graph.linking.english import EnglishReader
from dialore.sources.graph.linking.matches import Match, Reading
from dialore.sources.graph.linking.nearest import NearestConcepts
from dialore.text import is_chinese, normalise, segments

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dialore.retrieval.embedding import Embedder
    from dialore.sources.graph.linking.matches import How
    from dialore.sources.graph.store.protocol import FactStore
    from dialore.text import Language

# How often links of each kind are right on the development half of our labelled phrases, one of each added to the
# right and to the wrong ones; an exact one is what the phrase says. Nearest: of all phrases with one so near.
_SCORE: dict[How, float] = {"exact": 1.0, "lemma": 0.96, "variant": 0.91, "contained": 0.98, "nearest": 0.88}
_REMEMBERED = 50_000
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
            that matter; `variant`, the same stems, the other spelling or the other script; `contained`, one of the
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
    """Links phrases to the concepts of one graph.

    A phrase is read as Chinese where it has Chinese characters and as English else, whatever its dialogue is in: a
    Chinese dialogue may speak of "ice creams". What was linked is remembered until the graph changes.

    Args:
        store: the graph.
        embedder: the one that made the graph's vectors, for the nearest concept of a phrase that has no other link.
        nearest: whether to look for it; None: where the graph is small enough for that to take about 2 ms.
    """

    def __init__(self, store: FactStore, embedder: Embedder | None = None, *, nearest: bool | None = None) -> None:
        self._store = store
        self._english, self._chinese = EnglishReader(store), ChineseReader(store)
        self._nearest = NearestConcepts.of(store, embedder, wanted=nearest)
        self._remembered: dict[str, list[Link]] = {}
        self._meta = store.meta

    def link(self, phrase: str, language: Language) -> list[Link]:
        """A phrase's links: one where the whole of it is a concept, else its longest concepts, else the nearest."""
        del language  # a phrase's own characters tell
        if self._meta is not self._store.meta or len(self._remembered) >= _REMEMBERED:
            self._forget()
        found = self._remembered.get(phrase)
        if found is None:
            found = self._remembered[phrase] = self._link(phrase)
        return list(found)

    def mentions(self, texts: Iterable[str], language: Language) -> list[Link]:
        """Every concept that the texts mention, longest first at each place, in order of mention, each once."""
        del language
        if self._meta is not self._store.meta:
            self._forget()
        found: dict[int, Link] = {}
        for sentence in (segment for text in texts for segment in segments(text)):
            for match in self._read(normalise(sentence)).matches:
                name = self._store.concept(match.concept)
                found.setdefault(match.concept, Link(match.phrase, match.concept, name, match.how, _SCORE[match.how]))
        return list(found.values())

    def _forget(self) -> None:
        self._meta = self._store.meta
        self._remembered.clear()
        self._english, self._chinese = EnglishReader(self._store), ChineseReader(self._store)
        if self._nearest is not None:
            self._nearest.forget()

    def _link(self, phrase: str) -> list[Link]:
        form = normalise(phrase).strip(_EDGES)
        if not form:
            return []
        reader = self._chinese if is_chinese(form) else self._english
        whole = reader.whole(form)
        if whole is not None:
            return [self._made(phrase, *whole, _SCORE[whole[1]])]
        reading = self._read(form)
        if len(reading.matches) == 1 and reading.covered >= reading.size and reading.matches[0].whole:
            match = reading.matches[0]
            return [self._made(phrase, match.concept, match.how, _SCORE[match.how])]
        if reading.matches:
            kept = reader.weighty(reading)
            return [self._made(phrase, match.concept, "contained", _share(match, reading)) for match in kept.matches]
        nearest = self._nearest.find(form) if self._nearest is not None else None
        if nearest is None:
            return []
        concept, cosine = nearest
        score = round(_SCORE["nearest"] * cosine, 4)
        return [Link(phrase, concept, self._store.concept(concept), "nearest", score, cosine)]

    def _made(self, phrase: str, concept: int, how: How, score: float) -> Link:
        return Link(phrase, concept, self._store.concept(concept), how, score)

    def _read(self, form: str) -> Reading:
        if not is_chinese(form):
            return self._english.read(form)
        reading = self._chinese.read(form)
        return self._with_latin(form, reading) if _LATIN.search(form) else reading

    def _with_latin(self, form: str, reading: Reading) -> Reading:
        """The Chinese reading with the English words between that it does not cover."""
        matches = list(reading.matches)
        for piece in _LATIN.finditer(form):
            start = sum(not character.isspace() for character in form[: piece.start()])
            end = start + sum(not character.isspace() for character in piece[0])
            if not any(match.start < end and start < match.end for match in matches):
                matches.extend(
                    Match(start, end, match.concept, match.how, match.phrase, whole=False)
                    for match in self._english.read(piece[0]).matches
                )
        return Reading(tuple(sorted(matches)), reading.size)


def _share(match: Match, reading: Reading) -> float:
    """The score of a contained concept: that of its own words' match, by the share of the phrase that they are."""
    share = (match.end - match.start) / reading.size
    if share >= 1:  # what it lacks is a function word that matters: "hungry" of "not hungry"
        share = 0.5
    return round(_SCORE["contained"] * _SCORE[match.how] * (0.5 + 0.5 * share), 4)


def best_links(groups: Iterable[Sequence[Link]]) -> list[Link]:
    """The links of several phrases, in their order; a concept is linked once, by its best link."""
    best: dict[int, Link] = {}
    for link in (link for group in groups for link in group):
        known = best.get(link.concept)
        if known is None or link.score > known.score:
            best[link.concept] = link
    return list(best.values())

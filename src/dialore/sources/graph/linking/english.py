"""English phrases to concepts: by form, by lemmas, by stems, by the other spelling, by the longest concepts inside."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from dialore.sources.graph.linking.matches import LONGEST, Match, Reading
from dialore.sources.graph.linking.shape import LIGHT, PARTICLES, fit, read, segments, shape
from dialore.sources.graph.linking.spelling import respelt
from dialore.sources.graph.store.layout import stem_key
from dialore.text import light_words, words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dialore.sources.graph.linking.matches import How
    from dialore.sources.graph.linking.shape import Segments, Word
    from dialore.sources.graph.store.protocol import FactStore

_ROOM = 30
"""Characters of function words beyond which no concept is looked at: hubs of a large graph have thousands of names."""
_REMEMBERED = 50_000
_Chosen = tuple[int, "How", bool]
"""A concept, how it was found, and whether no word that matters is left out."""


class _Candidate(NamedTuple):
    """A concept with its content lemmas and the function words around them."""

    content: tuple[str, ...]
    segments: Segments
    concept: int


class EnglishReader:
    """Reads English phrases as a graph's concepts.

    Args:
        store: the graph.
    """

    def __init__(self, store: FactStore) -> None:
        self._store = store
        self._known: dict[tuple[str, ...], tuple[_Candidate, ...]] = {}
        self._fitted: dict[tuple[tuple[str, ...], Segments], _Chosen | None] = {}

    def whole(self, form: str) -> tuple[int, How] | None:
        """The concept that a normalised phrase is letter by letter, hyphens aside; of function words, by lemmas too."""
        # Lemmas are the slow part of reading, and most phrases are concepts as they stand.
        names = dict.fromkeys((form, " ".join(words(form, "en"))))
        same = [concept for name in names if name and (concept := self._store.find(name)) is not None]
        if same:
            return (same[0] if len(same) == 1 else max(same, key=self._store.degree)), "exact"
        found = read(form)
        if any(word.content for word in found):
            return None
        lemmas = " ".join(word.lemma for word in found if word.form not in LIGHT)
        concept = self._store.find(lemmas) if lemmas else None
        return None if concept is None else (concept, "lemma")

    def read(self, form: str) -> Reading:
        """The longest concepts inside a normalised text, without overlap; none is part of a longer one."""
        found = read(form)
        places = [place for place, word in enumerate(found) if word.content]
        taken = [False] * len(places)
        matches: list[Match] = []
        for size in range(min(LONGEST, len(places)), 0, -1):
            for start in range(len(places) - size + 1):
                end = start + size
                if any(taken[start:end]):
                    continue
                match = self._match(found, places, start, end)
                if match is not None:
                    matches.append(match)
                    taken[start:end] = [True] * size
        return Reading(tuple(sorted(matches)), len(places))

    def weighty(self, reading: Reading) -> Reading:
        """The reading without single words that say little beside the others: "ideas" of "healthy breakfast ideas"."""
        light = light_words("en")
        kept = [
            match
            for match in reading.matches
            if match.end - match.start > 1
            or not any(word.form in light or word.lemma in light for word in read(match.phrase))
        ]
        return Reading(tuple(kept), reading.size) if kept else reading

    # --- one span

    def _match(self, found: Sequence[Word], places: Sequence[int], start: int, end: int) -> Match | None:
        """The concept whose content words are those from start to end, by those and the function words about them."""
        content = tuple(found[place].form for place in places[start:end])
        chosen = None
        for spelt in _spellings(content):
            candidates = self._candidates(spelt)
            if candidates:
                chosen = self._fitting(candidates, spelt, segments(_window(found, places, start, end)))
                if chosen is not None:
                    break
        if len(content) == 2:
            between = [word.form for word in found[places[start] + 1 : places[end - 1]]]
            chosen = self._of_two(content, between, chosen)
        if chosen is None:
            return None
        concept, how, complete = chosen
        return Match(start, end, concept, how, " ".join(content), complete)

    def _of_two(self, content: tuple[str, ...], between: Sequence[str], chosen: _Chosen | None) -> _Chosen | None:
        """Two words as one ("note book"), and "places to visit" as "visit place"."""
        first, second = content
        if not between and min(len(first), len(second)) > 2 and self._store.find(f"{first} {second}") is None:
            concept = self._store.find(first + second)
            if concept is not None:
                return concept, "variant", True
        if chosen is None and between == ["to"]:
            turned = (second, first)
            return self._fitting(self._candidates(turned), turned, ((), (), ()))
        return chosen

    def _fitting(self, candidates: Sequence[_Candidate], content: tuple[str, ...], said: Segments) -> _Chosen | None:
        key = (content, said)
        if key not in self._fitted:
            if len(self._fitted) >= _REMEMBERED:
                self._fitted.clear()
            best = _best(candidates, content, said)
            # Between equals the one with most facts, then the one that came first.
            self._fitted[key] = max(best, key=lambda own: (self._store.degree(own[0]), -own[0]), default=None)
        return self._fitted[key]

    def _candidates(self, content: tuple[str, ...]) -> tuple[_Candidate, ...]:
        """The concepts with these content stems."""
        found = self._known.get(content)
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            longest = sum(map(len, content)) + _ROOM
            named = (
                (self._store.concept(number), number) for number in self._store.with_stems(stem_key(content, "en"))
            )
            shapes = ((shape(name), number) for name, number in named if len(name) <= longest)
            found = self._known[content] = tuple(
                _Candidate(*own, number) for own, number in shapes if len(own.content) == len(content)
            )
        return found


def _window(found: Sequence[Word], places: Sequence[int], start: int, end: int) -> Sequence[Word]:
    """The words from start to end with the function words about them, less the particles of the word before."""
    first = 0
    if start:
        first = places[start - 1] + 1
        while first < places[start] and found[first].form in PARTICLES:
            first += 1
    return found[first : places[end] if end < len(places) else len(found)]


def _best(candidates: Sequence[_Candidate], content: tuple[str, ...], said: Segments) -> list[tuple[int, How, bool]]:
    """Of concepts with the same content stems: those whose function words fit best and, of them, with same lemmas."""
    lemmas = tuple(read(form)[0].lemma for form in content)
    ranked: list[tuple[tuple[int, bool], int, int]] = []
    for own in candidates:
        fitting = fit(own.segments, said)
        if fitting is not None:
            cost = fitting.extra - 4 * fitting.matched
            ranked.append(((cost, own.content != lemmas), own.concept, fitting.missing))
    least = min((rank for rank, _, _ in ranked), default=None)
    return [
        (concept, "variant" if rank[1] else "lemma", not missing) for rank, concept, missing in ranked if rank == least
    ]


def _spellings(content: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The words as they are, then with every word spelt the other way that can be, then one at a time."""
    yield content
    others = [_respelt(word) for word in content]
    changed = [place for place, other in enumerate(others) if other]
    if changed:
        yield tuple(other or word for word, other in zip(content, others, strict=True))
    if len(changed) > 1:
        for place in changed:
            yield (*content[:place], others[place] or "", *content[place + 1 :])


@functools.lru_cache(maxsize=65536)
def _respelt(word: str) -> str | None:
    return respelt(word) or respelt(read(word)[0].lemma)

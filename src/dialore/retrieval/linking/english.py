"""English phrases to concepts: by form, by lemmas, by stems, by the other spelling, by the longest concepts inside."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from dialore.retrieval.embedding import load_embedder
from dialore.retrieval.graph.relations import data_lines, gerund, is_doing
from dialore.retrieval.graph.store import stem_key
from dialore.text import is_known, lemma, light_words, normalise, stop_words, words

if TYPE_CHECKING:
    from dialore.retrieval.graph.store import GraphStore

How = Literal["exact", "lemma", "variant", "contained", "nearest"]

_LONGEST = 6  # content words of the longest concept that is looked for inside a phrase


class Match(NamedTuple):
    """A concept in a phrase, between two of its content words, or Chinese characters; `whole` if none is left out."""

    start: int
    end: int
    concept: int
    how: How
    phrase: str
    whole: bool


class Reading(NamedTuple):
    """The matches of a phrase, in its order, and how many content words or characters it has."""

    matches: tuple[Match, ...]
    size: int

    @property
    def covered(self) -> int:
        """How many of its content words or characters the matches cover."""
        return sum(match.end - match.start for match in self.matches)


# --- British and American spelling

_OUR = re.compile(r"(?<=[a-z]{3})our(?=$|s$|ed$|ing$|ful$|ite$|able$)")
_ISE = re.compile(r"(?<=[a-z]{2})is(?=e$|es$|ed$|ing$|er$|ation$)")
_IZE = re.compile(r"(?<=[a-z]{2})iz(?=e$|es$|ed$|ing$|er$|ation$)")
_OR = re.compile(r"(?<=[a-z]{3})or(?=$|s$|ed$|ing$|ful$|ite$|able$)")


@functools.lru_cache(maxsize=1)
def _pairs() -> dict[str, str]:
    """British and American lemmas, each to the other."""
    pairs = [(british, american) for british, american in map(str.split, data_lines("spelling.en.txt"))]
    return dict(pairs) | {american: british for british, american in pairs}


@functools.lru_cache(maxsize=65536)
def respelt(word: str) -> str | None:
    """Return a lower-case English word as it is spelt across the Atlantic, which may be no word ("actour"), or None."""
    known = _pairs().get(word)
    if known is not None or not word.isascii():
        return known
    for pattern, other in ((_OUR, "or"), (_ISE, "iz"), (_IZE, "is"), (_OR, "our")):
        changed = pattern.sub(other, word)
        if changed != word:
            return changed
    return None


# --- function words

_LIGHT = frozenset(("a", "an", "the", "to", "of", "my", "your", "his", "her", "our", "their", "its", "s"))
"""Words that make no difference wherever they stand."""
_PARTICLES = frozenset(("up", "down", "off", "out", "over", "away", "back"))
"""Words that belong to the verb before them."""
_FREE = frozenset((
    "be", "i", "me", "you", "he", "him", "she", "they", "them", "it", "we", "us", "one", "that", "this",
    "these", "those", "some", "any", "each", "every", "all", "both", "will", "would", "can", "could", "may",
    "might", "shall", "should", "so", "very", "just", "really", "also", "too", "there", "who", "which", "when",
))  # fmt: skip
"""Words that a concept may have and its phrase not: "lonely" is "be lonely"."""
_PREPOSITIONS = frozenset(("at", "in", "on", "for", "from", "with", "by", "into", "about", "during"))
"""The same before the first content word: "the old days" are "in old day"."""
_VERBS = frozenset(("get", "have", "do", "go", "make", "take", "be"))
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
    "about", "during", "on",
))  # fmt: skip
"""Words of the phrase that part what stands on their two sides."""

_AMOUNTS = frozenset(("rest", "couple", "bunch", "number", "lack", "plenty"))
_DEGREES = frozenset(("better", "best", "worse", "worst"))
"""Forms that are no "good" and no "bad": the "best player" is not any good one."""

_Segments = tuple[tuple[str, ...], ...]


class _Word(NamedTuple):
    """A word of a phrase: as it is said, its lemma, and whether it is a content word."""

    form: str
    lemma: str
    content: bool


_Shape = tuple[tuple[str, ...], _Segments]
"""A phrase as its content lemmas and the function lemmas around and between them."""


@functools.lru_cache(maxsize=65536)
def read(text: str) -> tuple[_Word, ...]:
    """Return the words of an English text."""
    stop = stop_words("en")
    return tuple(
        _Word(word, word if word in _DEGREES else lemma(word, "en"), len(word) > 1 and word not in stop)
        for word in words(text, "en")
    )


def segments(found: Sequence[_Word]) -> _Segments:
    """Lemmas of the function words before, between and after the content words, without the light ones."""
    parts: list[list[str]] = [[]]
    for word in found:
        if word.content:
            parts.append([])
        elif word.form not in _LIGHT:
            parts[-1].append(word.lemma)
    return tuple(map(tuple, parts))


@functools.lru_cache(maxsize=65536)
def shape(text: str) -> _Shape:
    """Return the shape of a concept's name."""
    tokens = read(text)
    return tuple(word.lemma for word in tokens if word.content), segments(tokens)


@functools.lru_cache(maxsize=1 << 17)
def fit(concept: _Segments, phrase: _Segments) -> tuple[int, int, int] | None:
    """Return how many function words that matter are in both, what the concept's cost, and the phrase's others.

    None: the concept's do not fit those of a phrase of the same content words.
    """
    matched = extra = missing = 0
    last = len(phrase) - 1
    for position, (own, spoken) in enumerate(zip(concept, phrase, strict=True)):
        both, more, left = _compare(own, spoken)
        costs = [_cost(word, position, last) for word in more]
        if None in costs or (0 < position < last and not _BARRIERS.isdisjoint(left)):
            return None
        matched += sum(_weighty(word, position) for word in both)
        extra += sum(cost or 0 for cost in costs)
        missing += sum(_weighty(word, position) for word in left)
    return matched, extra, missing


def _weighty(word: str, place: int) -> bool:
    """Return whether a function word changes the meaning, as single letters and prepositions after verbs do."""
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
    """Return what a function word of the concept, absent from the phrase, costs; None: it is another thing."""
    if word in _FREE or (place == 0 and word in _PREPOSITIONS):
        return 1
    return 2 if place == 0 and word in _VERBS and last > 1 else None


# --- names

_NAME = re.compile(r"[A-Z][\w'’-]{1,60}+(?:\s+(?:(?:of|the|and|with)\s+){0,2}[A-Z][\w'’-]+)+")
_GENERIC = frozenset((
    "airport", "album", "award", "band", "bay", "beach", "book", "bridge", "castle", "cathedral", "channel", "church",
    "city", "coast", "college", "company", "cup", "desert", "festival", "film", "forest", "garden", "hospital",
    "hotel", "island", "lake", "library", "magazine", "market", "monster", "mountain", "movie", "museum", "novel",
    "ocean", "park", "restaurant", "river", "road", "school", "sea", "show", "song", "stadium", "station", "street",
    "temple", "theater", "theatre", "tower", "university", "valley", "village", "zoo",
))  # fmt: skip
"""Last words of names that say what it is that has the name."""


def names(text: str, known: Callable[[str], object]) -> frozenset[str]:
    """Return the words of a text's names, with capitals in a row ("Lord of the Rings"), less a verb before them."""
    words: set[str] = set()
    for run in _NAME.finditer(text):
        parts = read(normalise(run[0]))
        if run.start() == 0:
            verb = is_doing(f"{parts[0].lemma} it") and known(parts[1].form) is not None
            parts = parts[1:] if verb or not parts[0].content else parts
        own = [word.form for word in parts if word.content]
        if len(parts) > 1:
            words.update(own[:-1] if own and own[-1] in _GENERIC else own)
    return frozenset(words)


# --- the reader

_ROOM = 30
"""Characters of function words beyond which no concept is looked at: hubs of a large graph have thousands of names."""
_REMEMBERED = 50_000
_SAME = 0.35
"""The least cosine of two words of one stem that mean the same: .39 for "availability" and "available", .15 for
"business" and "busy", .31 for "hospitality" and "hospital"."""
_SHORTEST = 3  # letters of the shortest part of a compound
_Chosen = tuple[int, "How", bool]
"""A concept, how it was found, and whether no word that matters is left out."""


class EnglishReader:
    """Reads English phrases as a graph's concepts."""

    def __init__(self, store: GraphStore) -> None:
        self._store = store
        self._candidates = functools.lru_cache(_REMEMBERED)(self._with_stems)
        self._fitting = functools.lru_cache(_REMEMBERED)(self._best)

    def whole(self, form: str) -> tuple[int, How] | None:
        """Return the concept that a normalised phrase is, hyphens aside; of function words, by lemmas too."""
        # Lemmas are the slow part of reading, and most phrases are concepts as they stand.
        forms = dict.fromkeys((form, " ".join(words(form, "en"))))
        same = [concept for name in forms if name and (concept := self._store.find(name)) is not None]
        if same:
            return (same[0] if len(same) == 1 else max(same, key=self._store.degree)), "exact"
        tokens = read(form)
        if any(word.content for word in tokens):
            return None
        # "of course" is no course.
        lemmas = " ".join(word.lemma for word in tokens if word.form not in _LIGHT or word.form in ("of", "to"))
        concept = self._store.find(lemmas) if lemmas else None
        return None if concept is None else (concept, "lemma")

    def read(self, form: str, named: frozenset[str] = frozenset()) -> Reading:
        """Return the longest concepts inside a normalised text, without overlap, and none that is in names alone."""
        tokens = read(form)
        places = [position for position, word in enumerate(tokens) if word.content]
        taken = [False] * len(places)
        matches: list[Match] = []
        for size in range(min(_LONGEST, len(places)), 0, -1):
            for start in range(len(places) - size + 1):
                end = start + size
                forms = [word.form for word in tokens[places[start] :][:2]]
                nothing = forms[0] in named or (forms[0] in _AMOUNTS and forms[1:] == ["of"])
                if any(taken[start:end]) or (size == 1 and nothing):
                    continue
                match = self._match(tokens, places, start, end)
                if match is not None:
                    matches.append(match)
                    taken[start:end] = [True] * size
        return Reading(tuple(sorted(matches)), len(places))

    def weighty(self, reading: Reading) -> Reading:
        """Return the reading without "ideas" of "breakfast ideas", and "part" of "take part" alone."""
        light, matches = light_words("en"), reading.matches
        kept = (m for m in matches if m.end - m.start > 1 or light.isdisjoint(read(m.phrase)[0][:2]))
        return Reading(tuple(kept) or tuple(match for match in matches if match.whole), reading.size)

    # --- one span

    def _match(self, found: Sequence[_Word], places: Sequence[int], start: int, end: int) -> Match | None:
        """Return the concept whose content words are those from start to end, judged by the function words, too."""
        content = tuple(found[position].form for position in places[start:end])
        # With the function words about them, less the particles of the word before.
        first = places[start - 1] + 1 if start else 0
        while start and first < places[start] and found[first].form in _PARTICLES:
            first += 1
        spoken = segments(found[first : places[end] if end < len(places) else len(found)])
        alone = end - start == len(places)
        noun = places[start] > 0 and found[places[start] - 1].form in _LIGHT
        fitting = (self._fitting(spelt, spoken, alone, noun) for spelt in _spellings(content))
        chosen = next(filter(None, fitting), None)
        if len(content) == 1 and chosen is None:
            chosen = self._as_two_words(*content)
        elif len(content) == 2:
            between = [word.form for word in found[places[start] + 1 : places[end - 1]]]
            chosen = self._compound(*content, between, chosen)
        return None if chosen is None else Match(start, end, chosen[0], chosen[1], " ".join(content), chosen[2])

    def _as_two_words(self, word: str) -> _Chosen | None:
        """Return the concept that a word is as two: "stomachache"."""
        for at in range(_SHORTEST, len(word) - _SHORTEST + 1):
            parts = f"{word[:at]} {word[at:]}"
            concept = self._store.find(parts)
            if concept is not None and _same_sense(parts, word):
                return concept, "variant", True
        return None

    def _compound(self, first: str, second: str, between: Sequence[str], chosen: _Chosen | None) -> _Chosen | None:
        """Return two words as one ("note book"), or turned ("places to visit": "visit place"), else what is chosen."""
        joined = first + second
        # Only a word of the language has the sense of its parts: "smalltalk" is no small talk.
        if not between and min(len(first), len(second)) >= _SHORTEST and self._store.find(f"{first} {second}") is None:
            concept = self._store.find(joined) if is_known(joined) else None
            if concept is not None:
                return concept, "variant", True
        if chosen is None and between == ["to"]:
            return self._fitting((second, first), ((), (), ()), False, True)
        return chosen

    def _best(self, content: tuple[str, ...], said: _Segments, alone: bool, noun: bool) -> _Chosen | None:
        """Of concepts with these content stems: that whose function words fit best, with the same lemmas if it can be.

        Another word of the same stem and sense counts where all of the phrase or two words of it match. A particle
        is no thing ("get money back"), but behind an article it is, and a gerund no verb ("for a living").
        """
        particle = len(content) == 1 and content[0] in _PARTICLES and not noun
        said_words = [read(form)[0] for form in content]
        ranked: list[tuple[tuple[int, bool, int, int], bool]] = []
        for (lemmas, own), concept in self._candidates(content):
            others = [
                (word.form, name)
                for word, name in zip(said_words, lemmas, strict=True)
                if name != word.lemma and (noun or gerund(f"{name} it") != f"{word.form} it")
            ]
            fitting = fit(own, said)
            if fitting is None or (particle and not fitting[0]):
                continue
            matched, extra, missing = fitting
            loose = (alone or len(content) > 1) and not missing
            if others and not (loose and all(_same_sense(*pair) for pair in others)):
                continue
            # Between equals the one with most facts, then the one that came first.
            rank = (extra - 4 * matched, bool(others), -self._store.degree(concept), concept)
            ranked.append((rank, not missing))
        if not ranked:
            return None
        (_, other, _, concept), complete = min(ranked)
        return concept, "variant" if other else "lemma", complete

    def _with_stems(self, content: tuple[str, ...]) -> tuple[tuple[_Shape, int], ...]:
        """Return the concepts with these content stems, and their shapes."""
        longest = sum(map(len, content)) + _ROOM
        named = ((self._store.concept(number), number) for number in self._store.with_stems(stem_key(content, "en")))
        shapes = ((shape(name), number) for name, number in named if len(name) <= longest)
        return tuple((own, number) for own, number in shapes if len(own[0]) == len(content))


@functools.lru_cache(maxsize=65536)
def _same_sense(one: str, other: str) -> bool:
    """Return whether two words of one stem mean the same: not "business" and "busy", nor a doer and what is done."""
    if max(one, other, key=len).endswith(("er", "or")) or not _DEGREES.isdisjoint((one, other)):
        return False
    first, second = load_embedder().encode([one, other])
    return float(first @ second) >= _SAME


def _spellings(content: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the words as they are, then with every word spelt the other way that can be, then one at a time."""
    yield content
    others = [respelt(word) or respelt(read(word)[0].lemma) for word in content]
    changed = [position for position, other in enumerate(others) if other]
    if changed:
        yield tuple(other or word for word, other in zip(content, others, strict=True))
    if len(changed) > 1:
        for position in changed:
            yield (*content[:position], others[position] or "", *content[position + 1 :])

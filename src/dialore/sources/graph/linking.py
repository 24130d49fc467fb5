"""From phrases to the graph's concepts: exact, by lemma, by stems, by the longest concepts inside, by embedding."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from dialore.sources.graph.layout import phrase_tokens, stem_key
from dialore.text import content_lemmas, is_chinese, is_stop_word, lemma, normalise, sentences, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dialore.sources.graph.store import GraphStore
    from dialore.text import Language

How = Literal["exact", "lemma", "variant", "contained"]
_SCORE: dict[How, float] = {"exact": 1.0, "lemma": 0.95, "variant": 0.85, "contained": 0.8}
_LONGEST = 6
"""Content words, or Chinese characters, of the longest concept that is looked for inside a phrase."""
_CHINESE_SPACE = re.compile(r"(?<=[㐀-䶿一-鿿]) | (?=[㐀-䶿一-鿿])")
_LIGHT = frozenset(
    ("a", "an", "the", "to", "of", "my", "your", "his", "her", "our", "their", "'s", "的", "了", "个", "一个", "自己")
)
_LIGHTEST = 2
"""Function words that a concept may have and still be the same thing: "the day" for "day", "cup of tea"."""


@dataclass(frozen=True, slots=True)
class Link:
    """A phrase's link to a concept.

    Attributes:
        phrase: what was to be linked.
        concept: the concept's id in its graph.
        name: the concept as the graph writes it.
        how: `exact`, the same normal form; `lemma`, the same content lemmas; `variant`, the same content stems;
            `contained`, one of the longest concepts inside the phrase, function words dropped.
        score: between 0 and 1; for `contained` the share of the phrase's content words that it covers counts.
    """

    phrase: str
    concept: int
    name: str
    how: How
    score: float


class _Span(NamedTuple):
    """A concept and the tokens that it covers; parts of a token count as fractions."""

    start: float
    end: float
    concept: int
    how: How
    phrase: str


class Linker:
    """Links phrases to the concepts of one graph.

    A phrase is read as Chinese where it has Chinese characters and as English else, whatever its dialogue is in: a
    Chinese dialogue may speak of "ice creams".

    Args:
        store: the graph.
    """

    def __init__(self, store: GraphStore) -> None:
        self._store = store

    def link(self, phrase: str, language: Language) -> list[Link]:
        """The links of a phrase: one where the whole of it is a concept, else its longest concepts, else none."""
        tokens = phrase_tokens(phrase, language)
        if not tokens:
            return []
        form = normalise(phrase).strip(" .,!?;:。，！？；：")
        whole = self._whole(form, tokens, _function_lemmas(form, language))
        if whole is not None:
            concept, how = whole
            return [Link(phrase, concept, self._store.concept(concept), how, _SCORE[how])]
        return [
            Link(
                phrase,
                span.concept,
                self._store.concept(span.concept),
                "contained",
                round(_SCORE["contained"] * _SCORE[span.how] * (0.5 + 0.5 * (span.end - span.start) / len(tokens)), 4),
            )
            for span in self._longest(tokens, form)
        ]

    def mentions(self, texts: Iterable[str], language: Language) -> list[Link]:
        """Every concept that the texts mention, longest first at each place, in order of mention, each once."""
        found: dict[int, Link] = {}
        for sentence in (sentence for text in texts for sentence in sentences(text)):
            for span in self._longest(phrase_tokens(sentence, language), normalise(sentence)):
                name = self._store.concept(span.concept)
                found.setdefault(span.concept, Link(span.phrase, span.concept, name, span.how, _SCORE[span.how]))
        return list(found.values())

    def _whole(self, form: str, tokens: Sequence[str], function: frozenset[str]) -> tuple[int, How] | None:
        exact = self._store.find(form)
        if exact is not None:
            return exact, "exact"
        return self._by_stems(tokens, "zh" if is_chinese(form) else "en", function)

    def _by_stems(self, tokens: Sequence[str], language: Language, function: frozenset[str]) -> tuple[int, How] | None:
        """The concept with the same content stems: by fewest function words, then same lemmas, then most facts.

        Function words that change the meaning make another thing of it: "day" is neither "day off" nor "days ago",
        but "days off" is "day off" and "making the bed" is "make bed".
        """
        wanted = [lemma(token, language) for token in tokens]
        ranked: list[tuple[bool, int, bool, int, int]] = []
        for concept in self._store.with_stems(stem_key(tokens, language)):
            name = self._store.concept(concept)
            dropped = [word for word in words(name, language) if is_stop_word(word, language)]
            other_function = _function_lemmas(name, language) != function
            if other_function and not (len(dropped) <= _LIGHTEST and _LIGHT.issuperset(dropped)):
                continue
            # Chinese words have one form each: what differs is where they were cut.
            other = language == "en" and content_lemmas(name, language) != wanted
            ranked.append((other_function, len(dropped), other, -self._store.degree(concept), concept))
        if not ranked:
            return None
        _, _, other, _, chosen = min(ranked)
        return chosen, "variant" if other else "lemma"

    def _longest(self, tokens: Sequence[str], text: str) -> list[_Span]:
        """Concepts that cover the tokens without overlap, longer first; parts of a longer match are never taken."""
        taken = [False] * len(tokens)
        spans: list[_Span] = []
        for size in range(min(_LONGEST, len(tokens)), 0, -1):
            for start in range(len(tokens) - size + 1):
                end = start + size
                phrase = _join(tokens[start:end])
                if any(taken[start:end]) or (len(phrase) == 1 and is_chinese(phrase)):
                    continue
                found = self._whole(phrase, tokens[start:end], frozenset())
                if found is not None:
                    spans.append(_Span(start, end, *found, phrase))
                    taken[start:end] = [True] * size
        if is_chinese(text):
            spans.extend(self._inside(tokens, taken, text))
        return sorted(spans)

    def _inside(self, tokens: Sequence[str], taken: Sequence[bool], text: str) -> Iterator[_Span]:
        """Chinese concepts across the cuts of what no concept covers: 饺子 and 馅料 in 饺子馅/料.

        They must begin or end at a cut, so that nothing is read out of the middle of words.
        """
        for run in _runs(tokens, taken, text):
            # Each character's place among the tokens.
            places = [number + at / len(tokens[number]) for number in run for at in range(len(tokens[number]))]
            characters = "".join(tokens[number] for number in run)
            places.append(run[-1] + 1)
            free = [True] * len(characters)
            for size in range(min(_LONGEST, len(characters)), 1, -1):
                for start in range(len(characters) - size + 1):
                    end = start + size
                    cut = float(places[start]).is_integer() or float(places[end]).is_integer()
                    concept = self._store.find(characters[start:end]) if cut and all(free[start:end]) else None
                    if concept is not None:
                        yield _Span(places[start], places[end], concept, "exact", characters[start:end])
                        free[start:end] = [False] * size


def _runs(tokens: Sequence[str], taken: Sequence[bool], text: str) -> Iterator[list[int]]:
    """Numbers of the Chinese tokens that no concept covers, those that stand side by side in the text together."""
    run: list[int] = []
    for number, token in enumerate(tokens):
        if taken[number] or not is_chinese(token):
            continue
        if run and (run[-1] != number - 1 or "".join(tokens[place] for place in (*run, number)) not in text):
            yield run
            run = []
        run.append(number)
    if run:
        yield run


def _join(tokens: Sequence[str]) -> str:
    """Words as they are written: Chinese ones without spaces."""
    joined = " ".join(tokens)
    return _CHINESE_SPACE.sub("", joined) if is_chinese(joined) else joined


@functools.lru_cache(maxsize=65536)
def _function_lemmas(phrase: str, language: Language) -> frozenset[str]:
    """Lemmas of the function words that make a difference."""
    return frozenset(
        lemma(word, language) for word in words(phrase, language) if is_stop_word(word, language) and word not in _LIGHT
    )


def best_links(groups: Iterable[Sequence[Link]]) -> list[Link]:
    """The links of several phrases, in their order; a concept is linked once, by its best link."""
    best: dict[int, Link] = {}
    for link in (link for group in groups for link in group):
        known = best.get(link.concept)
        if known is None or link.score > known.score:
            best[link.concept] = link
    return list(best.values())

"""From phrases to the graph's concepts: exact, by lemma, by stems, by the longest concepts inside, by embedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from dialore.sources.graph.layout import phrase_tokens, stem_key
from dialore.text import content_lemmas, is_stop_word, lemma, normalise, sentences, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dialore.sources.graph.store import GraphStore
    from dialore.text import Language

How = Literal["exact", "lemma", "variant", "contained"]
_SCORE: dict[How, float] = {"exact": 1.0, "lemma": 0.95, "variant": 0.85, "contained": 0.8}
_LONGEST = 6
"""Content words of the longest concept that is looked for inside a phrase."""
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
    start: int
    end: int
    concept: int
    how: How


class Linker:
    """Links phrases to the concepts of one graph.

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
        whole = self._whole(normalise(phrase).strip(" .,!?;:。，！？；："), tokens, language)
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
            for span in self._longest(tokens, language)
        ]

    def mentions(self, texts: Iterable[str], language: Language) -> list[Link]:
        """Every concept that the texts mention, longest first at each place, in order of mention, each once."""
        found: dict[int, Link] = {}
        separator = "" if language == "zh" else " "
        for sentence in (sentence for text in texts for sentence in sentences(text)):
            tokens = phrase_tokens(sentence, language)
            for span in self._longest(tokens, language):
                name = self._store.concept(span.concept)
                phrase = separator.join(tokens[span.start : span.end])
                found.setdefault(span.concept, Link(phrase, span.concept, name, span.how, _SCORE[span.how]))
        return list(found.values())

    def _whole(self, form: str, tokens: Sequence[str], language: Language) -> tuple[int, How] | None:
        exact = self._store.find(form)
        if exact is not None:
            return exact, "exact"
        return self._by_stems(tokens, language)

    def _by_stems(self, tokens: Sequence[str], language: Language) -> tuple[int, How] | None:
        """The concept with the same content stems: by fewest function words, then same lemmas, then most facts.

        Function words that change the meaning make another thing of it: "day" is neither "day off" nor "days ago".
        """
        wanted = [lemma(token, language) for token in tokens]
        ranked: list[tuple[int, bool, int, int]] = []
        for concept in self._store.with_stems(stem_key(tokens, language)):
            name = self._store.concept(concept)
            dropped = [word for word in words(name, language) if is_stop_word(word, language)]
            if len(dropped) <= _LIGHTEST and _LIGHT.issuperset(dropped):
                other = content_lemmas(name, language) != wanted
                ranked.append((len(dropped), other, -self._store.degree(concept), concept))
        if not ranked:
            return None
        _, other, _, chosen = min(ranked)
        return chosen, "variant" if other else "lemma"

    def _longest(self, tokens: Sequence[str], language: Language) -> list[_Span]:
        """Concepts that cover the tokens without overlap, longer first; parts of a longer match are never taken."""
        separator = "" if language == "zh" else " "
        taken = [False] * len(tokens)
        spans: list[_Span] = []
        for size in range(min(_LONGEST, len(tokens)), 0, -1):
            for start in range(len(tokens) - size + 1):
                end = start + size
                if any(taken[start:end]) or (language == "zh" and size == 1 and len(tokens[start]) == 1):
                    continue
                found = self._whole(separator.join(tokens[start:end]), tokens[start:end], language)
                if found is not None:
                    spans.append(_Span(start, end, *found))
                    taken[start:end] = [True] * size
        return sorted(spans)


def best_links(groups: Iterable[Sequence[Link]]) -> list[Link]:
    """The links of several phrases, in their order; a concept is linked once, by its best link."""
    best: dict[int, Link] = {}
    for link in (link for group in groups for link in group):
        known = best.get(link.concept)
        if known is None or link.score > known.score:
            best[link.concept] = link
    return list(best.values())

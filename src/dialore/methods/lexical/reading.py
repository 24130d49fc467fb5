"""What the lexical responder makes of a dialogue: the concepts it mentions, and the facts around them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dialore.methods.lexical.tables import word_class
from dialore.text import content_words, is_mentioned, normalise, stem, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.retrieval.embedding import Embedder
    from dialore.sources.graph.linking import Link
    from dialore.sources.graph.several import Graphs
    from dialore.sources.graph.source import Graph

_TURNS = 8
"""Turns, counted from the last, in which mentions are looked for."""
_FADING = 0.55
"""What a mention is worth a turn earlier."""
_ANCHORS = 8
"""Mentions whose facts are read."""
_VAGUE = 0.45
"""What a concept is worth that nearly every conversation mentions."""
_HUB = 4000
"""Facts of a concept that says nothing any more: "person" in a large graph. They are not read."""
_EDGES = 12_000
"""Facts read for one dialogue at most."""
_POOL = 160
"""Facts kept of those, by nearness to the history."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A concept that the history mentions.

    Attributes:
        link: its link to the graph.
        text: how it stands in the history, or its name where that is said there.
        age: turns since it was last said; 0 for the last turn.
        weight: its place by age, nearness to the last turn and specificity, about 0 to 1.
    """

    link: Link
    text: str
    age: int
    weight: float


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A concept that a fact joins to a mentioned one, itself not mentioned.

    Attributes:
        name: as the graph writes it.
        anchor: the mention that the fact leads to it from.
        fact: the fact.
        outward: whether the anchor is the fact's head.
    """

    name: str
    anchor: Mention
    fact: Knowledge
    outward: bool


@lru_cache(maxsize=65536)
def _stems(concept: str) -> frozenset[str]:
    return frozenset(stem(word) for word in content_words(concept, "en") or words(concept, "en"))


class Said:
    """Which concepts a text says, inflection and function words aside."""

    def __init__(self, text: str, dialogue: Dialogue) -> None:
        self._language = dialogue.language
        self._folded = normalise(text).replace(" ", "")
        self._stems = {stem(word) for word in words(text, "en")} if self._language == "en" else set()

    def __contains__(self, concept: object) -> bool:
        """Whether all content words of the concept are said; Chinese must be said as it is."""
        text = str(concept)
        if self._language == "zh":
            return normalise(text).replace(" ", "") in self._folded
        wanted = _stems(text)
        return bool(wanted) and wanted <= self._stems

    def shares(self, concept: str) -> bool:
        """Whether any content word of the concept is said, in Chinese any two characters in a row."""
        if self._language == "zh":
            return any(concept[place : place + 2] in self._folded for place in range(max(1, len(concept) - 1)))
        return not _stems(concept).isdisjoint(self._stems)


class Reading:
    """A dialogue as read once for all of its stages.

    Args:
        dialogue: the dialogue.
        graph: the graph, or None.
        embedder: tells how near texts are.
    """

    def __init__(self, dialogue: Dialogue, graph: Graph | Graphs | None, embedder: Embedder) -> None:
        self.dialogue = dialogue
        self._graph = graph
        self._embedder = embedder
        vectors = embedder.encode([dialogue.last.text, dialogue.history])
        self._last, self._history = vectors[0], vectors[1]

    @cached_property
    def said(self) -> Said:
        """What the whole history says."""
        return Said(self.dialogue.history, self.dialogue)

    @cached_property
    def said_last(self) -> Said:
        """What the last turn says."""
        return Said(self.dialogue.last.text, self.dialogue)

    def nearness(self, texts: Sequence[str], last: float = 0.6) -> NDArray[np.float32]:
        """(n,): the cosine of each text with the last turn and the history, weighed `last` to the rest."""
        if not texts:
            return np.empty(0, np.float32)
        vectors = self._embedder.encode(list(texts))
        near: NDArray[np.float32] = vectors @ (last * self._last + (1 - last) * self._history)
        return np.round(near, 4)

    @cached_property
    def mentions(self) -> list[Mention]:
        """The concepts that the latest turns mention, the weightiest first."""
        if self._graph is None:
            return []
        found: dict[str, tuple[Link, int, str]] = {}
        language = self.dialogue.language
        for age, text in enumerate(reversed(self.dialogue.texts[-_TURNS:])):
            for link in self._graph.mentions_in([text], language):
                if content_words(link.name, language):
                    found.setdefault(normalise(link.name), (link, age, text))
        near = self.nearness([link.name for link, _, _ in found.values()], last=1.0)
        mentions = [
            Mention(link, said, age, self._weight(link, age, float(cosine)))
            for (link, age, text), cosine in zip(found.values(), near, strict=True)
            if (said := self._as_said(link, text))
        ]
        return sorted(mentions, key=lambda mention: -mention.weight)

    def _as_said(self, link: Link, turn: str) -> str:
        language = self.dialogue.language
        return next((text for text in (link.name, link.phrase) if is_mentioned(text, [turn], language)), "")

    def _weight(self, link: Link, age: int, cosine: float) -> float:
        degree = self._graph.degree(link) if self._graph is not None else 0
        specific = 1 / (1 + 0.35 * math.log10(1 + degree))
        length = len(link.name) / 2 if self.dialogue.language == "zh" else len(content_words(link.name, "en"))
        longer = 1 + 0.15 * min(2.0, max(0.0, length - 1))
        vague = _VAGUE if normalise(link.name) in word_class("vague", self.dialogue.language) else 1.0
        return round(_FADING**age * (0.4 + max(0.0, cosine)) * specific * longer * vague, 4)

    @cached_property
    def facts(self) -> list[Knowledge]:
        """Facts of the weightiest mentions, nearest to the history first; hubs are left out."""
        if self._graph is None:
            return []
        chosen: list[Link] = []
        left = _EDGES
        for mention in self.mentions:
            degree = self._graph.degree(mention.link)
            if degree <= min(_HUB, left):
                chosen.append(mention.link)
                left -= degree
            if len(chosen) == _ANCHORS:
                break
        return self._graph.retrieve_queries(chosen, self.dialogue, top=_POOL)[0] if chosen else []

    @cached_property
    def neighbours(self) -> list[Neighbour]:
        """The concepts around the mentioned ones, each as often as a fact leads to it."""
        anchors = {normalise(mention.link.name): mention for mention in self.mentions}
        found: list[Neighbour] = []
        for fact in self.facts:
            head, tail = fact.fact.head, fact.fact.tail
            for own, other, outward in ((head, tail, True), (tail, head, False)):
                anchor = anchors.get(normalise(own))
                if anchor is not None and other not in self.said:
                    found.append(Neighbour(other, anchor, fact, outward))
        return found

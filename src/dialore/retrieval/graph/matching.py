"""Hard matching (Zhou et al., ACL 2022): facts of which one concept is said before, and the other in the response."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dialore.retrieval.linking.chinese import simplify
from dialore.text import Language, content_lemmas, content_words, is_chinese, normalise

if TYPE_CHECKING:
    from dialore.knowledge import Fact
    from dialore.retrieval.graph.store import GraphStore

_LONGEST = 5
"""Words of the longest concept that is looked for; longer ones are said in these very words all but never."""


def stores_of(graph: Any) -> list[GraphStore]:  # noqa: ANN401 - a graph or several
    """Return the stores of a graph, or of several as one."""
    return [part.store for part in getattr(graph, "graphs", [graph])]


class HardMatcher:
    """Finds the facts between texts; a text says a concept where its lemmas, or simplified characters, are in a row.

    Facts of the same two concepts under several relations are several facts; a concept with itself makes none.
    """

    def __init__(self, stores: Sequence[GraphStore]) -> None:
        self._stores = stores
        self._keys: dict[str, int] = {}
        pairs = [self._pair(fact) for store in stores for fact in store.facts()]
        self._size = len(self._keys) + 1
        known = np.array([pair for pair in pairs if pair is not None], dtype=np.int64).reshape(-1, 2)
        known.sort(axis=1)
        self._pairs = np.sort(known[:, 0] * self._size + known[:, 1])
        self._said = lru_cache(maxsize=65536)(self._concepts_in)

    def _pair(self, fact: Fact) -> tuple[int, int] | None:
        head, tail = concept_key(fact.head), concept_key(fact.tail)
        if not (head and tail) or head == tail:
            return None
        return self._keys.setdefault(head, len(self._keys)), self._keys.setdefault(tail, len(self._keys))

    def match(self, history: Sequence[str], response: str, language: Language) -> NDArray[np.int64]:
        """Return the facts between a history and a response, shape (facts, 2): the numbers of the concepts of each."""
        before, now = self.said(history, language), self._said(response, language)
        if not before or not now:
            return np.empty((0, 2), dtype=np.int64)
        first = np.fromiter(before, dtype=np.int64, count=len(before))[:, None]
        second = np.fromiter(now, dtype=np.int64, count=len(now))[None, :]
        wanted = np.unique(np.minimum(first, second) * self._size + np.maximum(first, second))
        begin = np.searchsorted(self._pairs, wanted, side="left")
        count = np.searchsorted(self._pairs, wanted, side="right") - begin
        pairs = np.repeat(wanted, count)
        return np.stack([pairs // self._size, pairs % self._size], axis=1)

    def facts(self, pairs: Collection[tuple[int, int]]) -> dict[tuple[int, int], list[Fact]]:
        """Return the facts between pairs of concepts, as `match` gives them; all facts are read once."""
        between_pairs: dict[tuple[int, int], list[Fact]] = {pair: [] for pair in pairs}
        for fact in (fact for store in self._stores for fact in store.facts()):
            pair = self._pair(fact)
            if pair is not None and (between := (min(pair), max(pair))) in between_pairs:
                between_pairs[between].append(fact)
        return between_pairs

    def said(self, texts: Iterable[str], language: Language) -> set[int]:
        """Return the numbers of all concepts that texts say."""
        return set().union(*(self._said(text, language) for text in texts))

    def _concepts_in(self, text: str, language: Language) -> frozenset[int]:
        words = content_words(simplify(text), "zh") if language == "zh" else content_lemmas(text, "en")
        glue = "" if language == "zh" else " "
        ends = range(1, _LONGEST + 1)
        keys = {glue.join(words[begin : begin + size]) for begin in range(len(words)) for size in ends}
        return frozenset(self._keys[key] for key in keys if key in self._keys)


@lru_cache(maxsize=65536)
def concept_key(name: str) -> str:
    """Return what a concept is known by: its content lemmas in order, or its characters; perhaps nothing."""
    if is_chinese(name):
        return simplify(normalise(name)).replace(" ", "")
    return " ".join(content_lemmas(name, "en"))

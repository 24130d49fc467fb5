"""CDP and CDF: how many responses draw on the commonsense graph, and how much that is rare (DCRAG, Section 4.1.3).

A response draws on a fact by hard matching (Zhou et al., ACL 2022): of its two concepts one is said before, and the
other in the response.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.evaluation.base import About, Mean, Measure, unavailable
from dialore.text import content_lemmas, content_words, is_chinese, normalise

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.evaluation.base import Sample
    from dialore.evaluation.registry import Context
    from dialore.knowledge import Fact
    from dialore.sources.graph.protocol import FactStore
    from dialore.text import Language

_LONGEST = 5
"""Words of the longest concept that is looked for; longer ones are said in these very words all but never."""
# The last graph and its matcher. The graph is held, as another may be given its id once it is gone.
_latest: list[tuple[Any, str, HardMatcher]] = []


def make(name: str, context: Context) -> Cdp | Cdf:
    """A metric of this file by name; both use one matcher for a graph."""
    matcher, graph = None, ""
    if context.graph is not None:
        graph = _mark(context.graph)
        if not (_latest and _latest[0][0] is context.graph and _latest[0][1] == graph):
            _latest[:] = [(context.graph, graph, HardMatcher(stores_of(context.graph)))]
        matcher = _latest[0][2]
    if name == "cdp":
        return Cdp(matcher, graph)
    table = None
    if matcher is not None and context.idf_corpus is not None:
        table = IdfTable(matcher, context.idf_corpus(), context.idf_corpus_name)
    return Cdf(matcher, table, graph)


def _mark(graph: Any) -> str:  # noqa: ANN401 - a graph or several
    """A graph's name and the fingerprint of its facts: one of the same name may hold others, or have been changed."""
    metas = (getattr(store, "meta", None) for store in stores_of(graph))
    return " ".join([str(graph.name), *(str(getattr(meta, "fingerprint", "")) for meta in metas)]).strip()


def stores_of(graph: Any) -> list[FactStore]:  # noqa: ANN401 - a graph or several
    """The stores of a graph, or of several as one."""
    return [part.store for part in getattr(graph, "graphs", [graph])]


class Cdp(Mean):
    """Commonsense Dialogue Proportion: the share of responses that at least one fact ties to their history."""

    about = About(
        "cdp",
        "DCRAG (EMNLP 2024), Section 4.1.3",
        "Share of responses with at least one fact of the graph between history and response, by hard matching.",
        needs=("graph",),
    )

    def __init__(self, matcher: HardMatcher | None, graph: str = "") -> None:
        self._matcher = matcher
        self.identity = graph

    async def measure(self, sample: Sample) -> Measure:
        """1 or 0."""
        if self._matcher is None:
            return unavailable("no graph was given")
        dialogue = sample.dialogue
        facts = self._matcher.match(dialogue.texts, sample.response.text, dialogue.language)
        return Measure((float(len(facts) > 0),))


class Cdf(Mean):
    """Commonsense Dialogue Feature: the summed IDF of the facts that tie a response to its history, on average."""

    def __init__(self, matcher: HardMatcher | None, table: IdfTable | None, graph: str = "") -> None:
        self._matcher, self._table = matcher, table
        self.identity = f"{graph} / {table.corpus if table is not None else ''}"
        corpus = f"; IDF of {table.corpus} ({table.size:,} dialogues)" if table is not None else ""
        self.about = About(
            "cdf",
            "DCRAG (EMNLP 2024), Section 4.1.3",
            f"Mean over responses of the summed IDF (in nats) of the facts between history and response{corpus}.",
            needs=("graph",),
            scale=0.0,
        )

    async def measure(self, sample: Sample) -> Measure:
        """The summed IDF."""
        if self._matcher is None:
            return unavailable("no graph was given")
        if self._table is None:
            return unavailable("no corpus was given for the IDF")
        dialogue = sample.dialogue
        facts = self._matcher.match(dialogue.texts, sample.response.text, dialogue.language)
        return Measure((sum(self._table.of(int(first), int(second)) for first, second in facts),))


class HardMatcher:
    """Finds the facts between texts.

    A concept is known by its content lemmas in order ("the wedding rings" is `wedding ring`), a Chinese one by its
    characters; a text says it where these stand beside each other among the text's own. Facts of the same two concepts
    under several relations are several facts; a concept with itself makes none.

    Args:
        stores: whose facts are matched; about 60 bytes a fact are held in memory.
    """

    def __init__(self, stores: Iterable[FactStore]) -> None:
        self._keys: dict[str, int] = {}
        pairs = [self._pair(fact) for store in stores for fact in store.facts()]
        known = np.array([pair for pair in pairs if pair is not None], dtype=np.int64).reshape(-1, 2)
        known.sort(axis=1)
        self._pairs = np.sort(known[:, 0] * self._size + known[:, 1])
        self._said = lru_cache(maxsize=65536)(self._concepts_in)

    @property
    def _size(self) -> int:
        return len(self._keys) + 1

    def _pair(self, fact: Fact) -> tuple[int, int] | None:
        ends = [concept_key(end) for end in (fact.head, fact.tail)]
        if not all(ends) or ends[0] == ends[1]:
            return None
        first, second = (self._keys.setdefault(end, len(self._keys)) for end in ends)
        return first, second

    def match(self, history: Sequence[str], response: str, language: Language) -> NDArray[np.int64]:
        """The facts between a history and a response, shape (facts, 2): the numbers of the concepts of each."""
        before, now = self.said(history, language), self._said(response, language)
        if not before or not now:
            return np.empty((0, 2), dtype=np.int64)
        first = np.fromiter(before, dtype=np.int64, count=len(before))[:, None]
        second = np.fromiter(now, dtype=np.int64, count=len(now))[None, :]
        wanted = np.unique(np.minimum(first, second) * self._size + np.maximum(first, second))
        begin = np.searchsorted(self._pairs, wanted, side="left")
        count = np.searchsorted(self._pairs, wanted, side="right") - begin
        found = np.repeat(wanted, count)
        return np.stack([found // self._size, found % self._size], axis=1)

    def said(self, texts: Iterable[str], language: Language) -> set[int]:
        """The numbers of all concepts that texts say."""
        return set().union(*(self._said(text, language) for text in texts))

    def _concepts_in(self, text: str, language: Language) -> frozenset[int]:
        words = content_words(text, "zh") if language == "zh" else content_lemmas(text, "en")
        glue = "" if language == "zh" else " "
        known = self._keys
        found = set()
        for begin in range(len(words)):
            key = ""
            for word in words[begin : begin + _LONGEST]:
                key = f"{key}{glue}{word}" if key else word
                number = known.get(key)
                if number is not None:
                    found.add(number)
        return frozenset(found)


@lru_cache(maxsize=65536)
def concept_key(name: str) -> str:
    """What a concept is known by: its content lemmas in order, or its characters; empty where nothing is left."""
    if is_chinese(name):
        return normalise(name).replace(" ", "")
    return " ".join(content_lemmas(name, "en"))


class IdfTable:
    """How rare a fact is in a corpus of dialogues: `ln((1 + N) / (1 + n))`, n of whose N dialogues say both concepts.

    DCRAG (Section 4.1.3) takes a fact's IDF without saying of which corpus: figures compare within one corpus only.

    Args:
        dialogues: the corpus, each with its reference where there is one.
    """

    def __init__(self, matcher: HardMatcher, dialogues: Iterable[Dialogue], corpus: str) -> None:
        self.corpus = corpus
        self._where: dict[int, set[int]] = {}
        count = 0
        for count, dialogue in enumerate(dialogues, start=1):
            texts = [*dialogue.texts, *([dialogue.reference] if dialogue.reference else [])]
            for concept in matcher.said(texts, dialogue.language):
                self._where.setdefault(concept, set()).add(count)
        self.size = count
        self.of = lru_cache(maxsize=None)(self._of)

    def _of(self, first: int, second: int) -> float:
        """The IDF of a fact between two concepts, in nats."""
        nowhere: set[int] = set()
        both = len(self._where.get(first, nowhere) & self._where.get(second, nowhere))
        return math.log((1 + self.size) / (1 + both))

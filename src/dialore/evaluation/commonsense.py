"""CDP and CDF: how many responses draw on the commonsense graph, and how much that is rare (DCRAG, Section 4.1.3).

A response draws on a fact by hard matching (Zhou et al., ACL 2022): of its two concepts one is said before, and the
other in the response.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dialore.evaluation.base import Mean, Sample, SampleScore, about_of, unavailable
from dialore.retrieval.graph.matching import HardMatcher, stores_of

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.evaluation.registry import Context


def make(name: str, context: Context) -> Cdp | Cdf:
    """Return a metric of this file by name; both use one matcher for a graph."""
    graph = "" if context.graph is None else _mark(context.graph)
    matcher = None if context.graph is None else _matcher(context.graph, graph)
    if name == "cdp":
        return Cdp(matcher, graph)
    table = None
    if matcher is not None and context.idf_corpus is not None:
        table = IdfTable(matcher, context.idf_corpus(), context.idf_corpus_name)
    return Cdf(matcher, table, graph)


@lru_cache(maxsize=1)
def _matcher(graph: Any, _mark: str) -> HardMatcher:  # noqa: ANN401 - a graph or several
    return HardMatcher(stores_of(graph))


def _mark(graph: Any) -> str:  # noqa: ANN401 - a graph or several
    """Return a graph's name and the fingerprint of its facts, as one of the same name may hold others."""
    metas = (getattr(store, "meta", None) for store in stores_of(graph))
    return " ".join([str(graph.name), *(str(getattr(meta, "fingerprint", "")) for meta in metas)]).strip()


class Cdp(Mean):
    """Commonsense Dialogue Proportion: the per cent of responses that a fact ties to their history."""

    about = about_of("cdp")

    def __init__(self, matcher: HardMatcher | None, graph: str = "") -> None:
        self._matcher = matcher
        self.identity = f"{graph}, per cent"

    async def measure(self, sample: Sample) -> SampleScore:
        """100 or 0."""
        if self._matcher is None:
            return unavailable("no graph was given")
        dialogue = sample.dialogue
        facts = self._matcher.match(dialogue.texts, sample.response.text, dialogue.language)
        return SampleScore((100.0 * (len(facts) > 0),))


class Cdf(Mean):
    """Commonsense Dialogue Feature: the summed IDF of the facts that tie a response to its history, on average."""

    def __init__(self, matcher: HardMatcher | None, table: IdfTable | None, graph: str = "") -> None:
        self._matcher, self._table = matcher, table
        self.identity = f"{graph} / {table.corpus if table is not None else ''}"
        self.about = about_of("cdf")
        if table is not None:
            definition = f"{self.about.definition[:-1]}; IDF of {table.corpus} ({table.size:,} dialogues)."
            self.about = replace(self.about, definition=definition)

    async def measure(self, sample: Sample) -> SampleScore:
        """Return the summed IDF."""
        if self._matcher is None:
            return unavailable("no graph was given")
        if self._table is None:
            return unavailable("no corpus was given for the IDF")
        dialogue = sample.dialogue
        facts = self._matcher.match(dialogue.texts, sample.response.text, dialogue.language)
        return SampleScore((sum(self._table.of(int(first), int(second)) for first, second in facts),))


class IdfTable:
    """How rare a fact is in a corpus of dialogues: `ln((1 + N) / (1 + n))`, n of whose N dialogues say both concepts.

    DCRAG (Section 4.1.3) takes a fact's IDF without saying of which corpus: figures compare within one corpus only.
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
        """Return the IDF of a fact between two concepts, in nats."""
        nowhere: set[int] = set()
        both = len(self._where.get(first, nowhere) & self._where.get(second, nowhere))
        return math.log((1 + self.size) / (1 + both))

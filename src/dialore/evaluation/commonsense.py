"""CDP and CDF: how many responses draw on the commonsense graph, and how much that is rare (DCRAG, Section 4.1.3).

A response draws on a fact by hard matching (Zhou et al., ACL 2022): of its two concepts one is said before, and the
other in the response.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dialore.evaluation.base import Mean, Sample, SampleScore, unavailable
from dialore.evaluation.registry import Context, OwnMetric
from dialore.retrieval.graph.matching import HardMatcher, stores_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@lru_cache(maxsize=1)
def _matcher(graph: Any, _mark: str) -> HardMatcher:  # noqa: ANN401 - a graph or several
    return HardMatcher(stores_of(graph))


def _mark(graph: Any) -> str:  # noqa: ANN401 - a graph or several
    """Return a graph's name and the fingerprint of its facts, as one of the same name may hold others."""
    metas = (getattr(store, "meta", None) for store in stores_of(graph))
    return " ".join([str(graph.name), *(str(getattr(meta, "fingerprint", "")) for meta in metas)]).strip()


class Cdp(OwnMetric, Mean):
    """Commonsense Dialogue Proportion: the per cent of responses that a fact ties to their history."""

    def __init__(self, name: str, context: Context) -> None:
        super().__init__(name, context)
        self._graph = "" if context.graph is None else _mark(context.graph)
        self._matcher = None if context.graph is None else _matcher(context.graph, self._graph)
        self.identity = f"{self._graph}, per cent"

    async def measure(self, sample: Sample) -> SampleScore:
        """100 or 0; of CDF the summed IDF."""
        if self._matcher is None:
            return unavailable("no graph was given")
        dialogue = sample.dialogue
        return self._weigh(self._matcher.match(dialogue.texts, sample.response.text, dialogue.language))

    def _weigh(self, facts: NDArray[np.int64]) -> SampleScore:
        return SampleScore((100.0 * (len(facts) > 0),))


class Cdf(Cdp):
    """Commonsense Dialogue Feature: the summed IDF of the facts that tie a response to its history, on average.

    DCRAG (Section 4.1.3) takes a fact's IDF without saying of which corpus: figures compare within one corpus only.
    """

    def __init__(self, name: str, context: Context) -> None:
        super().__init__(name, context)
        corpus = ""
        self._said_in: dict[int, set[int]] | None = None  # by concept, the numbers of the dialogues that say it
        if self._matcher is not None and context.idf_corpus is not None:
            corpus, self._said_in, self._size = context.idf_corpus_name, {}, 0
            for dialogue in context.idf_corpus():
                self._size += 1
                texts = [*dialogue.texts, *([dialogue.reference] if dialogue.reference else [])]
                for concept in self._matcher.said(texts, dialogue.language):
                    self._said_in.setdefault(concept, set()).add(self._size)
            definition = f"{self.about.definition[:-1]}; IDF of {corpus} ({self._size:,} dialogues)."
            self.about = replace(self.about, definition=definition)
        self.identity = f"{self._graph} / {corpus}"
        self._idf = lru_cache(maxsize=None)(self._idf_of)

    def _weigh(self, facts: NDArray[np.int64]) -> SampleScore:
        if self._said_in is None:
            return unavailable("no corpus was given for the IDF")
        return SampleScore((sum(self._idf(int(first), int(second)) for first, second in facts),))

    def _idf_of(self, first: int, second: int) -> float:
        """Return `ln((1 + N) / (1 + n))`, n of whose N dialogues say both concepts of a fact."""
        said_in, nowhere = self._said_in or {}, set[int]()
        both = len(said_in.get(first, nowhere) & said_in.get(second, nowhere))
        return math.log((1 + self._size) / (1 + both))

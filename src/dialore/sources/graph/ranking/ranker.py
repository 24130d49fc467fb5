"""Ranking a set of facts: a score for each, a close look at the best, and taking them with regard to each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dialore.sources.graph.ranking.cosines import FactCosines
from dialore.sources.graph.ranking.diversity import owners, pool, take
from dialore.sources.graph.ranking.filters import is_safe, is_well_formed
from dialore.sources.graph.ranking.fusion import bm25, fused
from dialore.sources.graph.store.edges import Edges
from dialore.text import content_stems

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dialore.knowledge import Fact
    from dialore.retrieval.embedding import Embedder
    from dialore.sources.graph.ranking.question import Question, QuestionVectors
    from dialore.sources.graph.ranking.settings import Ranking
    from dialore.sources.graph.store.protocol import FactStore
    from dialore.text import Language

DIGITS = 4
"""Scores are rounded before they are compared, so that machines whose last bits differ rank alike."""
_LEAST_SPARE = 2
"""The pool holds at least so many times as many facts as are wanted, so that dropped ones can be made good."""
_AHEAD = 2
"""Of each side of a hub so many times the pool are read, so that the pool can grow before more are read."""

_REMEMBERED = 32_768
"""Facts' ends that are kept, about 5 MB."""

RowsOf = Callable[[Edges], "NDArray[np.intp]"]
"""Chooses rows of facts."""


@dataclass(frozen=True, slots=True)
class Scored:
    """Facts with what they are ranked by.

    Attributes:
        concepts: whose facts they are.
        keep: how many of a hub's facts were asked for at least.
        edges: the facts.
        scores: float32 (facts,), rounded.
        owner: each fact's concept, as its place among those asked for.
        question: what they were scored by.
        vectors: the question's vectors.
        language: the dialogue's.
    """

    concepts: Sequence[int]
    keep: int
    edges: Edges
    scores: NDArray[np.float32]
    owner: NDArray[np.intp]
    question: Question
    vectors: QuestionVectors
    language: Language

    @property
    def partial(self) -> bool:
        """Whether a hub has more facts than are here."""
        return len(self.edges) < self.edges.total


class Ranker:
    """Ranks the facts of one store.

    Args:
        store: the facts.
        embedder: scores all of them.
        ranking: the settings.
        reranker: scores the pool again; slower and better.
    """

    def __init__(
        self, store: FactStore, embedder: Embedder, ranking: Ranking, reranker: Embedder | None = None
    ) -> None:
        self._store = store
        self._embedder, self._reranker = embedder, reranker
        self.ranking = ranking
        self._ends = Ends(store)
        self._cosines = FactCosines(store, embedder)
        self._closer = FactCosines(store, reranker) if reranker is not None else None

    @property
    def _looked_at(self) -> int:
        return self.ranking.pool if self._closer is None else self.ranking.rerank

    def ask(self, concepts: Sequence[int], question: Question, language: Language, top: int) -> Scored:
        """The facts of the concepts, scored by the question; of hubs at least those among which the best `top` are."""
        vectors = question.vectors(self._embedder, self.ranking)
        return self._scored(concepts, question, vectors, language, _AHEAD * self._first_pool(top))

    def _first_pool(self, top: int) -> int:
        return max(self._looked_at, _LEAST_SPARE * top)

    def _scored(
        self, concepts: Sequence[int], question: Question, vectors: QuestionVectors, language: Language, keep: int
    ) -> Scored:
        edges = self._cosines.edges(concepts, vectors.whole, keep)
        scores = self._cosines.of_facts(edges, vectors.whole, language)
        owner, counts = owners(edges)
        if self.ranking.specificity and len(edges):
            scores = scores - (self.ranking.specificity * np.log(np.maximum(counts, 1))).astype(np.float32)[owner]
        scores = np.round(scores, DIGITS) + np.float32(0)  # no negative zeros
        return Scored(concepts, keep, edges, scores, owner, question, vectors, language)

    def best(self, scored: Scored, rows_of: RowsOf, top: int, *, whole: bool = False) -> list[tuple[Fact, float]]:
        """The best of some of the facts, with their scores, best first; where too few are left, more are read.

        Args:
            scored: the facts.
            rows_of: gives the rows to choose from.
            top: how many.
            whole: whether all rows to choose from are here, however many of a hub's were read: those between concepts.
        """
        if self.ranking.plain and self._closer is None:
            best = scored.edges.best(scored.scores, rows_of(scored.edges), top)
            return [(self._store.fact(scored.edges, row), float(scored.scores[row])) for row in best]
        rows = rows_of(scored.edges)
        if top <= 0 or not len(rows):
            return []
        size = self._first_pool(top)
        looked: NDArray[np.float32] | None = None
        while True:
            edges = scored.edges
            close = pool(edges, scored.scores, scored.owner, rows, self.ranking.decay, size)
            if looked is None:  # a larger pool begins with the same facts
                looked = self._look_closely(scored, close[: self._looked_at])
            scores = self._with_rest(scored, close, looked)
            chooser = _Chooser(self._store, edges, close, self.ranking, self._ends)
            taken = take(edges, scores, scored.owner, close, self.ranking.decay, top, chooser.accept)
            more = not whole and scored.partial
            if len(taken) == top or (len(close) == len(rows) and not more):
                return [(self._store.fact(edges, row), score) for row, score in taken]
            size *= _LEAST_SPARE
            if more and size > scored.keep:
                scored = self._scored(scored.concepts, scored.question, scored.vectors, scored.language, _AHEAD * size)
                rows, looked = rows_of(scored.edges), None

    def _look_closely(self, scored: Scored, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """The scores of the first facts of a pool, with what is too dear to be asked of every fact."""
        scores = scored.scores[rows]
        if self._closer is not None and self._reranker is not None:
            scores = self._reranked(scored, rows, self._closer, self._reranker)
        elif self.ranking.nearest and len(scored.vectors.phrases):
            scores = scores + np.float32(self.ranking.nearest) * self._nearest(scored, rows)
        if self.ranking.lexical or self.ranking.weight:
            fusion = [(scores, 1.0)]
            if self.ranking.lexical:
                fusion.append((self._lexical(scored, rows), self.ranking.lexical))
            if self.ranking.weight:
                fusion.append((scored.edges.weight[rows], self.ranking.weight))
            scores = fused(fusion)
        return scores

    def _with_rest(self, scored: Scored, rows: NDArray[np.intp], looked: NDArray[np.float32]) -> NDArray[np.float32]:
        """The scores of a pool whose first facts were looked at closely; the rest come after."""
        behind = 0.0
        if self._closer is not None:
            behind = 2.0  # behind every one that was looked at
        elif len(scored.vectors.phrases):
            behind = self.ranking.nearest
        rest = scored.scores[rows[len(looked) :]] - np.float32(behind)
        return np.round(np.concatenate([looked, rest]), DIGITS) + np.float32(0)

    def _nearest(self, scored: Scored, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """How near the end that is not the fact's own concept is to the demand nearest to it."""
        edges = scored.edges
        own = edges.asked[scored.owner[rows]]
        other = np.where(edges.head[rows] == own, edges.tail[rows], edges.head[rows])
        concepts, places = np.unique(other, return_inverse=True)
        near: NDArray[np.float32] = (self._cosines.of_concepts(concepts) @ scored.vectors.phrases.T).max(axis=1)
        return near[places]

    def _reranked(
        self, scored: Scored, rows: NDArray[np.intp], closer: FactCosines, reranker: Embedder
    ) -> NDArray[np.float32]:
        whole = scored.question.vectors(reranker, self.ranking).whole
        found = closer.encode(closer.wordings(scored.edges, rows.tolist(), scored.language)) @ whole
        cost = self.ranking.specificity * np.log(np.maximum(scored.edges.degrees, 1))[scored.owner[rows]]
        return (found - cost).astype(np.float32)

    def _lexical(self, scored: Scored, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        edges, language = scored.edges, scored.language
        name = self._store.concept
        ends = ((name(int(edges.head[row])), name(int(edges.tail[row]))) for row in rows)
        documents = [[*content_stems(head, language), *content_stems(tail, language)] for head, tail in ends]
        texts = (scored.question.history, *scored.question.phrases)
        return bm25(documents, (stem for text in texts for stem in content_stems(text, language)))


class Ends:
    """The names of facts' ends and whether each is safe, the latest remembered: one is the end of many facts.

    Args:
        store: whose concepts they are.
    """

    def __init__(self, store: FactStore) -> None:
        self._store = store
        self._known: dict[int, tuple[str, bool]] = {}

    def of(self, concept: int) -> tuple[str, bool]:
        """A concept's name, and whether it is safe."""
        found = self._known.get(concept)
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            name = self._store.concept(concept)
            found = self._known[concept] = name, is_safe(name)
        return found


class _Chooser:
    """Says of some of the facts, asked the best first, whether each may be taken beside those taken before."""

    def __init__(self, store: FactStore, edges: Edges, rows: NDArray[np.intp], ranking: Ranking, ends: Ends) -> None:
        self._ranking, self._end = ranking, ends.of
        self._names = store.meta.relations
        self._dropped = frozenset(number for number, name in enumerate(self._names) if name in ranking.without)
        columns = (column[rows].tolist() for column in (edges.head, edges.relation, edges.tail))
        self._facts = dict(zip(rows.tolist(), zip(*columns, strict=True), strict=True))
        self._pairs: set[tuple[int, int]] = set()

    def accept(self, row: int) -> bool:
        """Whether the fact may be taken; it then counts as taken."""
        head, relation, tail = self._facts[row]
        if relation in self._dropped:
            return False
        ranking = self._ranking
        pair = (head, tail) if head < tail else (tail, head)
        if ranking.fold and pair in self._pairs:
            return False
        if ranking.well_formed or ranking.safe:
            (one, one_safe), (other, other_safe) = self._end(head), self._end(tail)
            if ranking.safe and not (one_safe and other_safe):
                return False
            if ranking.well_formed and not is_well_formed(one, self._names[relation], other):
                return False
        self._pairs.add(pair)
        return True

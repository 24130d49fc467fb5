"""Ranking a set of facts: a score for each, a close look at the best, and taking them with regard to each other."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from dialore.errors import InputError, UnknownNameError
from dialore.retrieval.embedding import CachedEmbedder
from dialore.retrieval.fusion import unit
from dialore.retrieval.graph.relations import RELATIONS, is_safe, is_well_formed, verbalise
from dialore.retrieval.graph.store import HUB_FACTS
from dialore.retrieval.graph.vectors import fact_norms, relation_sums
from dialore.retrieval.static import StaticEmbedder

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.knowledge import Fact
    from dialore.retrieval.embedding import Embedder
    from dialore.retrieval.graph.store import Edges, GraphStore

UNINFORMATIVE = frozenset(name for name, known in RELATIONS.items() if not known.informative)
"""Relations that speak of words, not of the world: ExternalURL, DerivedFrom, FormOf, ..."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The weights of a fact's rank. The defaults were chosen on real turns (`scripts/measure_retrieval.py`).

    A fact's score is its cosine with the question, plus `nearest` times the cosine of its other end with the demand
    that is nearest to it, less `specificity` times the logarithm of its concept's number of facts. Facts are taken
    one by one, the best first; each that is taken costs the other facts of its concept: with k taken, `decay` times
    log2(1 + k). A fact's concept is the demanded one, the one with fewer facts where both ends are.

    Attributes:
        history: how many of the latest turns the question holds; 0: all.
        demands: weight in the question of the demands' wording, that of the history being 1.
        nearest: weight of the other end's nearest demand.
        specificity: cost of a concept with many facts.
        decay: cost of a concept that has facts in the list already.
        pool: facts of a set that are looked at closely, by `nearest`.
        fold: whether of the facts between two concepts only the best is taken, whatever relation or direction.
        well_formed: whether self-loops, clauses and concepts that name nothing ("something", "it") are dropped.
        safe: whether facts that the lists of unsafe words find are dropped.
        without: relations whose facts are dropped.
        hub: facts of each side of a concept that are ranked: its heaviest, beside those that are foreseen; 0: all. With
            the default a hub of 50,000 facts costs a question 1.4 ms more than a small concept; with twice it, 5 ms.
        triples: whether facts are embedded as triples, `(honey, UsedFor, sore throat)`, not as sentences.
    """

    history: int = 3
    demands: float = 2.0
    nearest: float = 0.15
    specificity: float = 0.03
    decay: float = 0.05
    pool: int = 60
    fold: bool = True
    well_formed: bool = True
    safe: bool = True
    without: frozenset[str] = UNINFORMATIVE | {"Synonym"}
    hub: int = HUB_FACTS
    triples: bool = False

    def __post_init__(self) -> None:
        """Check the numbers; raises InputError for one below zero, or an empty pool."""
        for name in ("history", "demands", "nearest", "specificity", "decay", "hub"):
            if getattr(self, name) < 0:
                raise InputError(f"ranking: {name} must not be negative, got {getattr(self, name)}")
        if self.pool < 1:
            raise InputError(f"ranking: pool must be at least 1, got {self.pool}")

    @classmethod
    def named(cls, spec: str) -> Self:
        """`default`, or `paper`: DCRAG's cosine of triple and history; with changes, `paper,hub=0,without=Synonym+IsA`.

        Raises:
            UnknownNameError: no ranking or no field is called that.
            InputError: a value does not fit.
        """
        name, *changes = spec.split(",")
        if name.partition("=")[1]:
            name, changes = "default", [name, *changes]
        if name not in RANKINGS:
            raise UnknownNameError("ranking", name, RANKINGS)
        values = dict(RANKINGS[name])
        for change in changes:
            field, _, value = change.partition("=")
            if field not in cls.__dataclass_fields__:
                raise UnknownNameError("field of ranking", field, cls.__dataclass_fields__)
            values[field] = frozenset(value.split("+")) - {""} if field == "without" else value
        try:
            return TypeAdapter(cls).validate_python(values)
        except ValidationError as error:
            wrong = "; ".join(f"{issue['loc'][0]}: {issue['msg']}" for issue in error.errors())
            raise InputError(f"ranking {spec}: {wrong}", hint="write it like paper,history=5") from error


RANKINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": dict.fromkeys(("history", "demands", "nearest", "specificity", "decay", "hub"), 0)
    | dict.fromkeys(("fold", "well_formed", "safe"), False)
    | {"without": frozenset(), "triples": True},
}
"""The settings of each named ranking, where they are not the defaults."""


# --- the ranker

_DIGITS = 4
"""Scores are rounded before they are compared, so that machines whose last bits differ rank alike."""
_LEAST_SPARE = 2
"""The pool holds at least so many times as many facts as are wanted, so that dropped ones can be made good."""
_ENCODED = 20_000  # texts whose vectors are kept, 20 MB of 256 components


@dataclass(frozen=True, slots=True)
class _Scored:
    """Facts with their rounded scores, each one's concept by its place among those asked for, the phrases' vectors."""

    edges: Edges
    scores: NDArray[np.float32]
    owner: NDArray[np.intp]
    phrases: NDArray[np.float32]


class Ranker:
    """Ranks the facts of a store by an embedder, and by the store's own vectors where that made them."""

    def __init__(self, store: GraphStore, embedder: Embedder, ranking: Ranking) -> None:
        self._store, self._embedder, self.ranking = store, embedder, ranking
        self._encoded = CachedEmbedder(embedder, _ENCODED)
        own = not ranking.triples and store.meta.embedder_fingerprint == embedder.fingerprint
        self._own = store if own else None
        self._linear: LinearCosines | None = None
        if self._own is None and isinstance(embedder, StaticEmbedder):
            self._linear = LinearCosines(store, embedder, triples=ranking.triples)

    def ask(self, concepts: Sequence[int], dialogue: Dialogue, demands: Iterable[str]) -> _Scored:
        """Return the facts of the concepts, of a hub's the heaviest, scored by a dialogue and its demands."""
        query, phrases = self._question(dialogue, tuple(dict.fromkeys(demands)))
        edges = self._store.edges_of(concepts, query if self._own else None, self.ranking.hub or None)
        if edges.cosines is not None:
            scores = edges.cosines
        elif self._linear is not None and len(edges):
            scores = self._linear(edges, query)
        else:
            facts = (self._store.fact(edges, row) for row in range(len(edges)))
            wordings = [f.triple if self.ranking.triples else verbalise(f, dialogue.language) for f in facts]
            scores = self._encoded.encode(wordings) @ query if wordings else np.empty(0, np.float32)
        owner, counts = owners(edges)
        if self.ranking.specificity and len(edges):
            scores = scores - (self.ranking.specificity * np.log(np.maximum(counts, 1))).astype(np.float32)[owner]
        scores = np.round(scores, _DIGITS) + np.float32(0)  # no negative zeros
        return _Scored(edges, scores, owner, phrases)

    def _question(
        self, dialogue: Dialogue, demands: tuple[str, ...]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the question's unit vector, or zero, and the demands' where the ranking asks for them."""
        ranking = self.ranking
        asked, near = (demands if weight else () for weight in (ranking.demands, ranking.nearest))
        history = "\n".join(dialogue.texts[-ranking.history :] if ranking.history else dialogue.texts)
        rows = self._embedder.encode([history, *(["\n".join(asked)] if asked else []), *near])
        whole = rows[0]
        if asked:
            whole = rows[0] + np.float32(ranking.demands) * rows[1]
            length = float(np.linalg.norm(whole))
            whole = whole / np.float32(length) if length > 0 else whole
        return whole, rows[len(rows) - len(near) :]

    def best(self, scored: _Scored, rows: NDArray[np.intp], top: int) -> list[tuple[Fact, float]]:
        """Return the best of some rows of the facts, with their scores, best first."""
        if top <= 0 or not len(rows):
            return []
        edges, decay = scored.edges, self.ranking.decay
        size = max(self.ranking.pool, _LEAST_SPARE * top)
        looked: NDArray[np.float32] | None = None
        while True:
            close = pool(edges, scored.scores, scored.owner, rows, decay, size)
            if looked is None:  # a larger pool begins with the same facts
                looked = self._nearest(scored, close[: self.ranking.pool])
            # The rest come after those that were looked at closely.
            rest = scored.scores[close[len(looked) :]] - np.float32(self.ranking.nearest if len(scored.phrases) else 0)
            scores = np.round(np.concatenate([looked, rest]), _DIGITS) + np.float32(0)
            taken = take(edges, scores, scored.owner, close, decay, top, self._acceptor(edges))
            if len(taken) == top or len(close) == len(rows):
                return [(self._store.fact(edges, row), score) for row, score in taken]
            size *= _LEAST_SPARE

    def _nearest(self, scored: _Scored, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """Scores with how near the end that is not the fact's own concept is to the demand nearest to it."""
        edges, scores = scored.edges, scored.scores[rows]
        if not len(scored.phrases):
            return scores
        own = edges.asked[scored.owner[rows]]
        other = np.where(edges.head[rows] == own, edges.tail[rows], edges.head[rows])
        concepts, places = np.unique(other, return_inverse=True)
        if self._own is not None:
            vectors = unit(self._own.concept_sums(concepts))
        else:
            vectors = self._encoded.encode([self._store.concept(number) for number in concepts.tolist()])
        near: NDArray[np.float32] = (vectors @ scored.phrases.T).max(axis=1)
        return scores + np.float32(self.ranking.nearest) * near[places]

    # --- what may be taken

    def _acceptor(self, edges: Edges) -> Callable[[int], bool]:
        """Return what says of rows, asked the best first, whether each may be taken beside those taken before."""
        ranking, relations, concept = self.ranking, self._store.meta.relations, self._store.concept
        pairs: set[tuple[int, int]] = set()

        def accept(row: int) -> bool:
            head, relation, tail = (column.item(row) for column in (edges.head, edges.relation, edges.tail))
            if relations[relation] in ranking.without:
                return False
            pair = (head, tail) if head < tail else (tail, head)
            if ranking.fold and pair in pairs:
                return False
            source, target = concept(head), concept(tail)
            if ranking.safe and not (is_safe(source) and is_safe(target)):
                return False
            if ranking.well_formed and not is_well_formed(source, relations[relation], target):
                return False
            pairs.add(pair)
            return True

        return accept


class LinearCosines:
    """Cosines of facts whose store has no vectors, as a graph file built with the same embedder gives them."""

    def __init__(self, store: GraphStore, embedder: StaticEmbedder, *, triples: bool = False) -> None:
        self._store, self._embedder = store, embedder
        self._relations = relation_sums(store.meta.relations, embedder, triples=triples)

    def __call__(self, edges: Edges, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n,): each fact's cosine with a unit query (dimension,); 0 for a fact in which nothing is known."""
        concepts, places = np.unique(np.concatenate([edges.head, edges.tail]), return_inverse=True)
        head, tail = places[: len(edges)], places[len(edges) :]
        sums = self._embedder.sums([self._store.concept(number) for number in concepts.tolist()]).astype(np.float32)
        norms = fact_norms(head, edges.relation, tail, sums.__getitem__, self._relations)
        products = sums @ query
        total: NDArray[np.float32] = products[head] + products[tail] + (self._relations @ query)[edges.relation]
        return total / norms


# --- diversity


def owners(edges: Edges) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return each fact's concept, the one with fewer facts, as its place among those asked for; their degrees."""
    head, tail, counts = edges.head_place, edges.tail_place, edges.degrees
    owner = np.maximum(head, tail)
    both = np.flatnonzero((head >= 0) & (tail >= 0))
    heads, tails = head[both], tail[both]
    owner[both] = np.where(counts[heads] <= counts[tails], heads, tails)
    return owner, counts


def pool(
    edges: Edges, scores: NDArray[np.float32], owner: NDArray[np.intp], rows: NDArray[np.intp], decay: float, size: int
) -> NDArray[np.intp]:
    """Return the best `size` of the rows, decay counted, best first; equal ones in order of head, relation and tail."""
    counts = np.bincount(owner[rows])
    for concept in np.flatnonzero(counts > 2 * size).tolist():  # no concept has more than `size` of the best
        of_concept = owner[rows] == concept
        least = np.partition(scores[rows[of_concept]], -size)[-size]
        rows = rows[~of_concept | (scores[rows] >= least)]
    rows = rows[np.lexsort((*_names(edges, rows), -scores[rows], owner[rows]))]
    of = owner[rows]
    first = np.flatnonzero(np.diff(of, prepend=-1))
    rank = np.arange(len(rows)) - np.repeat(first, np.diff(np.append(first, len(rows))))
    adjusted = np.round(scores[rows] - np.float32(decay) * np.log2(1 + rank).astype(np.float32), _DIGITS)
    if size < len(rows):
        bound = len(rows) - size
        near = adjusted >= np.partition(adjusted, bound)[bound]
        rows, adjusted = rows[near], adjusted[near]
    return rows[np.lexsort((*_names(edges, rows), -adjusted))[:size]]


def _names(edges: Edges, rows: NDArray[np.intp]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Keys, the least first as numpy wants them, that sort by head, relation and tail."""
    first = edges.head[rows].astype(np.uint64) << np.uint64(16)
    return edges.tail[rows], first | edges.relation[rows]


def take(
    edges: Edges,
    scores: NDArray[np.float32],
    owner: NDArray[np.intp],
    rows: NDArray[np.intp],
    decay: float,
    top: int,
    accept: Callable[[int], bool],
) -> list[tuple[int, float]]:
    """Take facts with their scores, the best first; a concept's k-th costs `decay` * log2(1 + k), no refused one."""
    ties = np.empty(len(rows), np.intp)  # each row's place in order of head, relation and tail
    ties[np.lexsort(_names(edges, rows))] = np.arange(len(rows))
    queues: dict[int, list[tuple[float, int, int]]] = {}
    of_rows = zip((-scores.astype(np.float64)).tolist(), ties.tolist(), rows.tolist(), strict=True)
    for concept, entry in sorted(zip(owner[rows].tolist(), of_rows, strict=True), reverse=True):
        queues.setdefault(concept, []).append(entry)  # the best last
    heap = [(*queue[-1][:2], concept) for concept, queue in queues.items()]
    heapq.heapify(heap)
    counts = dict.fromkeys(queues, 0)
    taken: list[tuple[int, float]] = []
    while heap and len(taken) < top:
        negative, _, concept = heap[0]
        queue = queues[concept]
        row = queue.pop()[2]
        if accept(row):
            taken.append((row, -negative))
            counts[concept] += 1
        if queue:
            score, tie, _ = queue[-1]
            heapq.heapreplace(heap, (round(score + decay * math.log2(1 + counts[concept]), _DIGITS), tie, concept))
        else:
            heapq.heappop(heap)
    return taken

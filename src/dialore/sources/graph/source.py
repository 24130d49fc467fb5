"""The commonsense graph as a source of knowledge: demands in, ranked facts out (DCRAG, Section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np

from dialore.knowledge import Fact, Knowledge
from dialore.sources.graph.facts.relations import verbalise
from dialore.sources.graph.linking.linker import Link, Linker, best_links
from dialore.sources.graph.ranking.question import Question
from dialore.sources.graph.ranking.ranker import Ranker
from dialore.sources.graph.ranking.settings import Ranking
from dialore.sources.graph.servers.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from typing import Literal

    from dialore.dialogue import Dialogue
    from dialore.response import Demands
    from dialore.retrieval.embedding import Embedder
    from dialore.sources.graph.store.edges import Edges
    from dialore.sources.graph.store.protocol import FactStore
    from dialore.text import Language

    SetName = Literal["", "foreseen", "unforeseen"]

_BUSIEST = 2_000
"""A neighbour with more facts than these is no second hop: it would bring in everything."""


@dataclass(frozen=True, slots=True)
class Retrieval:
    """What the graph holds for a dialogue's demands.

    Attributes:
        foreseen: facts between a query and a topic, best first.
        unforeseen: facts of a query or a topic that are not foreseen, best first.
        links: how the demands were linked to concepts.
        unlinked: demands that no concept was found for.
        foreseen_found: how many foreseen facts there were before the cut.
        unforeseen_found: the same of the unforeseen.
    """

    foreseen: list[Knowledge] = field(default_factory=list)
    unforeseen: list[Knowledge] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    unlinked: list[str] = field(default_factory=list)
    foreseen_found: int = 0
    unforeseen_found: int = 0


class Graph:
    """A commonsense graph: links phrases, retrieves facts and ranks them.

    Args:
        store: the facts.
        embedder: ranks them. Where it made the graph's vectors they are used as they are.
        ranking: the settings, or the name of some: `default`, or `paper` for DCRAG's own.
        reranker: an embedder that looks at the best `ranking.rerank` facts of a set again: slower and better.

    Raises:
        UnknownNameError: no ranking is called that.
    """

    def __init__(
        self,
        store: FactStore,
        embedder: Embedder,
        ranking: Ranking | str = "default",
        reranker: Embedder | None = None,
    ) -> None:
        self.store = store
        self.embedder = embedder
        self.ranking = Ranking.named(ranking) if isinstance(ranking, str) else ranking
        self.linker = Linker(store, embedder)
        self._ranker = Ranker(store, embedder, self.ranking, reranker)

    @classmethod
    def open(
        cls,
        path: Path | str,
        embedder: Embedder | None = None,
        ranking: Ranking | str = "default",
        reranker: Embedder | None = None,
    ) -> Self:
        """Open a graph file or a server's graph (see `open_store`); raises as `open_store` and Graph do."""
        from dialore.retrieval.embedding import load_embedder

        return cls(open_store(path), embedder or load_embedder(), ranking, reranker)

    @property
    def name(self) -> str:
        """The graph's name."""
        return self.store.meta.name

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    # --- retrieval

    def retrieve(self, demands: Demands, dialogue: Dialogue, top: int = 50) -> Retrieval:
        """Foreseen and unforeseen facts (DCRAG, Section 3.3).

        Foreseen: the head is a query and the tail a topic, or the reverse. Unforeseen: head or tail is either, less
        the foreseen. Each set is ranked (see `Ranking`) and cut to the top.

        Args:
            demands: queries and topics.
            dialogue: whose history facts are ranked by.
            top: facts to keep of each set.
        """
        language = dialogue.language
        phrases = tuple(dict.fromkeys((*demands.queries, *demands.topics)))
        links = {phrase: self.linker.link(phrase, language) for phrase in phrases}
        query_links = best_links(links[phrase] for phrase in demands.queries)
        topic_links = best_links(links[phrase] for phrase in demands.topics)
        queries = [link.concept for link in query_links]
        topics = [link.concept for link in topic_links]
        edges = self.store.edges_of([*queries, *topics])
        between = edges.between(queries, topics)
        foreseen, unforeseen = np.flatnonzero(between), np.flatnonzero(~between)
        question = Question.of(dialogue, phrases, self.ranking)
        scored = self._ranker.score(edges, question, language)
        second = self._known(edges, self._ranker.best(scored, unforeseen, top), dialogue, "unforeseen")
        if self.ranking.hops:
            second = self._with_neighbours(second, {*queries, *topics}, question, dialogue, top)
        return Retrieval(
            foreseen=self._known(edges, self._ranker.best(scored, foreseen, top), dialogue, "foreseen"),
            unforeseen=second,
            links=best_links([query_links, topic_links]),
            unlinked=[phrase for phrase, found in links.items() if not found],
            foreseen_found=len(foreseen),
            unforeseen_found=len(unforeseen),
        )

    def retrieve_queries(self, links: Sequence[Link], dialogue: Dialogue, top: int = 20) -> tuple[list[Knowledge], int]:
        """Facts whose head or tail is a linked query, ranked alike: what DCRAG's RAG baselines do (Section 4.1.2).

        Returns:
            The best facts, and how many there were before the cut.
        """
        edges = self.store.edges_of(link.concept for link in links)
        question = Question.of(dialogue, (link.phrase for link in links), self.ranking)
        scored = self._ranker.score(edges, question, dialogue.language)
        return self._known(edges, self._ranker.best(scored, np.arange(len(edges)), top), dialogue, ""), len(edges)

    def link(self, phrases: Sequence[str], dialogue: Dialogue) -> list[Link]:
        """The concepts that phrases name, each once, by its best link."""
        return best_links(self.linker.link(phrase, dialogue.language) for phrase in phrases)

    def mentions(self, dialogue: Dialogue) -> list[Link]:
        """Every concept that the history mentions, in order of mention."""
        return self.linker.mentions(dialogue.texts, dialogue.language)

    def mentions_in(self, texts: Iterable[str], language: Language) -> list[Link]:
        """Every concept that texts mention, in order of mention."""
        return self.linker.mentions(texts, language)

    def degree(self, link: Link) -> int:
        """How many facts a linked concept has."""
        return self.store.degree(link.concept)

    @property
    def facts_count(self) -> int:
        """How many facts there are."""
        return self.store.meta.facts

    def facts_of(self, name: str) -> list[Fact]:
        """Every fact of one concept, the heaviest first; empty where the graph does not have it."""
        concept = self.store.find(name)
        if concept is None:
            return []
        edges = self.store.edges_of([concept])
        return sorted((self.store.fact(edges, row) for row in range(len(edges))), key=lambda fact: -fact.weight)

    # --- helpers

    def _known(
        self, edges: Edges, best: Iterable[tuple[int, float]], dialogue: Dialogue, set_name: SetName
    ) -> list[Knowledge]:
        found = []
        for row, score in best:
            fact = self.store.fact(edges, row)
            found.append(Knowledge.of_fact(fact, verbalise(fact, dialogue.language), round(score, 4), set_name))
        return found

    def _with_neighbours(
        self, best: list[Knowledge], asked: set[int], question: Question, dialogue: Dialogue, top: int
    ) -> list[Knowledge]:
        """The best facts with those of the neighbours that they lead to, as many as `ranking.hops`, by one score."""
        ends = (self.store.find(item.detail[end]) for item in best for end in ("head", "tail"))
        found = dict.fromkeys(end for end in ends if end is not None and end not in asked)
        neighbours = [concept for concept in found if self.store.degree(concept) <= _BUSIEST][: self.ranking.hops]
        edges = self.store.edges_of(neighbours)
        demanded = np.array(sorted(asked), np.uint32)
        rows = np.flatnonzero(~(np.isin(edges.head, demanded) | np.isin(edges.tail, demanded)))
        scored = self._ranker.score(edges, question, dialogue.language)
        more = self._known(edges, self._ranker.best(scored, rows, top), dialogue, "unforeseen")
        return sorted((*best, *more), key=lambda item: -item.score)[:top]

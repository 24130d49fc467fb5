"""The commonsense graph as a source of knowledge: demands in, ranked facts out (DCRAG, Section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dialore.knowledge import Fact, Knowledge
from dialore.sources.graph.linking import Link, Linker, best_links
from dialore.sources.graph.ranking import Question, Ranker, Ranking
from dialore.sources.graph.relations import verbalise
from dialore.sources.graph.store import GraphStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Literal

    from dialore.dialogue import Dialogue
    from dialore.response import Demands
    from dialore.retrieval.embedding import Embedder
    from dialore.sources.graph.store import FactStore
    from dialore.text import Language

    SetName = Literal["", "foreseen", "unforeseen"]


@dataclass(frozen=True, slots=True)
class _View:
    """One state of a graph, with what links phrases to its concepts and ranks its facts."""

    store: FactStore
    linker: Linker
    ranker: Ranker

    def concept(self, link: Link) -> int | None:
        """The concept of a link, which may have been made in another state: where the graph was built anew, by name."""
        here = link.concept < self.store.meta.concepts and self.store.concept(link.concept) == link.name
        return link.concept if here else self.store.find(link.name)


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

    A question sees one state of the graph: the newest when it was asked, whichever process has changed the graph.

    Args:
        store: the facts.
        embedder: ranks them. Where it made the graph's vectors they are used as they are.
        ranking: the settings, or the name of some: `default`, or `paper` for DCRAG's own.

    Raises:
        UnknownNameError: no ranking is called that.
    """

    def __init__(self, store: FactStore, embedder: Embedder, ranking: Ranking | str = "default") -> None:
        self.embedder = embedder
        self.ranking = Ranking.named(ranking) if isinstance(ranking, str) else ranking
        self._last = self._view(store)

    @property
    def store(self) -> FactStore:
        """The facts, as they were when a question was last asked."""
        return self._last.store

    @property
    def name(self) -> str:
        """The graph's name."""
        return self.store.meta.name

    @property
    def linker(self) -> Linker:
        """What links phrases to concepts of the graph as it is now."""
        return self._newest().linker

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def _view(self, store: FactStore) -> _View:
        return _View(store, Linker(store, self.embedder), Ranker(store, self.embedder, self.ranking))

    def _newest(self) -> _View:
        """The view of the graph's newest state: the last one where nothing has changed, which takes microseconds."""
        view = self._last
        if isinstance(view.store, GraphStore) and (store := view.store.newest()) is not view.store:
            view = self._last = self._view(store)
        return view

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
        view, language = self._newest(), dialogue.language
        phrases = tuple(dict.fromkeys((*demands.queries, *demands.topics)))
        links = {phrase: view.linker.link(phrase) for phrase in phrases}
        query_links = best_links(links[phrase] for phrase in demands.queries)
        topic_links = best_links(links[phrase] for phrase in demands.topics)
        queries = [link.concept for link in query_links]
        topics = [link.concept for link in topic_links]
        question = Question.of(dialogue, phrases, self.ranking)
        scored = view.ranker.ask([*queries, *topics], question)
        foreseen = scored.edges.between(queries, topics)
        between = np.flatnonzero(foreseen)
        first = _known(view.ranker.best(scored, between, top), language, "foreseen")
        second = _known(view.ranker.best(scored, np.flatnonzero(~foreseen), top), language, "unforeseen")
        return Retrieval(
            foreseen=first,
            unforeseen=second,
            links=best_links([query_links, topic_links]),
            unlinked=[phrase for phrase, found in links.items() if not found],
            foreseen_found=len(between),
            unforeseen_found=scored.edges.total - len(between),
        )

    def retrieve_queries(self, links: Sequence[Link], dialogue: Dialogue, top: int = 20) -> tuple[list[Knowledge], int]:
        """Facts whose head or tail is a linked query, ranked alike: what DCRAG's RAG baselines do (Section 4.1.2).

        Returns:
            The best facts, and how many there were before the cut.
        """
        view, language = self._newest(), dialogue.language
        question = Question.of(dialogue, (link.phrase for link in links), self.ranking)
        concepts = [concept for concept in map(view.concept, links) if concept is not None]
        scored = view.ranker.ask(concepts, question)
        best = view.ranker.best(scored, np.arange(len(scored.edges)), top)
        return _known(best, language, ""), scored.edges.total

    def link(self, phrases: Sequence[str]) -> list[Link]:
        """The concepts that phrases name, each once, by its best link."""
        return best_links(map(self.linker.link, phrases))

    def mentions(self, texts: Sequence[str]) -> list[Link]:
        """Every concept that texts mention, in order of mention."""
        return self.linker.mentions(texts)

    @property
    def facts_count(self) -> int:
        """How many facts there are."""
        return self._newest().store.meta.facts

    def facts(self) -> Iterator[Fact]:
        """Every fact."""
        return self._newest().store.facts()

    def facts_of(self, name: str) -> list[Fact]:
        """Every fact of one concept, the heaviest first; empty where the graph does not have it."""
        store = self._newest().store
        concept = store.find(name)
        if concept is None:
            return []
        edges = store.edges_of([concept])
        return sorted((store.fact(edges, row) for row in range(len(edges))), key=lambda fact: -fact.weight)


def _known(best: Iterable[tuple[Fact, float]], language: Language, set_name: SetName) -> list[Knowledge]:
    return [Knowledge.of_fact(fact, verbalise(fact, language), round(score, 4), set_name) for fact, score in best]

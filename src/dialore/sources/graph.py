"""Commonsense graphs as sources of knowledge: demands in, ranked facts out (DCRAG, Section 3.3); one or several."""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dialore.errors import DialoreError, GraphError, InputError, SourceError
from dialore.knowledge import Fact, Knowledge, Source
from dialore.retrieval.embedding import load_embedder
from dialore.retrieval.graph.fact_ranking import Ranker, Ranking
from dialore.retrieval.graph.relations import verbalise
from dialore.retrieval.graph.starter import NAME, starter_graph
from dialore.retrieval.graph.store import GraphStore
from dialore.retrieval.linking.linker import Link, Linker, best_links
from dialore.sources.base import SearchResult
from dialore.text import normalise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Literal

    from dialore.dialogue import Dialogue
    from dialore.response import Demands
    from dialore.retrieval.embedding import Embedder
    from dialore.retrieval.graph.store import GraphState
    from dialore.text import Language

    SetName = Literal["", "foreseen", "unforeseen"]

__all__ = ["Graph", "MultiGraph", "Retrieval", "open_graph", "open_graphs"]


class _View:
    """The linker and the ranker of one state of a graph, with their caches."""

    def __init__(self, store: GraphStore, state: GraphState, embedder: Embedder, ranking: Ranking) -> None:
        self.store = store
        self.state = state
        self.linker = Linker(store, embedder)
        self.ranker = Ranker(store, embedder, ranking)

    def concept(self, link: Link) -> int | None:
        """Return the concept of a link, which may come from another state: by name if the graph was rebuilt."""
        is_known = link.concept < self.state.meta.concepts and self.store.concept(link.concept) == link.name
        return link.concept if is_known else self.store.find(link.name)


@dataclass(frozen=True, slots=True)
class Retrieval:
    """The facts of the graph for a dialogue's demands.

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


class GraphSource(ABC):
    """One graph or several as a `KnowledgeSource`."""

    kind: Source = "graph"
    name: str

    @abstractmethod
    def mentions(self, texts: Sequence[str]) -> list[Link]:
        """Return the concepts that texts mention."""

    @abstractmethod
    def ngrams(self, texts: Sequence[str]) -> list[Link]:
        """Return the concepts that are n-grams of texts."""

    @abstractmethod
    def retrieve_queries(self, links: Sequence[Link], dialogue: Dialogue, top: int = 20) -> tuple[list[Knowledge], int]:
        """Return the best facts of linked concepts, and how many there were before the cut."""

    async def search(
        self, query: str, dialogue: Dialogue, top: int = 10, scope: Sequence[Knowledge] = ()
    ) -> SearchResult:
        """See `KnowledgeSource`: the best facts of the concepts that the query mentions; `scope` is ignored."""

        def facts() -> list[Knowledge]:
            return self.retrieve_queries(self.mentions([query]), dialogue, top)[0]

        try:
            return SearchResult(await asyncio.to_thread(facts))
        except DialoreError as error:
            raise SourceError(f"graph {self.name}: {error.message}", hint=error.hint) from error


class Graph(GraphSource):
    """A commonsense graph: links phrases, retrieves facts and ranks them.

    A question sees one state of the graph: the newest when it was asked, whichever process has changed the graph.

    Args:
        store: the facts.
        embedder: ranks them. Where it made the graph's vectors they are used as they are.
        ranking: the settings, or the name of some: `default`, or `paper` for DCRAG's own.

    Raises:
        UnknownNameError: no ranking is called that.
    """

    def __init__(self, store: GraphStore, embedder: Embedder, ranking: Ranking | str = "default") -> None:
        self.embedder = embedder
        self.ranking = Ranking.named(ranking) if isinstance(ranking, str) else ranking
        self.store = store
        self._view: _View | None = None
        self.name = store.meta.name

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    @contextmanager
    def _read(self) -> Iterator[_View]:
        """Yield the view of the newest state. All calls of the store in the body see this state."""
        with self.store.read() as state:
            view = self._view
            if view is None or view.state is not state:
                view = self._view = _View(self.store, state, self.embedder, self.ranking)
            yield view

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
        with self._read() as view:
            return self._retrieve(view, demands, dialogue, top)

    def _retrieve(self, view: _View, demands: Demands, dialogue: Dialogue, top: int) -> Retrieval:
        language = dialogue.language
        phrases = tuple(dict.fromkeys((*demands.queries, *demands.topics)))
        links = {phrase: view.linker.link(phrase) for phrase in phrases}
        query_links = best_links(links[phrase] for phrase in demands.queries)
        topic_links = best_links(links[phrase] for phrase in demands.topics)
        queries = [link.concept for link in query_links]
        topics = [link.concept for link in topic_links]
        scored = view.ranker.ask([*queries, *topics], dialogue, phrases)
        foreseen = scored.edges.between(queries, topics)
        between, beside = np.flatnonzero(foreseen), np.flatnonzero(~foreseen)
        return Retrieval(
            foreseen=_known(view.ranker.best(scored, between, top), language, "foreseen"),
            unforeseen=_known(view.ranker.best(scored, beside, top), language, "unforeseen"),
            links=best_links([query_links, topic_links]),
            unlinked=[phrase for phrase, concepts in links.items() if not concepts],
            foreseen_found=len(between),
            unforeseen_found=scored.edges.total - len(between),
        )

    def retrieve_queries(self, links: Sequence[Link], dialogue: Dialogue, top: int = 20) -> tuple[list[Knowledge], int]:
        """Facts whose head or tail is a linked query, ranked alike: what DCRAG's RAG baselines do (Section 4.1.2).

        Returns:
            The best facts, and how many there were before the cut.
        """
        with self._read() as view:
            concepts = [concept for concept in map(view.concept, links) if concept is not None]
            scored = view.ranker.ask(concepts, dialogue, (link.phrase for link in links))
            best = view.ranker.best(scored, np.arange(len(scored.edges)), top)
            return _known(best, dialogue.language, ""), scored.edges.total

    def link(self, phrases: Sequence[str]) -> list[Link]:
        """Return the concepts that phrases name, each once, by its best link."""
        with self._read() as view:
            return best_links(map(view.linker.link, phrases))

    def mentions(self, texts: Sequence[str]) -> list[Link]:
        """Return every concept that texts mention, in order of mention."""
        with self._read() as view:
            return view.linker.mentions(texts)

    def ngrams(self, texts: Sequence[str]) -> list[Link]:
        """Return every concept that is an n-gram of the texts, stop words and overlaps included."""
        with self._read() as view:
            return view.linker.ngrams(texts)

    @property
    def facts_count(self) -> int:
        """How many facts there are."""
        return self.store.meta.facts

    def facts(self) -> Iterator[Fact]:
        """Return every fact."""
        return self.store.facts()

    def facts_of(self, name: str) -> list[Fact]:
        """Return every fact of one concept, the heaviest first; empty where the graph does not have it."""
        store = self.store
        with store.read():
            concept = store.find(name)
            if concept is None:
                return []
            edges = store.edges_of([concept])
            return sorted((store.fact(edges, row) for row in range(len(edges))), key=lambda fact: -fact.weight)


def _known(best: Iterable[tuple[Fact, float]], language: Language, set_name: SetName) -> list[Knowledge]:
    return [Knowledge.of_fact(fact, verbalise(fact, language), round(score, 4), set_name) for fact, score in best]


# --- several graphs


class MultiGraph(GraphSource):
    """Several graphs that methods ask as they ask one.

    Ranks are comparable because all graphs rank by the same embedder and settings; each counts how crowded a concept
    is by its own facts. A fact that several graphs have is offered once, the heaviest of them. A link's number is that
    of the first graph that has its concept.

    Args:
        graphs: the graphs; they are closed with this.

    Raises:
        InputError: none, two of one name, or graphs that rank differently.
    """

    def __init__(self, graphs: Sequence[Graph]) -> None:
        if not graphs:
            raise InputError("no graphs", hint="name one or more")
        names = [graph.name for graph in graphs]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"two graphs are called {name!r}", hint="build one of them by another name")
        first = graphs[0]
        for other in graphs[1:]:
            if other.ranking != first.ranking or other.embedder.fingerprint != first.embedder.fingerprint:
                raise InputError(f"{first.name} and {other.name} rank differently", hint="give both one embedder")
        self.graphs = tuple(graphs)
        self.name = "+".join(names)

    def close(self) -> None:
        """Close all of them."""
        for graph in self.graphs:
            graph.close()

    def retrieve(self, demands: Demands, dialogue: Dialogue, top: int = 50) -> Retrieval:
        """Foreseen and unforeseen facts of all graphs by one rank; as `Graph.retrieve`.

        What is foreseen in one graph is not offered as unforeseen by another. The numbers found count a fact in each
        graph that has it.
        """
        results = [graph.retrieve(demands, dialogue, top) for graph in self.graphs]
        foreseen = self._merge([result.foreseen for result in results], top, frozenset())
        known = frozenset(item.id for result in results for item in result.foreseen)
        unlinked = [set(result.unlinked) for result in results]
        return Retrieval(
            foreseen=foreseen,
            unforeseen=self._merge([result.unforeseen for result in results], top, known),
            links=best_links((result.links for result in results), _name),
            unlinked=[phrase for phrase in results[0].unlinked if all(phrase in result for result in unlinked)],
            foreseen_found=sum(result.foreseen_found for result in results),
            unforeseen_found=sum(result.unforeseen_found for result in results),
        )

    def retrieve_queries(self, links: Sequence[Link], dialogue: Dialogue, top: int = 20) -> tuple[list[Knowledge], int]:
        """Facts of the linked concepts, found by name in every graph; as `Graph.retrieve_queries`."""
        lists, count = [], 0
        for graph in self.graphs:
            own = [link for query in links for link in graph.link([query.name]) if link.how == "exact"]
            facts, number = graph.retrieve_queries(own, dialogue, top)
            lists.append(facts)
            count += number
        return self._merge(lists, top, frozenset()), count

    def link(self, phrases: Sequence[str]) -> list[Link]:
        """Return the concepts that phrases name in any graph, each name once, by its best link."""
        return best_links((graph.link(phrases) for graph in self.graphs), _name)

    def mentions(self, texts: Sequence[str]) -> list[Link]:
        """Return every concept of any graph that texts mention, one graph's after the other's, each name once."""
        return best_links((graph.mentions(texts) for graph in self.graphs), _name)

    def ngrams(self, texts: Sequence[str]) -> list[Link]:
        """Return the n-grams of texts that are concepts of any graph, one graph after the other, each name once."""
        return best_links((graph.ngrams(texts) for graph in self.graphs), _name)

    @property
    def facts_count(self) -> int:
        """How many facts the graphs have, counted in each."""
        return sum(graph.facts_count for graph in self.graphs)

    def facts(self) -> Iterator[Fact]:
        """Return every fact of every graph, those of the graph that was named last first."""
        return itertools.chain.from_iterable(graph.facts() for graph in reversed(self.graphs))

    def _merge(self, lists: Sequence[Sequence[Knowledge]], top: int, known: frozenset[str]) -> list[Knowledge]:
        """Return the best of several lists; of a fact's copies the heaviest, at the best of their ranks."""
        copies: dict[str, list[Knowledge]] = {}
        for item in (item for items in lists for item in items):
            if item.id not in known:
                copies.setdefault(item.id, []).append(item)
        best = [
            max(same, key=_weight).model_copy(update={"score": max(item.score for item in same)})
            for same in copies.values()
        ]
        best.sort(key=lambda item: -item.score)
        if self.graphs[0].ranking.fold:  # of the facts between two concepts the first
            kept: dict[frozenset[str], Knowledge] = {}
            for item in best:
                kept.setdefault(_concepts(item), item)
            best = list(kept.values())
        return best[:top]


def _weight(item: Knowledge) -> float:
    return item.fact.weight if item.fact else 0.0


def _concepts(item: Knowledge) -> frozenset[str]:
    return frozenset((normalise(item.fact.head), normalise(item.fact.tail))) if item.fact else frozenset()


def _name(link: Link) -> str:
    return normalise(link.name)


# --- opening


def open_graph(
    graph: Path | str | None = None, ranking: Ranking | str = "default", embedder: Embedder | None = None
) -> Graph:
    """Return a graph from its path; None or "starter" for the starter graph.

    Raises as `GraphStore` and `Graph` do.
    """
    if isinstance(graph, str) and "://" in graph:
        raise GraphError("a graph is a file, not an address", hint="copy the file to each machine that reads it")
    path = starter_graph() if graph is None or str(graph) == NAME else Path(graph)
    return Graph(GraphStore(path), embedder or load_embedder(), ranking)


def open_graphs(
    graphs: Sequence[str], ranking: Ranking | str = "default", embedder: str | None = None
) -> Graph | MultiGraph:
    """One graph or several as one; the starter graph where none is named.

    Raises as `open_graph`, Graphs and, for the embedder's spec, `load_embedder` do.
    """
    made = load_embedder(embedder) if embedder else None
    with ExitStack() as stack:
        opened = [stack.enter_context(closing(open_graph(graph, ranking, made))) for graph in graphs or ["starter"]]
        opened_graph = opened[0] if len(opened) == 1 else MultiGraph(opened)
        stack.pop_all()
        return opened_graph

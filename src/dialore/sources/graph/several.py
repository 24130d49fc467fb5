"""Opening graphs, and several as one: ConceptNet and a company's own, say. Each fact keeps its graph's name."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from dialore.errors import InputError, UnknownNameError
from dialore.sources.graph.linking import best_links
from dialore.sources.graph.source import Graph, Retrieval
from dialore.sources.graph.store import GraphStore
from dialore.text import normalise

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.knowledge import Fact, Knowledge
    from dialore.response import Demands
    from dialore.retrieval.embedding import Embedder
    from dialore.sources.graph.linking import Link
    from dialore.sources.graph.ranking import Ranking
    from dialore.sources.graph.store import FactStore


class Graphs:
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
            raise InputError("no graphs", mend="name one or more")
        names = [graph.name for graph in graphs]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"two graphs are called {name!r}", mend="build one of them with another --name")
        first = graphs[0]
        for other in graphs[1:]:
            if other.ranking != first.ranking or other.embedder.fingerprint != first.embedder.fingerprint:
                raise InputError(f"{first.name} and {other.name} rank differently", mend="give both one embedder")
        self.graphs = tuple(graphs)

    @property
    def name(self) -> str:
        """The graphs' names, joined by "+"."""
        return "+".join(graph.name for graph in self.graphs)

    def close(self) -> None:
        """Close all of them."""
        for graph in self.graphs:
            graph.close()

    def retrieve(self, demands: Demands, dialogue: Dialogue, top: int = 50) -> Retrieval:
        """Foreseen and unforeseen facts of all graphs by one rank; as `Graph.retrieve`.

        What is foreseen in one graph is not offered as unforeseen by another. The numbers found count a fact in each
        graph that has it.
        """
        found = [graph.retrieve(demands, dialogue, top) for graph in self.graphs]
        foreseen = self._merged([each.foreseen for each in found], top, frozenset())
        known = frozenset(item.id for each in found for item in each.foreseen)
        unlinked = [set(each.unlinked) for each in found]
        return Retrieval(
            foreseen=foreseen,
            unforeseen=self._merged([each.unforeseen for each in found], top, known),
            links=best_links((each.links for each in found), _name),
            unlinked=[phrase for phrase in found[0].unlinked if all(phrase in each for each in unlinked)],
            foreseen_found=sum(each.foreseen_found for each in found),
            unforeseen_found=sum(each.unforeseen_found for each in found),
        )

    def retrieve_queries(self, links: Sequence[Link], dialogue: Dialogue, top: int = 20) -> tuple[list[Knowledge], int]:
        """Facts of the linked concepts, found by name in every graph; as `Graph.retrieve_queries`."""
        lists, count = [], 0
        for graph in self.graphs:
            own = [link for each in links for link in graph.link([each.name]) if link.how == "exact"]
            found, number = graph.retrieve_queries(own, dialogue, top)
            lists.append(found)
            count += number
        return self._merged(lists, top, frozenset()), count

    def link(self, phrases: Sequence[str]) -> list[Link]:
        """The concepts that phrases name in any graph, each name once, by its best link."""
        return best_links((graph.link(phrases) for graph in self.graphs), _name)

    def mentions(self, texts: Sequence[str]) -> list[Link]:
        """Every concept of any graph that texts mention, one graph's after the other's, each name once."""
        return best_links((graph.mentions(texts) for graph in self.graphs), _name)

    @property
    def facts_count(self) -> int:
        """How many facts the graphs have, counted in each."""
        return sum(graph.facts_count for graph in self.graphs)

    def facts(self) -> Iterator[Fact]:
        """Every fact of every graph, those of the graph that was named last first."""
        return itertools.chain.from_iterable(graph.facts() for graph in reversed(self.graphs))

    def _merged(self, lists: Sequence[Sequence[Knowledge]], top: int, known: frozenset[str]) -> list[Knowledge]:
        """The best of several lists; of a fact's copies the heaviest, at the best of their ranks."""
        copies: dict[str, list[Knowledge]] = {}
        for item in (item for found in lists for item in found):
            if item.id not in known:
                copies.setdefault(item.id, []).append(item)
        best = [
            max(same, key=lambda item: item.fact.weight).model_copy(update={"score": max(item.score for item in same)})
            for same in copies.values()
        ]
        best.sort(key=lambda item: -item.score)
        return (_folded(best) if self.graphs[0].ranking.fold else best)[:top]


def _folded(items: Iterable[Knowledge]) -> list[Knowledge]:
    """Of the facts between two concepts the first."""
    kept: dict[frozenset[str], Knowledge] = {}
    for item in items:
        kept.setdefault(frozenset(normalise(end) for end in (item.fact.head, item.fact.tail)), item)
    return list(kept.values())


def _name(link: Link) -> str:
    return normalise(link.name)


# --- opening

_URL = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)


def open_store(spec: str | Path) -> FactStore:
    """Open a graph for reading.

    Args:
        spec: a graph file's path, or `postgresql://user:password@host:port/database#graph`.

    Raises:
        GraphError: there is no such graph, or its server cannot be reached.
        UnknownNameError: a URL of no known kind.
        MissingExtraError: the server's driver is not installed.
    """
    # A Path would have lost one of a URL's slashes.
    match = _URL.match(spec) if isinstance(spec, str) else None
    if match is None:
        return GraphStore(Path(spec))
    if match[1].lower() not in ("postgresql", "postgres"):
        raise UnknownNameError("kind of graph server", match[1], ("postgresql",))
    from dialore.sources.graph.postgres import PostgresStore

    return PostgresStore(str(spec))


def open_graph(
    graph: Path | str | None = None, ranking: Ranking | str = "default", embedder: Embedder | None = None
) -> Graph:
    """A graph from its path or a server's URL; None or "starter" for the starter graph.

    Raises as `open_store` and Graph do.
    """
    from dialore.retrieval.embedding import load_embedder
    from dialore.sources.graph.starter import NAME, starter_graph

    store = open_store(starter_graph() if graph is None or str(graph) == NAME else graph)
    return Graph(store, embedder or load_embedder(), ranking)


def open_graphs(
    graphs: Sequence[str], ranking: Ranking | str = "default", embedder: str | None = None
) -> Graph | Graphs:
    """One graph or several as one; the starter graph where none is named.

    Raises as `open_graph`, Graphs and, for the embedder's spec, `load_embedder` do.
    """
    from dialore.retrieval.embedding import load_embedder

    made = load_embedder(embedder) if embedder else None
    with ExitStack() as stack:
        opened = [stack.enter_context(closing(open_graph(graph, ranking, made))) for graph in graphs or ["starter"]]
        found = opened[0] if len(opened) == 1 else Graphs(opened)
        stack.pop_all()
        return found

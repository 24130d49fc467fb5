"""The commonsense graph asked as any other source: a query in words, the facts of the concepts that it mentions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from dialore.errors import DialoreError, SourceError
from dialore.sources.base import Findings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge, Source
    from dialore.sources.graph.linking import Link
    from dialore.text import Language


class GraphLike(Protocol):
    """What is asked of a graph, or of several as one."""

    def mentions_in(self, texts: Sequence[str], language: Language) -> list[Link]:
        """Every concept that texts mention."""
        ...

    def retrieve_queries(self, links: Sequence[Link], dialogue: Dialogue, top: int = 20) -> tuple[list[Knowledge], int]:
        """Facts of the linked concepts, the best first, and how many there were."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


class GraphKnowledge:
    """Facts of the concepts that a query mentions, ranked as the graph ranks.

    Args:
        graph: the graph.
        name: the source's name.
    """

    kind: Source = "graph"

    def __init__(self, graph: GraphLike, *, name: str = "graph") -> None:
        self.graph, self.name = graph, name

    async def search(self, query: str, dialogue: Dialogue, top: int = 10, within: Sequence[Knowledge] = ()) -> Findings:
        """See `KnowledgeSource`; `within` is ignored.

        Raises:
            SourceError: the graph cannot be asked: its server is down, its file is gone.
        """
        try:
            return Findings(await asyncio.to_thread(self._search, query, dialogue, top))
        except SourceError:
            raise
        except DialoreError as error:
            raise SourceError(f"graph {self.name}: {error.message}", mend=error.mend) from error

    def _search(self, query: str, dialogue: Dialogue, top: int) -> list[Knowledge]:
        links = self.graph.mentions_in([query], dialogue.language)
        return self.graph.retrieve_queries(links, dialogue, top)[0]

    def close(self) -> None:
        """Close the graph."""
        self.graph.close()


def open_graph_knowledge(
    place: Path | str | None = None, *, ranking: str = "default", name: str = "graph"
) -> GraphKnowledge:
    """A graph's knowledge from the graph's path or a server's URL; None or "starter": the starter graph.

    Raises:
        GraphError: as `open_store`.
        UnknownNameError: no ranking is called that.
    """
    from dialore.sources.graph.source import Graph
    from dialore.sources.graph.starter import NAME, starter_graph

    opened = Graph.open(starter_graph() if place is None or str(place) == NAME else place, ranking=ranking)
    return GraphKnowledge(opened, name=name)

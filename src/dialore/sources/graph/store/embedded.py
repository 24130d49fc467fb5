"""The embedded graph store: opens a graph file in about a millisecond and reads it through a memory map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from dialore.errors import GraphError
from dialore.sources.graph.store.edges import Edges
from dialore.sources.graph.store.version import GraphVersion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

    from dialore.knowledge import Fact
    from dialore.sources.graph.store.layout import GraphMeta

__all__ = ["Edges", "GraphStore"]


class GraphStore:
    """A graph file opened for reading. Many threads and processes may read at once, also while it is changed.

    What a store reads is the graph of one moment: of when it was opened or last refreshed.

    Args:
        path: the graph file.

    Raises:
        GraphError: no such file, not a graph, cut short, or of another version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._version: GraphVersion | None = GraphVersion.open(path)
        self.meta: GraphMeta = self._version.meta

    def _live(self) -> GraphVersion:
        version = self._version
        if version is None:
            raise GraphError(f"the graph {self.path} is closed", mend="open it again")
        return version

    def close(self) -> None:
        """Let go of the file; a second time does nothing."""
        self._version = None

    def __enter__(self) -> Self:
        """The store itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    # --- versions

    def refresh(self) -> bool:
        """Go on to the newest version of the graph; some microseconds where there is none.

        Concepts keep their numbers through changes, so other threads may be amid a question: facts that they have
        been given stay what they are. Only where a new graph was built in the file's place do the numbers of before
        mean nothing: then threads that share the store want a `snapshot` a question.

        Returns:
            Whether there was a newer one.

        Raises:
            GraphError: the store is closed, or what stands in the file's place is no graph.
        """
        old = self._live()
        old.built.file.resident.asked()
        try:
            status = self.path.stat()
        except FileNotFoundError:
            status = None  # moved away: what was opened can still be read
        moved = status is not None and (status.st_dev, status.st_ino) != old.built.file.key
        new = GraphVersion.open(self.path) if moved else old.latest()
        if new is old:
            return False
        self._version, self.meta = new, new.meta
        return True

    def snapshot(self) -> GraphStore:
        """A store that goes on reading what this one reads now, whatever this one is refreshed to; it costs nothing."""
        other = object.__new__(GraphStore)
        other.path, other._version = self.path, self._live()
        other.meta = other._version.meta
        return other

    # --- concepts

    def find(self, name: str) -> int | None:
        """The id of the concept with that normal form, or None."""
        return self._live().find(name)

    def with_stems(self, key: str) -> list[int]:
        """Ids of the concepts whose content words have these stems (see `layout.stem_key`), in ascending order."""
        return self._live().with_stems(key)

    def concept(self, number: int) -> str:
        """A concept as it is written; raises GraphError for an id that the graph does not have."""
        return self._live().concept(number)

    def degree(self, number: int) -> int:
        """How many facts a concept has, as head or tail; a fact about itself counts twice."""
        return self._live().degree(number)

    # --- facts

    def edges_of(self, concepts: Iterable[int], query: NDArray[np.float32] | None = None, keep: int = 1000) -> Edges:
        """The facts with one of the concepts as head or tail, each once.

        Args:
            concepts: their numbers.
            query: of unit length (dimension,). Of a concept with very many facts those near it are read alone: of each
                of its sides exactly the `keep` of highest cosine among those that lead to none of the concepts, ties,
                and all that lead to one. `counts` of the edges says how many there are. None reads all.
            keep: how many of each side of a concept.
        """
        version = self._live()
        version.built.file.resident.asked()
        return version.edges_of(concepts, query, keep)

    def fact(self, edges: Edges, row: int) -> Fact:
        """One row as a fact."""
        version = self._live()
        return (edges.version or version).fact(edges, row)

    def facts(self) -> Iterator[Fact]:
        """Every fact of the graph as it is now, by head, the heaviest of each first."""
        version = self._live()
        for number in range(version.meta.concepts):
            edges = version.edges_of([number])
            for row in np.flatnonzero(edges.head_place == 0).tolist():
                yield version.fact(edges, row)

    # --- vectors

    @property
    def relation_vectors(self) -> NDArray[np.float32]:
        """(relations, dimension): the unnormalised sum of each relation's words."""
        return self._live().relation_vectors

    def concept_products(self, concepts: NDArray[np.uint32], query: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n,): the dot product of each concept's unnormalised vector with the query (dimension,)."""
        return self._live().vectors.products(concepts, query)

    def concept_sums(self, concepts: NDArray[np.uint32]) -> NDArray[np.float32]:
        """(n, dimension): each concept's unnormalised vector."""
        return self._live().vectors.sums(concepts)

    def cosines(self, edges: Edges, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n,): each fact's cosine with a query of unit length (dimension,), from the graph's own vectors.

        A fact's vector is the sum of its parts', and those are fewer than the facts: each is multiplied once.
        """
        version = self._live()
        return (edges.version or version).cosines(edges, query)

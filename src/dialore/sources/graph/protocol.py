"""What a store of facts must do for linking and retrieval to stand on it, wherever its facts lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dialore.knowledge import Fact
    from dialore.sources.graph.store import Edges, GraphMeta


@runtime_checkable
class FactStore(Protocol):
    """A graph open for reading: its concepts by number, its facts as columns. Several threads may read at once.

    Every method raises GraphError where the store is closed or cannot be reached.
    """

    @property
    def meta(self) -> GraphMeta:
        """What the graph says of itself; `embedder_fingerprint` is empty where it has no vectors."""
        ...

    def find(self, name: str) -> int | None:
        """The id of the concept with that normal form, or None."""
        ...

    def with_stems(self, key: str) -> list[int]:
        """Ids of the concepts whose content words have these stems (see `stem_key`), in ascending order."""
        ...

    def concept(self, number: int) -> str:
        """A concept as it is written; raises GraphError for an id that the graph does not have."""
        ...

    def degree(self, number: int) -> int:
        """How many facts a concept has, as head or tail; a fact about itself counts twice."""
        ...

    def edges_of(
        self, concepts: Iterable[int], query: NDArray[np.float32] | None = None, most: int | None = None
    ) -> Edges:
        """The facts with one of the concepts as head or tail, each once; the rows' order is the store's own.

        Args:
            concepts: their numbers.
            query: of unit length (dimension,). A store that has vectors then gives the facts' cosines with it; one
                without vectors ignores it.
            most: facts of each side of a concept that are needed: the heaviest, and all that lead to another of the
                concepts. A store may give more. None: all.
        """
        ...

    def fact(self, edges: Edges, row: int) -> Fact:
        """One row as a fact."""
        ...

    def facts(self) -> Iterator[Fact]:
        """Every fact of the graph, by head, the heaviest of each first."""
        ...

    def close(self) -> None:
        """Let go of the file or the connections; a second time does nothing."""
        ...

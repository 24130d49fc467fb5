"""What a store of facts must do for linking and retrieval to stand on it, wherever its facts lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from dialore.knowledge import Fact
    from dialore.sources.graph.store.edges import Edges
    from dialore.sources.graph.store.layout import GraphMeta


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
        """Ids of the concepts whose content words have these stems (see `layout.stem_key`), in ascending order."""
        ...

    def concept(self, number: int) -> str:
        """A concept as it is written; raises GraphError for an id that the graph does not have."""
        ...

    def degree(self, number: int) -> int:
        """How many facts a concept has, as head or tail; a fact about itself counts twice."""
        ...

    def edges_of(self, concepts: Iterable[int]) -> Edges:
        """The facts with one of the concepts as head or tail, each once; the rows' order is the store's own."""
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


@runtime_checkable
class VectorStore(FactStore, Protocol):
    """A store that keeps vectors too, so that its facts are ranked without encoding them."""

    def edges_of(self, concepts: Iterable[int], query: NDArray[np.float32] | None = None, keep: int = 1000) -> Edges:
        """As FactStore's; given a unit query, of a concept with very many facts only those near it may be read.

        Exactly: of each of its sides the `keep` of highest cosine among the facts that lead to none of the other
        concepts, ties, and all that lead to one of them. `counts` of the edges says how many there are in all.
        """
        ...

    def cosines(self, edges: Edges, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n,): each fact's cosine with a unit query (dimension,), for the embedder that `meta` names."""
        ...

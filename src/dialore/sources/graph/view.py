"""A graph as one question sees it: one state of its store, with what links and ranks in that state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from dialore.sources.graph.linking.linker import Linker
from dialore.sources.graph.ranking.ranker import Ranker
from dialore.sources.graph.store.protocol import FactStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dialore.retrieval.embedding import Embedder
    from dialore.sources.graph.linking.linker import Link
    from dialore.sources.graph.ranking.settings import Ranking


@runtime_checkable
class ChangingStore(FactStore, Protocol):
    """A store that others may change while it is read."""

    def refresh(self) -> bool:
        """Go on to the newest state; whether there was a newer one."""
        ...

    def snapshot(self) -> FactStore:
        """A store that goes on reading the state that this one reads now."""
        ...


@dataclass(frozen=True, slots=True)
class View:
    """One state of a graph.

    Attributes:
        store: the facts in that state.
        linker: links phrases to its concepts.
        ranker: ranks its facts.
    """

    store: FactStore
    linker: Linker
    ranker: Ranker

    def concepts(self, links: Iterable[Link]) -> list[int]:
        """The concepts of links, which may have been made in another state: where the graph was built anew by name."""
        found = (self._concept(link) for link in links)
        return [concept for concept in found if concept is not None]

    def _concept(self, link: Link) -> int | None:
        here = link.concept < self.store.meta.concepts and self.store.concept(link.concept) == link.name
        return link.concept if here else self.store.find(link.name)


class Views:
    """The newest view of a store; several threads may ask for it.

    Args:
        store: the facts.
        embedder: links and ranks.
        ranking: the settings.
        reranker: ranks the best again.
    """

    def __init__(self, store: FactStore, embedder: Embedder, ranking: Ranking, reranker: Embedder | None) -> None:
        self._store = store
        self._embedder, self._ranking, self._reranker = embedder, ranking, reranker
        self._changing = store if isinstance(store, ChangingStore) else None
        self._last: View | None = self._of(self._changing.snapshot() if self._changing else store)

    def close(self) -> None:
        """Let go of the last state."""
        self._last = None

    def newest(self) -> View:
        """The view of the store's newest state: the last one where nothing has changed, which takes microseconds.

        Raises:
            GraphError: the store is closed, or what stands in its file's place is no graph.
        """
        if self._changing is not None:
            self._changing.refresh()
        view = self._last
        if view is None or view.store.meta is not self._store.meta:
            view = self._last = self._of(self._changing.snapshot() if self._changing else self._store)
        return view

    def _of(self, store: FactStore) -> View:
        return View(store, Linker(store, self._embedder), Ranker(store, self._embedder, self._ranking, self._reranker))

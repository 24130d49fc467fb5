"""The protocol of every source of knowledge: it is asked a query, and gives knowledge, the best first."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from dialore.errors import InputError
from dialore.knowledge import Knowledge, Source

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.retrieval.reranking import Reranker


class SearchResult(list[Knowledge]):
    """The knowledge that a search found, the best first, with what was done on the way.

    Attributes:
        query: the query as it was sent, where that is not the query asked; None where it is.
        notes: what was taken out of the query, could not be had and why, or was dropped: one sentence each.
        failures: error messages by the names of sources that could not be asked.
    """

    def __init__(
        self,
        knowledge: Iterable[Knowledge] = (),
        *,
        query: str | None = None,
        notes: Iterable[str] = (),
        failures: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(knowledge)
        self.query = query
        self.notes = list(notes)
        self.failures = dict(failures or {})

    @classmethod
    def of(cls, found: list[Knowledge]) -> SearchResult:
        """Return the findings of a search that may have given a plain list."""
        return found if isinstance(found, SearchResult) else cls(found)


@runtime_checkable
class KnowledgeSource(Protocol):
    """Where knowledge comes from: documents, a persona, web search, a graph.

    Attributes:
        name: its name, unique among an agent's sources, e.g. `documents` or `handbook`.
        kind: which kind of source it is.
    """

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def kind(self) -> Source:
        """Its kind: graph, documents, persona, memory, web or model."""
        ...

    async def search(
        self, query: str, dialogue: Dialogue, top: int = 10, scope: Sequence[Knowledge] = ()
    ) -> SearchResult:
        """Knowledge for a query, the best first.

        Args:
            query: what is looked for: a phrase, a question, or a dialogue context.
            dialogue: the dialogue being answered: its language, and its own persona and documents.
            top: how many pieces at most.
            scope: knowledge that was chosen from a source that this one depends on. A source whose knowledge belongs
                to such pieces (documents under a persona sentence) gives only what belongs to them; others ignore it.

        Returns:
            At most `top` pieces; none where nothing fits, never an error for that.

        Raises:
            SourceError: the source cannot be asked (an engine is down, an index is damaged).
        """
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


@runtime_checkable
class Listed(KnowledgeSource, Protocol):
    """A source that can give all that it holds: documents and personas can, the web and graphs cannot."""

    def every(self, dialogue: Dialogue) -> Iterator[Knowledge]:
        """Return every piece that it holds for a dialogue, in order, without a score."""
        ...


@runtime_checkable
class Countable(Protocol):
    """A source that counts its items without listing them, because it holds the same ones for every dialogue."""

    def count(self) -> int:
        """Return the number of items, at least."""
        ...


def list_knowledge(source: KnowledgeSource | None, dialogue: Dialogue) -> Iterator[Knowledge]:
    """Return every piece of a source; raise InputError where it cannot be listed."""
    if not isinstance(source, Listed):
        named = "what the model knows" if source is None else f"the source {source.name} ({source.kind})"
        raise InputError(
            f"{named} cannot be given whole", hint="name documents or a persona, or take a method that searches"
        )
    return source.every(dialogue)


@runtime_checkable
class Rankable(KnowledgeSource, Protocol):
    """A source whose ranking can be chosen, as that of an index of documents can."""

    def by(self, retriever: str) -> KnowledgeSource:
        """Return the source ranked in that way; raise UnknownNameError where there is no such way."""
        ...


def rank_by(source: KnowledgeSource, retriever: str) -> KnowledgeSource:
    """Return the source ranked in that way where it can be, else as it is; raise UnknownNameError as its `by` does.

    It shares files with the one given, and is not to be closed.
    """
    return source.by(retriever) if isinstance(source, Rankable) else source


class HeldSource(ABC):
    """The base of sources that rank all that they hold for a dialogue anew for each query, and hold no file open."""

    name: str
    kind: Source
    retriever: Reranker

    @abstractmethod
    def _held(self, dialogue: Dialogue, scope: Sequence[Knowledge] = ()) -> list[Knowledge]:
        """Return what is ranked for a dialogue, in order; `scope` as of `search`."""

    def _rank(self, query: str, dialogue: Dialogue, pieces: Sequence[Knowledge], top: int) -> list[tuple[int, float]]:
        """Return places and scores of the best pieces."""
        return self.retriever.rerank(query, [piece.searched for piece in pieces], top)

    async def search(
        self, query: str, dialogue: Dialogue, top: int = 10, scope: Sequence[Knowledge] = ()
    ) -> SearchResult:
        """See `KnowledgeSource`.

        All are ranked, however little they have to do with the query: the best of a few is what is asked for.
        """
        pieces = self._held(dialogue, scope)
        if not pieces:
            return SearchResult()
        ranked = await asyncio.to_thread(self._rank, query, dialogue, pieces, top)
        return SearchResult(pieces[at].model_copy(update={"score": score}) for at, score in ranked)

    def every(self, dialogue: Dialogue) -> Iterator[Knowledge]:
        """See `Listed`."""
        return iter(self._held(dialogue))

    def close(self) -> None:  # noqa: B027 - there is nothing to be closed
        """Nothing is held open."""

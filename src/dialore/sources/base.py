"""What every source of knowledge can do: be asked a query, and give knowledge, the best first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge, Source


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
        """Its kind: graph, documents, persona, web or model."""
        ...

    async def search(
        self, query: str, dialogue: Dialogue, top: int = 10, within: Sequence[Knowledge] = ()
    ) -> list[Knowledge]:
        """Knowledge for a query, the best first.

        Args:
            query: what is looked for: a phrase, a question, or a dialogue context.
            dialogue: the dialogue being answered: its language, and its own persona and documents.
            top: how many pieces at most.
            within: knowledge that was chosen from a source that this one depends on. A source whose knowledge belongs
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


@dataclass(frozen=True, slots=True)
class Findings:
    """What a search gave, and what was done on the way.

    Attributes:
        query: the query as it was sent; empty where nothing was left to send.
        knowledge: what was found, the best first.
        notes: what was taken out of the query, what could not be had and why, what was dropped: one sentence each.
    """

    query: str
    knowledge: list[Knowledge] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@runtime_checkable
class TellingSource(KnowledgeSource, Protocol):
    """A source that can say what it did with a query, for the trace: web search, which redacts and filters."""

    async def search_telling(
        self, query: str, dialogue: Dialogue, top: int = 10, within: Sequence[Knowledge] = ()
    ) -> Findings:
        """As `search`, with the query that was sent and notes."""
        ...


async def search_telling(
    source: KnowledgeSource, query: str, dialogue: Dialogue, top: int = 10, within: Sequence[Knowledge] = ()
) -> Findings:
    """Ask a source, and have it told what was done where the source can tell; raises as the source does."""
    # Not `isinstance`, which takes tens of microseconds of a protocol: every search asks.
    tell: Callable[..., Awaitable[Findings]] | None = getattr(source, "search_telling", None)
    if tell is not None:
        return await tell(query, dialogue, top, within)
    return Findings(query, await source.search(query, dialogue, top, within))


@runtime_checkable
class RankedSource(KnowledgeSource, Protocol):
    """A source that can rank in more than one way: a document index by terms, by embeddings, or by both."""

    def by(self, retriever: str) -> KnowledgeSource:
        """The same source, ranked in that way; it shares files with this one and is not to be closed.

        Raises:
            UnknownNameError: there is no such way.
        """
        ...


def ranked_by(source: KnowledgeSource, retriever: str) -> KnowledgeSource:
    """The source ranked in that way, where it can be (`RankedSource`); else as it is.

    Raises:
        UnknownNameError: it can be ranked in several ways, but not in that.
    """
    by: Callable[[str], KnowledgeSource] | None = getattr(source, "by", None)
    return source if by is None else by(retriever)

"""A dialogue's own base: the sentences that its responder could draw on (`extra["pool"]`), a source of documents."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dialore.knowledge import Knowledge, Passage, Source
from dialore.retrieval.reranking import load_reranker
from dialore.sources.base import SearchResult

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue


class PoolSource:
    """The sentences of the dialogue that is answered; none where it brings none.

    Args:
        reranker: what ranks them, as `load_reranker` takes it: `dense`, `dense:st:NAME`, `bm25`, ...
    """

    name = "documents"
    kind: Source = "documents"

    def __init__(self, reranker: str = "dense") -> None:
        self._reranker = load_reranker(reranker)

    async def search(
        self, query: str, dialogue: Dialogue, top: int = 10, scope: Sequence[Knowledge] = ()
    ) -> SearchResult:
        """See `KnowledgeSource`; `scope` is ignored."""
        passages = _pool(dialogue)
        ranked = await asyncio.to_thread(self._reranker.rerank, query, [passage.searched for passage in passages], top)
        return SearchResult(Knowledge.of_passage(passages[at], "documents", score) for at, score in ranked)

    def every(self, dialogue: Dialogue) -> Iterator[Knowledge]:
        """See `Listed`."""
        return (Knowledge.of_passage(passage, "documents") for passage in _pool(dialogue))

    def close(self) -> None:
        """Nothing is held open."""


def _pool(dialogue: Dialogue) -> list[Passage]:
    given = dialogue.extra.get("pool") or []
    pieces = [piece if isinstance(piece, dict) else {"text": str(piece)} for piece in given]
    return [Passage(piece["text"], piece.get("title", ""), piece.get("url", "")) for piece in pieces]

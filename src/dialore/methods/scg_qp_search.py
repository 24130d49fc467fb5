"""From a search query to the passages that a response is given: searched, reranked, cut (SCG-QP, Section 3.1)."""

from __future__ import annotations

import asyncio
import functools
import re
from typing import TYPE_CHECKING

from dialore.methods import marks
from dialore.retrieval.reranking import load_reranker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.methods.stages import Stages
    from dialore.retrieval.reranking import Reranker
    from dialore.sources.base import KnowledgeSource

_MARKS = ("passage", "passages")


async def search_web(
    web: KnowledgeSource,
    query: str,
    dialogue: Dialogue,
    stage: Stages,
    *,
    candidates: int,
    passages: int,
    reranker: str,
) -> list[Knowledge]:
    """Search, then rerank: the passages that answer a query best, the best first; none where nothing was found.

    Args:
        web: the source; a failing one is traced and gives nothing.
        query: the search query; empty, nothing is searched.
        dialogue: the dialogue being answered.
        stage: its stages.
        candidates: passages asked of the source.
        passages: passages kept.
        reranker: a reranker's spec (see `load_reranker`).
    """
    if not query:
        return []
    found = await stage.search("web-search", web, query, candidates)
    if not found:
        return []

    def work() -> tuple[list[Knowledge], dict[str, object], list[str]]:
        order = _load(reranker).rerank(query, [titled(piece) for piece in found], passages)
        kept = [found[place].model_copy(update={"score": round(score, 4)}) for place, score in order]
        shown = [{"id": piece.id, "score": piece.score, "from": page_of(piece)} for piece in kept]
        return kept, {"reranker": reranker, "candidates": len(found), "kept": shown}, []

    return await asyncio.to_thread(stage.did, "reranking", work)


@functools.lru_cache(maxsize=4)
def _load(spec: str) -> Reranker:
    return load_reranker(spec)


def titled(piece: Knowledge) -> str:
    """A passage with its page's title, as rerankers read it."""
    title = piece.passage.title
    return f"{title}\n{piece.text}" if title else piece.text


def page_of(piece: Knowledge) -> str:
    """The name of the page that a passage comes from: its title, else its site; empty where neither is known."""
    title = " ".join(piece.passage.title.split())
    site = re.sub(r"\A\w+://(?:www\.)?|[/?#].*\Z", "", piece.passage.url)
    return f"{title} ({site})" if title and site else title or site


def as_data(passages: Sequence[Knowledge]) -> list[Knowledge]:
    """Passages as they stand in a prompt: on a line, unable to close the marks around them, with their page's name."""
    return [
        piece.model_copy(
            update={
                "text": marks.as_data(piece.text, *_MARKS),
                "detail": piece.passage.model_copy(update={"page": marks.as_data(page_of(piece), *_MARKS)}),
            }
        )
        for piece in passages
    ]

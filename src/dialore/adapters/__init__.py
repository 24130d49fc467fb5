"""Adapters: what a Dialore agent or one source finds, as a part of other frameworks; each is a file and an extra."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from dialore.agent import Agent
from dialore.dialogue import Dialogue
from dialore.errors import SourceError
from dialore.sources.base import KnowledgeSource

if TYPE_CHECKING:
    from dialore.knowledge import Knowledge

Asked: TypeAlias = Agent | KnowledgeSource
"""The object of an adapter: an agent (`dialore.create_agent`), or a source with `search`; its maker closes it."""


async def find(asked: Asked, query: str, top: int) -> list[Knowledge]:
    """Return what an agent would ground its response to a turn in, or what a source holds for a query: the best `top`.

    Raises:
        SourceError: the source cannot be asked, or a stage of the agent failed.
    """
    if not isinstance(asked, Agent):
        return list(await asked.search(query, Dialogue([query]), top))
    grounding = await asked.ground(query)
    if grounding.status == "failed":
        raise SourceError(str(grounding.error))
    return grounding.knowledge[:top]


def metadata(piece: Knowledge) -> dict[str, Any]:
    """Return where to look a piece up (`title`, `section`, `file`, ...), its kind, source, score and probability."""
    known = {"kind": piece.kind, "source": piece.source, "score": piece.score, "probability": piece.probability}
    return {name: value for name, value in {**piece.location, **known}.items() if value is not None}


def likelihood(piece: Knowledge) -> float:
    """Return how likely a passage is of use; its score where that was not computed."""
    return piece.score if piece.probability is None else piece.probability

"""Made-up dialogues for benchmarks: they mention a graph's concepts, so that retrieval has work to do."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

from dialore.dialogue import Dialogue

if TYPE_CHECKING:
    from dialore.sources.graph.source import Graph

_TURNS = (
    "I have been thinking about {0} since this morning, and about {1} too.",
    "Really? What made you think of {1}?",
    "My brother talked about {2} all evening, and I could not stop him.",
    "He always does that. Did he mention {3}?",
    "Not a word. What would you do about {0} if you were me?",
)
_WORD = re.compile(r"[a-z]{4,14}")
_TRIES = 400


def made_up(graph: Graph, count: int, seed: int = 7) -> list[Dialogue]:
    """So many dialogues of five turns, each about both ends of two facts; the same for the same graph and seed."""
    draw = random.Random(seed)  # noqa: S311 - dialogues, not secrets
    dialogues: list[Dialogue] = []
    for number in range(count):
        words = (*_ends(graph, draw), *_ends(graph, draw))
        turns = [turn.format(*words) for turn in _TURNS]
        dialogues.append(Dialogue.model_validate({"id": f"bench-{number}", "language": "en", "turns": turns}))
    return dialogues


def _ends(graph: Graph, draw: random.Random) -> tuple[str, str]:
    """Head and tail of a fact, each a single English word; stand-ins where a graph hardly has any."""
    for _ in range(_TRIES):
        edges = graph.store.edges_of([draw.randrange(graph.store.meta.concepts)])
        if not len(edges):
            continue
        row = draw.randrange(len(edges))
        ends = (graph.store.concept(int(edges.head[row])), graph.store.concept(int(edges.tail[row])))
        if all(_WORD.fullmatch(end) for end in ends):
            return ends
    return ("morning", "coffee")

"""Mending of errors that can be told without a model (DCRAG, Appendix D, Tables 7 to 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore.response import Demands
from dialore.text import is_mentioned, normalise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge


def mend_demands(demands: Demands, dialogue: Dialogue) -> tuple[Demands, list[str]]:
    """Put each entity where the kinds' definitions put it.

    An explicit query or maintained topic that the history does not mention becomes implicit or extended; an extended
    topic that it mentions becomes maintained. An implicit query that it mentions becomes explicit, likewise.

    Returns:
        The mended demands and a note for each entity that was moved.
    """
    lists: dict[str, list[str]] = {"explicit": [], "implicit": [], "maintained": [], "extended": []}
    notes: list[str] = []
    texts = dialogue.texts
    for inside, outside in (("explicit", "implicit"), ("maintained", "extended")):
        for kind in (inside, outside):
            for entity in getattr(demands, kind):
                right = inside if is_mentioned(entity, texts, dialogue.language) else outside
                if right != kind:
                    where = "is in the history" if right == inside else "is not in the history"
                    notes.append(f"{kind} {entity!r} {where}: moved to {right}")
                lists[right].append(entity)
    return Demands(**{kind: _distinct(found) for kind, found in lists.items()}, thoughts=demands.thoughts), notes


def _distinct(entities: Sequence[str]) -> list[str]:
    """Each entity once, whatever its case."""
    return list({normalise(entity): entity for entity in reversed(entities)}.values())[::-1]


def pick(facts: Sequence[Knowledge], numbers: Sequence[int]) -> tuple[list[Knowledge], list[str]]:
    """The facts with these numbers, counted from 1; a number that was never offered is dropped, and so is a repeat."""
    chosen: list[Knowledge] = []
    notes: list[str] = []
    for number in dict.fromkeys(numbers):
        if 1 <= number <= len(facts):
            chosen.append(facts[number - 1])
        else:
            notes.append(f"fact {number} was never offered: dropped")
    if len(set(numbers)) < len(numbers):
        notes.append("facts were named more than once: repeats dropped")
    return chosen, notes

"""Which facts are worth having: near the dialogue, sayable, different from each other, and none where none is near."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore.methods.lexical.wording import word_fact, worth
from dialore.sources.graph.relations import relation
from dialore.text import is_chinese, normalise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.knowledge import Knowledge
    from dialore.methods.lexical.reading import Reading

FLOOR = 0.2
"""A fact that scores less is not picked."""
MOST = 8
"""Facts picked of one set at most: few good ones beat many."""
_SAYABLE = 0.1
_REPEATED = 0.08
"""What a fact loses for each fact picked before it that shares a concept or, half as much, its relation."""


def scores(reading: Reading, facts: Sequence[Knowledge]) -> list[float]:
    """How useful each fact is: nearness to last turn and history, what it says of a weighty mention, its relation."""
    language = reading.dialogue.language
    near = reading.nearness([fact.text for fact in facts]).tolist()
    weights = {normalise(mention.link.name): mention.weight for mention in reading.mentions}
    found = []
    for fact, cosine in zip(facts, near, strict=True):
        ends = (fact.fact.head, fact.fact.tail)
        anchored = max(weights.get(normalise(end), 0.0) for end in ends)
        found.append(round(cosine + 0.3 * anchored + worth(fact.fact.relation, language), 4))
    return found


def select(reading: Reading, facts: Sequence[Knowledge], limit: int) -> list[int]:
    """Numbers, counted from 1, of the facts picked, the most useful first; empty where none is near enough.

    Args:
        reading: the dialogue.
        facts: the facts offered; anything else than facts is passed over.
        limit: how many to pick at most.
    """
    language = reading.dialogue.language
    left = {
        place: score + (_SAYABLE if word_fact(facts[place], language) else 0.0)
        for place, score in enumerate(scores(reading, facts))
        if _is_useful(facts[place], reading)
    }
    picked: list[int] = []
    while left and len(picked) < min(limit, MOST):
        place = max(left, key=lambda place: (left[place], -place))
        if left.pop(place) < FLOOR:
            break
        picked.append(place + 1)
        for other in left:
            left[other] -= _REPEATED * _likeness(facts[place], facts[other])
    return picked


def _is_useful(fact: Knowledge, reading: Reading) -> bool:
    """Whether a fact is about the world, in the dialogue's language, and says something that the history did not."""
    if not relation(fact.fact.relation).informative:
        return False
    if is_chinese(fact.fact.head + fact.fact.tail) != (reading.dialogue.language == "zh"):
        return False
    return fact.fact.head not in reading.said or fact.fact.tail not in reading.said


def _likeness(one: Knowledge, other: Knowledge) -> float:
    ends = {normalise(one.fact.head), normalise(one.fact.tail)}
    shared = ends & {normalise(other.fact.head), normalise(other.fact.tail)}
    return len(shared) + (0.5 if one.fact.relation == other.fact.relation else 0.0)

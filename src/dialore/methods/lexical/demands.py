"""Query production, topic planning and cross revision by rules (DCRAG, Section 3.2, without its model)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore.methods.lexical.english import phrase
from dialore.methods.lexical.wording import word_fact, word_topic, worth
from dialore.response import Demands
from dialore.sources.graph.relations import relation
from dialore.text import is_chinese, normalise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dialore.methods.lexical.reading import Mention, Neighbour, Reading

_MOST = {"explicit": 6, "implicit": 6, "maintained": 5, "extended": 6}
"""Entities of a kind, as many as the prompts allow."""
_LEAST = 2
"""Entities of a kind that revision keeps however far they are."""
_SHARE = 0.3
"""A mention that weighs less than this share of the weightiest is said in passing."""
_NEAR = 0.45
"""An entity that is less near than this share of its kind's nearest is far from the last turn."""
_LONGEST = {"en": 4, "zh": 8}
"""Words, in Chinese characters, of an entity at most."""
_BACKGROUND = frozenset(
    ("IsA", "InstanceOf", "PartOf", "HasContext", "MotivatedByGoal", "Desires", "RelatedTo", "SimilarTo", "MannerOf")
)
"""Relations whose other end lies behind what was said; of others, it does where what was said is the tail."""
_NO_TOPIC = frozenset(("HasProperty", "NotHasProperty", "ReceivesAction", "Desires", "NotDesires"))
"""Relations whose tail is not something to talk about by itself."""
_TWO_FROM_ONE = 2
"""New entities that one mention or one relation may lead to, so that they differ."""


def produce_queries(reading: Reading) -> Demands:
    """Explicit queries: weighty mentions. Implicit ones: what lies behind or around them, unsaid."""
    explicit = _weighty(reading.mentions)[: _MOST["explicit"]]
    behind = [near for near in reading.neighbours if near.fact.fact.relation in _BACKGROUND or not near.outward]
    implicit = _best(reading, behind, _MOST["implicit"], last=0.3, bonus=lambda _: 0.0)
    return Demands(explicit=[mention.text for mention in explicit], implicit=implicit)


def plan_topics(reading: Reading) -> Demands:
    """Maintained topics: mentions of the latest turn that has any. Extended ones: where facts lead on from them."""
    latest = min((mention.age for mention in reading.mentions), default=0)
    current = [mention for mention in reading.mentions if mention.age == latest]
    language = reading.dialogue.language
    ahead = [
        near
        for near in reading.neighbours
        if near.outward
        and near.fact.fact.relation not in _BACKGROUND | _NO_TOPIC
        and word_topic(near.name, language)
        and word_fact(near.fact, language)
    ]
    extended = _best(
        reading, ahead, _MOST["extended"], last=0.6, bonus=lambda near: worth(near.fact.fact.relation, language)
    )
    return Demands(maintained=[mention.text for mention in _weighty(current)[: _MOST["maintained"]]], extended=extended)


def revise(reading: Reading, demands: Mapping[str, Sequence[str]]) -> Demands:
    """Each entity once, those far from the last turn dropped, and every maintained topic a query too."""
    extended = _distinct(demands["extended"])
    maintained = _distinct(demands["maintained"])
    kinds = {
        "explicit": _distinct([*demands["explicit"], *maintained]),
        "implicit": _distinct(demands["implicit"], without=extended),
        "maintained": maintained,
        "extended": extended,
    }
    for kind, entities in kinds.items():
        kinds[kind] = _near(reading, entities)[: _MOST[kind]]
    return Demands.model_validate(kinds)


def _weighty(mentions: Sequence[Mention]) -> list[Mention]:
    floor = _SHARE * mentions[0].weight if mentions else 0.0
    return [mention for mention in mentions if mention.weight >= floor]


def _best(
    reading: Reading, neighbours: Iterable[Neighbour], most: int, *, last: float, bonus: Callable[[Neighbour], float]
) -> list[str]:
    """Names of the neighbours nearest to the dialogue, no more than two from one mention by one relation."""
    fitting = [near for near in neighbours if _is_entity(near, reading)]
    cosines = reading.nearness([near.name for near in fitting], last)
    scored = sorted(
        zip(fitting, cosines.tolist(), strict=True),
        key=lambda pair: -(pair[1] + 0.5 * pair[0].fact.score + 0.6 * pair[0].anchor.weight + bonus(pair[0])),
    )
    names: dict[str, str] = {}
    led: dict[tuple[str, str], int] = {}
    for near, _ in scored:
        way = (near.anchor.link.name, near.fact.fact.relation)
        if normalise(near.name) in names or led.get(way, 0) >= _TWO_FROM_ONE:
            continue
        names[normalise(near.name)] = near.name
        led[way] = led.get(way, 0) + 1
        if len(names) == most:
            break
    return list(names.values())


def _is_entity(near: Neighbour, reading: Reading) -> bool:
    language = reading.dialogue.language
    if not relation(near.fact.fact.relation).informative or is_chinese(near.name) != (language == "zh"):
        return False
    if language == "zh":
        return len(near.name) <= _LONGEST[language]
    named = phrase(near.name, "thing") or phrase(near.name, "do") or phrase(near.name, "adj")
    return named is not None and len(near.name.split()) <= _LONGEST[language]


def _distinct(entities: Iterable[str], without: Iterable[str] = ()) -> list[str]:
    taken = {normalise(entity) for entity in without}
    kept = {normalise(entity): entity for entity in reversed(list(entities)) if normalise(entity) not in taken}
    return list(kept.values())[::-1]


def _near(reading: Reading, entities: Sequence[str]) -> list[str]:
    """The entities without those far from the last turn; what it says itself is never far."""
    cosines = reading.nearness(entities).tolist()
    floor = _NEAR * max(cosines, default=0.0)
    return [
        entity
        for place, (entity, cosine) in enumerate(zip(entities, cosines, strict=True))
        if place < _LEAST or cosine >= floor or entity in reading.said_last
    ]

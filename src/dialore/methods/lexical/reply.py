"""The reply: a reaction to the last turn's kind, a fact in words, a question."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dialore.methods.lexical.reading import Said
from dialore.methods.lexical.selection import scores
from dialore.methods.lexical.tables import table, turned, word_class
from dialore.methods.lexical.turns import kind_of
from dialore.methods.lexical.wording import Wording, word_fact, word_topic
from dialore.text import normalise

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dialore.knowledge import Knowledge
    from dialore.methods.lexical.reading import Reading

FLOOR = 0.65
"""A fact that scores less is not said."""
_NEAR = 0.2
"""A topic that is less near is not asked about."""
_FITTING = 0.12
"""What a relation that fits the turn's kind is worth."""
_OF_ANYTHING = 0.3
"""What it costs that all it has to do with the dialogue is a word that nearly every dialogue has."""
_JUST_SAID = 0.1
"""What it is worth that the last turn says one end of a fact."""
_GIVEN_FIRST = 0.01
"""What each place in the order that facts were given costs."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What is said, and why.

    Attributes:
        text: the reply.
        notes: the kind of turn it answers and the facts it words.
    """

    text: str
    notes: list[str] = field(default_factory=list)


def reply(reading: Reading, facts: Sequence[Knowledge] = (), topics: Sequence[str] = ()) -> Reply:
    """Answer the last turn in one to three sentences.

    Args:
        reading: the dialogue.
        facts: what may be worked in, the best first.
        topics: new topics that may be asked about, the best first.
    """
    dialogue = reading.dialogue
    language = dialogue.language
    kind = kind_of(dialogue.last.text, language)
    entry: dict[str, Any] = table("replies", language)[kind]
    seed = (dialogue.id, len(dialogue.turns), kind)
    before = [normalise(text) for text in dialogue.texts]
    parts = [_unsaid(turned(entry["say"], *seed), before)]
    notes = [f"the last turn is taken for: {kind}"]
    wording = _best_fact(reading, facts, entry.get("prefer", ()), seed) if entry.get("facts") else None
    questions = entry.get("ask", [])
    if wording is not None:
        lead = turned(entry.get("lead", [""]), *seed, "lead")[0]
        parts.append(_sentence(lead + wording.sentence, language))
        notes.append(f"a fact is worded: {wording.fact.triple}")
        questions = wording.questions
    # With a fact, one reply in three asks about it, one about a new topic, one nothing: no interrogation.
    asks = turned(["fact", "topic", "nothing"], *seed, "ask")[0] if wording is not None else "kind"
    if asks != "nothing":
        asked = _topic_question(reading, topics, wording, seed) if wording is not None and asks == "topic" else None
        parts.append(_unsaid([*([asked] if asked else []), *turned(questions, *seed, "question")], before))
    joined = ("" if language == "zh" else " ").join(part for part in parts if part)
    return Reply(joined, notes)


def _best_fact(
    reading: Reading, facts: Sequence[Knowledge], prefer: Iterable[str], seed: tuple[object, ...]
) -> Wording | None:
    """The best fact that can be worded and says something new of what was said."""
    offered = [fact for fact in facts if fact.kind == "fact"]
    fitting = frozenset(prefer)
    vague = word_class("vague", reading.dialogue.language)
    ranked: list[tuple[float, Knowledge]] = []
    for place, (fact, score) in enumerate(zip(offered, scores(reading, offered), strict=True)):
        ends = (fact.fact.head, fact.fact.tail)
        known = [end in reading.said for end in ends]
        if all(known) or not any(known):
            continue
        known_end = normalise(ends[known.index(True)])
        just_said = known_end in reading.said_last
        bonus = _FITTING * (fact.fact.relation in fitting) + _JUST_SAID * just_said - _GIVEN_FIRST * place
        bonus -= _OF_ANYTHING * (known_end in vague)
        ranked.append((score + bonus, fact))
    ranked.sort(key=lambda pair: -pair[0])
    worded = (word_fact(fact, reading.dialogue.language, *seed) for score, fact in ranked if score >= FLOOR)
    return next((wording for wording in worded if wording is not None), None)


def _topic_question(reading: Reading, topics: Sequence[str], wording: Wording, seed: tuple[object, ...]) -> str | None:
    """A question about the first topic that is near, can be worded and is no part of what was said or is to be."""
    language = reading.dialogue.language
    saying = Said(wording.sentence, reading.dialogue)
    for topic, near in zip(topics, reading.nearness(topics).tolist(), strict=True):
        worded = word_topic(topic, language)
        if worded is not None and near >= _NEAR and not saying.shares(topic) and not reading.said.shares(topic):
            return str(turned(table("replies", language)["topic"], *seed, topic)[0]).replace("{topic}", worded)
    return None


def _sentence(text: str, language: str) -> str:
    return f"{text}。" if language == "zh" else f"{text[:1].upper()}{text[1:]}."


def _unsaid(sentences: Sequence[str], before: Sequence[str]) -> str:
    """The first sentence that was not said before; the first of all where every one was."""
    fresh = (text for text in sentences if not any(normalise(text) in turn for turn in before))
    return next(fresh, sentences[0] if sentences else "")

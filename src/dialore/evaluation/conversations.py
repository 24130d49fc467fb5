"""Metrics of whole conversations: of their ends, and of each turn against everything that was known by then.

A conversation's turns are responses to the dialogues `NAME@1`, `NAME@2` and so on of a run, each with its `Standing`.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pydantic import BaseModel, BeforeValidator

from dialore.datasets.handbook import Item
from dialore.dialogue import Checked, Dialogue
from dialore.evaluation.base import Mean, Proportion, Sample, SampleScore, about_of, unavailable
from dialore.evaluation.handbook import is_right
from dialore.evaluation.judges.asking import JudgeClient, asker_of, spoken
from dialore.evaluation.judges.scoring import Judge, faithfulness, pieces_of
from dialore.evaluation.registry import Context, OwnMetric
from dialore.text import content_lemmas, split_sentences

METRICS = [f"conversation-{name}" for name in ("goal", "turns-to-goal", "tokens", "repeated-questions")]
"""The metrics that need no model."""
_FIRST = "the response is the first of its conversation"
_ALIKE = 0.8  # of two questions' words, the share in common from which they ask the same


def _as_facts(value: object) -> object:
    """Return facts as lists of spellings: a text, or a list of texts, is one fact. Numbers are texts, too."""
    if isinstance(value, str | int | float):
        value = [value]
    if not isinstance(value, list | tuple):
        return value
    is_flat = bool(value) and not any(isinstance(fact, list | tuple) for fact in value)
    facts = [value] if is_flat else value
    texts = []
    for fact in facts:
        if not isinstance(fact, list | tuple) or any(isinstance(form, bool | list | dict) for form in fact):
            raise ValueError("not a text, a list of texts or a list of lists of texts")
        spellings = [str(form).strip() for form in fact if form is not None]
        if not any(spellings):
            raise ValueError("a fact without a text")
        texts.append([spelling for spelling in spellings if spelling])
    return texts


_Facts = Annotated[tuple[tuple[str, ...], ...], BeforeValidator(_as_facts)]


class Standing(Checked):
    """The place of a turn in its conversation, in a dialogue's `extra` as `conversation`.

    Attributes:
        goal: what the user wants to know; `about` is who they are.
        answer: facts that reach the goal, and `wrong` ones, in the forms of the handbook test.
        turn: which of the responder's turns it is, from 1.
        known: the knowledge that earlier turns were given, and `tokens` what they cost.
        ended: at the last turn, how the conversation ended: `goal` (reached), `done` or `left` (the user says that they
            know, or leaves), `patience`, `log` (not known).
        scripted: the user's model failed at a turn, and the goal's own words stand there.
    """

    goal: str = ""
    about: str = ""
    temper: str = ""
    answer: _Facts = ()
    wrong: _Facts = ()
    turn: int = 0
    known: tuple[str, ...] = ()
    tokens: int = 0
    ended: str = ""
    scripted: bool = False

    @classmethod
    def of(cls, dialogue: Dialogue) -> Standing:
        """Return that of a dialogue; an empty one where it has none."""
        return cls.model_validate(dialogue.extra.get("conversation") or {})

    def reached(self, dialogue: Dialogue, text: str) -> bool:
        """Return whether the responder's turns, with this text, say every fact of the goal."""
        earlier = [turn.text for turn in dialogue.turns if turn.speaker == dialogue.responder]
        facts = self.model_dump(mode="json", include={"answer", "wrong"})
        item = Item(id="", language=dialogue.language, category="", half="", turns=[], **facts)
        return bool(self.answer) and is_right(item, "\n".join([*earlier, text]))


def make(name: str, context: Context) -> Judge:
    """Return a metric of this file that a judge measures."""
    if name == "conversation-faithfulness":
        prompts = ("ragas-faithfulness-statements", "ragas-faithfulness-verdicts")
        return Judge(about_of(name), asker_of(context), _faithful, prompts)
    return Judge(about_of(name), asker_of(context), partial(_without_fault, name), ("conversation",))


class ByRule(OwnMetric, Mean):
    """A metric that needs no model: a count at a conversation's end, or whether a turn asks again."""

    async def measure(self, sample: Sample) -> SampleScore:
        """Return the count at the end of a conversation; 1 or 0 at every turn but the first."""
        if self.about.name == "conversation-repeated-questions":
            return _asks_again(sample)
        standing, usage = Standing.of(sample.dialogue), sample.response.usage
        if not standing.ended:
            return unavailable("the conversation goes on, or is none")
        if self.about.name == "conversation-tokens":
            return SampleScore((float(standing.tokens + usage.prompt_tokens + usage.completion_tokens),))
        if standing.ended == "log" and not standing.answer:
            return unavailable("the conversation has no goal")
        reached = standing.ended == "done"  # the user's own word, where nothing else tells
        if standing.answer:
            reached = standing.reached(sample.dialogue, sample.response.text)
        if self.about.name == "conversation-goal":
            return SampleScore((float(reached),), detail=f"ended: {standing.ended}")
        return SampleScore((float(standing.turn),)) if reached else unavailable("the goal was not reached")


class Goal(ByRule, Proportion):
    """The share of conversations that reach their goal."""


def _asks_again(sample: Sample) -> SampleScore:
    dialogue = sample.dialogue
    earlier = [turn.text for turn in dialogue.turns if turn.speaker == dialogue.responder]
    if not earlier:
        return unavailable(_FIRST)
    before = [words for text in earlier for words in _questions(text, dialogue)]
    asked = _questions(sample.response.text, dialogue)
    return SampleScore((float(any(len(q & p) >= _ALIKE * len(q | p) for q in asked for p in before)),))


def _questions(text: str, dialogue: Dialogue) -> list[set[str]]:
    """Return the content words of each question of a text that has any."""
    questions = [sentence for sentence in split_sentences(text) if sentence.rstrip().endswith(("?", "？"))]
    return [words for question in questions if (words := set(content_lemmas(question, dialogue.language)))]


async def _faithful(judge: JudgeClient, sample: Sample) -> SampleScore:
    dialogue, earlier = sample.dialogue, Standing.of(sample.dialogue).known
    given = pieces_of(sample) if sample.response.knowledge or not earlier else []
    sides = ("The user", "Earlier answer") if dialogue.language == "en" else ("用户", "此前的回答")
    turns = [f"{sides[turn.speaker == dialogue.responder]}: {' '.join(turn.text.split())}" for turn in dialogue.turns]
    return await faithfulness(judge, sample, list(dict.fromkeys([*given, *earlier, *turns])))


class InConversation(BaseModel):
    """A turn against what was said before."""

    contradicts: bool
    forgets: bool


async def _without_fault(name: str, judge: JudgeClient, sample: Sample) -> SampleScore:
    """Return 1 where a turn has not the fault; both metrics ask alike, so that the cache answers one."""
    if len(sample.dialogue.turns) < 2:
        return unavailable(_FIRST)
    verdict = await judge.ask("conversation", InConversation, sample.dialogue, response=spoken(sample.response))
    fault = verdict.contradicts if name == "conversation-consistency" else verdict.forgets
    return SampleScore((float(not fault),))

"""Metrics of whole conversations: of their ends, and of each turn against everything that was known by then.

A conversation's turns are responses to dialogues of one name, `NAME@1`, `NAME@2` and so on. What a turn has to know of
those before stands in its dialogue's `extra` as `conversation`; see `Standing`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from dialore.datasets.handbook import Item
from dialore.evaluation.base import Mean, Metric, Proportion, Sample, SampleScore, about_of, unavailable
from dialore.evaluation.handbook import is_right
from dialore.evaluation.judges.asking import JudgeClient, UnjudgedError, asker_of, spoken
from dialore.evaluation.judges.scoring import Judge, faithfulness, pieces_of
from dialore.text import content_lemmas, split_sentences

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.evaluation.registry import Context

METRICS = (
    "conversation-goal",
    "conversation-turns",
    "conversation-turns-to-goal",
    "conversation-tokens",
    "conversation-repeated-questions",
)
"""Those that need no model."""
DONE, BROKEN = "done", "broken"
"""How a conversation ends where its user says that they know, and where the user's model failed."""
_ALIKE = 0.8
"""Of two questions' words, the share in common from which they ask the same."""


class Standing(BaseModel):
    """The place of a turn in its conversation.

    Attributes:
        turn: which of the responder's turns it is, from 1.
        ended: how the conversation ended, at its last turn; empty before.
        known: the knowledge that earlier turns were given, as text.
        tokens: what earlier turns cost.
        answer: facts that reach the goal, each in the forms that are accepted.
        wrong: forms that show a wrong answer; both as of the handbook test.
    """

    turn: int = 1
    ended: str = ""
    known: list[str] = []
    tokens: int = 0
    answer: list[list[str]] = []
    wrong: list[list[str]] = []

    def reached(self, dialogue: Dialogue, text: str) -> bool:
        """Return whether the responder's turns and this text together say what reaches the goal."""
        said = [turn.text for turn in dialogue.turns if turn.speaker == dialogue.responder]
        checked = {"id": dialogue.id, "language": dialogue.language, "category": "goal", "half": "", "turns": []}
        item = Item.model_validate({**checked, "answer": self.answer, "wrong": self.wrong})
        return bool(self.answer) and is_right(item, "\n".join([*said, text]))


def standing_of(dialogue: Dialogue) -> Standing | None:
    """Return the place of a dialogue's response in its conversation; None where it is of none that was recorded."""
    kept = dialogue.extra.get("conversation")
    return Standing.model_validate(kept) if isinstance(kept, dict) else None


def make(name: str, context: Context) -> Metric:
    """Return a metric of this file by name."""
    if name == "conversation-goal":
        return Goal()
    if name == "conversation-repeated-questions":
        return RepeatedQuestions()
    if name in METRICS:
        return AtEnd(name)
    score = _faithful if name == "conversation-faithfulness" else _judged(name)
    prompts = ("ragas-faithfulness-statements", "ragas-faithfulness-verdicts")
    asked = prompts if name == "conversation-faithfulness" else ("conversation",)
    return Judge(about_of(name), asker_of(context), score, asked)


# --- ends


def _end_of(sample: Sample) -> Standing | SampleScore:
    standing = standing_of(sample.dialogue)
    if standing is None or not standing.ended:
        return unavailable("the turn is not the last of a recorded conversation")
    if standing.ended == BROKEN:
        return unavailable("the simulated user failed")
    return standing


class Goal(Proportion):
    """The share of conversations that reach their goal, by what was said, else by the user's own word."""

    about = about_of("conversation-goal")

    async def measure(self, sample: Sample) -> SampleScore:
        """1 or 0 at a conversation's end."""
        standing = _end_of(sample)
        if isinstance(standing, SampleScore):
            return standing
        if not standing.answer and standing.ended == "log":
            return unavailable("the conversation has no goal")
        reached = standing.reached(sample.dialogue, sample.response.text) if standing.answer else standing.ended == DONE
        return SampleScore((float(reached),), detail=f"ended: {standing.ended}")


class AtEnd(Mean):
    """A count over a whole conversation: turns, turns to the goal, or tokens."""

    def __init__(self, name: str) -> None:
        self.about = about_of(name)

    async def measure(self, sample: Sample) -> SampleScore:
        """Return the count at a conversation's end."""
        standing = _end_of(sample)
        if isinstance(standing, SampleScore):
            return standing
        if self.about.name == "conversation-tokens":
            usage = sample.response.usage
            return SampleScore((float(standing.tokens + usage.prompt_tokens + usage.completion_tokens),))
        if self.about.name == "conversation-turns-to-goal" and (await Goal().measure(sample)).values != (1.0,):
            return unavailable("the goal was not reached")
        return SampleScore((float(standing.turn),))


# --- turns


class RepeatedQuestions(Mean):
    """How often a response asks what its side has asked before."""

    about = about_of("conversation-repeated-questions")

    async def measure(self, sample: Sample) -> SampleScore:
        """1 or 0; unavailable for the first response of a conversation."""
        dialogue = sample.dialogue
        said = [turn.text for turn in dialogue.turns if turn.speaker == dialogue.responder]
        if not said:
            return unavailable("the response is the first of its conversation")
        before = [words for text in said for words in _questions(text, dialogue)]
        asked = _questions(sample.response.text, dialogue)
        again = any(len(new & old) >= _ALIKE * len(new | old) for new in asked for old in before)
        return SampleScore((float(again),))


def _questions(text: str, dialogue: Dialogue) -> list[set[str]]:
    """Return the content words of each question of a text; of those that have any."""
    sentences = [sentence for sentence in split_sentences(text) if sentence.rstrip().endswith(("?", "？"))]
    return [words for sentence in sentences if (words := set(content_lemmas(sentence, dialogue.language)))]


async def _faithful(judge: JudgeClient, sample: Sample) -> SampleScore:
    """Return the share of a turn's statements that follow from passages and turns up to it."""
    dialogue, standing = sample.dialogue, standing_of(sample.dialogue)
    earlier = standing.known if standing is not None else []
    given = pieces_of(sample) if sample.response.knowledge or not earlier else []
    sides = ("Earlier turn", "The user") if dialogue.language == "en" else ("此前的回答", "用户")
    turns = [f"{sides[turn.speaker != dialogue.responder]}: {' '.join(turn.text.split())}" for turn in dialogue.turns]
    return await faithfulness(judge, sample, list(dict.fromkeys([*given, *earlier, *turns])))


class InConversation(BaseModel):
    """A turn against what was said before."""

    contradicts: bool
    forgets: bool


def _judged(name: str) -> Callable[[JudgeClient, Sample], Any]:
    async def score(judge: JudgeClient, sample: Sample) -> SampleScore:
        """Return 1 where the turn has not the fault; both metrics share one cached call."""
        if len(sample.dialogue.turns) < 2:
            raise UnjudgedError(unavailable("the response is the first of its conversation"))
        said = await judge.ask("conversation", InConversation, sample.dialogue, response=spoken(sample.response))
        fault = said.contradicts if name == "conversation-consistency" else said.forgets
        return SampleScore((float(not fault),))

    return score

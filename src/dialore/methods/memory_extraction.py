"""Extraction of what memory keeps of a user's turn: by the model after the response, or by a plain rule."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from dialore.llm.model import Usage
from dialore.methods.stage_runner import NullRunner
from dialore.methods.stages import StageContext
from dialore.prompts.history import on_one_line
from dialore.sources.periods import holds_from, is_limited_to_another_time
from dialore.sources.statements import Statement, standing, thing_of
from dialore.sources.web.redaction import without_addresses
from dialore.text import Language, content_lemmas, content_words, is_chinese, light_words, normalise, split_lines, stem

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.methods.stage_runner import StageRunner

LONGEST = 300
_MOST, _SHOWN = 5, 40


class Told(BaseModel):
    """A statement about the user, and the numbers of the earlier statements that it replaces, or may replace."""

    text: str
    replaces: list[int] = Field(default_factory=list)
    unsure: list[int] = Field(default_factory=list)


class Extracted(BaseModel):
    """Statements about the user in the latest turn."""

    statements: list[Told] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Remembered:
    """Statements of a turn to be kept, the earlier ones that they replace by id, closed, and what asking took."""

    statements: Sequence[Statement] = ()
    replaced: Mapping[str, Statement] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)


async def extract_statements(dialogue: Dialogue, known: Sequence[Statement], stage_runner: StageRunner) -> Remembered:
    """Return what the last turn of a dialogue says of the user, for whose memory it is; nothing where nothing parses.

    Left out are statements that are too long, hold a secret or an address (`is_harmless`), are not borne by the turn
    (`_is_borne`) or not of the user. A time in a statement ("last month") is since when it holds. Of what
    is `known` the newest are shown. What the model says is replaced is closed where both are of one thing or share most
    of their words; else it stands, doubted where the model is unsure or they share a word. Raises StageError.
    """
    now = datetime.now(UTC)
    shown = standing(known, now)[:_SHOWN]
    usage = Usage()
    if isinstance(stage_runner, NullRunner):
        told = [Told(text=sentence) for sentence in sentences_of_himself(dialogue.last.text)]
    else:
        stage = StageContext(stage_runner, "memory", dialogue)
        texts = [on_one_line(statement.text) for statement in shown]
        told = (await stage.ask("memory/extraction", Extracted, Extracted(), statements=texts)).statements
        usage = stage.usage
    kept = [claim for claim in told if 0 < len(claim.text.strip()) <= LONGEST and is_harmless(claim.text)]
    if not dialogue.spoken:  # else the statement may be a translation, of which words tell nothing
        kept = [claim for claim in kept if _is_borne(claim.text, dialogue) and _OWN.search(claim.text)]
        # Small models note compliments, too: what speaks to somebody is not of its speaker.
        kept = [claim for claim in kept if not _ADDRESSED.search(claim.text)]
    turn = quote_turn(dialogue.last.text)
    turn = turn if is_harmless(turn) else ""
    language = dialogue.language
    made: list[Statement] = []
    replaced: dict[str, Statement] = {}
    for claim in kept[:_MOST]:
        text = on_one_line(claim.text)
        statement = Statement(text=text, said=now, turn=turn, holds_from=holds_from(text, now))
        earlier = [shown[number - 1] for number in dict.fromkeys(claim.replaces) if 1 <= number <= len(shown)]
        unsure = [shown[number - 1] for number in claim.unsure if 1 <= number <= len(shown)]
        certain = [former for former in earlier if former not in unsure and _may_replace(former.text, text, language)]
        own, others = _borne_words(text, language), (former for former in earlier if former not in certain)
        shared = [former for former in others if own & _borne_words(former.text, language)]
        doubted = [*unsure, *shared]  # what else is said to be replaced small models name at random
        replaced |= {former.id: former.closed_by(statement) for former in certain}
        references = {"replaces": certain[0].id if certain else "", "doubts": doubted[0].id if doubted else ""}
        made.append(statement.model_copy(update=references))
    return Remembered(made, replaced, usage)


def quote_turn(text: str) -> str:
    """Return a turn as statements quote it."""
    return on_one_line(text)[: 2 * LONGEST]


@functools.lru_cache(maxsize=16384)
def says_something(text: str) -> bool:
    """Return whether a turn has two words that count: "Tell me more." is not worth finding again."""
    return len(_borne_words(text, "zh" if is_chinese(text) else "en")) > 1


def _may_replace(earlier: str, later: str, language: Language) -> bool:
    """Return whether one statement can contradict another: of one thing, or most of the shorter's words in common."""
    if is_limited_to_another_time(later, datetime.now(UTC)):
        return False
    if thing_of(earlier) == thing_of(later):
        return normalise(earlier) != normalise(later)
    earlier_words, later_words = _borne_words(earlier, language), _borne_words(later, language)
    return 2 * len(earlier_words & later_words) > min(len(earlier_words), len(later_words))


_OWN = re.compile(r"\b(?:i|i'm|i've|i'd|i'll|me|my|mine|we|our|us)\b|我|咱", re.IGNORECASE)
_ADDRESSED = re.compile(r"\b(?:you|your|yours)\b|你|您", re.IGNORECASE)


def _is_borne(text: str, dialogue: Dialogue) -> bool:
    """Return whether the last turn says half of a statement's content words, and earlier turns the others.

    "In Leeds" says "I live in Leeds" where it answers "Where do you live?".
    """
    language = dialogue.language
    words = _borne_words(text, language)
    own = words & _borne_words(dialogue.last.text, language)
    told = _borne_words(" ".join(dialogue.texts[-_TURNS:]), language)
    return len(own) * 2 >= len(words) and words <= told


def _borne_words(text: str, language: Language) -> set[str]:
    """Return what counts in a text: stems of content words, Chinese characters not of function words."""
    if language == "zh":
        return {sign for word in content_words(text, language) for sign in word}
    light = light_words(language)
    return {stem(word) for word in content_lemmas(text, language) if word not in light}


_TURNS = 6
_SECRET = re.compile(r"pass ?(?:word|code|phrase)|\bpin\b|api[ -]?key|密码|口令|验证码|\d{6,}", re.IGNORECASE)


def is_harmless(text: str) -> bool:
    """Return whether a text holds no secret and no address."""
    return not (_SECRET.search(text) or without_addresses(text)[1])


# --- without a model

_ENGLISH = re.compile(
    r"""(?:(?:and|but|so|well|oh|yes|no|actually|also|hi|hello),?[ ])*(?:
    i(?:[ ]am|'m)[ ](?!(?:not[ ])?(?:sorry|sure|glad|afraid|happy|confused|here|just|still|so|really|about|in|on|at|back
        |good|fine|ok|okay|tired|done|asking|looking|trying|wondering|going|thinking)\b)
    |i[ ](?:(?:also|do[ ]not|don't|really|usually|always|never|often|used[ ]to)[ ])*
        (?:have|own|like|love|hate|enjoy|prefer|live|work|play|speak|study|teach|collect|grew|moved|drink|eat|drive
        |smoke|volunteer|run)\b
    |my[ ](?:name|(?:best[ ])?friend|wife|husband|partner|mother|mom|mum|father|dad|parents|brother|sister|son|daughter
        |kids?|children|dogs?|cats?|pets?|job|boss|birthday|hobby|hobbies|favou?rite[ ][\w ]+)[ ]
        (?:is|are|was|has|have|works?|lives?|likes?|loves?|plays?)\b)""",
    re.IGNORECASE | re.VERBOSE,
)
_CHINESE = re.compile(
    r"""(?:你好|嗨|对|嗯|其实|不过|而且|因为)?[，,]?我(?:也|很|最|一直|平时|现在|从小|今年|已经|的)*(?:
    是(?!说|指|想|不是)|叫(?!醒|[他她你])|姓|住|养|有(?!点|些|个问题)|没有|不?喜欢|不?爱|讨厌|不[吃喝]|从事|来自|出生
    |对.{1,8}过敏|在.{1,12}(?:工作|上班|上学|读书)|\d+岁
    |(?:名字|爱好|生日|专业|工作|老[婆公]|妻子|丈夫|[爸妈哥姐弟妹]|父|母|儿子|女儿|孩子|家[在人里])(?!.*(?:怎么|吗)))""",
    re.VERBOSE,
)
_WORDS = 30


def sentences_of_himself(text: str) -> list[str]:
    """Return the sentences that say something lasting of their speaker, by how they begin, no questions among them.

    Moods, intentions and what is done just now ("I'm tired", "I'm looking for") are left out.
    """
    lasting = []
    for sentence in split_lines(text):
        plain = sentence.replace("’", "'")
        is_statement = len(plain.split()) <= _WORDS and not plain.rstrip("\"'”’)）").endswith(("?", "？"))
        if is_statement and (_ENGLISH.match(plain) or _CHINESE.match(plain)):
            lasting.append(sentence)
    return lasting

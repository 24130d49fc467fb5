"""Statements of earlier conversations: what each is about, which of them hold now, and which held at another time."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, StringConstraints, TypeAdapter, ValidationError

from dialore.errors import InputError, SourceError, describe
from dialore.files import read_text
from dialore.knowledge import Knowledge, Passage, stable_id
from dialore.sources.periods import Period, is_limited_to_another_time, is_of_the_past, period_of
from dialore.text import content_lemmas, is_chinese, lemmas, normalise, stem

if TYPE_CHECKING:
    from pathlib import Path

    from dialore.dialogue import Dialogue

_FORM = '{"text": "I live in Leeds.", "said": "2026-11-03T18:20:00Z", "turn": "...", "holds_until": ...}'


class Statement(BaseModel):
    """A statement in memory, or a whole turn of an earlier conversation.

    Attributes:
        text: the statement, in the first person; of a turn, its text.
        said: when it was said.
        turn: the turn that it was said in, quoted; of a turn, its id.
        speaker: who said it: `user`, `assistant`, or a name.
        holds_from: since when it holds; None: since it was said.
        holds_until: until when it held; None while it holds.
        replaces: the id of the statement that it replaced.
        doubts: the id of a statement that it may contradict; which of the two holds is to be asked.
        is_turn: it is a whole turn, which nothing replaces.
        expires: from when on it is not found any more; None for never.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    said: AwareDatetime
    turn: str = ""
    speaker: str = "user"
    holds_from: AwareDatetime | None = None
    holds_until: AwareDatetime | None = None
    replaces: str = ""
    doubts: str = ""
    is_turn: bool = False
    expires: AwareDatetime | None = None

    @property
    def id(self) -> str:
        """A stable id of who said what and when, which the piece of knowledge has, too."""
        return stable_id("passage", self.speaker, self.text, self.said.astimezone(UTC).isoformat())

    @property
    def searched(self) -> str:
        """The text that it is found by: a name before it counts."""
        return self.text if self.speaker in {"user", "assistant"} else f"{self.speaker}: {self.text}"

    @property
    def begins(self) -> datetime:
        """Since when it holds."""
        return self.holds_from or self.said

    def held_at(self, moment: datetime) -> bool:
        """Return whether it held at a moment."""
        return self.begins <= moment and (self.holds_until is None or moment < self.holds_until)

    def closed_by(self, newer: Statement) -> Statement:
        """Return it as it held until a newer one did; or until that was said, where that held even before it."""
        return self.model_copy(update={"holds_until": newer.begins if newer.begins > self.begins else newer.said})

    def held_in(self, period: Period) -> bool:
        """Return whether it held at some time of a period; of a turn, whether it was said then."""
        if self.is_turn:
            return period.begins <= self.said < period.ends
        return self.begins < period.ends and (self.holds_until is None or period.begins < self.holds_until)


_STATEMENTS = TypeAdapter(list[Statement])


def read_statements(path: Path) -> list[Statement]:
    """Return the statements of a JSONL file; raise InputError if the file is malformed."""
    statements = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            statements.append(Statement.model_validate_json(line))
        except ValidationError as error:
            raise InputError(f"{path}, line {number}: {describe(error)}", hint=f"a line is {_FORM}") from error
    return statements


def statements_of(dialogue: Dialogue) -> list[Statement]:
    """Return the statements that a dialogue brings; raise SourceError if they are malformed."""
    try:
        return _STATEMENTS.validate_python(dialogue.extra["memory"])
    except ValidationError as error:
        message = f"dialogue {dialogue.id}: its memory: {describe(error)}"
        raise SourceError(message, hint=f"memory is a list of {_FORM}") from error


def select_statements(
    statements: Sequence[Statement], query: str, dialogue: Dialogue
) -> tuple[list[Statement], set[str]]:
    """Return what holds now, and the statements of the time that the query, or else the last turn, is about.

    Of two alike the newest is found. The second value has the ids of those that held in a time of the past that is
    asked about.
    """
    now = datetime.now(UTC)
    last = dialogue.last.text
    for text in (last,) if last in query else (query, last):  # a query of several turns is of the last one's time
        if (period := period_of(text, now)) and (
            of_then := [statement for statement in statements if statement.held_in(period)]
        ):
            # What holds now is always among them: the time may not be that of what is asked for.
            candidates = list(dict.fromkeys([*standing(statements, now)[::-1], *of_then[::-1]]))
            is_past = period.ends <= now
            return candidates, {statement.id for statement in of_then} if is_past else set()
        if is_of_the_past(text):
            return [*statements][::-1], set()
    return standing(statements, now)[::-1], set()


def to_knowledge(
    statement: Statement, dialogue: Dialogue, others: Iterable[Statement], score: float = 0.0
) -> Knowledge:
    """Return a statement as knowledge: by whom, when it was said and until when it held stands before it in prompts."""
    is_english = dialogue.language == "en"
    by = {"user": '"Me"' if is_english else "“我”", "assistant": '"Friend"' if is_english else "“朋友”"}
    heading = f"{by.get(statement.speaker, statement.speaker)}{', ' if is_english else '，'}{_day(statement.said)}"
    if statement.holds_from and _day(statement.holds_from) != _day(statement.said):
        heading += (", since {}" if is_english else "，始于{}").format(_day(statement.holds_from))
    until = _day(statement.holds_until) if statement.holds_until else ""
    if until:
        heading += (", held until {}" if is_english else "，到{}为止").format(until)
    if statement.doubts and not statement.holds_until:
        note = '; may contradict "{}": ask which holds' if is_english else "；可能与“{}”矛盾：请问哪个对"
        doubted = [other.text for other in others if other.id == statement.doubts and other.holds_until is None]
        heading += note.format(doubted[0]) if doubted else ""
    fields = statement.model_dump(mode="json", exclude={"text", "expires"}, exclude_defaults=True)
    piece = Knowledge.of_passage(Passage(statement.text), "memory", score, said=heading, statement=fields)
    return piece.model_copy(update={"id": statement.id})


def _day(moment: datetime) -> str:
    return moment.date().isoformat()


# --- which statements stand


def with_intervals(statements: Iterable[Statement], now: datetime) -> list[Statement]:
    """Return the statements that have not expired, newest first, each closed by one said later about the same thing.

    Of two that say the same the newer is left out while the older stands: it has held for longer. One that doubts
    another closes none.
    """
    told: list[Statement] = []
    standing_of: dict[object, list[int]] = {}
    for given in sorted(statements, key=lambda entry: entry.said):
        statement = given
        if statement.expires is not None and statement.expires <= now:
            continue
        thing = None if statement.is_turn or statement.holds_until else thing_of(statement.text)
        if thing in _STATES and is_limited_to_another_time(statement.text, statement.said):
            thing = None
        if thing is None:
            told.append(statement)
            continue
        earlier = standing_of.setdefault((statement.speaker, thing), [])
        same = [number for number in earlier if _gist(told[number].text) == _gist(statement.text)]
        for number in [] if statement.doubts else [*earlier]:
            if number not in same:
                told[number] = told[number].closed_by(statement)
                statement = statement.model_copy(update={"replaces": statement.replaces or told[number].id})
                earlier.remove(number)
        for number in same:
            told[number] = told[number].model_copy(update={"expires": statement.expires})
        if not same:
            earlier.append(len(told))
            told.append(statement)
    return told[::-1]


def standing(statements: Iterable[Statement], now: datetime) -> list[Statement]:
    """Return the statements, newest first, that hold now: neither expired, nor closed, nor replaced.

    What was said holds, also where the clock has gone back since.
    """
    told = with_intervals(statements, now)
    now = max((now, *(statement.said for statement in told)))
    return [statement for statement in told if statement.is_turn or statement.held_at(now)]


_NUMBERS = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
_AGES = rf"\d+|(?:{_NUMBERS}|\w+teen|\w+ty)\b"
_ONE_OF_A_KIND = {
    "name": r"my name is|i am called|(?:friends|people|you can) call me|我的?名字是|我(?:的名字)?叫(?!醒|[他她你])",
    "age": rf"i (?:am|just turned|turned) (?:{_AGES})(?: years? old)?$|我(?:今年|已经|刚满)*\d+岁",
    "home": r"i (?:now |currently |just )?(?:live|am living|moved|have moved) (?:in|to)\b(?! an?\b| the\b| my\b)"
    "|我(?:现在|目前|刚)*(?:住|搬)[在到去]",
    "work": r"i (?:now |currently )?(?:work|am working) as\b|my (?:job|profession) is an? |我的(?:工作|职业)是",
    "birthday": "my birthday is|我的?生日",
    "status": r"i (?:am|got) (?:now |not |still |happily )*(?:single|married|engaged|divorced|widowed)\b"
    "|我(?:现在|还是?|已经)*(?:单身|结婚|离婚|未婚)",
}
_STATES = ("home", "work", "status")
"""Things of which another one may hold for some time beside the usual one, as "I live in York in August"."""
_FAVOURITE = re.compile(r"^my (?:new |all[- ]time )?(favou?rite [\w ]+?) (?:is|are)\b|^我最(?:喜欢|爱)的(.+?)是")
_SHORT = (("i'm ", "i am "), ("i've ", "i have "), ("n't ", " not "), ("'s ", " is "), ("favourite", "favorite"))
_LEADS = re.compile(r"^(?:(?:and|but|so|well|oh|yes|now|actually|also|currently|these days)\b,? )+")
_LIKES, _DISLIKES = frozenset(("love", "enjoy", "adore")), frozenset(("hate", "dislike"))
_ASIDE_TEXT = "a an the do not no never any longer long anymore now currently still really very also use to just"
_ASIDE = frozenset((*_ASIDE_TEXT.split(), *_NUMBERS.split("|")))
_LIGHT = frozenset(("a", "an", "the", "do", "really", "very", "also", "just", "to"))
_ASIDE_ZH = re.compile(r"[\d一二两三四五六七八九十]+|不再|再也|没有|[不没别了有]|从来|现在|以前")
_TASTE_ZH = re.compile(r"喜欢|讨厌|热爱|爱")
_LIKES_ZH = re.compile(r"喜欢|热爱|爱")
_PAST = re.compile(r"\b(?:was|were|had|did|used to)\b")


@functools.lru_cache(maxsize=16384)
def thing_of(text: str) -> object:
    """Return what a statement is about, where that can be told: of two about one thing the newer replaces.

    A plain rule that would rather keep both. It tells what a person has one of (name, age, home, work, birthday,
    marital status, a favourite of each kind), and statements of the same words in the same order but for numbers,
    denial and like or dislike: "I have two cats", "I have three cats"; "I like horror", "I don't like horror".
    None where nothing is left.
    """
    folded = _fold(text)
    if match := _FAVOURITE.match(folded):
        return "favourite", tuple(content_lemmas(match[1] or match[2], "zh" if match[2] else "en"))
    for name, pattern in _ONE_OF_A_KIND.items():
        if re.match(pattern, folded):
            return name
    if is_chinese(folded):
        return tuple(content_lemmas(_TASTE_ZH.sub("喜欢", _ASIDE_ZH.sub("", folded)), "zh")) or None
    counted = [word for word in lemmas(folded, "en") if word not in _ASIDE and not word.isdigit()]
    return tuple("like" if word in _LIKES | _DISLIKES else stem(word) for word in counted) or None


@functools.lru_cache(maxsize=16384)
def _gist(text: str) -> tuple[str, ...]:
    """Return what statements that say the same have in common, in order, as "I love to swim", "I like swimming"."""
    folded = _fold(text)
    if is_chinese(folded):
        return (re.sub(r"[\W_]+", "", _LIKES_ZH.sub("喜欢", folded)),)
    stems = tuple(
        "like" if word in _LIKES else "dislike" if word in _DISLIKES else word
        for word in lemmas(folded, "en")
        if word not in _LIGHT
    )
    return ("past", *stems) if _PAST.search(folded) else stems


def _fold(text: str) -> str:
    """Return a statement in lower case, its shortened forms whole, without what leads into it."""
    folded = normalise(text).replace("’", "'").rstrip(" .!。！") + " "
    for short, whole in _SHORT:
        folded = folded.replace(short, whole)
    return _LEADS.sub("", folded).strip()

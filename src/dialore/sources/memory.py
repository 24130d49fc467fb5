"""Memory: what a user said of themselves in earlier conversations, each statement with its time and its turn.

A dialogue brings its user's statements (`extra["memory"]`), as a service gives them; a file stands in for dialogues
that bring none. One open source thus serves many users, and never knows whose statements they are.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, StringConstraints, TypeAdapter, ValidationError

from dialore.errors import InputError, SourceError, describe
from dialore.files import read_text
from dialore.knowledge import Knowledge, Passage
from dialore.sources.base import SearchResult
from dialore.sources.persona import PersonaSource
from dialore.text import content_lemmas, is_chinese, lemmas, normalise, stem

if TYPE_CHECKING:
    from pathlib import Path

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Source
    from dialore.sources.persona import Ranker

_FORM = '{"text": "I live in Leeds.", "said": "2026-11-03T18:20:00Z", "turn": "...", "expires": ...}'


class Statement(BaseModel):
    """A user's statement about themselves.

    Attributes:
        text: the statement, in the first person.
        said: when it was said.
        turn: the turn that it was said in.
        expires: from when on it is not found any more; None for never.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    said: AwareDatetime
    turn: str = ""
    expires: AwareDatetime | None = None

    @property
    def id(self) -> str:
        """A stable id of the text, which the piece of knowledge has, too."""
        return Passage(self.text).id


_STATEMENTS = TypeAdapter(list[Statement])


class MemorySource:
    """The statements that the user of a dialogue made in earlier ones, ranked as a persona is.

    What has expired is not found, nor is what a newer statement about the same thing has replaced (`standing`).

    Args:
        statements: stand in where a dialogue brings none.
        retriever: as of `PersonaSource`; `dialogue` finds the most on Multi-Session Chat (`scripts/measure_memory.py`).
        name: its name.
    """

    kind: Source = "memory"

    def __init__(
        self, statements: Iterable[Statement] = (), *, retriever: str | Ranker = "dialogue", name: str = "memory"
    ) -> None:
        self.name = name
        self.statements = list(statements)
        self._ranked = PersonaSource(retriever=retriever)

    def of(self, dialogue: Dialogue) -> list[Statement]:
        """Return the statements that stand, newest first; raise SourceError where the dialogue's are malformed."""
        given = dialogue.extra.get("memory")
        try:
            statements = self.statements if given is None else _STATEMENTS.validate_python(given)
        except ValidationError as error:
            message = f"dialogue {dialogue.id}: its memory: {describe(error)}"
            raise SourceError(message, hint=f"memory is a list of {_FORM}") from error
        return standing(statements, datetime.now(UTC))

    async def search(
        self, query: str, dialogue: Dialogue, top: int = 10, scope: Sequence[Knowledge] = ()
    ) -> SearchResult:
        """See `KnowledgeSource`; `scope` is ignored. Raises SourceError where the dialogue's memory is malformed."""
        by_text = {statement.text: statement for statement in self.of(dialogue)}
        if not by_text:
            return SearchResult()
        asked = dialogue.model_copy(update={"persona": tuple(by_text), "extra": {}})
        found = await self._ranked.search(query, asked, top)
        return SearchResult(_piece(by_text[piece.text], dialogue, piece.score) for piece in found)

    def every(self, dialogue: Dialogue) -> Iterator[Knowledge]:
        """See `Listed`; raises SourceError where the dialogue's memory is malformed."""
        return (_piece(statement, dialogue) for statement in self.of(dialogue))

    def close(self) -> None:
        """Nothing is held open."""


def _piece(statement: Statement, dialogue: Dialogue, score: float = 0.0) -> Knowledge:
    """Return a statement as knowledge: by whom and when it was said stands before it in prompts."""
    by = '"Me", {}' if dialogue.language == "en" else "“我”，{}"
    said = by.format(statement.said.date().isoformat())
    return Knowledge.of_passage(Passage(statement.text), "memory", score, said=said, turn=statement.turn)


def open_memory(path: Path | None = None) -> MemorySource:
    """Return the statements of a JSONL file, or each dialogue's own; raise InputError where the file is malformed."""
    if path is None:
        return MemorySource()
    statements = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        try:
            statements += [Statement.model_validate_json(line)] if line.strip() else []
        except ValidationError as error:
            raise InputError(f"{path}, line {number}: {describe(error)}", hint=f"a line is {_FORM}") from error
    return MemorySource(statements)


# --- which statements stand


def standing(statements: Iterable[Statement], now: datetime) -> list[Statement]:
    """Return the statements, newest first, that neither expired nor were replaced by one about the same thing."""
    valid = [each for each in statements if each.expires is None or each.expires > now]
    newest: dict[object, Statement] = {}
    for each in sorted(valid, key=lambda one: one.said, reverse=True):
        newest.setdefault(thing_of(each.text) or each.id, each)
    return list(newest.values())


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
_FAVOURITE = re.compile(r"^my (?:new |all[- ]time )?(favou?rite [\w ]+?) (?:is|are)\b|^我最(?:喜欢|爱)的(.+?)是")
_SHORT = (("i'm ", "i am "), ("i've ", "i have "), ("n't ", " not "), ("'s ", " is "), ("favourite", "favorite"))
_LEADS = re.compile(r"^(?:(?:and|but|so|well|oh|yes|now|actually|also|currently|these days)\b,? )+")
_TASTE = frozenset(("love", "enjoy", "adore", "hate", "dislike"))
_ASIDE_TEXT = "a an the do not no never any longer long anymor now currently still really very also use to just"
_ASIDE = frozenset((*_ASIDE_TEXT.split(), *_NUMBERS.split("|")))
_ASIDE_ZH = re.compile(r"[\d一二两三四五六七八九十]+|不再|再也|没有|[不没别了有]|从来|现在|以前")
_TASTE_ZH = re.compile(r"喜欢|讨厌|热爱|爱")


@functools.lru_cache(maxsize=16384)
def thing_of(text: str) -> object:
    """Return what a statement is about, where that can be told: of two about one thing the newer replaces.

    A plain rule that would rather keep both. It tells what a person has one of (name, age, home, work, birthday,
    marital status, a favourite of each kind), and statements of the same words in the same order but for numbers,
    denial and like or dislike: "I have two cats", "I have three cats"; "I like horror", "I don't like horror".
    None where nothing is left.
    """
    folded = normalise(text).replace("’", "'").rstrip(" .!。！") + " "
    for short, whole in _SHORT:
        folded = folded.replace(short, whole)
    folded = _LEADS.sub("", folded).strip()
    if found := _FAVOURITE.match(folded):
        return "favourite", tuple(content_lemmas(found[1] or found[2], "zh" if found[2] else "en"))
    for name, pattern in _ONE_OF_A_KIND.items():
        if re.match(pattern, folded):
            return name
    if is_chinese(folded):
        return tuple(content_lemmas(_TASTE_ZH.sub("喜欢", _ASIDE_ZH.sub("", folded)), "zh")) or None
    said = ("like" if word in _TASTE else stem(word) for word in lemmas(folded, "en"))
    return tuple(word for word in said if word not in _ASIDE and not word.isdigit()) or None

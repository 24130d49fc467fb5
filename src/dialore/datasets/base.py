"""The base class of data sets, and the whole dialogues that they give."""

from __future__ import annotations

import hashlib
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field

from dialore.datasets.files import archive_of
from dialore.dialogue import Dialogue, Utterance, unique_id
from dialore.errors import InputError

if TYPE_CHECKING:
    from dialore.text import Language

Gold = str | dict[str, Any]
Holding = Literal["knowledge", "persona", "plan", "query"]


class Answer(BaseModel):
    """A turn that may be the reference, and what its writer had.

    Attributes:
        turn: its place among the dialogue's turns, at least 1; one past the last turn where that has no answer.
        references: all accepted responses, that of the turn first, if there are several.
        knowledge: the gold knowledge of this turn: texts, `{"text", ...}` or facts `{"head", "relation", "tail"}`.
        sources: its gold plan; empty where it needed no source, None where the data set has no plans.
        extra: what else belongs to this turn alone, such as the `query` that a person typed for it.
    """

    model_config = ConfigDict(frozen=True)

    turn: int = Field(ge=1)
    references: tuple[str, ...] = ()
    knowledge: tuple[Gold, ...] = ()
    sources: tuple[str, ...] | None = None
    extra: dict[str, Any] = Field(default_factory=dict)


class WholeDialogue(Dialogue):
    """A dialogue with every turn in place.

    Attributes:
        answers: the turns that may be references, in order; None where every turn but the first may.
        pool: the sentences that the responder could draw on, over the whole dialogue, used or not.
    """

    answers: tuple[Answer, ...] | None = None
    pool: tuple[Gold, ...] = ()


class LeftOut(NamedTuple):
    """A dialogue of a file that cannot be used: its id or place, and the reason."""

    name: str
    reason: str


Entry = WholeDialogue | LeftOut


@dataclass
class ReadingReport:
    """Counts of the dialogues of a file: read, left out by reason, and keys that are not used.

    Attributes:
        read: How many dialogues were read.
        left_out: How many were left out, by reason.
        examples: The name of the first dialogue that was left out, by reason.
        unused_keys: How many entries have a key that the reader does not know.
    """

    read: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    unused_keys: Counter[str] = field(default_factory=Counter)

    def leave_out(self, name: str, reason: str) -> None:
        """Count a dialogue that is left out."""
        self.left_out[reason] += 1
        self.examples.setdefault(reason, name)

    def reasons(self) -> list[str]:
        """Return a sentence for each reason to leave dialogues out."""
        return [
            f"{count:,} {'dialogue' if count == 1 else 'dialogues'} left out: {reason} ({self.examples[reason]})"
            for reason, count in self.left_out.most_common()
        ]


NO_TURN = "it has no turn to be answered"
BLANK = "no turn holds any text"
DOUBLE = "it stands twice in the file"
BLANK_REFERENCE = "its reference is blank"


def stated_id(name: str, identifier: object) -> str | None:
    """Return the id of a data set's dialogue from the one that its file states; None if there is none."""
    text = "" if identifier is None else str(identifier).strip()
    return f"{name}-{text}" if text else None


class Talk:
    """A whole dialogue in the making. Blank turns are left out.

    Its id is derived from its turns if it is None. Further fields are those of `WholeDialogue`; any other key goes to
    its `extra`. None is left out.
    """

    def __init__(self, identifier: str | None, language: Language, **fields: object) -> None:
        named = {"id": identifier, "language": language, **fields}
        self._fields = {name: value for name, value in named.items() if value is not None}
        self._turns: list[Utterance] = []
        self._answers: list[Answer] = []

    def say(self, speaker: str, text: str) -> None:
        """Add a turn that is no reference."""
        if text.strip():
            self._turns.append(Utterance(speaker=speaker, text=text))

    def answer(
        self,
        speaker: str,
        text: str | None,
        knowledge: Iterable[Gold] = (),
        sources: Iterable[str] | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        """Add a turn that may be the reference, unless it opens the dialogue and so answers nothing.

        None is one that is not written yet, the last. What is None in `extra` is left out.
        """
        if (text is None or text.strip()) and self._turns:
            plan = None if sources is None else tuple(sources)
            kept = {key: value for key, value in (extra or {}).items() if value is not None}
            self._answers.append(Answer(turn=len(self._turns), knowledge=tuple(knowledge), sources=plan, extra=kept))
        self.say(speaker, text or "")

    def alternate(self, texts: Iterable[str], first: str, second: str) -> Self:
        """Add the turns of two speakers who alternate; each may be the reference."""
        for number, text in enumerate(texts):
            self.answer(second if number % 2 else first, text)
        return self

    def pair(
        self, user: str, system: str, knowledge: Iterable[Gold] = (), extra: Mapping[str, object] | None = None
    ) -> None:
        """Add a user's turn and the system's, which may be the reference."""
        self.say("user", user)
        self.answer("system", system, knowledge, extra=extra)

    def whole(self) -> Iterator[Entry]:
        """Yield the dialogue, or why it is left out."""
        if not self._turns:
            yield LeftOut(str(self._fields.get("id", "without an id")), BLANK)
            return
        fields = {**self._fields, "turns": tuple(self._turns), "answers": tuple(self._answers)}
        yield WholeDialogue.model_validate(fields)


class DataSet(ABC):
    """Reads one data set's published files.

    Class attributes:
        name: what it is called here.
        version: of this reader; raised when the same file would give other dialogues.
        languages: of its dialogues.
        paper: who made it.
        licence: as its authors state it.
        where: where its files are to be had.
        form: what a file looks like.
        has: what comes with its dialogues besides the turns.
        bundled: its files by split, where they come with the package.
        keeps_unused: whether keys that the reader does not know go to a dialogue's `extra`.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    languages: ClassVar[tuple[Language, ...]]
    paper: ClassVar[str]
    licence: ClassVar[str]
    where: ClassVar[str]
    form: ClassVar[str]
    has: ClassVar[tuple[Holding, ...]] = ()
    bundled: ClassVar[Mapping[str, Path]] = {}
    keeps_unused: ClassVar[bool] = False

    @property
    def published(self) -> str:
        """The form of a file, as a sentence for errors."""
        return f"{self.name} is {self.form}"

    def __init__(self) -> None:
        self.report = ReadingReport()
        self._logged: set[str] = set()

    def read(self, path: Path) -> Iterator[WholeDialogue]:
        """Yield whole dialogues, one after the other as the file is read; `report` counts what became of them.

        A dialogue that stands twice in the file, with one id, is left out the second time. What is left out is logged
        as a warning.

        Raises:
            InputError: The file is not in the published form (file, line or entry, and field are named), no dialogue
                is left, or two different dialogues have one id.
        """
        report = self.report = ReadingReport()
        contents: dict[str, bytes] = {}
        for entry in self.entries(path):
            if isinstance(entry, LeftOut):
                report.leave_out(*entry)
                continue
            content = _digest(entry)
            identifier = unique_id(entry.id, contents)
            if identifier is None:
                if contents[entry.id] != content:
                    raise self._ambiguous(path, entry.id)
                report.leave_out(entry.id, DOUBLE)
                continue
            contents[identifier] = content
            report.read += 1
            yield entry if identifier == entry.id else entry.model_copy(update={"id": identifier})
        if not report.read:
            problem = "; ".join(report.reasons()) or "no dialogue in it"
            raise InputError(f"{path}: {problem}", hint=self.published)
        for reason in report.reasons():
            warning = f"{path}: {reason}"
            if warning not in self._logged:  # a file may be read twice
                self._logged.add(warning)
                logging.getLogger(__name__).warning("%s", warning)

    def _ambiguous(self, path: Path, identifier: str) -> InputError:
        hint = "ids must be unique in a file"
        if archive_of(path) is not None:
            hint += f"; read one split: {path}:NAME"
        return InputError(f"{path}: two dialogues have the id {identifier!r}", hint=hint)

    @abstractmethod
    def entries(self, path: Path) -> Iterator[Entry]:
        """Yield the file's dialogues, and those that are left out with the reason.

        Raises:
            InputError: The file is not in the published form; file, line or entry, and field are named.
        """

    def knowledge(self, path: Path) -> Iterator[Gold]:
        """Yield the sentences of the file's knowledge as they come, with repetitions; see `knowledge_pieces`."""
        for dialogue in self.read(path):
            yield from dialogue.pool or (item for answer in dialogue.answers or () for item in answer.knowledge)


def _digest(dialogue: WholeDialogue) -> bytes:
    """Return a digest of a dialogue's turns, and of which of them are answered."""
    parts = [f"{turn.speaker}\t{turn.text}" for turn in dialogue.turns]
    parts += [str(answer.turn) for answer in dialogue.answers or ()]
    return hashlib.blake2b("\n".join(parts).encode("utf-8", "replace"), digest_size=12).digest()


_TEXTS = ("text", "content", "page_content", "passage", "sentence")
"""The keys of a piece of knowledge's text, here and in others' files."""


def gold_text(item: Gold) -> str:
    """One piece of gold knowledge as text: its own, or a fact's head, relation and tail, without `_`."""
    if isinstance(item, str):
        return item
    for key in _TEXTS:
        if isinstance(text := item.get(key), str) and text.strip():
            return text
    relation = str(item.get("relation") or "").replace("_", " ")
    return " ".join(part for part in (str(item.get("head") or ""), relation, str(item.get("tail") or "")) if part)

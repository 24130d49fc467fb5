"""The base class of data sets, and the whole dialogues that they give."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from dialore.dialogue import Dialogue, Utterance

if TYPE_CHECKING:
    from dialore.text import Language

Gold = str | dict[str, Any]
Holding = Literal["knowledge", "persona", "plan", "query"]


class Answer(BaseModel):
    """A turn that may be the reference, and what its writer had.

    Attributes:
        turn: its place among the dialogue's turns, at least 1; one past the last turn where that has no answer.
        knowledge: the gold knowledge of this turn: texts, `{"text", ...}` or facts `{"head", "relation", "tail"}`.
        sources: its gold plan; empty where it needed no source, None where the data set has no plans.
        extra: what else belongs to this turn alone, such as the `query` that a person typed for it.
    """

    model_config = ConfigDict(frozen=True)

    turn: int = Field(ge=1)
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


class Talk:
    """A whole dialogue in the making. Blank turns are left out.

    Further fields are those of `WholeDialogue`; any other key goes to its `extra`. None is left out.
    """

    def __init__(self, identifier: str, language: Language, **fields: object) -> None:
        self._fields = {"id": identifier, "language": language} | {k: v for k, v in fields.items() if v is not None}
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

    def whole(self) -> Iterator[WholeDialogue]:
        """Yield the dialogue; nothing where no turn holds any text."""
        if self._turns:
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

    @property
    def published(self) -> str:
        """The form of a file, as a sentence for errors."""
        return f"{self.name} is {self.form}"

    @abstractmethod
    def read(self, path: Path) -> Iterator[WholeDialogue]:
        """Whole dialogues, one after the other as the file is read.

        Raises:
            InputError: the file is not in the published form; file, line or entry, and field are named.
        """

    def knowledge(self, path: Path) -> Iterator[Gold]:
        """Yield the sentences of the file's knowledge as they come, with repetitions; see `knowledge_pieces`."""
        for dialogue in self.read(path):
            yield from dialogue.pool or (item for answer in dialogue.answers or () for item in answer.knowledge)


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

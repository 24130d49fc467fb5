"""The stages of a response: asked of a responder, timed, traced, and given their fallback where nothing parses."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from pydantic import BaseModel

from dialore.errors import DialoreError, StageError, is_fatal
from dialore.llm.model import Usage
from dialore.methods.citations import MarkReader, knowledge_in, read_citations
from dialore.response import StageTrace
from dialore.sources.base import Findings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.llm.model import OnText
    from dialore.response import Citation, Outcome
    from dialore.sources.base import KnowledgeSource

T = TypeVar("T", bound=BaseModel)
Result = TypeVar("Result")
_STOPPED = "stopped before it was done"


class Text(BaseModel):
    """The output of a stage that writes plain text."""

    text: str


@dataclass(frozen=True, slots=True)
class StageCall(Generic[T]):
    """What a method asks of a responder.

    Attributes:
        prompt: `<method>/<stage>` of the prompt file that says what is wanted.
        stage: the stage's name.
        dialogue: the dialogue being answered.
        output: the shape of the answer; Text for plain text.
        variables: what the prompt is about, beside the dialogue.
        label: names the call in recordings: dialogue, method and stage.
        leads: words before plain text that a model may repeat of its prompt; they are taken off.
    """

    prompt: str
    stage: str
    dialogue: Dialogue
    output: type[T]
    variables: dict[str, object]
    label: str
    leads: tuple[str, ...] = ()


@dataclass(slots=True)
class StageAnswer(Generic[T]):
    """What a responder answers: the value, or None where the answer could not be parsed; and the trace of it.

    `by` is who answered, where it was not the responder that was asked.
    """

    value: T | None
    outcome: Outcome = "ok"
    prompt: str = ""
    messages: list[dict[str, str]] = field(default_factory=list)
    completion: str = ""
    usage: Usage = field(default_factory=Usage)
    notes: list[str] = field(default_factory=list)
    differs: bool = False
    error: str = ""
    by: str = ""


class Responder(Protocol):
    """Whoever does the stages: a language model, or the lexical responder."""

    @property
    def name(self) -> str:
        """Its name in traces."""
        ...

    async def answer(self, call: StageCall[T], on_text: OnText | None = None) -> StageAnswer[T]:
        """Do one stage; `on_text` gets the text as it comes.

        Raises:
            ModelError: the language model failed.
        """
        ...


class Stages:
    """One response in the making: its stages and their trace. Made anew for each dialogue.

    Args:
        responder: does the stages.
        method: the method's name, for labels.
        dialogue: the dialogue being answered.
        on_text: gets the response's text as it comes.
        cite: have the response cite its knowledge by number (see `citations`).
    """

    def __init__(
        self,
        responder: Responder,
        method: str,
        dialogue: Dialogue,
        on_text: OnText | None = None,
        *,
        cite: bool = False,
    ) -> None:
        self.responder = responder
        self.method = method
        self.dialogue = dialogue
        self.trace: list[StageTrace] = []
        self.cite = cite
        self._on_text = on_text
        self._citations: dict[str, list[Citation]] = {}
        self._begun = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since the response was begun."""
        return time.perf_counter() - self._begun

    @property
    def usage(self) -> Usage:
        """Calls and tokens of all stages so far."""
        return sum((stage.usage for stage in self.trace), Usage())

    async def ask(self, prompt: str, output: type[T], fallback: T, *, suffix: str = "", **variables: object) -> T:
        """Have a stage done with structured output.

        Args:
            prompt: `<method>/<stage>`.
            output: the shape wanted.
            fallback: what is used where the answer cannot be parsed, after one repair turn.
            suffix: tells two calls of one stage apart: `foreseen`, `unforeseen`.
            variables: the prompt's variables, beside the dialogue.

        Raises:
            StageError: the responder failed.
        """
        traced = self._new_trace(prompt, suffix)
        answer = await self._answer(
            traced, StageCall(prompt, traced.stage, self.dialogue, output, variables, self._label(traced))
        )
        if answer.value is None:
            traced.notes.append("the answer could not be parsed; the fallback is used")
        value = fallback if answer.value is None else answer.value
        traced.output = value.model_dump(mode="json")
        return value

    async def write(
        self, prompt: str, *, cites: Sequence[Knowledge] | None = None, leads: tuple[str, ...] = (), **variables: object
    ) -> str:
        """Have the response written, streamed to `on_text` if there is one.

        Args:
            prompt: `<method>/<stage>`.
            cites: what the prompt numbers where responses cite; None for the knowledge among the variables. Marks are
                read, and taken out before anybody sees them.
            leads: words before the response that a model may repeat of its prompt; they are taken off likewise.
            variables: the prompt's variables, beside the dialogue.

        Raises:
            StageError: the responder failed.
        """
        given = knowledge_in(variables) if cites is None else cites
        return await self._write(prompt, "", given, variables, self._on_text, leads)

    async def text(
        self, prompt: str, *, suffix: str = "", cites: Sequence[Knowledge] | None = None, **variables: object
    ) -> str:
        """Have a stage done whose output is plain text but not the response: a draft, a passage of knowledge.

        Args:
            prompt: `<method>/<stage>`.
            suffix: tells several calls of one stage apart.
            cites: for a text that may become the response, what its prompt numbers where responses cite.
            variables: the prompt's variables, beside the dialogue.

        Raises:
            StageError: the responder failed.
        """
        if cites is not None:
            return await self._write(prompt, suffix, cites, variables, None)
        return (await self._text(prompt, suffix, variables, None))[0]

    async def _write(
        self,
        prompt: str,
        suffix: str,
        knowledge: Sequence[Knowledge],
        variables: dict[str, object],
        on_text: OnText | None,
        leads: tuple[str, ...] = (),
    ) -> str:
        if not self.cite:
            return (await self._text(prompt, suffix, variables, on_text, leads))[0]
        variables = {**variables, "cite": bool(knowledge)}
        reader = MarkReader(len(knowledge))

        def pass_on(piece: str) -> None:
            if on_text is not None and piece:
                on_text(piece)

        streamed = None if on_text is None else lambda piece: pass_on(reader.feed(piece))
        text, traced = await self._text(prompt, suffix, variables, streamed, leads)
        pass_on(reader.close())
        cited = read_citations(text, knowledge)
        traced.output = {"text": cited.text, "citations": [each.model_dump() for each in cited.citations]}
        traced.notes += cited.notes
        self._citations[cited.text] = cited.citations
        return cited.text

    def citations(self, text: str) -> list[Citation]:
        """What a text that was written here cites; nothing for one that has been changed since."""
        return self._citations.get(text, [])

    async def read(
        self,
        prompt: str,
        reader: Callable[[str], Result | None],
        fallback: Result,
        *,
        suffix: str = "",
        **variables: object,
    ) -> Result:
        """Have a stage done whose plain text is then read: what sequence-to-sequence models write is no JSON.

        Args:
            prompt: `<method>/<stage>`.
            reader: makes a value of the text, None where it cannot; such a stage counts as unparsed.
            fallback: what is used then.
            suffix: tells several calls of one stage apart.
            variables: the prompt's variables, beside the dialogue.

        Raises:
            StageError: the responder failed.
        """
        text, traced = await self._text(prompt, suffix, variables, None)
        value = reader(text)
        if value is not None:
            return value
        traced.outcome, traced.error = "unparsed", "the answer could not be read"
        traced.notes.append("the answer could not be read; the fallback is used")
        return fallback

    async def _text(
        self,
        prompt: str,
        suffix: str,
        variables: dict[str, object],
        on_text: OnText | None,
        leads: tuple[str, ...] = (),
    ) -> tuple[str, StageTrace]:
        traced = self._new_trace(prompt, suffix)
        call = StageCall(prompt, traced.stage, self.dialogue, Text, variables, self._label(traced), leads)
        answer = await self._answer(traced, call, on_text)
        text = answer.value.text if answer.value is not None else ""
        traced.output = {"text": text}
        return text, traced

    @property
    def is_streaming(self) -> bool:
        """Whether somebody reads the response while it is written."""
        return self._on_text is not None

    def send(self, text: str) -> None:
        """Give the reader a response that was written by `text` and is now settled."""
        if self._on_text is not None:
            self._on_text(text)

    async def search(
        self, stage: str, source: KnowledgeSource, query: str, top: int, within: Sequence[Knowledge] = ()
    ) -> list[Knowledge]:
        """Ask a source of knowledge, and trace it. A source that cannot be asked gives nothing: the response goes on.

        The trace has the query as it was sent.

        Args:
            stage: the stage's name.
            source: the source.
            query: what is looked for.
            top: how many pieces at most.
            within: see `KnowledgeSource.search`.

        Raises:
            StageError: it would fail so for every dialogue (see `is_fatal`).
        """
        traced = StageTrace(stage=stage, started=self.seconds)
        self.trace.append(traced)
        found = Findings()
        try:
            found = Findings.of(await source.search(query, self.dialogue, top, within))
            query = query if found.query is None else found.query
            traced.notes += found.notes
        except DialoreError as error:
            traced.outcome, traced.error = "failed", str(error)
            if is_fatal(error):
                raise StageError(stage, self.dialogue.id, error) from error
            traced.notes.append(f"{source.name} could not be asked: the response goes on without it")
            query = query if error.query is None else error.query
        except asyncio.CancelledError:
            traced.outcome, traced.error = "failed", _STOPPED
            raise
        finally:
            traced.seconds = self.seconds - traced.started
        traced.output = {"source": source.name, "query": query, "found": [piece.id for piece in found]}
        return found

    def did(self, stage: str, work: Callable[[], tuple[Result, dict[str, object], list[str]]]) -> Result:
        """Do a stage that needs no responder, and trace it.

        Args:
            stage: the stage's name.
            work: does it; gives its result, its output for the trace, and notes.
        """
        traced = StageTrace(stage=stage, started=self.seconds)
        self.trace.append(traced)
        try:
            result, output, notes = work()
        except DialoreError as error:
            traced.outcome, traced.error = "failed", str(error)
            raise StageError(stage, self.dialogue.id, error) from error
        finally:
            traced.seconds = self.seconds - traced.started
        traced.output, traced.notes = dict(output), notes
        return result

    def _new_trace(self, prompt: str, suffix: str) -> StageTrace:
        name = prompt.rsplit("/", 1)[-1]
        traced = StageTrace(stage=f"{name}-{suffix}" if suffix else name, by=self.responder.name, started=self.seconds)
        self.trace.append(traced)
        return traced

    def _label(self, traced: StageTrace) -> str:
        return f"{self.dialogue.id}/{self.method}/{traced.stage}"

    async def _answer(self, traced: StageTrace, call: StageCall[T], on_text: OnText | None = None) -> StageAnswer[T]:
        try:
            answer = await self.responder.answer(call, on_text)
        except DialoreError as error:
            traced.outcome, traced.error = "failed", str(error)
            raise StageError(traced.stage, self.dialogue.id, error) from error
        except asyncio.CancelledError:
            traced.outcome, traced.error = "failed", _STOPPED
            raise
        finally:
            traced.seconds = self.seconds - traced.started
        traced.by = answer.by or traced.by
        for name in ("outcome", "prompt", "messages", "completion", "usage", "notes", "differs", "error"):
            setattr(traced, name, getattr(answer, name))
        return answer

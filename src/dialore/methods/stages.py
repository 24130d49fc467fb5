"""The stages of a response: asked of a stage runner, timed, traced, and given their fallback where nothing parses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeAlias, TypeVar

from pydantic import BaseModel

from dialore.errors import AnswerError, DialoreError, InputError, ModelError, StageError, WindowError, is_fatal
from dialore.knowledge import Knowledge
from dialore.llm.model import Completion, LanguageModel, Message, OnToken, OutputSchema, Request, Usage
from dialore.llm.pacing import LISTENER
from dialore.llm.structured import Outcome as ParseOutcome
from dialore.llm.structured import complete_structured
from dialore.methods.citations import MarkReader, read_citations
from dialore.methods.cleaning import CleanStream, EchoStream, answer_fault, clean_response, prompt_line, stops
from dialore.prompts.history import Block, asking_for, break_marks, friend_labels, history_messages, history_variables
from dialore.response import Citation, Outcome, StageTrace
from dialore.retrieval.reranking import load_reranker
from dialore.sources.base import KnowledgeSource, SearchResult

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.prompts.library import Prompt, PromptLibrary

T = TypeVar("T", bound=BaseModel)
Result = TypeVar("Result")

CITING = "shared/citing"  # the prompt that says how to cite: a response prompt gets it as `citing` where `cite` is on
_INSTRUCTIONS = "shared/instructions"  # the prompt with what the operator of a service wants of its responses
_SLOW, _LATEST = 6, 20  # tokens a second, the prompt's reading included, under which the latest calls are slow
HOW_TO_ADD_A_MODEL = "set DIALORE_BASE_URL and DIALORE_MODEL, or model.base_url and model.model"
CUT_OFF = "the answer was cut off at the token limit"
FOREIGN = "{0}: prompts, graph and word lists are English and Chinese; the response is asked for in {0}"
BY_MODEL = "model"  # the reranker that is the language model itself
_CANDIDATES, _NAMED = 20, 5  # pieces that are found to be reranked, and how many of them the model names
_SECOND, _AGAIN = 1000, 0.7  # the sample index and the temperature at which an answer is asked for once more
_OUTCOMES: dict[ParseOutcome, Outcome] = {"repaired_by_model": "repaired", "unparsed": "unparsed"}


class Text(BaseModel):
    """The output of a stage that writes plain text."""

    text: str


class Best(BaseModel):
    """The numbers of the pieces that serve a query best, the best first."""

    best: list[int]


@dataclass(frozen=True, slots=True)
class StageCall(Generic[T]):
    """A stage as a stage runner is asked to do it, by the name of a prompt file; `StageContext` says the rest."""

    prompt: str
    dialogue: Dialogue
    output: type[T]  # Text for plain text
    variables: dict[str, object]
    label: str  # names the call in recordings: dialogue, method and stage
    replies: bool = False  # it writes what may become the response, which is asked for in the user's language
    leads: tuple[str, ...] = ()
    prompt_variant: str = ""
    parser: Callable[[str], T | None] | None = None
    schema: Mapping[str, Any] | None = None  # where it is narrower than that of the output's shape


class StageRunner(Protocol):
    """A runner of stages: a language model, or several."""

    @property
    def name(self) -> str:
        """Its name in traces."""
        ...

    @property
    def is_slow(self) -> bool:
        """True if calls take so long that a method should make fewer of them."""
        ...

    async def answer(self, call: StageCall[T], step: StageTrace, on_token: OnToken | None = None) -> T | None:
        """Do one stage, record it in `step`, pass plain text on; None: nothing parsed. Raises ModelError."""
        ...


@dataclass(frozen=True, slots=True)
class LLMRunner:
    """Does a method's stages by a language model: renders a prompt file, parses the completion.

    Attributes:
        model: does every stage that no other is named for, and writes the response.
        prompts: the prompt files.
        stages: other models by the stage's name without a suffix, or by `<method>/<stage>`, which wins.
        instructions: what the operator of the service wants of responses, verbatim but for marks of chat templates.
        sampling: what the stages that write what may become the response sample otherwise than their prompts say.
        timings: completion tokens and seconds of the latest calls. Copies by `dataclasses.replace` share the list.
    """

    model: LanguageModel
    prompts: PromptLibrary
    stages: Mapping[str, LanguageModel] = field(default_factory=dict)
    instructions: Sequence[str] = ()
    sampling: Mapping[str, object] = field(default_factory=dict)
    timings: list[tuple[int, float]] = field(default_factory=list, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    @property
    def is_slow(self) -> bool:
        """True where two calls at once would take each other's time, by the latest; at first, where it runs here."""
        if not self.timings:
            return bool(getattr(self.model, "runs_here", False))
        tokens, seconds = (sum(column) for column in zip(*self.timings, strict=True))
        return bool(tokens < _SLOW * seconds)

    async def answer(self, call: StageCall[T], step: StageTrace, on_token: OnToken | None = None) -> T | None:
        """See `StageRunner`; raises InputError too, where the prompt is missing or malformed.

        What does not fit the model's window is tried with the later half of the turns, and so on.
        """
        turns = call.dialogue.turns
        model = self.stages.get(call.prompt) or self.stages.get(call.prompt.rpartition("/")[2]) or self.model
        step.model = model.name
        prompt = self.prompts.get(call.prompt, call.dialogue.language, call.prompt_variant)
        while True:
            shown = call.dialogue.model_copy(update={"turns": turns})
            try:
                request = self._request(prompt, call, shown, step)
                answered, completions = await _complete(model, call, request, step, on_token, prompt.instructions)
            except WindowError:
                if len(turns) == 1:
                    raise
                turns = turns[len(turns) // 2 :]
                continue
            if left := len(call.dialogue.turns) - len(turns):
                step.notes.append(f"the {left} oldest turns are left out: they do not fit the model's window")
            fresh = [completion for completion in completions if completion.seconds and not completion.usage.cached]
            self.timings.extend((completion.usage.completion_tokens, completion.seconds) for completion in fresh)
            del self.timings[:-_LATEST]
            return answered

    def _request(self, prompt: Prompt, call: StageCall[T], dialogue: Dialogue, step: StageTrace) -> Request:
        known = history_variables(dialogue, numbered=prompt.front.history == "numbered")
        before: tuple[Message, ...] = ()
        if prompt.front.history == "messages":
            *before_last, last = history_messages(dialogue)
            before, known["last_turn"] = tuple(before_last), Block(last.content)
        known |= {"cite": False, **call.variables}
        further = []
        if known["cite"]:
            further.append(self.prompts.get(CITING, dialogue.language).render({}))
            known["citing"] = Block(further[0].messages[0].content)
        request = prompt.render(known, call.label, before)
        first, *others = request.messages
        told, sampling = [first.content], request.sampling
        if call.replies:
            sampling = sampling.model_copy(update=self.sampling)
            if dialogue.spoken:
                step.notes.append(FOREIGN.format(dialogue.spoken))
                told.append(asking_for(dialogue.spoken))
            if self.instructions:
                wanted = self.prompts.get(_INSTRUCTIONS, dialogue.language)
                texts = [Block(break_marks(text)) for text in self.instructions]
                further.append(wanted.render({"instructions": texts}))
                told.append(further[-1].messages[0].content)
        messages = (first.model_copy(update={"content": "\n\n".join(told)}), *others)
        if not call.prompt_variant and issubclass(call.output, Text):
            marks = stops([message.content for message in messages])
            sampling = sampling.model_copy(update={"stop": tuple(dict.fromkeys((*sampling.stop, *marks)))})
        named = " + ".join([request.prompt, *(added.prompt for added in further)])
        changes = {"messages": messages, "prompt": named, "sampling": sampling}
        if call.schema is not None:
            changes["output_schema"] = OutputSchema(name=call.output.__name__, definition=dict(call.schema))
        request = request.model_copy(update=changes)
        step.prompt = request.prompt
        step.messages = [{"role": message.role, "content": message.content} for message in request.messages]
        return request


class NullRunner:
    """The stage runner of agents without a language model: it refuses every stage, and says how to add a model."""

    name = "no model"
    is_slow = False

    async def answer(self, call: StageCall[T], step: StageTrace, on_token: OnToken | None = None) -> T | None:
        """Refuse; raises InputError."""
        raise InputError(f"{call.prompt} needs a language model", hint=HOW_TO_ADD_A_MODEL)


async def _complete(
    model: LanguageModel, call: StageCall[T], request: Request, step: StageTrace, on_token: OnToken | None, told: str
) -> tuple[T | None, list[Completion]]:
    if issubclass(call.output, Text):
        text, completions = await _write(model, call, request, step, on_token, told)
        return call.output(text=text), completions
    structured = await complete_structured(model, request, call.output, parser=call.parser)
    step.outcome, step.error = _OUTCOMES.get(structured.outcome, "ok"), structured.error
    if structured.outcome == "repaired_locally":
        step.notes.append("the answer's JSON was repaired")
    _record(step, structured.completions)
    return structured.value, structured.completions


async def _write(
    model: LanguageModel, call: StageCall[Any], request: Request, step: StageTrace, on_token: OnToken | None, told: str
) -> tuple[str, list[Completion]]:
    """Return plain text; what may become the response is tried once more where it is no answer, unless it was shown.

    It is none where it says back the instructions that it was `told`. The forms of papers take every answer as it
    comes. Raises AnswerError where the second is none either.
    """
    labels = friend_labels(call.dialogue.language)
    is_checked = call.replies and not call.prompt_variant
    completions: list[Completion] = []
    while True:
        held = EchoStream(on_token or (lambda _: None), call.dialogue.last.text if is_checked else "")
        stream = CleanStream(held.feed, labels, call.leads)
        completions.append(await model.complete(request, None if on_token is None else stream.feed))
        stream.close()
        _record(step, completions)
        text = clean_response(completions[-1].text, labels, call.leads)
        fault = answer_fault(text, call.dialogue, told) if is_checked else ""
        if not fault:
            held.close()
            return text, completions
        if len(completions) > 1 or (on_token is not None and held.flows):
            raise AnswerError(fault, hint="ask again, or take a larger model")
        step.notes.append(f"{fault}: asked once more")
        warmer = request.sampling.model_copy(update={"temperature": max(_AGAIN, request.sampling.temperature)})
        request = request.model_copy(update={"sample": request.sample + _SECOND, "sampling": warmer})


def _record(step: StageTrace, completions: Sequence[Completion]) -> None:
    last = completions[-1]
    step.completion = last.text
    step.usage = sum((completion.usage for completion in completions), Usage())
    step.prompt_changed = any(completion.prompt_changed for completion in completions)
    step.recorded_with = next((completion.recorded_with for completion in completions if completion.recorded_with), "")
    if step.recorded_with:
        step.notes.append(f"recorded with {step.recorded_with} of the prompt")
    if last.finish_reason == "length":
        step.notes.append(CUT_OFF)


class StageName(str):
    """The name of a stage that begins; `step` says which of the model's calls in a row is under way, from 1."""

    step: int

    def __new__(cls, name: str, step: int) -> Self:
        """Make it."""
        made = super().__new__(cls, name)
        made.step = step
        return made


OnStage: TypeAlias = Callable[[StageName], object]  # gets the name of each stage as it begins


@dataclass(slots=True)
class StageContext:
    """One response in the making: its stages and their trace. Made anew for each dialogue.

    `ask`, `read`, `text` and `write` ask the stage runner. They take the prompt's name, `<method>/<stage>`, and its
    variables beside the dialogue; `suffix` tells several calls of one stage apart (`foreseen`, `unforeseen`), and
    `summary` is the stage's line for readers, in which `{}` stands for its value. They raise StageError where the
    stage runner failed.

    Attributes:
        stage_runner: does the stages.
        method: the method's name, for labels.
        dialogue: the dialogue being answered.
        on_token: gets the response's text as it comes.
        on_stage: gets the name of each stage as it begins.
        on_draft: gets what is written before it is known whether it is the response.
        cite: have the response cite its knowledge by number (see `citations`).
        prompt_variant: that of the prompts, "" or `paper` (see `Method`).
        rerank: what puts the pieces that a source finds in order: a reranker's spec (`load_reranker`), or `model`, the
            language model itself, listwise; "" for the source's own order.
        trace: what was done.
        given: the knowledge that the last text which may become the response was given.
    """

    stage_runner: StageRunner
    method: str
    dialogue: Dialogue
    on_token: OnToken | None = None
    on_stage: OnStage | None = None
    on_draft: OnToken | None = field(default=None, kw_only=True)
    cite: bool = field(default=False, kw_only=True)
    prompt_variant: str = field(default="", kw_only=True)
    rerank: str = field(default="", kw_only=True)
    trace: list[StageTrace] = field(default_factory=list, init=False)
    given: list[Knowledge] = field(default_factory=list, init=False)
    _citations: dict[str, list[Citation]] = field(default_factory=dict, init=False)
    _begun: float = field(default_factory=time.perf_counter, init=False)
    _steps: int = field(default=0, init=False)
    _asked: int = field(default=0, init=False)

    @property
    def seconds(self) -> float:
        """Seconds since the response was begun."""
        return time.perf_counter() - self._begun

    @property
    def usage(self) -> Usage:
        """Calls and tokens of all stages so far."""
        return sum((stage.usage for stage in self.trace), Usage())

    @contextmanager
    def step(self, name: str, model: str = "dialore") -> Iterator[StageTrace]:
        """Trace a stage: `with stage.step("reranking") as step: ...`; a DialoreError in it becomes a StageError."""
        traced = StageTrace(stage=name, model=model, started=self.seconds)
        self.trace.append(traced)
        asks = model == self.stage_runner.name
        if asks and not self._asked:
            self._steps += 1
        self._asked += asks
        listening = None
        if (on_stage := self.on_stage) is not None:
            on_stage(StageName(name, self._steps))
            waits = self._steps
            listening = LISTENER.set(lambda line: on_stage(StageName(line, waits)))
        try:
            yield traced
        except DialoreError as error:
            traced.outcome, traced.error = "failed", str(error)
            if isinstance(error, ModelError):
                traced.usage += Usage(calls=1, retries=error.tries - 1)
            raise StageError(name, self.dialogue.id, error) from error
        except asyncio.CancelledError:
            traced.outcome, traced.error = "failed", "stopped before it was done"
            raise
        finally:
            self._asked -= asks
            if listening is not None:
                LISTENER.reset(listening)
            traced.seconds = self.seconds - traced.started

    async def ask(
        self,
        prompt: str,
        output: type[T],
        fallback: T,
        *,
        parser: Callable[[str], T | None] | None = None,
        schema: Mapping[str, Any] | None = None,
        suffix: str = "",
        summary: str = "",
        **variables: object,
    ) -> T:
        """Have a stage done with structured output of the shape `output`.

        Each answer is read by `parser`, and as JSON where that returns None. One that neither reads gets one repair
        turn; after that the fallback is used. Servers that support JSON schemas are sent `schema`, where there is one.
        """
        value, step = await self._answer(prompt, suffix, output, variables, parser=parser, schema=schema)
        if value is None:
            step.notes.append("the answer could not be parsed; the fallback is used")
            value = fallback
        step.output = value.model_dump(mode="json")
        step.summary = summary.format(value)
        return value

    async def read(
        self,
        prompt: str,
        parser: Callable[[str], Result | None],
        fallback: Result,
        *,
        suffix: str = "",
        summary: str = "",
        **variables: object,
    ) -> Result:
        """Have a stage done whose plain text is then read: what sequence-to-sequence models write is no JSON.

        Where the parser returns None, the stage counts as unparsed, and the fallback is used.
        """
        text, step = await self._text(prompt, suffix, variables, summary)
        value = parser(text)
        if value is not None:
            return value
        step.outcome, step.error = "unparsed", "the answer could not be read"
        step.notes.append("the answer could not be read; the fallback is used")
        return fallback

    async def text(
        self,
        prompt: str,
        *,
        suffix: str = "",
        summary: str = "",
        cites: Sequence[Knowledge] | None = None,
        leads: tuple[str, ...] = (),
        on_token: OnToken | None = None,
        **variables: object,
    ) -> str:
        """Have a stage done whose output is plain text: a draft, a passage of knowledge, the response (see `write`).

        `cites` is, for a text that may become the response, what its prompt numbers where responses cite. The marks are
        read, and taken out before anybody sees them, as are `leads`, words that a model may repeat of its prompt.
        """
        self.given = list(cites) if cites is not None else self.given
        asked: dict[str, Any] = {"leads": leads, "replies": cites is not None}
        if cites is None or not self.cite:
            return (await self._text(prompt, suffix, variables, summary, on_token, **asked))[0]
        reader = MarkReader(cites)

        def pass_on(piece: str) -> None:
            if on_token is not None and piece:
                on_token(piece)

        streamed = None if on_token is None else lambda piece: pass_on(reader.feed(piece))
        variables["cite"] = True  # also where nothing was found: the instructions stay the same from turn to turn
        text, step = await self._text(prompt, suffix, variables, summary, streamed, **asked)
        pass_on(reader.close())
        cited = read_citations(text, cites)
        if text.strip() and not any(map(str.isalnum, cited.text)):  # small models give back what marks look like
            step.notes.append("the answer was citations alone: asked once more, without any")
            uncited = variables | {"cite": False}
            again = f"{suffix}-uncited" if suffix else "uncited"
            return (await self._text(prompt, again, uncited, summary, on_token, **asked))[0]
        step.output = {
            "text": cited.text,
            "citations": [citation.model_dump(exclude={"number"}) for citation in cited.citations],
        }
        step.notes += cited.notes
        self._citations[cited.text] = cited.citations
        return cited.text

    async def write(self, prompt: str, *, leads: tuple[str, ...] = (), **variables: Any) -> str:  # noqa: ANN401
        """Have the response written, streamed to `on_token` if there is one; `leads` as in `text`.

        Its prompt numbers the knowledge among the variables, of several lists one after the other.
        """
        lists = [value for value in variables.values() if isinstance(value, list | tuple)]
        cites = [piece for value in lists for piece in value if isinstance(piece, Knowledge)]
        return await self.text(prompt, cites=cites, leads=leads, on_token=self.on_token, **variables)

    def citations(self, text: str) -> list[Citation]:
        """Return the citations of a text that was written here; none for one that has been changed since."""
        return self._citations.get(text, [])

    def cited(self, text: str, citations: Sequence[Citation]) -> None:
        """Have a text that was written here cite this and nothing else."""
        self._citations[text] = list(citations)

    def send(self, text: str) -> None:
        """Send a response to `on_token` that was not written by `write`."""
        if self.on_token is not None:
            self.on_token(text)

    async def search(
        self,
        name: str,
        source: KnowledgeSource,
        query: str,
        top: int,
        scope: Sequence[Knowledge] = (),
        summary: str = "",
        *,
        as_found: bool = False,
    ) -> list[Knowledge]:
        """Ask a source of knowledge, as a stage of that name; one that cannot be asked gives nothing.

        The trace, and the summary, have the query as it was sent. Where pieces are reranked, more are looked for than
        are asked for; `as_found` leaves the order as it is. Raises StageError for what is fatal (`is_fatal`).
        """
        result = SearchResult()
        is_reranked = self.rerank and not as_found and source.kind != "graph"
        depth = max(top, _CANDIDATES) if is_reranked else top
        with self.step(name) as step:
            try:
                result = SearchResult.of(await source.search(query, self.dialogue, depth, scope))
                query = query if result.query is None else result.query
                step.notes += result.notes
            except DialoreError as error:
                if is_fatal(error):
                    raise
                step.outcome, step.error = "failed", str(error)
                step.notes.append(f"{source.name} could not be asked: the response goes on without it")
                query = query if error.query is None else error.query
            step.output = {"source": source.name, "query": query, "found": [piece.id for piece in result]}
            step.summary = summary.format(query)
        if not is_reranked or len(result) < 2:
            return result
        ranked = (await self._rerank(name, query, result))[:top]
        return [result[position].model_copy(update={"score": round(score, 4)}) for position, score in ranked]

    async def _rerank(self, name: str, query: str, found: Sequence[Knowledge]) -> list[tuple[int, float]]:
        """Return places and scores of what was found, by a reranker or the model; as found where that fails.

        The model gives no scores: they fall from 1 in equal steps, as they do where the order stays as found.
        """
        texts = [prompt_line(piece) for piece in found]
        named: list[int] = []
        try:
            if self.rerank == BY_MODEL:
                numbers = {"type": "integer", "minimum": 1, "maximum": len(texts)}
                lists = {"best": {"type": "array", "items": numbers, "minItems": 1, "maxItems": _NAMED}}
                schema = {"type": "object", "properties": lists, "required": ["best"], "additionalProperties": False}
                asked: dict[str, Any] = {"suffix": name, "schema": schema, "query": query, "passages": texts}
                ranking = await self.ask("shared/reranking", Best, Best(best=[]), **asked)
                named = [number - 1 for number in ranking.best if 1 <= number <= len(texts)]
            else:
                with self.step(f"reranking-{name}") as step:
                    reranker = load_reranker(self.rerank)
                    ranked = await asyncio.to_thread(reranker.rerank, query, texts, len(texts))
                    step.output = {"found": [found[position].id for position, _ in ranked]}
                    return ranked
        except StageError as error:
            if is_fatal(error.cause):
                raise
        order = dict.fromkeys([*named, *range(len(found))])
        return [(position, 1 - rank / len(found)) for rank, position in enumerate(order)]

    async def _text(
        self,
        prompt: str,
        suffix: str,
        variables: dict[str, object],
        summary: str,
        on_token: OnToken | None = None,
        **asked: Any,  # noqa: ANN401 - of StageCall
    ) -> tuple[str, StageTrace]:
        answer, step = await self._answer(prompt, suffix, Text, variables, on_token, **asked)
        text = answer.text if answer is not None else ""
        step.output = {"text": text}
        step.summary = summary.format(" ".join(text.split())) if text.strip() else ""
        return text, step

    async def _answer(
        self,
        prompt: str,
        suffix: str,
        output: type[T],
        variables: dict[str, object],
        on_token: OnToken | None = None,
        **asked: Any,  # noqa: ANN401 - of StageCall
    ) -> tuple[T | None, StageTrace]:
        name = prompt.rsplit("/", 1)[-1]
        with self.step(f"{name}-{suffix}" if suffix else name, self.stage_runner.name) as step:
            label, variant = f"{self.dialogue.id}/{self.method}/{step.stage}", self.prompt_variant
            call = StageCall(prompt, self.dialogue, output, variables, label, prompt_variant=variant, **asked)
            return await self.stage_runner.answer(call, step, on_token), step

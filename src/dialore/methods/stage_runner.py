"""Stage runners: they render the prompt of a stage, send it to a language model and read the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pydantic import BaseModel

from dialore.errors import AnswerError, InputError, WindowError
from dialore.llm.model import Completion, LanguageModel, Message, OnToken, OutputSchema, Request, Usage
from dialore.llm.streams import FilteredStream
from dialore.llm.structured import StructuredReader, output_schema
from dialore.methods.cleaning import CleanFilter, EchoFilter, answer_fault, clean_response, stops
from dialore.prompts.history import Block, asking_for, break_marks, friend_labels, history_messages, history_variables

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.prompts.library import Prompt, PromptLibrary
    from dialore.response import StageTrace

T = TypeVar("T", bound=BaseModel)

CITING_PROMPT = "shared/citing"
"""The prompt that says how to cite. Response prompts get it as the variable `citing`."""
INSTRUCTIONS_PROMPT = "shared/instructions"
"""The prompt that holds the wishes of a service's operator."""
HOW_TO_ADD_A_MODEL = "set DIALORE_BASE_URL and DIALORE_MODEL, or model.base_url and model.model"
CUT_OFF = "the answer was cut off at the token limit"
FOREIGN = "{0}: prompts, graph and word lists are English and Chinese; the response is asked for in {0}"
SLOW_TOKENS_PER_S = 6.0
"""Completion tokens a second, reading the prompt included, below which a model counts as slow."""
MAX_TIMINGS = 20
RETRY_SAMPLE, RETRY_TEMPERATURE = 1000, 0.7
"""The sample index and the lowest temperature at which an unusable text is asked for again."""


class Text(BaseModel):
    """The output of a stage that writes plain text."""

    text: str


@dataclass(frozen=True, slots=True)
class StageCall(Generic[T]):
    """One stage to be done.

    Attributes:
        prompt: Name of the prompt, `<method>/<stage>`.
        dialogue: The dialogue.
        output: The type of the result. `Text` for plain text.
        variables: Variables of the prompt beside the dialogue's.
        label: Names the call in recordings: dialogue, method and stage.
        may_be_response: Whether the text may become the response. It is then requested in the user's language, with
            the operator's instructions, and an echo of the prompt is not accepted.
        leads: Words of the prompt that the model may repeat at the start.
        prompt_variant: Variant of the prompt. The variants of papers accept every answer.
        parser: Reads an answer that is not JSON. If it returns None, the answer is read as JSON.
        schema: JSON schema that is sent instead of that of `output`.
    """

    prompt: str
    dialogue: Dialogue
    output: type[T]
    variables: Mapping[str, object]
    label: str
    may_be_response: bool = False
    leads: tuple[str, ...] = ()
    prompt_variant: str = ""
    parser: Callable[[str], T | None] | None = None
    schema: Mapping[str, Any] | None = None


class StageRunner(Protocol):
    """Runs the stages of methods."""

    @property
    def name(self) -> str:
        """Name in traces."""
        ...

    @property
    def is_slow(self) -> bool:
        """Whether calls take so long that a method should make fewer of them."""
        ...

    async def answer(self, call: StageCall[T], step: StageTrace, on_token: OnToken | None = None) -> T | None:
        """Run a stage and record it in `step`.

        Plain text is streamed to `on_token`. Returns None if the answer cannot be parsed.

        Raises:
            ModelError: The model failed, or gave no usable text.
            InputError: The prompt is missing or malformed.
        """
        ...


class NullRunner:
    """The stage runner of agents without a language model. It refuses every stage."""

    name = "no model"
    is_slow = False

    async def answer(self, call: StageCall[T], step: StageTrace, on_token: OnToken | None = None) -> T | None:
        """Raise InputError."""
        raise InputError(f"{call.prompt} needs a language model", hint=HOW_TO_ADD_A_MODEL)


@dataclass(frozen=True, slots=True)
class LLMRunner:
    """Runs stages with a language model.

    Attributes:
        model: Model of every stage that is not in `stages`.
        prompts: The prompts.
        stages: Models of single stages, by `<stage>` or `<method>/<stage>`. The longer name wins.
        instructions: Wishes of the operator of a service, for the stages that may write the response.
        sampling: Sampling of the stages that may write the response, in place of their prompts'.
        timings: Completion tokens and seconds of the latest calls. Copies share the list.
        steps: If given, receives the trace of each stage as it begins.
    """

    model: LanguageModel
    prompts: PromptLibrary
    stages: Mapping[str, LanguageModel] = field(default_factory=dict)
    instructions: Sequence[str] = ()
    sampling: Mapping[str, object] = field(default_factory=dict)
    timings: list[tuple[int, float]] = field(default_factory=list, compare=False, repr=False)
    steps: list[StageTrace] | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.model.name

    @property
    def is_slow(self) -> bool:
        """Whether the latest calls were slow. Before the first call, whether the model runs in this process."""
        if not self.timings:
            return bool(getattr(self.model, "runs_here", False))
        tokens = sum(tokens for tokens, _ in self.timings)
        seconds = sum(seconds for _, seconds in self.timings)
        return tokens < SLOW_TOKENS_PER_S * seconds

    async def answer(self, call: StageCall[T], step: StageTrace, on_token: OnToken | None = None) -> T | None:
        """See `StageRunner`.

        If the prompt does not fit the model's window, the older half of the turns is left out, and so on. If the
        answer cannot be used, the model is asked once more.
        """
        if self.steps is not None:
            self.steps.append(step)
        model = self._find_model(call.prompt)
        step.model = model.name
        prompt = self.prompts.get(call.prompt, call.dialogue.language, call.prompt_variant)
        reader = _create_reader(call, prompt, on_token)
        dialogue = call.dialogue
        request = self._render(prompt, call, dialogue, step)
        completions: list[Completion] = []
        while True:
            try:
                completion = await model.complete(request, reader.open_stream())
            except WindowError:
                if len(dialogue.turns) == 1:
                    raise
                dialogue = dialogue.model_copy(update={"turns": dialogue.turns[len(dialogue.turns) // 2 :]})
                request = self._render(prompt, call, dialogue, step)
                continue
            completions.append(completion)
            _record_completions(step, completions)
            self._record_timing(completion)
            retry = reader.read(completion, request, step)
            if retry is None:
                break
            request = retry
        if missing := len(call.dialogue.turns) - len(dialogue.turns):
            step.notes.append(f"the {missing} oldest turns are left out: they do not fit the model's window")
        value: T | None = reader.value
        return value

    def _find_model(self, prompt: str) -> LanguageModel:
        stage = prompt.rpartition("/")[2]
        return self.stages.get(prompt) or self.stages.get(stage) or self.model

    def _record_timing(self, completion: Completion) -> None:
        if completion.seconds and not completion.usage.cached:
            self.timings.append((completion.usage.completion_tokens, completion.seconds))
            del self.timings[:-MAX_TIMINGS]

    def _render(self, prompt: Prompt, call: StageCall[T], dialogue: Dialogue, step: StageTrace) -> Request:
        """Return the request of a stage and record it."""
        variables = history_variables(dialogue, numbered=prompt.front.history == "numbered")
        history: Sequence[Message] = ()
        if prompt.front.history == "messages":
            *history, last = history_messages(dialogue)
            variables["last_turn"] = Block(last.content)
        variables["cite"] = False
        variables.update(call.variables)
        references: list[str] = []
        if variables["cite"]:
            citing = self._render_text(CITING_PROMPT, dialogue, {}, references)
            variables["citing"] = Block(citing)
        request = prompt.render(variables, call.label, tuple(history))
        references.insert(0, request.prompt)

        sampling = request.sampling
        system = [request.messages[0].content]
        if call.may_be_response:
            sampling = sampling.model_copy(update=dict(self.sampling))
            if dialogue.spoken:
                step.notes.append(FOREIGN.format(dialogue.spoken))
                system.append(asking_for(dialogue.spoken))
            if self.instructions:
                texts = [Block(break_marks(text)) for text in self.instructions]
                system.append(self._render_text(INSTRUCTIONS_PROMPT, dialogue, {"instructions": texts}, references))
        first_message = request.messages[0].model_copy(update={"content": "\n\n".join(system)})
        messages = (first_message, *request.messages[1:])
        if not call.prompt_variant and issubclass(call.output, Text):
            stop = (*sampling.stop, *stops([message.content for message in messages]))
            sampling = sampling.model_copy(update={"stop": tuple(dict.fromkeys(stop))})

        changes: dict[str, object] = {"messages": messages, "sampling": sampling, "prompt": " + ".join(references)}
        if call.schema is not None:
            changes["output_schema"] = OutputSchema(name=call.output.__name__, definition=dict(call.schema))
        elif not issubclass(call.output, Text) and request.output_schema is None:
            changes["output_schema"] = output_schema(call.output)
        request = request.model_copy(update=changes)
        step.prompt = request.prompt
        step.messages = [{"role": message.role, "content": message.content} for message in request.messages]
        return request

    def _render_text(
        self, name: str, dialogue: Dialogue, variables: Mapping[str, object], references: list[str]
    ) -> str:
        """Render a shared prompt and add its reference to those of the request."""
        rendered = self.prompts.get(name, dialogue.language).render(variables)
        references.append(rendered.prompt)
        return rendered.messages[0].content


def _record_completions(step: StageTrace, completions: Sequence[Completion]) -> None:
    last = completions[-1]
    step.completion = last.text
    step.usage = sum((completion.usage for completion in completions), Usage())
    step.prompt_changed = any(completion.prompt_changed for completion in completions)
    if last.recorded_with:
        step.recorded_with = step.recorded_with or last.recorded_with
        step.notes.append(f"recorded with {step.recorded_with} of the prompt")
    if last.finish_reason == "length":
        step.notes.append(CUT_OFF)


class _AnswerReader(Protocol):
    """Reads the answers to one stage call."""

    @property
    def value(self) -> Any:  # noqa: ANN401 - it is of the type of the call's output
        """The value that was read, or None."""
        ...

    def open_stream(self) -> OnToken | None:
        """Return the listener of the next answer, or None if it need not be streamed."""
        ...

    def read(self, completion: Completion, request: Request, step: StageTrace) -> Request | None:
        """Read an answer into `value`, or return the request by which to ask once more."""
        ...


def _create_reader(call: StageCall[T], prompt: Prompt, on_token: OnToken | None) -> _AnswerReader:
    if issubclass(call.output, Text):
        return _TextReader(call, prompt.instructions, on_token)
    return _StructuredReader(call)


class _TextReader:
    """Reads plain text: removes labels and quotation marks, and detects echoes.

    An echo of the last turn or of the instructions, or a script of both sides, is asked for once more, unless it was
    shown already.
    """

    value: Text | None = None

    def __init__(self, call: StageCall[Any], instructions: str, on_token: OnToken | None) -> None:
        self._call, self._instructions, self._on_token = call, instructions, on_token
        self._labels = friend_labels(call.dialogue.language)
        self._detects_echoes = call.may_be_response and not call.prompt_variant
        self._has_retried = False
        self._echo_filter = EchoFilter("")
        self._stream: FilteredStream | None = None

    def open_stream(self) -> OnToken | None:
        """See `_AnswerReader`."""
        if self._on_token is None:
            return None
        self._echo_filter = EchoFilter(self._call.dialogue.last.text if self._detects_echoes else "")
        self._stream = FilteredStream([CleanFilter(self._labels, self._call.leads), self._echo_filter], self._on_token)
        return self._stream.feed

    def read(self, completion: Completion, request: Request, step: StageTrace) -> Request | None:
        """See `_AnswerReader`; raises AnswerError if the second answer is unusable, or the first that was shown."""
        text = clean_response(completion.text, self._labels, self._call.leads)
        fault = answer_fault(text, self._call.dialogue, self._instructions) if self._detects_echoes else ""
        if not fault:
            if self._stream is not None:
                self._stream.finish()
            self.value = self._call.output(text=text)
            return None
        was_shown = self._stream is not None and self._echo_filter.flows
        if self._has_retried or was_shown:
            raise AnswerError(fault, hint="ask again, or take a larger model")
        self._has_retried = True
        step.notes.append(f"{fault}: asked once more")
        temperature = max(RETRY_TEMPERATURE, request.sampling.temperature)
        sampling = request.sampling.model_copy(update={"temperature": temperature})
        return request.model_copy(update={"sample": request.sample + RETRY_SAMPLE, "sampling": sampling})


class _StructuredReader:
    """Reads structured output and records how it was obtained."""

    def __init__(self, call: StageCall[T]) -> None:
        self._reader = StructuredReader(call.output, call.parser)

    @property
    def value(self) -> Any:  # noqa: ANN401 - as of `_AnswerReader`
        """The value, or None if the answer could not be parsed."""
        return self._reader.value

    def open_stream(self) -> OnToken | None:
        """See `_AnswerReader`."""
        return None

    def read(self, completion: Completion, request: Request, step: StageTrace) -> Request | None:
        """See `_AnswerReader`. An answer that cannot be repaired leaves `value` None and the outcome `unparsed`."""
        repair = self._reader.read(completion, request)
        if repair is not None:
            return repair
        match self._reader.outcome:
            case "unparsed":
                step.outcome, step.error = "unparsed", self._reader.error
            case "repaired_by_model":
                step.outcome = "repaired"
            case "repaired_locally":
                step.notes.append("the answer's JSON was repaired")
        return None

"""The context in which a method produces one response: stages, sources, citations and the trace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from pydantic import BaseModel

from dialore.errors import DialoreError, ModelError, StageError, is_fatal
from dialore.knowledge import Knowledge
from dialore.llm.model import OnToken, Usage
from dialore.llm.streams import LISTENER, FilteredStream
from dialore.methods.citations import MarkReader, read_citations
from dialore.methods.cleaning import prompt_line
from dialore.methods.stage_runner import StageCall, StageRunner, T, Text
from dialore.response import Citation, StageTrace
from dialore.sources.base import KnowledgeSource, SearchResult

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue

Result = TypeVar("Result")

RERANK_BY_MODEL = "model"
"""The reranker that is the language model itself."""
RERANK_DEPTH = 20
"""Number of items that are retrieved for reranking."""
MAX_RANKED = 5
"""Number of items that the model puts in order."""


class Ranking(BaseModel):
    """The numbers of the items that serve a query best, the best first."""

    best: list[int]


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
        """Run a stage with structured output and return its value.

        Each answer is read by `parser`, and as JSON if that returns None. An answer that neither can read gets one
        repair turn. After that, `fallback` is returned. Servers that support JSON schemas are sent `schema`, or else
        the schema of `output`.
        """
        with self._stage(prompt, suffix) as step:
            call = self._call(prompt, output, variables, step, parser=parser, schema=schema)
            value = await self.stage_runner.answer(call, step)
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
        """Run a stage and parse its plain text, because sequence-to-sequence models do not write JSON.

        If the parser returns None, the outcome of the stage is `unparsed`, and `fallback` is returned.
        """
        with self._stage(prompt, suffix) as step:
            answer = await self.stage_runner.answer(self._call(prompt, Text, variables, step), step)
        text = _record_text(step, answer, summary)
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
        """Run a stage that writes plain text and return the text.

        Args:
            prompt: Name of the prompt.
            suffix: Distinguishes several calls of one stage.
            summary: One line for readers. `{}` stands for the text.
            cites: For a text that may become the response, the knowledge that its prompt numbers, in that order. If
                responses cite, the marks are read and removed before the text is shown or returned.
            leads: Words of the prompt that the model may repeat at the start. They are removed.
            on_token: Receives the text as it is written.
            **variables: Variables of the prompt.
        """
        if cites is not None:
            self.given = list(cites)
        has_marks = cites is not None and self.cite
        variables = {**variables, "cite": True} if has_marks else variables
        marks = FilteredStream([MarkReader(cites)], on_token) if has_marks and cites and on_token else None
        with self._stage(prompt, suffix) as step:
            call = self._call(prompt, Text, variables, step, may_be_response=cites is not None, leads=leads)
            answer = await self.stage_runner.answer(call, step, on_token if marks is None else marks.feed)
        text = _record_text(step, answer, summary)
        if cites is None or not has_marks:
            return text
        if marks is not None:
            marks.finish()
        cited = read_citations(text, cites)
        if text.strip() and not any(map(str.isalnum, cited.text)):
            return await self._write_uncited(call, suffix, summary, step, on_token)
        step.output = {
            "text": cited.text,
            "citations": [citation.model_dump(exclude={"number"}) for citation in cited.citations],
        }
        step.notes += cited.notes
        self._citations[cited.text] = cited.citations
        return cited.text

    async def _write_uncited(
        self, call: StageCall[Text], suffix: str, summary: str, step: StageTrace, on_token: OnToken | None
    ) -> str:
        """Run a stage again without citations, because the answer consisted of marks. Small models do that."""
        step.notes.append("the answer was citations alone: asked once more, without any")
        with self._stage(call.prompt, f"{suffix}-uncited" if suffix else "uncited") as uncited_step:
            uncited = self._call(
                call.prompt,
                Text,
                {**call.variables, "cite": False},
                uncited_step,
                may_be_response=True,
                leads=call.leads,
            )
            answer = await self.stage_runner.answer(uncited, uncited_step, on_token)
        return _record_text(uncited_step, answer, summary)

    async def write(self, prompt: str, *, leads: tuple[str, ...] = (), **variables: Any) -> str:  # noqa: ANN401
        """Run the stage that writes the response, streamed to `on_token`, and return the response.

        The prompt numbers the knowledge among the variables; several lists are numbered one after the other.
        """
        lists = [value for value in variables.values() if isinstance(value, list | tuple)]
        cites = [item for items in lists for item in items if isinstance(item, Knowledge)]
        return await self.text(prompt, cites=cites, leads=leads, on_token=self.on_token, **variables)

    def citations(self, text: str) -> list[Citation]:
        """Return the citations of a text that was written here. A text that was changed since has none."""
        return self._citations.get(text, [])

    def cited(self, text: str, citations: Sequence[Citation]) -> None:
        """Register the citations of a text that was written here, replacing any previous ones."""
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
        """Search a source as a stage called `name`. If the search fails, the result is empty.

        The trace and the summary contain the query as it was sent. If items are reranked, more of them are retrieved
        than `top`. `as_found` keeps the source's own order.

        Raises:
            StageError: The error would recur for every dialogue (`is_fatal`).
        """
        result = SearchResult()
        is_reranked = bool(self.rerank) and not as_found and source.kind != "graph"
        depth = max(top, RERANK_DEPTH) if is_reranked else top
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
                result.failures = {source.name: str(error)}
            step.output = {"source": source.name, "query": query, "found": [item.id for item in result]}
            if result.failures:
                step.output["failures"] = result.failures
            step.summary = summary.format(query)
        if not is_reranked or len(result) < 2:
            return result
        return (await self._rerank(name, query, result))[:top]

    async def _rerank(self, name: str, query: str, items: Sequence[Knowledge]) -> list[Knowledge]:
        """Return items in the order of the reranker, or in their own order if it fails.

        A language model gives no scores. Scores then fall from 1 in equal steps.
        """
        texts = [prompt_line(item) for item in items]
        try:
            if self.rerank == RERANK_BY_MODEL:
                first = await self._rank_by_model(name, query, texts)
            else:
                return await self._rank_by_reranker(name, query, items, texts)
        except StageError as error:
            if is_fatal(error.cause):
                raise
            first = []
        order = dict.fromkeys([*first, *range(len(items))])
        return [
            items[index].model_copy(update={"score": round(1 - rank / len(items), 4)})
            for rank, index in enumerate(order)
        ]

    async def _rank_by_model(self, name: str, query: str, texts: Sequence[str]) -> list[int]:
        """Return the indices of the texts that the language model ranks first."""
        number = {"type": "integer", "minimum": 1, "maximum": len(texts)}
        best = {"type": "array", "items": number, "minItems": 1, "maxItems": MAX_RANKED}
        schema = {"type": "object", "properties": {"best": best}, "required": ["best"], "additionalProperties": False}
        ranking = await self.ask(
            "shared/reranking",
            Ranking,
            Ranking(best=[]),
            suffix=name,
            schema=schema,
            query=query,
            passages=list(texts),
        )
        return [number - 1 for number in ranking.best if 1 <= number <= len(texts)]

    async def _rank_by_reranker(
        self, name: str, query: str, items: Sequence[Knowledge], texts: Sequence[str]
    ) -> list[Knowledge]:
        with self.step(f"reranking-{name}") as step:
            from dialore.retrieval.reranking import load_reranker

            reranker = load_reranker(self.rerank)
            ranked = await asyncio.to_thread(reranker.rerank, query, list(texts), len(texts))
            step.output = {"found": [items[index].id for index, _ in ranked]}
        return [items[index].model_copy(update={"score": round(score, 4)}) for index, score in ranked]

    @contextmanager
    def _stage(self, prompt: str, suffix: str) -> Iterator[StageTrace]:
        """Trace a stage of the stage runner."""
        stage = prompt.rpartition("/")[2]
        with self.step(f"{stage}-{suffix}" if suffix else stage, self.stage_runner.name) as step:
            yield step

    def _call(
        self,
        prompt: str,
        output: type[T],
        variables: Mapping[str, object],
        step: StageTrace,
        **options: Any,  # noqa: ANN401 - fields of StageCall
    ) -> StageCall[T]:
        label = f"{self.dialogue.id}/{self.method}/{step.stage}"
        return StageCall(prompt, self.dialogue, output, variables, label, prompt_variant=self.prompt_variant, **options)


def _record_text(step: StageTrace, answer: Text | None, summary: str) -> str:
    text = answer.text if answer is not None else ""
    step.output = {"text": text}
    if text.strip():
        step.summary = summary.format(" ".join(text.split()))
    return text

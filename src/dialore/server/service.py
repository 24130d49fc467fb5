"""The service: it asks its agents, and keeps traces, conversations and what it knows of its users."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

from dialore.agent import Agent
from dialore.dialogue import Dialogue
from dialore.errors import DialoreError, InputError, MissingExtraError, ModelError
from dialore.knowledge import Knowledge
from dialore.llm.model import Usage, estimate_tokens
from dialore.methods.base import steps_of
from dialore.methods.memory_extraction import extract_statements, is_harmless, quote_turn, says_something
from dialore.methods.stage_runner import CUT_OFF, LLMRunner
from dialore.response import Grounding, Response, StageTrace
from dialore.retrieval.graph.relations import verbalise
from dialore.server.agents import MODEL, Served, ServedAgents
from dialore.server.errors import ServiceError, full_disk, without_addresses
from dialore.server.knowledge_store import AddedKnowledge
from dialore.server.middleware import Caller
from dialore.server.store import ServerStore, User
from dialore.server.telemetry import Telemetry
from dialore.session import Connect, open_model
from dialore.settings import Settings
from dialore.sources.base import list_knowledge
from dialore.sources.documents import narrow
from dialore.sources.persona import PersonaSource

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage that has begun, of that many calls in a row at most (0: not known)."""

    name: str
    step: int
    steps: int


@dataclass(frozen=True, slots=True)
class Draft:
    """Text that may become the response, or be written anew."""

    text: str


def _usage_so_far(steps: Sequence[StageTrace], text: str) -> Usage:
    """Return the usage of a response that was given up: of a stage under way, prompt and text are estimated."""
    sent = [message["content"] for step in steps if not step.seconds for message in step.messages]
    completion_tokens = estimate_tokens(text) if sent else 0
    under_way = Usage(prompt_tokens=sum(map(estimate_tokens, sent)), completion_tokens=completion_tokens)
    return sum((step.usage for step in steps), under_way)


Event: TypeAlias = "str | Stage | Draft | tuple[str, Response]"
"""An event of an answer: a stage, a draft, a text as it comes, or at last the trace's id and the whole response."""
Events: TypeAlias = "AsyncGenerator[list[Event]]"
"""The events of an answer, in batches of those that came together. An empty batch stands for a silence."""
_SILENCE_S = 10.0
MAX_MESSAGES = 500
"""Maximum number of messages of a request."""
MAX_FILE_CHARACTERS = 20_000_000
"""Maximum characters of an uploaded file's text."""


class _EventQueue:
    """The events of a task that answers. Texts that come while the reader is busy become one."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._has_news = asyncio.Event()

    def put(self, event: Event) -> None:
        """Add an event."""
        last = self._events[-1] if self._events else None
        if isinstance(event, str) and isinstance(last, str):
            self._events[-1] = last + event
        else:
            self._events.append(event)
        self._has_news.set()

    async def batches(self, task: asyncio.Task[Any]) -> Events:
        """Yield the events until the task is done."""
        task.add_done_callback(lambda _: self._has_news.set())
        while self._events or not task.done():
            if not self._events:
                self._has_news.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_SILENCE_S):
                        await self._has_news.wait()
                if task.done() and not self._events:
                    return
            batch, self._events = self._events, []
            yield batch


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to a model of the service: turns of `user` and `assistant`, each with its text.

    `sampling` is of the stages that write what may become the response, `user` the name that the caller has for them,
    `conversation` the id to keep it under, where they consent; `notes` say what of the request is passed over.
    """

    model: str
    messages: Sequence[Mapping[str, str]]
    persona: tuple[str, ...] = ()
    instructions: tuple[str, ...] = ()
    sampling: Mapping[str, object] = field(default_factory=dict)
    user: str = ""
    conversation: str = ""
    notes: tuple[str, ...] = ()


class Service:
    """Asks the agents, and keeps the knowledge that is added to them and what is known of their users."""

    def __init__(self, settings: Settings, telemetry: Telemetry, *, connect: Connect = open_model) -> None:
        server = settings.server
        self.settings = settings
        self.knowledge = AddedKnowledge(
            server.folder,
            seconds=server.read_seconds,
            memory=server.read_memory,
            characters=MAX_FILE_CHARACTERS,
            ocr=server.ocr,
            include_hidden=server.include_hidden,
        )
        store_at = server.store or self.knowledge.folder / "store.sqlite"
        self.store = ServerStore(store_at, memory_days=server.memory_days, kept_days=server.kept_days)
        self._telemetry = telemetry
        self._tasks: set[asyncio.Task[None]] = set()
        self.agents = ServedAgents(settings, self.knowledge, self._later, connect=connect)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open the store and the agents; in the end, what is still to be kept is kept first. Raises as `open` does."""
        await self.store.open()
        sweeping = asyncio.create_task(self._sweep())
        try:
            self.agents.open()
            yield
            with suppress(TimeoutError):
                async with asyncio.timeout(self.settings.server.max_seconds):
                    while self._tasks:
                        await asyncio.wait(self._tasks)
        finally:
            self.knowledge.close()
            for task in (sweeping, *self._tasks):
                task.cancel()
            await asyncio.gather(sweeping, *self._tasks, return_exceptions=True)
            await self.agents.close()
            await self.store.close()
            await asyncio.to_thread(self._telemetry.close)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(3600)
            await self.store.attempt(self.store.sweep(), 0)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _dialogue(self, asked: Asked, served: Served, caller: Caller) -> Dialogue:
        texts = (*(message["content"] for message in asked.messages), *asked.persona, *asked.instructions)
        _check_length("messages", len(asked.messages), MAX_MESSAGES)
        _check_length("characters", sum(map(len, texts)), self.settings.server.max_characters)
        sides = {"user": "user", "assistant": "system"}
        turns = [{"speaker": sides[message["role"]], "text": message["content"]} for message in asked.messages]
        persona = dict.fromkeys((*served.persona, *self.knowledge.persona, *asked.persona))
        extra: dict[str, Any] = {}
        if asked.user:
            who = User(caller.name, asked.user)
            known = await self.store.attempt(self.store.statements(who, history=True), [])
            quoted = {statement.turn for statement in known}  # what is noted of them may hold no longer
            earlier = await self.store.attempt(self.store.turns(who, but=asked.conversation), [])
            known += [turn for turn in earlier if quote_turn(turn.text) not in quoted and says_something(turn.text)]
            extra = {"user": asked.user, "memory": [statement.model_dump(mode="json") for statement in known]}
        return Dialogue(turns, persona=tuple(persona), extra=extra)

    async def answer(self, asked: Asked, caller: Caller) -> Events:
        """Answer (see `Events`); raise ServiceError where nothing can be answered."""
        with self.agents.served(asked.model, caller.groups) as served, explain_errors():
            dialogue = await self._dialogue(asked, served, caller)
            stage_runner = served.agent.stage_runner
            steps: list[StageTrace] = []
            if isinstance(stage_runner, LLMRunner):
                wanted, sampling = asked.instructions, asked.sampling
                stage_runner = dataclasses.replace(stage_runner, instructions=wanted, sampling=sampling, steps=steps)
            agent = Agent(served.agent.method, stage_runner, cite=served.agent.cite, rerank=served.agent.rerank)
            events = _EventQueue()
            max_steps = steps_of(agent.method)
            responding = agent.respond(
                dialogue,
                events.put,
                lambda stage: events.put(Stage(stage, stage.step, max(stage.step, max_steps))),
                on_draft=lambda text: events.put(Draft(text)),
            )
            task = asyncio.create_task(asyncio.wait_for(responding, self.settings.server.max_seconds))
            began, text = time.time(), ""
            try:
                async for batch in events.batches(task):
                    written = "".join(event for event in batch if isinstance(event, str))
                    if written and not text:
                        self._telemetry.first_text(asked.model, time.time() - began)
                    text += written
                    yield batch
                response = await task
            except BaseException as error:  # it took too long, or the client is gone
                usage = _usage_so_far(steps, text)
                self._telemetry.made("chat", asked.model, steps, usage, began, type(error).__name__)
                self._later(caller.spend(usage.prompt_tokens + usage.completion_tokens, self.store))
                raise
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            trace = await self._made("chat", asked, response, caller, began)
            if asked.user:
                reply_kept = {"content": response.text, "trace": trace, "grounding": grounding_of(response, trace)}
                await self.store.attempt(self._keep(asked, {"role": "assistant", **reply_kept}, caller), None)
                self._later(self._remember(asked, dialogue, caller))
            yield [(trace, response)]

    async def ground(self, asked: Asked, caller: Caller) -> tuple[str, Grounding]:
        """Return what a response would need to know, with the trace's id; raise as `answer` does."""
        with self.agents.served(asked.model, caller.groups) as served, explain_errors():
            dialogue, began = await self._dialogue(asked, served, caller), time.time()
            grounding = await asyncio.wait_for(served.agent.ground(dialogue), self.settings.server.max_seconds)
            return await self._made("retrieval", asked, grounding, caller, began), grounding

    async def search(self, name: str, query: str, top: int, caller: Caller, where: str = "") -> list[Knowledge]:
        """Return what the source of that name of the service's own agent holds for a query, the best first.

        Of documents, `where` wants metadata: `year >= 2024`. Raises ServiceError where there is no such source, it
        cannot be asked, or `where` is no condition.
        """
        with self.agents.served(MODEL, caller.groups) as served, explain_errors():
            source = served.bench.source(name)
            if source is None:
                added = {"documents": "documents", "graph": "facts"}.get(name, name)
                hint = f"name one in dialore.toml, under [sources], or add to it by /v1/knowledge/{added}"
                raise ServiceError(404, f"there is no source {name} ({hint})", code="source_not_found")
            dialogue = Dialogue([query])
            if name != "graph":
                asked = narrow(source, where) if where else source
                return list(await asked.search(query, dialogue, top))
            links = source.link([query]) or source.mentions([query])
            facts: list[Knowledge] = (await asyncio.to_thread(source.retrieve_queries, links, dialogue, top))[0]
            return facts

    async def browse(self, name: str, start: int, count: int, caller: Caller, where: str = "") -> list[Knowledge]:
        """Pieces of what that source of the service's own agent holds, what was added before what the file names."""
        with self.agents.served(MODEL, caller.groups) as served, explain_errors():
            if name == "persona":
                persona = PersonaSource(dict.fromkeys((*self.knowledge.persona, *served.persona), ()))
                return list(persona.every(Dialogue([name])))[start : start + count]
            source = served.bench.source(name)
            if source is None:
                return []

            def held() -> Iterator[Knowledge]:
                if name == "graph":
                    return (Knowledge.of_fact(fact, verbalise(fact, "en"), 0.0) for fact in source.facts())
                asked = narrow(source, where) if where else source
                several = reversed(getattr(asked, "sources", [asked]))
                return (piece for opened in several for piece in list_knowledge(opened, Dialogue([name])))

            return await asyncio.to_thread(lambda: list(itertools.islice(held(), start, start + count)))

    async def _made(self, operation: str, asked: Asked, result: Grounding, caller: Caller, began: float) -> str:
        """Keep the trace; raises ServiceError where nothing was made."""
        usage, error = result.usage, "stage_failed" if result.status == "failed" else ""
        self._telemetry.made(operation, asked.model, result.trace, usage, began, error)
        await caller.spend(usage.prompt_tokens + usage.completion_tokens, self.store)
        identifier = f"trace-{secrets.token_hex(12)}"
        shown = result.model_dump(mode="json", include={"method", "status", "error", "seconds", "usage", "trace"})
        if isinstance(result, Response):
            shown |= {"asked": asked.messages[-1]["content"], "text": result.text, "used": [p.id for p in result.used]}
            shown |= {"plan": result.plan, "sources": sorted({piece.source for piece in result.knowledge})}
            shown |= {"messages": [dict(message) for message in asked.messages]}
            shown |= {"persona": list(asked.persona), "instructions": list(asked.instructions)}
            shown |= {"memory": _statements_of(result)}
        await self.store.attempt(self.store.keep_trace(User(caller.name, asked.user), identifier, shown), None)
        if result.status == "failed":
            log.error("response failed: %s", result.error, extra={"fields": {"trace": identifier}})
            stage = next((made.stage for made in result.trace if made.outcome == "failed"), "response")
            cause = without_addresses((result.error or "").partition(": ")[2] or "no cause is known")
            raise ServiceError(502, f"the stage {stage} failed: {cause} (trace {identifier})", code="stage_failed")
        return identifier

    async def _keep(self, asked: Asked, said: Mapping[str, object], caller: Caller) -> None:
        """Keep the conversation with what is said last, where the user consents."""
        if not asked.conversation:
            return
        who = User(caller.name, asked.user)
        before = await self.store.conversation(who, asked.conversation) or []
        known = {(message["role"], message["content"]): message for message in before}
        now = {"said": datetime.now(UTC).isoformat()}
        turns = []
        for number, message in enumerate(asked.messages):
            mark = message["role"], message["content"]
            same = before[number : number + 1]
            is_there = bool(same) and (same[0]["role"], same[0]["content"]) == mark
            turns.append(same[0] if is_there else known.get(mark, {**message, **now}) if same else {**message, **now})
        await self.store.keep_conversation(who, asked.conversation, [*turns, {**said, **now}])

    async def _remember(self, asked: Asked, dialogue: Dialogue, caller: Caller) -> None:
        """Keep what the last turn says of the user, where they consent."""
        who = User(caller.name, asked.user)
        try:
            if not await self.store.consents(who):
                return
            with self.agents.served(asked.model, caller.groups) as served:
                known = await self.store.statements(who)
                kept = await extract_statements(dialogue, known, served.agent.stage_runner)
            await caller.spend(kept.usage.prompt_tokens + kept.usage.completion_tokens, self.store)
            await self.store.remember(who, kept.statements, kept.replaced)
        except DialoreError as error:
            log.warning("what was said could not be kept: %s", error)


_TOLD: tuple[tuple[type[Exception], int, str, str], ...] = (
    (MissingExtraError, 501, "", "missing_extra"),
    (InputError, 400, "", "invalid_request"),
    (TimeoutError, 504, "the response took too long", "timeout"),
    (ModelError, 502, "", "model_failed"),
    (DialoreError, 502, "the response could not be made", "failed"),
)


@contextmanager
def explain_errors() -> Iterator[None]:
    """Turn errors of Dialore, and what a full disk has led to, into what a client may know of them."""
    try:
        yield
    except ServiceError:
        raise
    except Exception as error:
        if told := full_disk(error):
            raise told from error
        for kind, status, message, code in _TOLD:
            if isinstance(error, kind):
                log.error("%s: %s", code, error)  # noqa: TRY400 - a known kind of failure, in one line
                raise ServiceError(status, message or without_addresses(str(error)), code=code) from error
        raise


def _check_length(unit: str, length: int, limit: int) -> None:
    if length > limit:
        message = f"{length} {unit}, more than the {limit} that are taken"
        raise ServiceError(400, message, code="context_length_exceeded", param="messages")


def check_harmless(statement: str) -> None:
    """Raise ServiceError for a statement of a user with what is not kept of them."""
    if not is_harmless(statement):
        message = "passwords, addresses and numbers of cards or telephones are not kept"
        raise ServiceError(400, message, code="invalid_value")


# --- what a response rests on, as clients get it


def grounding_of(result: Grounding, trace: str, notes: Sequence[str] = ()) -> dict[str, Any]:
    """Return what a result rests on: citations, what was given, demands, the trace, and what was passed over."""
    known, cited = {piece.id: piece for piece in result.knowledge}, []
    if isinstance(result, Response):
        for citation in result.citations:
            span = {"number": citation.number, "start": citation.start, "end": citation.end}
            cited.append({**span, **knowledge_fields(known[citation.knowledge])})
    demands = result.demands.model_dump(exclude={"thoughts"}) if result.demands else None
    fields = {"score", "probability", "used"}
    knowledge = [knowledge_fields(piece) | piece.model_dump(include=fields) for piece in result.knowledge]
    grounds = {"trace": trace, "method": result.method, "citations": cited, "demands": demands, "knowledge": knowledge}
    return {**grounds, "notes": list(notes)} if notes else grounds


def _statements_of(response: Response) -> list[dict[str, Any]]:
    """Return the statements in memory that a response was given, as a dialogue's `memory`."""
    known = ((piece.text, piece.statement) for piece in response.knowledge)
    return [{"text": text, **statement} for text, statement in known if statement]


def knowledge_fields(piece: Knowledge) -> dict[str, Any]:
    """Return a piece of knowledge with where to look it up; of a file its name alone, not where it lies here."""
    where = piece.location
    if "file" in where:
        where["file"] = where["file"].replace("\\", "/").rpartition("/")[2]
    return {"id": piece.id, "kind": piece.kind, "source": piece.source, "text": piece.text, **where}


def finish_reason(response: Response) -> str:
    """`length` where the response was cut off, else `stop`."""
    cut = (stage for stage in response.trace if CUT_OFF in stage.notes)
    return "length" if any(stage.output.get("text") == response.text for stage in cut) else "stop"

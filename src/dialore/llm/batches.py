"""Calls by a provider's batch API (OpenAI's files and batches): half the price, within a day, resumed at any moment.

Calls are queued until every dialogue under way waits; then they are sent as a file of requests, each under the key of
its completion in the cache. Which are in which file is kept before a batch of it is begun: a process that is killed
finds its batches again, and nothing that is in one is sent a second time.
"""

from __future__ import annotations

import asyncio
import copy
import io
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from dialore.errors import InputError, ModelError
from dialore.llm.client import ModelClient
from dialore.llm.endpoint import Endpoint, Reader
from dialore.llm.http import as_json, error_detail, reply_error
from dialore.llm.model import Completion, LanguageModel, OnToken, Request
from dialore.llm.pacing import AdaptiveLimiter, tell

if TYPE_CHECKING:
    from dialore.llm.cache import CompletionCache

T = TypeVar("T")
Connect: TypeAlias = Callable[[T, str | None], LanguageModel | None]

MOST_REQUESTS, MOST_BYTES = 50_000, 200_000_000
"""The most that one batch holds at OpenAI."""
POLL, QUIET = 2.0, 0.5
"""Seconds until a batch is looked at, more each time; and of a queue that does not grow before it is sent."""
_LONGEST_POLL, _GROWTH, _STUCK = 60.0, 1.3, 60.0
_RETRIES, _NOT_THERE = 20, 2
"""The most repetitions of a failed call of the batch API, and of one that is answered by 404."""
_READS_OF_ANSWERS = 10
"""How often the files of an ended batch are read while answers are missing; the pauses add up to a minute."""
_MAX_FIRST_CALLS = 8
"""Failed direct calls of a form after which further calls no longer wait for the first to succeed."""
_MAX_PAGES = 1000
_CALLS: ContextVar[list[None]] = ContextVar("_CALLS")  # has an item for each call of the dialogue that waits


class _Row(BaseModel):
    custom_id: str = ""
    response: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class _State(BaseModel):
    id: str = ""
    status: str = "gone"
    input_file_id: str = ""
    output_file_id: str | None = None
    error_file_id: str | None = None
    request_counts: dict[str, Any] | None = None
    errors: dict[str, Any] | None = None
    data: list[_State] = []
    has_more: bool = False


@dataclass(slots=True, eq=False)
class _Batch:
    """A batch; once it has ended, its lines by key, and what stands for one that is lacking.

    `may_be_begun` says that the batch may exist at the provider although its id is not known. `unread` is the error
    for answers that exist at the provider but cannot be read.
    """

    file: str
    id: str
    keys: Sequence[str]
    is_new: bool = False
    is_alone: bool = False
    may_be_begun: bool = False
    answered: int = 0
    rows: dict[str, _Row] = field(default_factory=dict)
    lacking: _Row = field(default_factory=_Row)
    unread: ModelError | None = None


MakeBody: TypeAlias = Callable[[], dict[str, Any]]


@dataclass(slots=True, eq=False)
class _Queued:
    """A request that waits to be sent. Its body is made when it is sent, in the form that is known to work by then."""

    key: str
    path: str
    make_body: MakeBody
    batch: asyncio.Future[_Batch]

    def line(self) -> bytes:
        """Return the request as a line of the input file."""
        body = {name: value for name, value in self.make_body().items() if "stream" not in name}
        return as_json({"custom_id": self.key, "method": "POST", "url": self.path, "body": body})


class BatchQueue:
    """Sends the calls of many dialogues in batches, once all of them wait; so many are `active` otherwise at most.

    `kept` are the batches so far: file, id (empty: perhaps never begun) and keys. `keep` keeps such a one, or its id:
    it is on disk when that returns.
    """

    def __init__(
        self, kept: Iterable[tuple[str, str, list[str]]], keep: Callable[[str, str, Sequence[str]], None], active: int
    ) -> None:
        self.on_change: Callable[[str], object] = lambda _words: None
        self.keep, self.direct = keep, 0
        self.known = {key: batch for batch in (_Batch(*row, may_be_begun=True) for row in kept) for key in batch.keys}
        self.queued: dict[_Sender, list[_Queued]] = {}
        self._busy, self._turns = 0, asyncio.Semaphore(active)
        self._followed: dict[_Batch, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._began = time.monotonic()

    def connecting(self, connect: Connect[T]) -> Connect[T]:
        """Return a maker of models asked by batches (stages' may not be); InputError without an endpoint and cache."""

        def connected(settings: T, name: str | None) -> LanguageModel | None:
            model = connect(settings, name)
            client = model if isinstance(model, ModelClient) else None
            if client is not None and client.cache is not None and isinstance(client.backend, Endpoint):
                _Sender(client.backend, client.cache, self)
            elif name is None:
                hint = "set model.base_url and model.model, and not model.no_cache"
                raise InputError("batch wants a model behind an endpoint, and the cache for its answers", hint=hint)
            return model

        return connected

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Send what is queued while the context lasts; batches under way go on where they are."""
        self._spawn(self._watch())
        try:
            yield
        finally:
            for task in (tasks := list(self._tasks)):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @asynccontextmanager
    async def dialogue(self) -> AsyncIterator[None]:
        """Count a dialogue as under way: nothing is sent before it waits, too."""
        _CALLS.set([])
        self._busy += 1
        try:
            async with self._turns:
                yield
        finally:
            self._busy -= 1

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Count this dialogue as waiting, and give its turn away meanwhile."""
        if not (calls := _CALLS.get([])):
            self._busy -= 1
            self._turns.release()
        calls.append(None)
        try:
            yield
        finally:
            calls.pop()
            if not calls:
                self._busy += 1
                await self._turns.acquire()

    def follow(self, sender: _Sender, batch: _Batch) -> asyncio.Task[None]:
        """Return the task that awaits a batch's end."""
        if batch not in self._followed:
            self._followed[batch] = task = self._spawn(sender.bring(batch))
            task.add_done_callback(lambda _task: self.show())
        return self._followed[batch]

    @property
    def under_way(self) -> dict[_Batch, asyncio.Task[None]]:
        """The batches that have not ended, with what awaits their end."""
        return {batch: task for batch, task in self._followed.items() if not task.done()}

    def show(self) -> None:
        """Tell how the batches under way stand."""
        batches, minutes = self.under_way, (time.monotonic() - self._began) / 60
        answered, requests = sum(batch.answered for batch in batches), sum(len(batch.keys) for batch in batches)
        words = f", batches under way: {len(batches)} ({answered:,} of {requests:,} requests), {minutes:.0f} min"
        self.on_change(words if batches else "")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self._tasks.add(task := asyncio.create_task(work))
        task.add_done_callback(self._tasks.discard)
        return task

    async def _watch(self) -> None:
        before, still = 0, 0.0
        while True:
            await asyncio.sleep(QUIET)
            count = sum(map(len, self.queued.values()))
            still, before = (still + QUIET if count == before else 0.0), count
            # Dialogues that share a call wait for it without our knowing.
            if count and not self.direct and still >= (_STUCK if self._busy else QUIET):
                due, self.queued = self.queued, {}
                for sender, queued in due.items():
                    self._spawn(sender.send(queued))


class _Sender:
    """Sends an endpoint's calls in batches; a batch API that fails for good stops the run.

    The first call of each form is made directly, and all others of that form wait for its answer, so that no batch
    holds a parameter that the server refuses.
    """

    def __init__(self, endpoint: Endpoint, cache: CompletionCache, queue: BatchQueue) -> None:
        self._endpoint, self._http, self._cache, self._queue = endpoint, endpoint.http, cache, queue
        self._direct, endpoint.call = endpoint.call, self.call
        self._http.max_bytes, endpoint.limiter = 10**9, AdaptiveLimiter(10**9)
        self._path, self._most = f"/v1{endpoint.path}", MOST_REQUESTS
        self._first = {has_schema: _FirstCall() for has_schema in (False, True)}
        self._is_alone, self._turn = False, asyncio.Lock()

    async def call(self, make_body: MakeBody, request: Request, on_token: OnToken | None) -> Completion:
        """Answer a call, in whole; raise as the endpoint itself does."""
        key = self._cache.key(request).hex()
        batch = self._queue.known.pop(key, None)
        if batch is None:
            completion = await self._call_first(make_body, request, on_token)
            if completion is not None:
                return completion
        async with self._queue.waiting():
            batch, row = await self._answer(key, make_body, batch)
        answer = _response(row)
        if row.error or answer["status_code"] != 200:
            make_body()  # the caller compares the refusal with the body
            payload = {"error": row.error} if row.error else answer["body"]
            raise reply_error(f"the batch {batch.id}", payload, status=answer["status_code"], key=self._http.key)
        reader = Reader(request, self._http, self._endpoint.capabilities, on_token)
        reader.take(answer["body"], "message")
        return reader.completion()

    async def _call_first(self, make_body: MakeBody, request: Request, on_token: OnToken | None) -> Completion | None:
        """Return the answer of the first call of a form, made directly, or None once such a call has succeeded."""
        first = self._first[request.output_schema is not None]
        if first.is_over:
            return None
        self._queue.direct += 1
        try:
            async with first.turn:
                if self._first[request.output_schema is not None].is_over:  # others have had their turns meanwhile
                    return None
                try:
                    completion = await self._direct(make_body, request, on_token)
                except ModelError:
                    first.failures += 1
                    raise
                first.has_succeeded = True
                return completion
        finally:
            self._queue.direct -= 1

    async def _answer(self, key: str, make_body: MakeBody, batch: _Batch | None) -> tuple[_Batch, _Row]:
        """Return the line that answers a request, with its batch: the one that already holds it, or else the next."""
        while True:
            is_known = batch is not None  # what failed before this process began has not failed for good
            if batch is None:
                queued = _Queued(key, self._path, make_body, asyncio.Future())
                self._queue.queued.setdefault(self, []).append(queued)
                batch = await queued.batch
            await asyncio.shield(self._queue.follow(self, batch))
            row = batch.rows.pop(key, None)
            if row is None and batch.unread is not None:
                raise copy.copy(batch.unread)
            row = row or batch.lacking
            # Of what the account may have under way: then batches go one by one, and if need be smaller.
            is_too_much = "token_limit" in str(row.error) and (len(batch.keys) > 1 or not batch.is_alone)
            self._is_alone |= is_too_much
            if is_too_much and batch.is_alone:
                self._most = min(self._most, (len(batch.keys) + 1) // 2)
            if _response(row)["status_code"] == 200 or not (is_known or is_too_much):
                return batch, row
            batch = None

    async def send(self, queued: list[_Queued]) -> None:
        """Send requests in as many batches as they want; those that are no longer awaited are left out."""
        async with self._turn:
            while queued := [entry for entry in queued if not entry.batch.done()]:
                if self._is_alone and (others := self._queue.under_way):
                    await asyncio.wait(others.values())
                chunk, lines = self._next_chunk(queued)
                keys = [entry.key for entry in chunk]
                try:
                    file = await self._patiently(partial(self._upload, lines))
                    self._queue.keep(file, "", keys)
                except Exception as error:  # noqa: BLE001 - it is raised where the batch is awaited
                    if isinstance(error, ModelError) and error.status == 413 and len(chunk) > 1:
                        self._most = (len(chunk) + 1) // 2
                        continue
                    for entry in chunk:
                        if not entry.batch.done():
                            entry.batch.set_exception(copy.copy(error))
                    continue
                self._queue.follow(self, batch := _Batch(file, "", keys, True, self._is_alone))
                for entry in chunk:
                    if not entry.batch.done():
                        entry.batch.set_result(batch)

    def _next_chunk(self, queued: Sequence[_Queued]) -> tuple[list[_Queued], list[bytes]]:
        """Return the first requests that fit one batch, at least one, and their lines."""
        chunk: list[_Queued] = []
        lines: list[bytes] = []
        size = 0
        for entry in queued[: self._most]:
            line = entry.line()
            size += len(line) + 1
            if chunk and size > MOST_BYTES:
                break
            chunk.append(entry)
            lines.append(line)
        return chunk, lines

    async def bring(self, batch: _Batch) -> None:
        """Begin a batch where it is not begun, await its end, and read its lines as far as they are there."""
        try:
            state = await self._ended(batch)
        except ModelError as error:
            if error.status not in {400, 404} or (batch.is_new and not batch.id):
                error.status = None  # it is none of the call's
                raise
            state = _State()
        else:
            await self._read_answers(batch, state)
        batch.lacking = _Row(error={"message": f"no answer to the request ({state.status}); run it again"})
        numbered = dict(enumerate(batch.keys, start=1))
        for reason in (state.errors or {}).get("data") or ():
            if key := numbered.get(reason.get("line")):
                batch.rows[key] = _Row(error=reason, response={"status_code": 400})
            elif not batch.rows:
                batch.lacking = _Row(error=reason)
        count = len(set(batch.keys) - batch.rows.keys())
        if count and batch.unread is None:
            why = error_detail(batch.lacking.error)[0]
            tell(f"{count:,} of {len(batch.keys):,} requests of the batch {batch.id} are sent again: {why}")

    async def _read_answers(self, batch: _Batch, state: _State) -> None:
        """Read the files of an ended batch, again after pauses while lines are missing that it has counted.

        If they stay missing, `batch.unread` is the error for them: they are paid for, so they are not sent again.
        """
        pause = POLL
        expected = received = 0
        for reads_left in reversed(range(_READS_OF_ANSWERS)):
            for file in filter(None, (state.output_file_id, state.error_file_id)):
                for row in await self._patiently(partial(self._rows, file)):
                    batch.rows.setdefault(row.custom_id, row)
            received = len(batch.rows.keys() & set(batch.keys))
            expected = _count_answers(state, len(batch.keys))
            if received >= expected:
                return
            if reads_left == _READS_OF_ANSWERS - 1:
                late = f"{expected - received:,} answers of the batch {batch.id} are not there yet"
                tell(f"{late}: its files are read again")
            if reads_left:
                await asyncio.sleep(pause)
                pause = min(_LONGEST_POLL, pause * _GROWTH)
                state = await self._patiently(lambda _: self._state(f"/batches/{batch.id}"))
        missing = f"the batch {batch.id} has counted {expected:,} answers, but its files hold {received:,}"
        hint = "the same command again reads them; if they are lost, a new run folder pays for these alone"
        batch.unread = ModelError(missing, hint=hint, configuration=True)

    async def _ended(self, batch: _Batch) -> _State:
        if not batch.id:
            batch.id = await self._patiently(partial(self._begin, batch))
            self._queue.keep(batch.file, batch.id, batch.keys)
        pause = POLL
        while True:
            self._queue.show()
            state = await self._patiently(lambda _: self._state(f"/batches/{batch.id}"))
            if state.status in {"completed", "failed", "expired", "cancelled"}:
                return state
            counts = state.request_counts or {}
            batch.answered = (counts.get("completed") or 0) + (counts.get("failed") or 0)
            await asyncio.sleep(pause)
            pause = min(_LONGEST_POLL, pause * _GROWTH)

    # --- single calls of the API, told how often they have failed

    async def _upload(self, lines: Sequence[bytes], _failures: int) -> str:
        import aiohttp

        def form() -> aiohttp.Payload:
            made = aiohttp.FormData({"purpose": "batch"})
            made.add_field("file", io.BytesIO(b"\n".join(lines)), filename="requests.jsonl")
            return made()

        return (await self._state("/files", form)).id

    async def _begin(self, batch: _Batch, _failures: int) -> str:
        """Return the id of the batch of an input file, begun if the provider does not list it.

        A call whose answer did not come may have begun it all the same, and a batch that is begun twice is paid twice.
        """
        if batch.may_be_begun:
            begun = await self._find_begun(batch.file)
            if not begun:
                await asyncio.sleep(POLL)  # the list may lag behind
                begun = await self._find_begun(batch.file)
            if begun:
                return begun
        batch.may_be_begun = True
        body = {"input_file_id": batch.file, "endpoint": self._path, "completion_window": "24h"}
        return (await self._state("/batches", body)).id

    async def _find_begun(self, file: str) -> str:
        """Return the id of the batch that was begun from an input file, or an empty string."""
        query = {"limit": "100"}
        for _ in range(_MAX_PAGES):
            page = await self._state("/batches", **query)
            for state in page.data:
                if state.input_file_id == file:
                    return state.id
            if not page.has_more or not page.data or query.get("after") == page.data[-1].id:
                return ""
            query["after"] = page.data[-1].id
        return ""

    async def _state(self, path: str, body: object = None, **query: str) -> _State:
        answer = await self._http.json(path, body, query=query or None, flows=True)
        with suppress(ValidationError):
            if (state := _State.model_validate(answer)).id or query:
                return state
        raise ModelError(f"{self._http.where}{path} does not answer as a batch API does", retryable=True)

    async def _rows(self, file: str, failures: int) -> list[_Row]:
        """Return the lines of a file that can be read; none if the provider does not have the file yet (400 or 404).

        Raises ModelError on the first try if some lines cannot be read.
        """
        async with self._http.open(f"/files/{file}/content", flows=True) as response:
            answer = await self._http.read(response)
        if response.status in {400, 404}:
            return []
        if response.status != 200:
            raise self._http.status_error(response, answer)
        rows, lines = [], answer.splitlines()
        for line in lines:
            with suppress(ValidationError):
                rows.append(_Row.model_validate_json(line))
        if len(rows) < len(lines) and not failures:
            raise ModelError(f"{self._http.where} sent lines that cannot be read", retryable=True)
        return rows

    async def _patiently(self, ask: Callable[[int], Awaitable[T]]) -> T:
        """Return what a call gives in the end; what it raises stops the run, as the next reads what is paid for."""
        tolerated = iter(range(_NOT_THERE))

        async def attempt(failures: int) -> T:
            try:
                return await ask(failures)
            except ModelError as error:
                error.retryable |= error.status == 404 and next(tolerated, None) is not None
                raise

        try:
            retry = replace(self._endpoint.retry, retries=_RETRIES, cap=_LONGEST_POLL, longest_wait=3600.0)
            return await retry.run(attempt)
        except ModelError as error:
            if error.status in {404, 405, 501}:
                error.message, error.hint = f"no batch API: {error.message}", "do not set batch"
            elif not error.configuration:
                error.hint = "the same command again finds its batches"
            error.retryable, error.configuration = False, error.status != 413
            raise


@dataclass(slots=True)
class _FirstCall:
    """The first call of a form: whether it has succeeded, and whose turn it is to try."""

    has_succeeded: bool = False
    failures: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_over(self) -> bool:
        """True if further calls go into batches."""
        return self.has_succeeded or self.failures >= _MAX_FIRST_CALLS


def _response(row: _Row) -> dict[str, Any]:
    """Return a row's response; its status code is 0 if there is none."""
    return {"status_code": 0, "body": None, **(row.response or {})}


def _count_answers(state: _State, requests: int) -> int:
    """Return how many lines the files of an ended batch hold, by the provider's own count where it gives one."""
    counts = state.request_counts or {}
    numbers: list[int] = [counts[name] for name in ("completed", "failed") if isinstance(counts.get(name), int)]
    if numbers:
        return min(sum(numbers), requests)
    return requests if state.status == "completed" else 0

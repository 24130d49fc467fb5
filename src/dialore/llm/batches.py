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
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from dialore.errors import InputError, ModelError
from dialore.llm.cache import Cached
from dialore.llm.endpoint import Endpoint, Reader
from dialore.llm.http import HttpClient, as_json, said_error
from dialore.llm.model import Completion, LanguageModel, OnToken, Request, Wrapper
from dialore.llm.pacing import tell

Settings = TypeVar("Settings")
Connect: TypeAlias = Callable[[Settings, str | None], LanguageModel | None]
Kept: TypeAlias = tuple[str, str, Sequence[str]]
"""A batch as it is kept: its input file, its id (empty: perhaps never begun), its keys by line."""

MOST_REQUESTS, MOST_BYTES = 50_000, 200_000_000
"""The most that one batch holds at OpenAI."""
POLL, QUIET = 2.0, 0.5
"""Seconds until a batch is looked at, more each time; and of a queue that does not grow before it is sent."""
_LONGEST_POLL, _GROWTH, _STUCK = 60.0, 1.3, 60.0
_TRIES, _FAILED_POLLS, _NOT_THERE = 3, 60, 3
"""Batches that a request is sent in; polls in a row that may fail, and that the server may know no such batch."""


class _Answer(BaseModel):
    status_code: int = 0
    body: Any = None


class _Row(BaseModel):
    """A line of what comes back."""

    custom_id: str = ""
    response: _Answer | None = None
    error: dict[str, Any] | None = None


@dataclass(slots=True, eq=False)
class _Batch:
    """A batch; once it has ended, its lines by key, and the error of requests that have none."""

    file: str
    id: str
    keys: Sequence[str]
    is_new: bool = False
    answered: int = 0
    rows: dict[str, _Row] = field(default_factory=dict)
    fault: ModelError = field(default_factory=lambda: ModelError("the file of the batch is gone", retryable=True))
    ended: asyncio.Task[None] | None = None


_Queued: TypeAlias = "tuple[str, Request, asyncio.Future[tuple[_Batch, dict[str, Any]]]]"
"""A request under its key, and its batch and body once it is sent."""


class _Dialogue:
    """A dialogue under way, and how many of its calls wait."""

    waiting = 0


_DIALOGUE: ContextVar[_Dialogue] = ContextVar("_DIALOGUE")


class BatchQueue:
    """Sends the calls of many dialogues in batches, once all of them wait.

    Args:
        kept: the batches so far, the oldest first; each is asked for when a request of it is made.
        keep: keeps a batch, or the id of one that is kept; it is on disk when this returns.
        active: the most dialogues that do something else than wait.
    """

    def __init__(self, kept: Iterable[Kept], keep: Callable[[str, str, Sequence[str]], None], active: int) -> None:
        self.on_change: Callable[[str], object] = lambda _words: None
        self.keep, self.turns, self.direct = keep, asyncio.Semaphore(active), 0
        self.known = {key: batch for batch in (_Batch(*row) for row in kept) for key in batch.keys}
        self._queued: dict[_Sender, list[_Queued]] = {}
        self._dialogues: set[_Dialogue] = set()
        self._open: list[_Batch] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._began = time.monotonic()

    def connecting(self, connect: Connect[Settings]) -> Connect[Settings]:
        """Return a maker of models whose endpoints are asked by batches; stages' models may be others.

        It raises InputError for a main model that is none of an endpoint with a cache before it.
        """

        def connected(settings: Settings, name: str | None) -> LanguageModel | None:
            model = connect(settings, name)
            layer: Any = model
            while isinstance(layer, Wrapper) and not isinstance(layer, Cached):
                layer = layer._model  # noqa: SLF001 - what wrappers stand around is nobody else's business
            if isinstance(layer, Cached) and isinstance(layer._model, Endpoint):  # noqa: SLF001
                layer._model = _Sender(layer._model, layer, self)  # noqa: SLF001
            elif name is None:
                hint = "set --base-url and --model, and leave out --no-cache"
                raise InputError("--batch wants a model behind an endpoint, and the cache for its answers", hint=hint)
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
        self._dialogues.add(dialogue := _Dialogue())
        _DIALOGUE.set(dialogue)
        try:
            async with self.turns:
                yield
        finally:
            self._dialogues.remove(dialogue)

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Count this dialogue as waiting, and give its turn away meanwhile."""
        dialogue = _DIALOGUE.get()
        dialogue.waiting += 1
        if dialogue.waiting == 1:
            self.turns.release()
        try:
            yield
        finally:
            dialogue.waiting -= 1
            if not dialogue.waiting:
                await self.turns.acquire()

    async def sent(self, sender: _Sender, key: str, request: Request) -> tuple[_Batch, dict[str, Any]]:
        """Queue a request; return the batch that it was sent in, and its body there."""
        sending: asyncio.Future[tuple[_Batch, dict[str, Any]]] = asyncio.get_running_loop().create_future()
        self._queued.setdefault(sender, []).append((key, request, sending))
        return await sending

    def follow(self, sender: _Sender, batch: _Batch) -> asyncio.Task[None]:
        """Return the task that awaits a batch's end."""
        if batch.ended is None:
            batch.ended = self._spawn(sender.bring(batch))
            self._open.append(batch)
            batch.ended.add_done_callback(lambda _task: self._open.remove(batch))
        return batch.ended

    def show(self) -> None:
        """Tell how the batches stand."""
        requests, answered = sum(len(b.keys) for b in self._open), sum(b.answered for b in self._open)
        minutes = (time.monotonic() - self._began) / 60
        self.on_change(f", {len(self._open)} batches, {answered:,} of {requests:,} requests, {minutes:.0f} min")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self._tasks.add(task := asyncio.create_task(work))
        task.add_done_callback(self._tasks.discard)
        return task

    async def _watch(self) -> None:
        before, still = 0, 0.0
        while True:
            await asyncio.sleep(QUIET)
            count = sum(map(len, self._queued.values()))
            still, before = (still + QUIET if count == before else 0.0), count
            # Dialogues that share a call wait for it without our knowing.
            needed = QUIET if all(dialogue.waiting for dialogue in self._dialogues) else _STUCK
            if count and not self.direct and still >= needed:
                due, self._queued = self._queued, {}
                for sender, queued in due.items():
                    self._spawn(self._send(sender, queued))

    async def _send(self, sender: _Sender, queued: list[_Queued]) -> None:
        async with sender.turn:
            for chunk, bodies in sender.chunks(queued):
                keys = [key for key, _, _ in chunk]
                try:
                    file = await sender.upload(keys, bodies)
                    self.keep(file, "", keys)
                except Exception as error:  # noqa: BLE001 - whoever waits is told
                    if isinstance(error, ModelError) and error.status == 413 and len(chunk) > 1:
                        sender.shrink(len(chunk))
                        self._queued.setdefault(sender, []).extend(chunk)
                    else:
                        for _, _, sending in chunk:
                            sending.set_exception(copy.copy(error))
                    continue
                batch = _Batch(file, "", keys, is_new=True)
                following = self.follow(sender, batch)
                for (_, _, sending), body in zip(chunk, bodies, strict=True):
                    sending.set_result((batch, body))
                if sender.alone:
                    await asyncio.wait([following])


class _Sender(Wrapper):
    """An endpoint that is asked by batches, but for the first call of each form, so that it is known what it refuses.

    A batch API that fails for good stops the run; what is gone there is asked for again.
    """

    def __init__(self, endpoint: Endpoint, cached: Cached, queue: BatchQueue) -> None:
        super().__init__(endpoint)
        self._endpoint, self._cached, self._queue = endpoint, cached, queue
        http = endpoint.http
        self._http = HttpClient(http.base_url, http.key, timeout=http.timeout, max_bytes=10**9)
        self._path, self._most, self._forms = f"/v1{endpoint.path}", MOST_REQUESTS, set[bool]()
        self.alone, self.turn = False, asyncio.Lock()

    async def complete(self, request: Request, on_token: OnToken | None = None) -> Completion:
        """See `LanguageModel.complete`; nothing is streamed."""
        key, form = self._cached.key(request).hex(), request.output_schema is None
        if request.steering is None and (form in self._forms or key in self._queue.known):
            async with self._queue.waiting():
                return await self._batched(key, request)
        self._forms.add(form)
        self._queue.direct += 1
        try:
            return await self._endpoint.complete(request)
        finally:
            self._queue.direct -= 1

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()
        await super().close()

    async def _batched(self, key: str, request: Request) -> Completion:
        batch, body, tries = self._queue.known.pop(key, None), None, 0
        while True:
            if batch is None:
                batch, body = await self._queue.sent(self, key, request)
                tries += 1
            await asyncio.shield(self._queue.follow(self, batch))
            try:
                return self._completion(batch, batch.rows.pop(key, None), request, tries)
            except ModelError as error:
                if "token_limit" in error.said and len(batch.keys) > 1:
                    self.shrink(len(batch.keys))  # more than the account may have under way
                    self.alone, tries = True, tries - 1
                elif body is not None and not self._may_help(error, request, body, tries):
                    error.message += f" (in {tries} batches)" * (tries > 1)
                    error.hint = error.hint or "run it again"
                    raise
                batch = None  # what failed before this process began has not failed for good

    def _may_help(self, error: ModelError, request: Request, body: dict[str, Any], tries: int) -> bool:
        """Return whether another batch may have the answer: another line may have taught the form already."""
        again = error.retryable or self._endpoint.body(request) != body or self._endpoint.adapts(error, body)
        return again and tries < _TRIES and not error.configuration

    def _completion(self, batch: _Batch, row: _Row | None, request: Request, tries: int) -> Completion:
        if row is None:
            raise copy.copy(batch.fault)
        answer = row.response or _Answer()
        if row.error or answer.status_code != 200:
            said = {"error": row.error} if row.error else answer.body
            line = f"{self.address} in the batch {batch.id}"
            raise said_error(line, said, status=answer.status_code, key=self._http.key)
        reader = Reader(request, self._http, self._endpoint.capabilities)
        reader.take(answer.body, "message")
        completion = reader.completion()
        completion.model, completion.usage.retries = completion.model or self.name, max(0, tries - 1)
        return completion

    def shrink(self, refused: int) -> None:
        """Send no more than half as many requests in one batch as were refused."""
        self._most = min(self._most, (refused + 1) // 2)

    def chunks(self, queued: list[_Queued]) -> Iterator[tuple[list[_Queued], list[dict[str, Any]]]]:
        """Yield as many requests as fit one batch, with their bodies; those nobody awaits any more are left out."""
        waiting = [entry for entry in queued if not entry[2].done()]
        while waiting:
            bodies: list[dict[str, Any]] = []
            size = 0
            for _, request, _ in waiting[: self._most]:
                body = self._endpoint.body(request)
                size += len(as_json(body)) + 200
                if bodies and size > MOST_BYTES:
                    break
                bodies.append(body)
            yield waiting[: len(bodies)], bodies
            del waiting[: len(bodies)]

    async def upload(self, keys: list[str], bodies: list[dict[str, Any]]) -> str:
        """Send a file of requests; return its id."""
        import aiohttp

        call = {"method": "POST", "url": self._path}
        lines = [as_json({"custom_id": key, **call, "body": body}) for key, body in zip(keys, bodies, strict=True)]

        def form() -> aiohttp.Payload:
            made = aiohttp.FormData({"purpose": "batch"})
            made.add_field("file", io.BytesIO(b"\n".join(lines)), filename="requests.jsonl")
            return made()

        return str((await self._patiently(lambda _: self._json("/files", form)))["id"])

    async def _json(self, path: str, body: object = None, wanted: str = "id", **query: str) -> dict[str, Any]:
        answer = await self._http.json(path, body, query=query or None, flows=True)
        if not isinstance(answer, dict) or wanted not in answer:
            raise ModelError(f"{self.address}{path} answered without {wanted}", hint="try again later", retryable=True)
        return answer

    async def _patiently(self, ask: Callable[[int], Awaitable[Any]]) -> Any:  # noqa: ANN401 - decoded JSON has any type
        try:
            return await self._endpoint.retry.run(ask)
        except ModelError as error:
            if error.status in {404, 405, 501}:
                error.message, error.hint = f"no batch API: {error.message}", "leave out --batch"
            elif not error.configuration:
                error.hint = "the same command again finds its batches"
            error.configuration = error.status != 413  # what is paid for is read by the next run: it is not sent again
            raise

    async def _begin(self, batch: _Batch) -> str:
        """Return the id of the batch of a file, begun now unless that was done before."""
        body = {"input_file_id": batch.file, "endpoint": self._path, "completion_window": "24h"}

        async def ask(failures: int) -> str:
            # A call whose answer did not come may have begun it all the same: begun twice it is paid for twice.
            is_known = bool(failures) or not batch.is_new
            listed = (await self._json("/batches", wanted="data", limit="100"))["data"] if is_known else []
            begun = [state["id"] for state in listed if state.get("input_file_id") == batch.file]
            return str(begun[0] if begun else (await self._json("/batches", body))["id"])

        return str(await self._patiently(ask))

    async def bring(self, batch: _Batch) -> None:
        """Begin a batch where it is not begun, await its end, and read its lines."""
        if not batch.id:
            try:
                batch.id = await self._begin(batch)
            except ModelError as error:
                if batch.is_new or error.status not in {400, 404}:
                    raise
                return  # its file is gone meanwhile
            self._queue.keep(batch.file, batch.id, batch.keys)
        state = await self._ended(batch)
        rows = [row for kind in ("output", "error") for row in await self._rows(state.get(f"{kind}_file_id"))]
        batch.rows = {row.custom_id: row for row in reversed(rows)}
        batch.fault = ModelError(f"the batch {batch.id} ({state['status']}) has no answer to a request", retryable=True)
        for reason in (state.get("errors") or {}).get("data") or ():
            if line := reason.get("line"):
                batch.rows[batch.keys[line - 1]] = _Row(error=reason, response=_Answer(status_code=400))
            elif not batch.rows:
                batch.fault = said_error(f"{self.address} refuses the batch", {"error": reason}, key=self._http.key)
        if lacking := len(set(batch.keys) - batch.rows.keys()):
            tell(f"{lacking:,} of {len(batch.keys):,} requests have no answer: {batch.fault.message}")

    async def _ended(self, batch: _Batch) -> dict[str, Any]:
        """Return the state of a batch that has ended."""
        pause, failures, missing = POLL, 0, 0
        while True:
            wait = pause
            try:
                state = await self._json(f"/batches/{batch.id}", wanted="status")
                if state["status"] in {"completed", "failed", "expired", "cancelled"}:
                    return state
                counts = state.get("request_counts") or {}
                batch.answered, failures, missing = sum(counts.values()) - counts.get("total", 0), 0, 0
            except ModelError as error:
                failures, missing = failures + 1, missing + (error.status == 404)
                if missing >= _NOT_THERE:
                    return {"status": "unknown to the server"}
                if failures > _FAILED_POLLS or not (error.retryable or error.status == 404):
                    error.configuration = True
                    raise
                wait = max(pause, error.retry_after or 0.0)
            self._queue.show()
            await asyncio.sleep(wait)
            pause = min(_LONGEST_POLL, pause * _GROWTH)

    async def _rows(self, file: str | None) -> list[_Row]:
        """Return the lines of a file that can be read; none where it is gone."""

        async def ask(failures: int) -> list[_Row]:
            async with self._http.open(f"/files/{file}/content", flows=True) as response:
                answer = await self._http.read(response)
            if response.status not in {200, 404}:
                raise self._http.status_error(response, answer)
            rows, lines = [], answer.splitlines() if response.status == 200 else []
            for line in lines:
                with suppress(ValidationError):
                    rows.append(_Row.model_validate_json(line))
            if len(rows) < len(lines) and failures < min(1, self._endpoint.retry.retries):
                raise ModelError(f"{self.address} sent lines that cannot be read", retryable=True)
            return rows

        return list(await self._patiently(ask)) if file else []

"""A tool or a resource of a server of the Model Context Protocol, asked as a source of passages.

It is opened from a file, YAML or TOML, `mcp:FILE` wherever documents are named:

    command       starts the server, a text or a list, in the file's folder; it is spoken to over stdio
    url           or the address of one that runs, over streamable HTTP
    env, headers  what the command's environment, or each request, has besides; `$NAME` is a variable of ours
    tool          the tool that is called
    query         its argument that gets the query (`query`)
    arguments     its further arguments
    resource      or a resource that is read; `{query}` in its URI is the query
    result        where in structured results (or JSON) things stand, as dotted paths: `passages` the list, and of each
                  of its elements `text`, `title` and `url`; without it each piece of text is a passage
    name          of the source; else the file's
    connect_seconds, call_seconds, max_bytes, max_passages     limits (30, 30, 1,000,000, 50)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import tempfile
import threading
import tomllib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Self
from urllib.parse import quote

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from dialore.errors import (
    DialoreError,
    InputError,
    SourceError,
    UnknownNameError,
    describe,
    first_line,
    import_optional,
)
from dialore.files import parse_yaml, read_text
from dialore.knowledge import Knowledge, Passage, Source
from dialore.retrieval.chunking import Chunking, Paragraph, Section
from dialore.retrieval.reranking import load_reranker
from dialore.sources.base import SearchResult
from dialore.sources.web.reading import without_controls

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue

_FORM = "it holds `command` or `url`, and `tool` or `resource`: see docs/sources.md"
_LONG = 2000
"""Characters beyond which a text is split into passages."""
_CHUNKING = Chunking(words=120, overlap=0)
_CLOSING_SECONDS = 10.0


class ResultPaths(BaseModel):
    """Where things stand in a structured result: dotted paths, of which the last three are within an element."""

    model_config = ConfigDict(extra="forbid")

    passages: str = ""
    text: str = ""
    title: str = ""
    url: str = ""


class ServerCall(BaseModel):
    """What a file says; see the module."""

    model_config = ConfigDict(extra="forbid")

    name: str = ""
    command: Annotated[
        list[str], BeforeValidator(lambda given: shlex.split(given) if isinstance(given, str) else given)
    ] = []
    url: str = ""
    env: dict[str, str] = {}
    headers: dict[str, str] = {}
    tool: str = ""
    query: str = "query"
    arguments: dict[str, Any] = {}
    resource: str = ""
    result: ResultPaths | None = None
    connect_seconds: float = Field(default=30, gt=0)
    call_seconds: float = Field(default=30, gt=0)
    max_bytes: int = Field(default=1_000_000, ge=1)
    max_passages: int = Field(default=50, ge=1)

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        for first, second in (("command", "url"), ("tool", "resource")):
            if bool(getattr(self, first)) == bool(getattr(self, second)):
                raise ValueError(f"it is to hold `{first}` or `{second}`, one of them")
        return self


class McpSource:
    """A tool or a resource of a server, which is started or connected to when it is first asked.

    The connection lives in a thread of its own, so that any event loop may ask. A server that ends is started again
    and asked once more; one that says nothing in time is ended, and started again by the next question.
    """

    kind: Source = "documents"

    def __init__(self, call: ServerCall, *, name: str, folder: Path | None = None) -> None:
        self.name, self.call, self._folder = call.name or name, call, folder
        self._loop: asyncio.AbstractEventLoop | None = None
        self._held: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._ready: asyncio.Future[Any] | None = None
        self._said: IO[str] | None = None

    async def search(
        self, query: str, dialogue: Dialogue, top: int = 10, scope: Sequence[Knowledge] = ()
    ) -> SearchResult:
        """See `KnowledgeSource`; `scope` is ignored. The order is the server's, unless its texts have to be split.

        Raises:
            SourceError: no connection, a tool or an argument that the server lacks, an error of the tool, no answer in
                time, or one that is too large.
        """
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name=f"dialore-{self.name}", daemon=True).start()
        items, notes = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._asked(query), self._loop))
        most = self.call.max_passages
        if len(items) > most:
            notes.append(f"{self.name} gave {len(items):,} passages: those after the first {most} are left out")
        return SearchResult(await asyncio.to_thread(self._ranked, query, items[:most], top), notes=notes)

    def close(self) -> None:
        """End the server's process, or the session with it."""
        if self._loop is not None:
            with contextlib.suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(self._leave(), self._loop).result(_CLOSING_SECONDS)
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._loop = None

    def _ranked(self, query: str, items: Sequence[Passage], top: int) -> list[Knowledge]:
        """Return the first items; where one is long or none was asked for by the query, the best parts of all."""
        asked = bool(self.call.tool) or "{query}" in self.call.resource
        if not asked or any(len(item.text) > _LONG for item in items):
            sections = ((item, Section([Paragraph(line) for line in item.text.splitlines()])) for item in items)
            parts = [
                Passage(part.text, item.title, item.url) for item, whole in sections for part in _CHUNKING.split(whole)
            ]
            ranked = load_reranker("fused").rerank(query, [part.searched for part in parts], top)
        else:
            parts, ranked = list(items), [(place, 1 / (place + 1)) for place in range(len(items))][:top]
        return [Knowledge.of_passage(parts[at], self.kind, round(score, 6), index=self.name) for at, score in ranked]

    # --- in the thread of the connection

    async def _asked(self, query: str) -> tuple[list[Passage], list[str]]:
        """Ask the server; a second time where it has ended."""
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        for is_last in (False, True):
            seconds = self.call.connect_seconds
            try:
                client = await self._client()
                seconds = self.call.call_seconds
                async with asyncio.timeout(seconds):
                    return self._read(await self._called(client, query))
            except TimeoutError as error:
                await self._leave()
                raise self._error(f"no answer within {seconds:g} s") from error
            except MCPError as error:
                if error.code != CONNECTION_CLOSED or is_last:
                    raise self._error(error.message) from error
            except DialoreError:
                raise
            except Exception as error:
                if is_last:
                    raise self._error(first_line(error)) from error
            await self._leave()
        raise AssertionError

    def _error(self, message: str) -> SourceError:
        """Return an error with the last line that the server's process wrote about itself."""
        said = ""
        if self._said is not None and not self._said.closed:
            self._said.seek(0)
            said = (self._said.read()[-2000:].strip().splitlines() or [""])[-1].strip()[:200]
        where = self.call.url or shlex.join(self.call.command)
        hint = f"the server wrote: {said}" if said else f"does this run and answer: {where}"
        return SourceError(f"{self.name}: {' '.join(message.split())[:300]}", hint=hint)

    async def _client(self) -> Any:  # noqa: ANN401 - the SDK is an extra
        async with self._lock:
            if self._ready is None or self._held is None or self._held.done():
                self._ready = asyncio.get_running_loop().create_future()
                self._held = asyncio.create_task(self._hold(self._ready))
            return await asyncio.shield(self._ready)

    async def _leave(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.cancel()
            await asyncio.wait([held])

    async def _hold(self, ready: asyncio.Future[Any]) -> None:
        """Keep a connection until this task is cancelled: what opens it has to close it."""
        from mcp import Client

        try:
            with tempfile.TemporaryFile("w+", errors="replace") as self._said:
                async with asyncio.timeout(self.call.connect_seconds) as patience, self._transport() as transport:
                    async with Client(transport) as client:
                        await self._check(client)
                        patience.reschedule(None)
                        ready.set_result(client)
                        await asyncio.get_running_loop().create_future()
        except Exception as error:
            if not ready.done():
                ready.set_exception(_innermost(error))

    def _transport(self) -> Any:  # noqa: ANN401
        from mcp import StdioServerParameters, stdio_client

        if not self.call.url:
            command, *arguments = self.call.command
            env = {name: os.path.expandvars(value) for name, value in self.call.env.items()}
            server = StdioServerParameters(command=command, args=arguments, env=env, cwd=self._folder)
            return stdio_client(server, errlog=self._said)
        return self._http()

    @contextlib.asynccontextmanager
    async def _http(self) -> AsyncIterator[Any]:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        headers = {name: os.path.expandvars(value) for name, value in self.call.headers.items()}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=self.call.call_seconds) as http,
            streamable_http_client(self.call.url, http_client=http) as streams,
        ):
            yield streams

    async def _check(self, client: Any) -> None:  # noqa: ANN401
        """Raise SourceError where the server has no such tool, or that has not the arguments that it is to get."""
        if not self.call.tool:
            return
        tools: dict[str, Mapping[str, Any]] = {}
        cursor = None
        while True:
            page = await client.list_tools(cursor=cursor)
            tools |= {tool.name: tool.input_schema for tool in page.tools}
            if not (cursor := page.next_cursor):
                break
        try:
            if self.call.tool not in tools:
                raise UnknownNameError("tool", self.call.tool, tools)
            schema = tools[self.call.tool]
            known, given = schema.get("properties") or {}, {*self.call.arguments, self.call.query} - {""}
            for argument in sorted(given - known.keys()) if known else ():
                raise UnknownNameError(f"argument of {self.call.tool}", argument, known)
            if missing := sorted({*schema.get("required", ())} - given):
                hint = "add it under `arguments`, or name it as `query`"
                raise InputError(f"{self.call.tool} wants {', '.join(missing)}, too", hint=hint)
        except InputError as error:
            raise SourceError(f"{self.name}: {error.message}", hint=error.hint) from error

    async def _called(self, client: Any, query: str) -> Any:  # noqa: ANN401
        if self.call.resource:
            return await client.read_resource(self.call.resource.replace("{query}", quote(query, safe="")))
        asked = {self.call.query: query} if self.call.query else {}
        return await client.call_tool(self.call.tool, {**self.call.arguments, **asked})

    # --- what is read of a result

    def _read(self, result: Any) -> tuple[list[Passage], list[str]]:  # noqa: ANN401
        """Return the passages of a result, and what was left out."""
        contents = result.contents if self.call.resource else result.content
        found = [getattr(getattr(content, "resource", content), "text", None) for content in contents]
        texts = [text for text in found if isinstance(text, str) and text.strip()]
        structured = getattr(result, "structured_content", None)
        whole = "" if structured is None else json.dumps(structured, ensure_ascii=False)
        size = max(len(whole.encode()), sum(len(text.encode()) for text in texts))
        if size > self.call.max_bytes:
            hint = "ask for less by `arguments`, or raise max_bytes"
            raise SourceError(f"{self.name}: a result of {size:,} bytes, more than {self.call.max_bytes:,}", hint=hint)
        if getattr(result, "is_error", False):
            raise self._error(f"{self.call.tool} failed: {' '.join(texts)}")
        notes = [f"{self.name}: parts of its result that are no text: {found.count(None)}"] if None in found else []
        if self.call.result is not None:
            return list(self._listed(self.call.result, texts, structured)), notes
        return [Passage(without_controls(text)) for text in texts or [whole] if text], notes

    def _listed(self, paths: ResultPaths, texts: Sequence[str], structured: object) -> Iterator[Passage]:
        """Yield a passage for each element of the list in a structured result; raise SourceError where it has none."""
        try:
            decoded = [json.loads(text) for text in texts] if structured is None else [structured]
        except ValueError as error:
            hint = "leave `result` out, which reads each piece of text as a passage"
            raise SourceError(f"{self.name}: its result is not JSON", hint=hint) from error
        data = decoded[0] if len(decoded) == 1 else decoded
        elements = _at(data, paths.passages)
        if elements is None and data:
            names = ", ".join(map(str, data)) if isinstance(data, dict) else f"a {type(data).__name__}"
            hint = f"`passages` of `result` may begin with: {names[:200]}"
            raise SourceError(f"{self.name}: nothing stands at {paths.passages!r} in its result", hint=hint)
        for element in elements if isinstance(elements, list) else [elements]:
            text, title, url = (_at(element, path) if path else "" for path in (paths.text, paths.title, paths.url))
            if not paths.text or isinstance(element, str):
                text = element if isinstance(element, str) else json.dumps(element, ensure_ascii=False)
            if text:
                yield Passage(*(without_controls(str(part or "")) for part in (text, title, url)))


def _at(data: Any, path: str) -> Any:  # noqa: ANN401 - decoded JSON has any type
    """Return what stands at a dotted path, numbers counting elements of lists; None for nothing."""
    for part in filter(None, path.split(".")):
        if isinstance(data, list) and part.isdigit() and int(part) < len(data):
            data = data[int(part)]
        else:
            data = data.get(part) if isinstance(data, dict) else None
    return data


def _innermost(error: Exception) -> Exception:
    """Return the first error of a group, which task groups make of one."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def open_mcp(file: Path) -> McpSource:
    """Return the source that a file says; nothing is started yet.

    Raises:
        InputError: the file is missing or malformed.
        MissingExtraError: the SDK is not installed (extra `mcp`).
    """
    import_optional("mcp.client.client", f"the source mcp:{file}", "mcp")
    text = read_text(file)
    try:
        data = tomllib.loads(text) if file.suffix == ".toml" else parse_yaml(text, str(file), _FORM)
        call = ServerCall.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{file}: {describe(error)}", hint=_FORM) from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file}: not valid TOML: {error}") from error
    return McpSource(call, name=file.stem, folder=file.parent)

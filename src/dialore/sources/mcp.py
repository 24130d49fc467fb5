"""A tool or a resource of a server of the Model Context Protocol, asked as a source of passages: `mcp:FILE`."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import re
import secrets
import shlex
import shutil
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TextIO, cast
from urllib.parse import quote

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from dialore.errors import DialoreError, InputError, SourceError, UnknownNameError, describe, import_optional
from dialore.files import load_json, parse_yaml, read_text
from dialore.knowledge import Knowledge, Passage, Source
from dialore.sources.base import SearchResult
from dialore.sources.web.safety import without_controls

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue

_FORM = "it says `command` or `url`, and `tool` or `resource`"
_CLOSING_SECONDS = 10.0
_MAX_TOOLS = 10_000
_MAX_TOOL_PAGES = 1_000
_KEPT_STDERR_BYTES = 4_096
_TERMINATION_SECONDS = 1.0
_MARK_VARIABLE = "DIALORE_MCP_SERVER"


class _ServerCall(BaseModel):
    """A server and what is asked of it, as a YAML file says it: `docs/sources.md` explains the fields."""

    model_config = ConfigDict(extra="forbid")

    command: Annotated[
        list[str], BeforeValidator(lambda text: shlex.split(text) if isinstance(text, str) else text)
    ] = []
    url: str = ""
    env: dict[str, str] = {}
    headers: dict[str, str] = {}
    tool: str = ""
    query: str = "query"
    arguments: dict[str, Any] = {}
    resource: str = ""
    result: dict[Literal["passages", "text", "title", "url"], str] | None = None
    connect_seconds: float = Field(default=30, gt=0)
    call_seconds: float = Field(default=30, gt=0)
    max_bytes: int = Field(default=1_000_000, ge=1)
    max_passages: int = Field(default=50, ge=1)
    max_characters: int = Field(default=4000, ge=1)

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if bool(self.command) == bool(self.url) or bool(self.tool) == bool(self.resource):
            raise ValueError(_FORM)
        for values in (self.env, self.headers):
            values.update({name: os.path.expandvars(value) for name, value in values.items()})
        return self


class McpSource:
    """A tool or a resource of a server, which is started or connected to when it is first asked.

    The connection lives in a thread of its own, so that any event loop may ask. A server that has ended is started
    again and asked once more; one that says nothing in time is ended, and started again by the next question.
    """

    kind: Source = "documents"

    def __init__(self, call: _ServerCall, *, name: str, folder: Path | None = None) -> None:
        self.name, self.call, self._folder = name, call, folder
        self._loop: asyncio.AbstractEventLoop | None = None
        self._held: tuple[asyncio.Task[None], asyncio.Future[Any]] | None = None
        self._errors: _LastOutput | None = None

    async def search(
        self, query: str, dialogue: Dialogue, top: int = 10, scope: Sequence[Knowledge] = ()
    ) -> SearchResult:
        """See `KnowledgeSource`: passages in the server's order; `scope` is ignored."""
        if self._loop is None:
            runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
            self._loop = runner.get_loop()
            self._thread = threading.Thread(target=_run, args=[runner], daemon=True)
            self._thread.start()
        passages, notes = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._ask(query), self._loop))
        pieces = [
            Knowledge.of_passage(passage, self.kind, round(1 / rank, 4), index=self.name)
            for rank, passage in enumerate(passages[:top], start=1)
        ]
        return SearchResult(pieces, notes=notes)

    def close(self) -> None:
        """End the server's process, or the session with it."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CLOSING_SECONDS)
            self._loop = self._held = None
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    # --- in the thread of the connection

    async def _ask(self, query: str) -> tuple[list[Passage], list[str]]:
        """Ask the server; a second time, started or connected to anew, where it has ended or failed."""
        for is_last in (False, True):
            seconds = self.call.connect_seconds
            if self._held is None or self._held[0].done():
                ready = asyncio.get_running_loop().create_future()
                self._held = asyncio.create_task(self._hold(ready)), ready
            held, connected = self._held
            try:
                client = await asyncio.shield(connected)
                seconds = self.call.call_seconds
                async with asyncio.timeout(seconds):
                    if self.call.resource:
                        uri = self.call.resource.replace("{query}", quote(query, safe=""))
                        return self._read(await client.read_resource(uri))
                    asked = {self.call.query: query} if self.call.query else {}
                    return self._read(await client.call_tool(self.call.tool, self.call.arguments | asked))
            except DialoreError as error:
                raise SourceError(f"{self.name}: {error.message}", hint=error.hint) from error
            except Exception as error:
                held.cancel()
                await asyncio.wait([held])
                is_late = isinstance(error, TimeoutError)
                if is_last or is_late:
                    reason = f"no answer within {seconds:g} s" if is_late else _one_line(str(error))[:300]
                    raise SourceError(f"{self.name}: {reason}", hint=self._hint()) from error
        raise AssertionError

    def _hint(self) -> str:
        """Return what to look at, with what the server's process last wrote about itself."""
        lines = self._errors.text().split("\n") if self._errors is not None else []
        last = next((text[:200] for line in reversed(lines) if (text := _one_line(line))), "")
        return f"does {self.call.url or self.call.command[0]} run and answer?{' It wrote: ' * bool(last)}{last}"

    async def _hold(self, ready: asyncio.Future[Any]) -> None:
        """Keep a connection until this task is cancelled: who opens one has to close it."""
        from mcp import Client

        try:
            async with asyncio.timeout(self.call.connect_seconds) as patience, Client(self._transport()) as client:
                if self.call.tool:
                    await self._check(client)
                patience.reschedule(None)
                ready.set_result(client)
                await asyncio.get_running_loop().create_future()
        except Exception as error:  # noqa: BLE001 - it is raised where the connection is awaited
            failure = error
            while isinstance(failure, ExceptionGroup):
                failure = failure.exceptions[0]
            if not ready.done():
                ready.set_exception(failure)
        finally:
            ready.cancel()  # closed before it was open

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        from mcp import StdioServerParameters, stdio_client

        call = self.call
        if call.url:
            import httpx2
            from mcp.client.streamable_http import streamable_http_client

            http = httpx2.AsyncClient(headers=call.headers, timeout=call.call_seconds)
            async with http, streamable_http_client(call.url, http_client=http) as streams:
                yield streams
        else:
            if self._errors is not None:
                self._errors.close()
            self._errors = _LastOutput()
            command, *words = _announcing_group(call.command, self._folder)
            mark = secrets.token_hex(16)
            env = call.env | {_MARK_VARIABLE: mark}
            server = StdioServerParameters(command=command, args=words, env=env, cwd=self._folder)
            try:
                async with stdio_client(server, errlog=self._errors.writer) as streams:
                    yield streams
            finally:  # the SDK leaves the children of a server that ends by itself
                group = self._errors.group
                await asyncio.shield(asyncio.to_thread(_end_processes, group, mark))

    async def _check(self, client: Any) -> None:  # noqa: ANN401 - the SDK is an extra
        """Raise UnknownNameError where the server has no such tool, or that has no argument of a name that is set."""
        tools: dict[str, Any] = {}
        cursor = ""
        seen_cursors: set[str] = set()
        # Some servers answer with an empty cursor, with the same one again, or with new ones for ever.
        while self.call.tool not in tools and len(tools) < _MAX_TOOLS and len(seen_cursors) < _MAX_TOOL_PAGES:
            page = await client.list_tools(cursor=cursor or None)
            tools |= {tool.name: tool.input_schema.get("properties") for tool in page.tools}
            seen_cursors.add(cursor)
            cursor = page.next_cursor or ""
            if cursor in seen_cursors or not cursor:
                break
        if self.call.tool not in tools:
            raise UnknownNameError("tool", self.call.tool, tools)
        known = tools[self.call.tool]
        for name in (*self.call.arguments, self.call.query):
            if name and known and name not in known:
                raise UnknownNameError(f"argument of {self.call.tool}", name, known)

    def _read(self, result: Any) -> tuple[list[Passage], list[str]]:  # noqa: ANN401
        """Return the passages of a result, and what was left out."""
        contents = result.contents if self.call.resource else result.content
        texts = [text for fields in contents if (text := getattr(getattr(fields, "resource", fields), "text", None))]
        structured = getattr(result, "structured_content", None)
        size = max(
            len(json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")) for fields in (texts, structured)
        )
        if size > self.call.max_bytes:
            message = f"a result of {size:,} bytes, more than {self.call.max_bytes:,}"
            raise DialoreError(message, hint="ask for less by `arguments`, or raise max_bytes")
        if getattr(result, "is_error", False):
            refusal = _one_line(" ".join(texts))[:300]
            raise DialoreError(f"{self.call.tool} failed: {refusal}", hint="does it take such a query?")
        if self.call.result is not None:
            parts = self._parts(texts, structured)
        elif structured is not None and not any(text.strip() for text in texts):
            parts = iter([[json.dumps(structured, ensure_ascii=False)]])
        else:
            parts = iter([[text] for text in texts])
        most_letters = self.call.max_characters
        whole = [[without_controls(str(part or "")) for part in fields] for fields in parts]
        passages: list[Passage] = []
        for text, *location in whole:
            if text.strip():
                title, url = [*location, "", ""][:2]
                passages.append(Passage(text[:most_letters], title[:most_letters], url[:most_letters]))
        notes = []
        if long := sum(any(len(part) > most_letters for part in fields) for fields in whole):
            notes.append(f"{self.name}: passages cut after {most_letters:,} characters: {long}")
        if len(texts) < len(contents):
            notes.append(f"{self.name}: parts of its result that are no text: {len(contents) - len(texts)}")
        if (count := len(passages)) > (most := self.call.max_passages):
            notes.append(f"{self.name}: {count:,} passages, of which {most} are looked at")
        return passages[:most], notes

    def _parts(self, texts: Sequence[str], structured: object) -> Iterator[Sequence[Any]]:
        """Yield text, title and url of each element of the list in a structured result, or in JSON."""
        paths = cast("dict[str, str]", self.call.result)
        try:
            decoded = [structured] if structured is not None else [load_json(text) for text in texts]
        except ValueError as error:
            raise DialoreError("its result is not JSON", hint="leave `result` out of its file") from error
        data = decoded[0] if len(decoded) == 1 else decoded
        elements = _at_path(data, paths.get("passages", ""))
        if elements is None and data:
            known = ", ".join(map(str, data)) if isinstance(data, dict) else f"a {type(data).__name__}"
            raise DialoreError(f"nothing stands at {paths['passages']!r} in its result", hint=f"it has {known[:200]}")
        for element in elements if isinstance(elements, list) else [elements] if elements is not None else ():
            text, *where = (
                _at_path(element, paths[part]) if part in paths else None for part in ("text", "title", "url")
            )
            if isinstance(element, str) or "text" not in paths:
                text = element if isinstance(element, str) else json.dumps(element, ensure_ascii=False)
            yield text, *where


class _LastOutput:
    """A pipe that a process writes to, of which only the last bytes are kept.

    Attributes:
        group: The process group of the process, which a line of `_announcing_group` says first; 0 if it is unknown.
    """

    def __init__(self) -> None:
        reader, writer = os.pipe()
        self.writer: TextIO = os.fdopen(writer, "w", errors="replace")
        self._kept = b""
        self.group = 0
        self._thread = threading.Thread(target=self._read, args=[reader], daemon=True)
        self._thread.start()

    def _read(self, reader: int) -> None:
        with os.fdopen(reader, "rb", buffering=0) as pipe:
            while data := pipe.read(1 << 16):
                self._kept += data
                if not self.group and (match := _GROUP.match(self._kept)):
                    self.group = int(match[1])
                    self._kept = self._kept[match.end() :]
                self._kept = self._kept[-_KEPT_STDERR_BYTES:]

    def text(self) -> str:
        """Return what was written last."""
        return self._kept.decode("utf-8", "replace")

    def close(self) -> None:
        """Close our end. The thread ends when no process holds the other one."""
        self.writer.close()


_GROUP = re.compile(rb"dialore-process-group (\d+)\n")


def _announcing_group(command: Sequence[str], folder: Path | None) -> list[str]:
    """Return a command that first writes its process group on standard error; the SDK does not tell it."""
    if os.name != "posix":
        return list(command)
    program = command[0]
    location = str((folder or Path()) / program) if "/" in program else program
    if shutil.which(location) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    return ["/bin/sh", "-c", 'echo "dialore-process-group $$" >&2; exec "$@"', "sh", *command]


def _end_processes(group: int, mark: str) -> None:
    """Terminate the remaining processes of a server, and kill those that do not end in time.

    These are the processes of its group and, on Linux, processes that have left the group but
    inherited the environment variable with `mark`.
    """
    if os.name != "posix" or not _signal_processes(group, mark, signal.SIGTERM):
        return
    deadline = time.monotonic() + _TERMINATION_SECONDS
    while _signal_processes(group, mark, 0):  # 0 only checks that a process exists
        if time.monotonic() > deadline:
            _signal_processes(group, mark, signal.SIGKILL)
            return
        time.sleep(0.05)


def _signal_processes(group: int, mark: str, signal_number: int) -> bool:
    """Send a signal to all processes of a server, and return whether there were any."""
    is_sent = False
    # Only a group that the SDK has made for the server, never our own.
    if group > 1 and group != os.getpgrp():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal_number)
            is_sent = True
    for process in _find_marked_processes(mark):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal_number)
            is_sent = True
    return is_sent


def _find_marked_processes(mark: str) -> list[int]:
    """Return the ids of processes with `mark` in their environment; empty if the system has no /proc."""
    entry = f"{_MARK_VARIABLE}={mark}".encode()
    processes = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # a process of another user, or one that has ended
            if entry in path.read_bytes().split(b"\0"):
                processes.append(int(path.parent.name))
    return processes


def _one_line(text: str) -> str:
    """Return a text of a server in one line without control characters."""
    return " ".join(_CONTROLS.sub("", without_controls(text)).split())


_CONTROLS = re.compile(r"[\x7f-\x9f]")


def _run(runner: asyncio.Runner) -> None:
    """Do what is asked until the loop is stopped; then cancel what is left, the connection with it."""
    with runner:
        runner.get_loop().run_forever()


def _at_path(data: Any, path: str) -> Any:  # noqa: ANN401 - decoded JSON has any type
    """Return what stands at a dotted path; None for nothing."""
    for part in filter(None, path.split(".")):
        data = data.get(part) if isinstance(data, dict) else None
    return data


def open_mcp(file: Path) -> McpSource:
    """Return the source that a file declares (see `_ServerCall`); nothing is started yet."""
    try:
        call = _ServerCall.model_validate(parse_yaml(read_text(file), str(file), _FORM))
    except ValidationError as error:
        raise InputError(f"{file}: {describe(error)}", hint=_FORM) from error
    import_optional("mcp.client.client", f"mcp:{file}", "mcp")
    logging.getLogger("mcp").addHandler(logging.NullHandler())  # else it prints what no logger is set up for
    return McpSource(call, name=file.stem, folder=file.parent)

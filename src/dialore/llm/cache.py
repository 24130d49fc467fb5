"""A content-addressed cache of completions in SQLite: the same request is paid for once."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import sqlite3
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dialore.errors import InputError
from dialore.files import create_private, unwritable
from dialore.llm.model import Completion, OnToken, Request
from dialore.sqlite_errors import classify_sqlite_error, explain_sqlite_error

log = logging.getLogger(__name__)

_APPLICATION = 0x444C4F52
_VERSION = 1
_BUSY_SECONDS = 10.0
_MEND = "delete it or name another file"


@dataclass(slots=True)
class CacheEntry:
    """The completion of a request: from the cache, or None until the caller sets it."""

    completion: Completion | None


class CompletionCache:
    """Completions on disk, found by model and request.

    Equal requests under way share one call. A completion from the cache has `usage.calls` 1 and `usage.cached` 1 with
    the recorded tokens, and takes no time. Processes may share the file, and a completion that was stored survives the
    death of the process. A completion that cannot be stored is still returned.

    Args:
        path: The cache file.
        model: Name of the model.
        address: Address and API of the model, because two servers may give one name to different models.
    """

    def __init__(self, path: str | Path, model: str, *, address: str = "") -> None:
        self._path, self._model, self._address = Path(path), model, address
        self._has_warned = False
        self._inherited: list[object] = []
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._database: sqlite3.Connection | None = None
        # One thread does all reading and writing: a write that waits for another process does not block the event loop.
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dialore-cache")
        self._under_way: dict[bytes, asyncio.Future[Completion]] = {}

    @property
    def _thread(self) -> ThreadPoolExecutor:
        """The thread. A forked process gets a new thread and connection, because it can use neither of its parent's."""
        if self._process != os.getpid():
            # Closing the inherited connection would release the locks of the other process.
            self._inherited.append(self._database)
            self._start()
        return self._executor

    @asynccontextmanager
    async def entry(self, request: Request, on_token: OnToken | None = None) -> AsyncIterator[CacheEntry]:
        """Yield the entry of a request, and store the completion that the caller sets if there was none.

        A completion from the cache is passed to `on_token` in one piece.

        Raises:
            InputError: The file is not a cache, or is damaged.
        """
        key = self.key(request)
        thread = self._thread
        shared = await self._wait_for_equal_request(key)
        if shared is not None:
            yield CacheEntry(_as_cached(shared, on_token))
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Completion] = loop.create_future()
        self._under_way[key] = future
        try:
            stored = await loop.run_in_executor(thread, self._get, key)
            entry = CacheEntry(_as_cached(stored, on_token) if stored is not None else None)
            yield entry
            if entry.completion is not None:
                if stored is None and not entry.completion.usage.cached:
                    await asyncio.shield(loop.run_in_executor(thread, self._put, key, entry.completion))
                future.set_result(entry.completion)
        except Exception as error:
            future.set_exception(error)
            future.exception()  # marks it as retrieved, as there may be no other caller
            raise
        finally:
            del self._under_way[key]
            future.cancel()

    async def _wait_for_equal_request(self, key: bytes) -> Completion | None:
        """Return the completion of an equal request that is under way, or None if there is no such request."""
        while (shared := self._under_way.get(key)) is not None:
            try:
                return await asyncio.shield(shared)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not shared.cancelled() or (task is not None and task.cancelling()):
                    raise
                # The other caller was cancelled: look again.
        return None

    def key(self, request: Request) -> bytes:
        """Return the key under which the completion of a request is stored."""
        return cache_key([self._address, self._model], request)

    def open(self) -> None:
        """Open the file, or create it, before the first call; raise InputError as `entry` does."""
        self._thread.submit(self._connect).result()

    def close(self) -> None:
        """Close the file."""
        thread = self._thread
        if self._database is not None:
            thread.submit(self._database.close).result()
            self._database = None

    def _connect(self) -> sqlite3.Connection:
        self._database = self._database or _open(self._path)
        return self._database

    def _get(self, key: bytes) -> Completion | None:
        database = self._connect()
        try:
            row = database.execute("SELECT completion FROM completions WHERE key = ?", (key,)).fetchone()
            return Completion.model_validate_json(row[0]) if row else None
        except sqlite3.Error as error:
            if classify_sqlite_error(error) in {"damaged", "not-a-database"}:
                raise _explain(error, self._path) from error
            self._warn("read", error)
        except ValidationError:
            pass  # will be asked and stored anew
        return None

    def _put(self, key: bytes, completion: Completion) -> None:
        row = (key, completion.model_dump_json(), self._model, time.time())
        try:
            self._connect().execute("INSERT OR REPLACE INTO completions VALUES (?, ?, ?, ?)", row)
        except sqlite3.Error as error:
            self._warn("written", error)

    def _warn(self, what: str, error: sqlite3.Error) -> None:
        if not self._has_warned:
            log.warning("the cache cannot be %s, going on without: %s", what, _explain(error, self._path))
        self._has_warned = True


def cache_key(model: list[str], request: Request) -> bytes:
    """Return a hash of the model and of all of the request that can change the answer; its label cannot."""
    schema, steering = request.output_schema, request.steering
    parts: list[Any] = [
        *model,
        [[message.role, message.content] for message in request.messages],
        list(request.sampling.model_dump().items()),
        [schema.name, schema.definition] if schema else None,
        request.sample,
        request.continuation,
        request.continuation_stop,
        list(steering.model_dump().items()) if steering is not None else None,
    ]
    text = json.dumps(parts, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _as_cached(completion: Completion, on_token: OnToken | None) -> Completion:
    """Return a completion as one that took no call, after passing its text to `on_token`."""
    if on_token is not None:
        on_token(completion.text)
    usage = completion.usage.model_copy(update={"calls": 1, "cached": 1, "retries": 0})
    return completion.model_copy(update={"usage": usage, "seconds": 0.0})


def _open(path: Path) -> sqlite3.Connection:
    give_up = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return _connect(path)
        except OSError as error:
            raise unwritable(path, error) from error
        except sqlite3.Error as error:
            # SQLite does not wait by itself where several processes make one file at once.
            if classify_sqlite_error(error) != "busy" or time.monotonic() > give_up:
                raise _explain(error, path) from error
            time.sleep(0.01)


def _connect(path: Path) -> sqlite3.Connection:
    with contextlib.suppress(OSError):
        create_private(path)  # prompts hold what people said
    with contextlib.ExitStack() as closing:
        database = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        closing.callback(database.close)
        # In one statement, so that a cache which another process is just making is seen before or after, not between.
        application, version, tables = database.execute(
            "SELECT (SELECT * FROM pragma_application_id), (SELECT * FROM pragma_user_version), "
            "(SELECT count(*) FROM sqlite_master)"
        ).fetchone()
        if tables and application != _APPLICATION:
            raise InputError(f"{path} is a database of something else, not a cache", hint="name another file")
        if tables and version != _VERSION:
            raise InputError(f"the cache {path} is of version {version}; this program reads {_VERSION}", hint=_MEND)
        if not tables:
            database.execute("PRAGMA journal_mode = WAL")
            database.executescript(
                f"BEGIN IMMEDIATE; PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {_VERSION};"
                "CREATE TABLE IF NOT EXISTS completions (key BLOB PRIMARY KEY, completion TEXT, model TEXT, made REAL);"
                "COMMIT"
            )
        database.execute("PRAGMA synchronous = NORMAL")
        closing.pop_all()
    return database


def _explain(error: sqlite3.Error, path: Path) -> InputError:
    return explain_sqlite_error(error, path, description="a cache", rebuild=_MEND)

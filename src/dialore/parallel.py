"""Concurrent work: several awaitables at once, or one function over many items with a bound."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar, overload

from dialore.errors import InputError

One = TypeVar("One")
Other = TypeVar("Other")
Item = TypeVar("Item")


def check_event_loop() -> None:
    """Raise InputError if no event loop of asyncio runs here, as in code that trio runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError as error:
        raise InputError(
            "Dialore needs a running event loop of asyncio",
            hint="use asyncio.run(...), or call respond_sync in a thread: "
            "await trio.to_thread.run_sync(agent.respond_sync, dialogue)",
        ) from error


@asynccontextmanager
async def listening(
    *listeners: Callable[[Any], object] | None,
) -> AsyncIterator[list[Callable[[Any], None] | None]]:
    """Yield listeners as plain functions that never wait.

    What an async listener returns is awaited in the order of the calls, at the latest at the end of the context.
    """
    loop = asyncio.get_running_loop()
    pending: asyncio.Queue[Awaitable[object] | None] = asyncio.Queue()

    def as_plain(listener: Callable[[Any], object]) -> Callable[[Any], None]:
        def call(argument: Any) -> None:  # noqa: ANN401 - any argument
            result = listener(argument)
            if inspect.isawaitable(result):
                loop.call_soon_threadsafe(pending.put_nowait, result)

        return call

    async def await_pending() -> None:
        while (result := await pending.get()) is not None:
            await result

    task = asyncio.create_task(await_pending())
    try:
        yield [None if listener is None else as_plain(listener) for listener in listeners]
        loop.call_soon_threadsafe(pending.put_nowait, None)
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        while not pending.empty():
            rest = pending.get_nowait()
            if inspect.iscoroutine(rest):
                rest.close()


@overload
async def gather(first: Awaitable[One], second: Awaitable[Other], /) -> tuple[One, Other]: ...


@overload
async def gather(*jobs: Awaitable[One]) -> tuple[One, ...]: ...


async def gather(*jobs: Awaitable[object]) -> tuple[object, ...]:
    """Await all jobs, results in order; where one fails, the others are cancelled and done before it is raised."""
    try:
        # A group waits for those that it stops, even where it is itself stopped meanwhile.
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_await(job)) for job in jobs]
    except BaseExceptionGroup as failed:
        first = failed.exceptions[0]
        raise first from first.__cause__
    return tuple(task.result() for task in tasks)


async def bounded_map(items: Iterable[Item], work: Callable[[Item], Awaitable[object]], *, limit: int) -> None:
    """Run `work` on every item, at most `limit` at a time; the next begins as soon as one is finished.

    Items are taken lazily, so they may be many. Where one fails, no further item begins, the others under way are
    cancelled, and its error is raised once nothing runs any more. Raises ValueError where the limit is below 1.
    """
    if limit < 1:
        raise ValueError("limit must be 1 or more")
    check_event_loop()
    waiting = iter(items)
    failed = False

    async def worker() -> None:
        nonlocal failed
        for item in waiting:
            try:
                await work(item)
            except BaseException:
                failed = True
                raise
            # Others are stopped only at the loop's next turn: until then a finished one would take another item.
            if failed:
                return

    workers = [asyncio.create_task(worker()) for _ in range(limit)]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


def wait_for(work: Coroutine[Any, Any, One]) -> One:
    """Return what a coroutine gives, from synchronous code, on an event loop of a thread that such calls share.

    So what belongs to that loop, as connections do, serves the next call, and a loop of the caller's may be running.
    """
    future = asyncio.run_coroutine_threadsafe(work, _loop(os.getpid()))
    try:
        return future.result()
    finally:
        future.cancel()  # where the wait was interrupted


class Threads(Executor):
    """A thread pool that is made anew in a forked process, where the threads of its parent do not run."""

    def __init__(self, limit: int, name: str) -> None:
        self._limit, self._name = limit, name
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._pool = ThreadPoolExecutor(self._limit, self._name)

    def submit(self, work: Callable[..., One], /, *arguments: Any, **named: Any) -> Future[One]:  # noqa: ANN401
        """See `Executor.submit`."""
        if self._process != os.getpid():
            self._start()
        return self._pool.submit(work, *arguments, **named)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See `Executor.shutdown`."""
        if self._process == os.getpid():
            self._pool.shutdown(wait, cancel_futures=cancel_futures)


@functools.cache
def _loop(_process: int) -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="dialore", daemon=True).start()
    return loop


async def _await(job: Awaitable[object]) -> object:
    return await job

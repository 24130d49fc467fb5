"""Independent work at once: what one part of it fails by, all of it stops by."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

One = TypeVar("One")
Other = TypeVar("Other")
Item = TypeVar("Item")


@overload
async def at_once(first: Awaitable[One], second: Awaitable[Other], /) -> tuple[One, Other]: ...


@overload
async def at_once(*jobs: Awaitable[One]) -> tuple[One, ...]: ...


async def at_once(*jobs: Awaitable[object]) -> tuple[object, ...]:
    """What each gives, in order. Where one fails, the others are stopped: their calls would cost for nothing.

    When this returns or raises, nothing of it is under way any more.
    """
    try:
        # A group waits for those that it stops, even where it is itself stopped meanwhile.
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_awaited(job)) for job in jobs]
    except BaseExceptionGroup as failed:
        first = failed.exceptions[0]
        raise first from first.__cause__
    return tuple(task.result() for task in tasks)


async def each(items: Iterable[Item], work: Callable[[Item], Awaitable[object]], *, at_once: int) -> None:
    """Do the work for every item, so many under way at a time: the next begins as soon as one is finished.

    Items are taken one by one as they are wanted, so they may be many. Where the work for one fails, none begins after
    it, those under way are stopped, and what it failed by is raised; nothing is under way any more then.

    Args:
        items: what is to be worked on.
        work: called with each.
        at_once: the most under way, 1 or more.

    Raises:
        ValueError: `at_once` is below 1.
    """
    if at_once < 1:
        raise ValueError("at_once must be 1 or more")
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

    workers = [asyncio.create_task(worker()) for _ in range(at_once)]
    try:
        await asyncio.gather(*workers)
    finally:
        for one in workers:
            one.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def _awaited(job: Awaitable[object]) -> object:
    return await job

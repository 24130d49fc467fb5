"""Independent work at once: what one part of it fails by, all of it stops by."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Awaitable

One = TypeVar("One")
Other = TypeVar("Other")


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


async def _awaited(job: Awaitable[object]) -> object:
    return await job

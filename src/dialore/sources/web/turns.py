"""A bound on how many things run at once that holds in any event loop."""

from __future__ import annotations

import asyncio
from typing import Self
from weakref import WeakKeyDictionary


class PerLoop:
    """A semaphore for each event loop: one object may serve several loops one after another.

    Args:
        size: how many may be inside at once.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._semaphores: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    async def __aenter__(self) -> Self:
        await self._own().acquire()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._own().release()

    def _own(self) -> asyncio.Semaphore:
        return self._semaphores.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._size))

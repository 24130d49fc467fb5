"""How many calls may run at once: found out by additive increase and multiplicative decrease, as TCP does."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from dialore.errors import InputError, ModelError
from dialore.llm.faults import ModelTimeoutError

if TYPE_CHECKING:
    from dialore.llm.model import Completion, LanguageModel, OnText, Request

_BUSY = frozenset({429, 503, 529})


class AdaptiveLimiter:
    """A limit on calls under way that adapts between 1 and a maximum.

    It doubles in a round of calls until the first sign of overload (slow start), grows by one a round after it, and
    halves at each overload. Calls that began before a decrease say nothing about the limit after it, so a burst of
    refusals counts once. Waiting is first come, first served; a cancelled waiter loses no slot.

    Args:
        maximum: the most calls at once.
        start: the limit to start with; the maximum unless given, so that a short run need not climb.

    Raises:
        InputError: the maximum is below 1.
    """

    def __init__(self, maximum: int = 64, start: int | None = None) -> None:
        if maximum < 1:
            raise InputError(f"concurrency must be at least 1, not {maximum}")
        self.maximum = maximum
        self._limit = float(max(1, min(start or maximum, maximum)))
        self._slow_start = True
        self._round = 0
        self._running = 0
        self._peak = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def limit(self) -> int:
        """How many calls may run at once just now."""
        return int(self._limit)

    @property
    def running(self) -> int:
        """How many calls are under way."""
        return self._running

    def slot(self) -> _Slot:
        """Hold a slot (an asynchronous context); what the body raises tells the limiter how the call went."""
        return _Slot(self)

    async def acquire(self) -> int:
        """Wait for a slot; gives the round of calls that it is of, for `release`."""
        await self._acquire()
        self._peak = max(self._peak, self._running)
        return self._round

    def release(self, began: int, error: BaseException | None) -> None:
        """Give back a slot of a round, with what the call failed by, if it did."""
        if error is None:
            self._grow()
        elif isinstance(error, ModelError) and (error.status in _BUSY or isinstance(error, ModelTimeoutError)):
            self._shrink(began)
        self._running -= 1
        self._wake()

    async def _acquire(self) -> None:
        if self._running < self.limit and not self._waiting:
            self._running += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The slot was handed over in the moment of the cancellation: hand it on.
                self._running -= 1
            else:
                self._waiting.remove(turn)
            self._wake()
            raise

    def _wake(self) -> None:
        while self._waiting and self._running < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self._running += 1
                turn.set_result(None)

    def _grow(self) -> None:
        # A limit that was never reached proves nothing about a higher one (RFC 7661).
        if self._limit < self._peak * 2 if self._slow_start else self.limit <= self._peak:
            self._limit = min(float(self.maximum), self._limit + (1.0 if self._slow_start else 1.0 / self._limit))

    def _shrink(self, began: int) -> None:
        if began != self._round:
            return
        self._round += 1
        self._slow_start = False
        self._limit = max(1.0, self._limit / 2)
        self._peak = 0


class _Slot:
    """A slot of a limiter, held while its body runs."""

    __slots__ = ("_began", "_limiter")

    def __init__(self, limiter: AdaptiveLimiter) -> None:
        self._limiter, self._began = limiter, 0

    async def __aenter__(self) -> None:
        self._began = await self._limiter.acquire()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._limiter.release(self._began, error)


class Limited:
    """A model whose calls under way are limited.

    Args:
        model: the model underneath.
        limiter: the limiter, which several models of one server may share.
    """

    def __init__(self, model: LanguageModel, limiter: AdaptiveLimiter | None = None) -> None:
        self._model = model
        self.limiter = limiter or AdaptiveLimiter()

    @property
    def name(self) -> str:
        """The name of the model underneath."""
        return self._model.name

    async def complete(self, request: Request, on_text: OnText | None = None) -> Completion:
        """Answer a request as soon as there is a slot.

        Raises:
            ModelError: as the model underneath.
        """
        async with self.limiter.slot():
            return await self._model.complete(request, on_text)

    async def close(self) -> None:
        """Close the model underneath."""
        await self._model.close()

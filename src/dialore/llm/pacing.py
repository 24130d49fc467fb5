"""How calls are paced: retries, waiting for a model that is loaded, and how many run at once."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from dialore.errors import InputError, ModelError
from dialore.llm.http import LoadingError, ModelTimeoutError

T = TypeVar("T")

log = logging.getLogger(__name__)

LISTENER: ContextVar[Callable[[str], object] | None] = ContextVar("LISTENER", default=None)
"""Is told, in one line, what a call waits for."""
_LOADING_SECONDS, _LOADING_PAUSE, _LOADING_TOLD = 900.0, 1.0, 10.0


def tell(line: str, *, loud: bool = True) -> None:
    """Say in the log, and to who listens, what a call waits for or what was found out of a server."""
    log.log(logging.WARNING if loud else logging.DEBUG, "%s", line)
    if (listener := LISTENER.get()) is not None:
        listener(line)


@dataclass(frozen=True)
class Retry:
    """Retries by exponential backoff with full jitter (Brooker, "Exponential Backoff and Jitter", AWS, 2015).

    The upper bound begins with `base` seconds and is doubled each time up to `cap`; a server that asks
    for more than `longest_wait` seconds (Retry-After) is not waited for. `uniform` gives numbers in [0, 1).
    """

    retries: int = 4
    base: float = 0.5
    cap: float = 20.0
    longest_wait: float = 60.0
    uniform: Callable[[], float] = random.random
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep

    async def run(self, call: Callable[[int], Awaitable[T]], *, is_over: Callable[[], bool] = lambda: False) -> T:
        """Return what a call gives, told the failures before it; ask again where that may help and not `is_over`.

        A model that is being loaded is waited for, which counts as no failure. Raises the last ModelError once the
        retries are spent or another try would not help.
        """
        failures, began, told = 0, time.monotonic(), 0.0
        while True:
            try:
                return await call(failures)
            except LoadingError as error:
                waited = time.monotonic() - began
                if waited > _LOADING_SECONDS or is_over():
                    raise
                loud = not told or waited - told >= _LOADING_TOLD
                told = waited or told if loud else told
                tell(f"waiting for a model that is being loaded, {waited:.0f} s so far ({error.message})", loud=loud)
                await self.sleep(min(error.retry_after or _LOADING_PAUSE, _LOADING_TOLD))
            except ModelError as error:
                failures += 1
                error.tries = failures
                if (error.retry_after or 0.0) > self.longest_wait and error.retryable:
                    minutes = (error.retry_after or 0.0) / 60
                    span = f"{minutes / 60:.0f} h" if minutes >= 120 else f"{minutes:.0f} min"
                    error.message += f"; it asks to be left alone for {span}"
                    error.hint, error.retryable, error.configuration = "try again then", False, True
                if not error.retryable or failures > self.retries or is_over():
                    raise
                seconds = self.uniform() * min(self.cap, self.base * 2.0 ** min(failures - 1, 30))
                if error.retry_after is not None:
                    # A little jitter on top, so that not all clients return at once.
                    seconds = error.retry_after + self.uniform() * self.base
                log.info("failure %d of %d, waiting %.1f s: %s", failures, self.retries + 1, seconds, error.message)
                await self.sleep(seconds)


_BUSY = frozenset({429, 503, 529})


class AdaptiveLimiter:
    """A limit on calls under way that adapts between 1 and a maximum, as TCP does.

    It starts at the maximum, so that a short run need not climb, halves at each overload, and grows by one a round of
    calls. Calls that began before a decrease say nothing about the limit after it, so a burst of refusals counts once.
    Waiting is first come, first served; a cancelled waiter loses no slot. Raises InputError for a maximum below 1.
    """

    def __init__(self, maximum: int = 64) -> None:
        if maximum < 1:
            raise InputError(f"concurrency must be at least 1, not {maximum}")
        self.maximum, self._limit = maximum, float(maximum)
        self.running = self._round = self._peak = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def limit(self) -> int:
        """How many calls may run at once just now."""
        return int(self._limit)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold a slot; what the body raises tells the limiter how the call went."""
        await self._acquire()
        self._peak = max(self._peak, self.running)
        began = self._round
        try:
            yield
        except ModelError as error:
            if began == self._round and (error.status in _BUSY or isinstance(error, ModelTimeoutError)):
                self._round += 1
                self._limit, self._peak = max(1.0, self._limit / 2), 0
            raise
        else:
            # A limit that was never reached proves nothing about a higher one (RFC 7661).
            if self.limit <= self._peak:
                self._limit = min(float(self.maximum), self._limit + 1.0 / self._limit)
        finally:
            self.running -= 1
            self._wake()

    async def _acquire(self) -> None:
        if self.running < self.limit and not self._waiting:
            self.running += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # The slot was handed over in the moment of the cancellation: hand it on.
                self.running -= 1
            self._wake()
            raise

    def _wake(self) -> None:
        while self._waiting and self.running < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self.running += 1
                turn.set_result(None)

"""How calls are paced: retries, waiting for a model that is loaded, and how many run at once."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from dialore.errors import InputError, LoadingError, ModelError, ModelTimeoutError
from dialore.llm.streams import LISTENER

T = TypeVar("T")

log = logging.getLogger(__name__)

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

    async def run(self, call: Callable[[int], Awaitable[T]]) -> T:
        """Return the result of a call, which gets the number of failures before it.

        Raises:
            ModelError: The last error, once the retries are spent or another try would not help.
        """
        tries = Tries(self)
        while True:
            try:
                return await call(tries.failures)
            except ModelError as error:
                await tries.wait_after(error)


class Tries:
    """The tries of one call: how many failed, and the pauses between them."""

    def __init__(self, retry: Retry) -> None:
        self._retry = retry
        self._began = time.monotonic()
        self._last_report: float | None = None
        self.failures = 0

    async def wait_after(self, error: ModelError, *, may_retry: bool = True) -> None:
        """Wait until the call may be tried again; raise the error if it is not to be tried again.

        A server that loads its model is waited for, which does not count as a failure.
        """
        if isinstance(error, LoadingError):
            await self._wait_for_loading(error, may_retry=may_retry)
            return
        retry = self._retry
        self.failures += 1
        error.tries = self.failures
        if error.retryable and error.retry_after is not None and error.retry_after > retry.longest_wait:
            _refuse_long_wait(error, error.retry_after)
        if not error.retryable or self.failures > retry.retries or not may_retry:
            raise error
        if error.retry_after is not None:
            # A little jitter on top, so that not all clients return at once.
            seconds = error.retry_after + retry.uniform() * retry.base
        else:
            seconds = retry.uniform() * min(retry.cap, retry.base * 2.0 ** min(self.failures - 1, 30))
        log.info("failure %d of %d, waiting %.1f s: %s", self.failures, retry.retries + 1, seconds, error.message)
        await retry.sleep(seconds)

    async def _wait_for_loading(self, error: LoadingError, *, may_retry: bool) -> None:
        waited = time.monotonic() - self._began
        if waited > _LOADING_SECONDS or not may_retry:
            raise error
        is_due = self._last_report is None or waited - self._last_report >= _LOADING_TOLD
        if is_due:
            self._last_report = waited
        tell(f"waiting for a model that is being loaded, {waited:.0f} s so far ({error.message})", loud=is_due)
        await self._retry.sleep(min(error.retry_after or _LOADING_PAUSE, _LOADING_TOLD))


def _refuse_long_wait(error: ModelError, seconds: float) -> None:
    minutes = seconds / 60
    span = f"{minutes / 60:.0f} h" if minutes >= 120 else f"{minutes:.0f} min"
    error.message += f"; it asks to be left alone for {span}"
    error.hint, error.retryable, error.configuration = "try again then", False, True


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

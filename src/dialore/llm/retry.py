"""Retries: exponential backoff with full jitter (Brooker, "Exponential Backoff and Jitter", AWS, 2015)."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from dialore.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dialore.llm.model import Completion, LanguageModel, OnText, Request

log = logging.getLogger(__name__)


class Retrying:
    """A model asked again when it fails in a way that may pass.

    Only retryable ModelErrors are retried, and never after a streamed piece was passed on. A completion's
    `usage.retries` counts the failures before it.

    Args:
        model: the model underneath.
        retries: how often to ask again; 0 for never.
        base: seconds of the first backoff's upper bound, doubled each time.
        cap: the most seconds of a backoff.
        longest_wait: the most seconds of a server's Retry-After that are honoured.
        uniform: a source of numbers in [0, 1).
        sleep: waits for seconds.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        retries: int = 4,
        base: float = 0.5,
        cap: float = 20.0,
        longest_wait: float = 60.0,
        uniform: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._model = model
        self._retries = retries
        self._base, self._cap, self._longest_wait = base, cap, longest_wait
        self._uniform, self._sleep = uniform, sleep

    @property
    def name(self) -> str:
        """The name of the model underneath."""
        return self._model.name

    async def complete(self, request: Request, on_text: OnText | None = None) -> Completion:
        """Answer a request, asking again where that may help.

        Raises:
            ModelError: the last failure, once the retries are spent or another try would not help.
        """
        pieces = 0

        def pass_on(piece: str) -> None:
            nonlocal pieces
            pieces += 1
            if on_text is not None:
                on_text(piece)

        failures = 0
        while True:
            try:
                completion = await self._model.complete(request, None if on_text is None else pass_on)
            except ModelError as error:
                if not error.retryable or pieces or failures >= self._retries:
                    raise
                seconds = self.delay(failures, error.retry_after)
                failures += 1
                log.info("try %d of %d failed, waiting %.1f s: %s", failures, self._retries + 1, seconds, error.message)
                await self._sleep(seconds)
            else:
                usage = completion.usage
                counted = usage.model_copy(update={"retries": usage.retries + failures})
                return completion.model_copy(update={"usage": counted}) if failures else completion

    def delay(self, failures: int, retry_after: float | None = None) -> float:
        """Seconds to wait after a failure.

        Args:
            failures: how many failures there were before this one.
            retry_after: seconds that the server asked for. A little jitter comes on top, so that not all clients
                return at once.
        """
        if retry_after is None:
            return self._uniform() * min(self._cap, self._base * 2.0 ** min(failures, 30))
        return min(retry_after, self._longest_wait) + self._uniform() * self._base

    async def close(self) -> None:
        """Close the model underneath."""
        await self._model.close()

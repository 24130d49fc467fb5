"""Questions that come at the same moment, answered as one: a method asks all that it has before it waits."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

Key = TypeVar("Key", bound="Hashable")
Answer = TypeVar("Answer")
_MOST = 8
"""Questions answered in one go: what else waits for the event loop has its turn after so many."""


class Together(Generic[Key, Answer]):
    """Collects what is asked in one turn of the event loop, and answers it in the next, those of equal keys as one.

    What the work fails by, all that were to be answered by it fail by; who no longer waits is not answered.

    Args:
        work: answers questions of one key, in order.
    """

    def __init__(self, work: Callable[[Key, Sequence[str]], Sequence[Answer]]) -> None:
        self._work = work
        # One entry a loop, for several threads may each run one.
        self._waiting: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, list[tuple[Key, str, asyncio.Future[Answer]]]
        ] = weakref.WeakKeyDictionary()

    async def ask(self, key: Key, question: str) -> Answer:
        """The answer to a question; raises what the work raises."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        if loop not in self._waiting:
            self._waiting[loop] = []
            loop.call_soon(self._answer, loop)
        self._waiting[loop].append((key, question, answer))
        return await answer

    def _answer(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting = [one for one in self._waiting.pop(loop) if not one[2].done()]
        if not waiting:
            return
        key = waiting[0][0]
        now = [one for one in waiting if one[0] == key][:_MOST]
        if len(now) < len(waiting):
            self._waiting[loop] = [one for one in waiting if one not in now]
            loop.call_soon(self._answer, loop)
        futures = [future for _, _, future in now]
        try:
            answers = self._work(key, [question for _, question, _ in now])
        except Exception as error:  # noqa: BLE001 - it is raised where it was asked
            for future in futures:
                future.set_exception(error)
        else:
            for future, answer in zip(futures, answers, strict=True):
                future.set_result(answer)

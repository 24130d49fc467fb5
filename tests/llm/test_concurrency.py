from __future__ import annotations

import asyncio

import pytest

from dialore.errors import InputError, ModelError, ModelTimeoutError
from dialore.llm.pacing import AdaptiveLimiter

BUSY = ModelError("busy", status=429, retryable=True)


async def rounds(limiter: AdaptiveLimiter, count: int, error: Exception | None = None) -> None:
    """Rounds of as many calls at once as the limit allows."""

    async def call(together: asyncio.Barrier) -> None:
        async with limiter.slot():
            await together.wait()
            if error is not None:
                raise error

    for _ in range(count):
        together = asyncio.Barrier(limiter.limit)
        await asyncio.gather(*[call(together) for _ in range(limiter.limit)], return_exceptions=True)


async def test_it_halves_at_an_overload_and_grows_by_one_a_round():
    limiter = AdaptiveLimiter(maximum=32)
    await rounds(limiter, 1, BUSY)
    assert limiter.limit == 16
    await rounds(limiter, 4)
    assert 18 <= limiter.limit <= 20


@pytest.mark.parametrize("error", [BUSY, ModelError("down", status=503), ModelTimeoutError("late")])
async def test_a_burst_of_overloads_counts_once(error):
    limiter = AdaptiveLimiter(maximum=16)
    await rounds(limiter, 1, error)
    assert limiter.limit == 8


@pytest.mark.parametrize("error", [ModelError("odd", status=400), ValueError("ours")])
async def test_other_errors_say_nothing_about_load(error):
    limiter = AdaptiveLimiter(maximum=16)
    await rounds(limiter, 2, error)
    assert limiter.limit == 16
    assert limiter.running == 0


async def test_it_stays_between_one_and_its_maximum():
    limiter = AdaptiveLimiter(maximum=6)
    await rounds(limiter, 10)
    assert limiter.limit == 6
    await rounds(limiter, 10, BUSY)
    assert limiter.limit == 1
    await rounds(limiter, 2)
    assert limiter.limit >= 2


async def test_an_unreached_limit_does_not_grow():
    limiter = AdaptiveLimiter(maximum=32)
    await rounds(limiter, 1, BUSY)
    for _ in range(50):
        async with limiter.slot():
            pass
    assert limiter.limit == 16


async def test_never_more_than_the_limit_and_first_come_first_served():
    limiter = AdaptiveLimiter(maximum=2)
    served, most = [], 0

    async def call(number: int) -> None:
        nonlocal most
        async with limiter.slot():
            served.append(number)
            most = max(most, limiter.running)
            await asyncio.sleep(0)

    await asyncio.gather(*[call(number) for number in range(20)])
    assert served == list(range(20))
    assert most == 2


async def test_a_cancelled_waiter_loses_no_slot():
    limiter = AdaptiveLimiter(maximum=1)
    leave = asyncio.Event()

    async def hold() -> None:
        async with limiter.slot():
            await leave.wait()

    holder = asyncio.create_task(hold())
    await asyncio.sleep(0)
    waiters = [asyncio.create_task(hold()) for _ in range(3)]
    await asyncio.sleep(0)
    waiters[0].cancel()  # while waiting
    await asyncio.sleep(0)
    leave.set()
    await holder
    waiters[1].cancel()  # in the moment in which the slot has been handed to it
    await asyncio.wait_for(asyncio.gather(*waiters, return_exceptions=True), 2)
    assert waiters[2].exception() is None
    assert limiter.running == 0


def test_a_maximum_below_one_is_refused():
    with pytest.raises(InputError, match="at least 1"):
        AdaptiveLimiter(0)

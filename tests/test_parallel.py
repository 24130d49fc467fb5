"""Work on many items, so many at a time."""

from __future__ import annotations

import asyncio

import pytest

from dialore.parallel import bounded_map


async def test_every_item_is_worked_on_and_never_more_at_once_than_wanted():
    done, running, most = [], 0, 0

    async def work(item):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001 * (item % 3))
        running -= 1
        done.append(item)

    await bounded_map(range(20), work, limit=4)
    assert sorted(done) == list(range(20))
    assert most == 4


async def test_items_are_taken_only_as_they_are_wanted():
    taken = []

    def items():
        for number in range(1000):
            taken.append(number)
            yield number

    async def work(item):
        await asyncio.sleep(0)
        if item == 5:
            raise ValueError("five")

    with pytest.raises(ValueError, match="five"):
        await bounded_map(items(), work, limit=3)
    assert len(taken) < 12


async def test_none_begins_after_one_that_failed_and_those_under_way_are_stopped():
    """Also where one finishes in the very turn of the loop in which another fails."""
    begun, stopped = [], []
    gate = asyncio.Event()

    async def work(item):
        begun.append(item)
        if item == 2:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                await asyncio.sleep(0.01)  # a connection takes a moment to close
                stopped.append(item)
                raise
        if item == 1:
            asyncio.get_running_loop().call_later(0.01, gate.set)
        await gate.wait()
        if item == 0:
            raise ValueError("the first")

    with pytest.raises(ValueError, match="the first"):
        await bounded_map(range(100), work, limit=3)
    assert begun == [0, 1, 2]
    assert stopped == [2]


async def test_nothing_is_under_way_once_it_is_stopped_itself():
    stopped = []

    async def work(item):
        try:
            await asyncio.sleep(30)
        finally:
            stopped.append(item)

    task = asyncio.create_task(bounded_map(range(9), work, limit=2))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopped == [0, 1]


async def test_it_wants_at_least_one_at_a_time():
    with pytest.raises(ValueError, match="1 or more"):
        await bounded_map([], asyncio.sleep, limit=0)
    await bounded_map([], asyncio.sleep, limit=5)

from __future__ import annotations

import pytest

from dialore.errors import ModelError
from dialore.llm.retry import Retrying
from tests.llm.models import Scripted, ask

PASSING = ModelError("passing", retryable=True)
LASTING = ModelError("lasting")


class Naps:
    """Stands for the clock: notes how long each wait would have been."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)


def retrying(model, naps, uniform=lambda: 1.0, **settings) -> Retrying:
    return Retrying(model, uniform=uniform, sleep=naps, **settings)


async def test_backoff_doubles_up_to_its_cap():
    naps = Naps()
    model = Scripted(*[PASSING] * 5, "ok")
    completion = await retrying(model, naps, retries=5, base=1, cap=6).complete(ask())
    assert completion.text == "ok"
    assert completion.usage.retries == 5
    assert naps.taken == [1, 2, 4, 6, 6]


async def test_jitter_is_full():
    naps = Naps()
    numbers = iter([0.0, 0.5])
    await retrying(Scripted(PASSING, PASSING, "ok"), naps, lambda: next(numbers), base=1).complete(ask())
    assert naps.taken == [0.0, 1.0]


async def test_retry_after_is_honoured_up_to_a_limit():
    naps = Naps()
    waits = [ModelError("busy", retryable=True, retry_after=seconds) for seconds in (3, 1000)]
    await retrying(Scripted(*waits, "ok"), naps, lambda: 0.5, base=1, longest_wait=60).complete(ask())
    assert naps.taken == [3.5, 60.5]


async def test_the_last_failure_is_raised():
    naps = Naps()
    model = Scripted(PASSING)
    with pytest.raises(ModelError, match="passing"):
        await retrying(model, naps, retries=2).complete(ask())
    assert len(model.asked) == 3
    assert len(naps.taken) == 2


@pytest.mark.parametrize("error", [LASTING, ValueError("a fault of ours")])
async def test_what_will_not_pass_is_not_retried(error):
    model = Scripted(error, "ok")
    with pytest.raises(type(error)):
        await retrying(model, Naps()).complete(ask())
    assert len(model.asked) == 1


async def test_no_retry_after_a_piece_was_passed_on():
    class Breaking(Scripted):
        async def complete(self, request, on_text=None):
            if on_text is not None:
                on_text("half")
            return await super().complete(request)

    model, pieces = Breaking(PASSING, "ok"), []
    with pytest.raises(ModelError):
        await retrying(model, Naps()).complete(ask(), pieces.append)
    assert pieces == ["half"]
    assert len(model.asked) == 1
    assert (await retrying(Breaking(PASSING, "ok"), Naps()).complete(ask())).text == "ok"

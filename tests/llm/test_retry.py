from __future__ import annotations

import pytest

from dialore.errors import LoadingError, ModelError
from dialore.llm.pacing import Retry, Tries
from dialore.llm.streams import LISTENER

PASSING = ModelError("passing", retryable=True)
LASTING = ModelError("lasting")


class Naps:
    """Stands for the clock: notes how long each wait would have been."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)


class Calls:
    """A call that fails as its list says, in order, the last for ever, or gives what is there."""

    def __init__(self, *outcomes: str | Exception) -> None:
        self.outcomes = list(outcomes)
        self.failures: list[int] = []

    async def __call__(self, failures: int) -> str:
        self.failures.append(failures)
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def retry(naps, uniform=lambda: 1.0, **settings) -> Retry:
    return Retry(uniform=uniform, sleep=naps, **settings)


async def test_backoff_doubles_up_to_its_cap():
    naps, calls = Naps(), Calls(*[PASSING] * 5, "ok")
    assert await retry(naps, retries=5, base=1, cap=6).run(calls) == "ok"
    assert calls.failures == [0, 1, 2, 3, 4, 5]
    assert naps.taken == [1, 2, 4, 6, 6]


async def test_jitter_is_full():
    naps = Naps()
    numbers = iter([0.0, 0.5])
    await retry(naps, lambda: next(numbers), base=1).run(Calls(PASSING, PASSING, "ok"))
    assert naps.taken == [0.0, 1.0]


async def test_retry_after_is_honoured_up_to_a_limit():
    naps = Naps()
    waits = [ModelError("busy", retryable=True, retry_after=seconds) for seconds in (3, 86400)]
    with pytest.raises(ModelError, match="left alone for 24 h") as caught:
        await retry(naps, lambda: 0.5, base=1, longest_wait=60).run(Calls(*waits, "ok"))
    assert naps.taken == [3.5]
    assert caught.value.configuration  # which ends a run
    assert caught.value.tries == 2


async def test_a_model_that_is_loaded_is_waited_for(caplog):
    naps, calls, told = Naps(), Calls(*[LoadingError("loading", retryable=True)] * 7, "ok"), []
    LISTENER.set(told.append)
    assert await retry(naps, retries=0).run(calls) == "ok"
    assert calls.failures == [0] * 8  # no failure of the call
    assert naps.taken == [1.0] * 7
    assert all("being loaded" in line for line in told)
    assert len(caplog.records) == 1  # the log has it once in a while only


async def test_the_last_failure_is_raised():
    naps, calls = Naps(), Calls(PASSING)
    with pytest.raises(ModelError, match="passing"):
        await retry(naps, retries=2).run(calls)
    assert len(calls.failures) == 3
    assert len(naps.taken) == 2


@pytest.mark.parametrize("error", [LASTING, ValueError("a fault of ours")])
async def test_what_will_not_pass_is_not_retried(error):
    calls = Calls(error, "ok")
    with pytest.raises(type(error)):
        await retry(Naps()).run(calls)
    assert len(calls.failures) == 1


async def test_no_retry_once_it_is_over():
    naps = Naps()
    with pytest.raises(ModelError):
        await Tries(retry(naps)).wait_after(PASSING, may_retry=False)
    assert naps.taken == []

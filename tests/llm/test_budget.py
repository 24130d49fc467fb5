from __future__ import annotations

import pytest

from dialore.errors import BudgetError, InputError, ModelError
from dialore.llm.budget import Budgeted
from dialore.llm.cache import Cached
from tests.llm.models import Scripted, ask


async def test_tokens_run_out_before_a_call():
    model = Scripted()
    budgeted = Budgeted(model, max_tokens=30)
    await budgeted.complete(ask())
    await budgeted.complete(ask())
    assert (budgeted.tokens, budgeted.usage.calls) == (30, 2)
    with pytest.raises(BudgetError, match="30 tokens is spent"):
        await budgeted.complete(ask())
    assert len(model.asked) == 2


async def test_money_runs_out():
    budgeted = Budgeted(Scripted(), max_cost=0.00004, price=(1.0, 2.0))
    await budgeted.complete(ask())
    assert budgeted.cost == pytest.approx(20e-6)
    await budgeted.complete(ask())
    with pytest.raises(BudgetError, match="is spent"):
        await budgeted.complete(ask())


async def test_hits_of_the_cache_are_free(tmp_path):
    budgeted = Budgeted(Cached(Scripted(), tmp_path / "cache"), max_tokens=16)
    for _ in range(5):
        await budgeted.complete(ask())
    assert (budgeted.tokens, budgeted.usage.cached) == (15, 4)
    await budgeted.close()


async def test_failed_calls_are_not_counted():
    budgeted = Budgeted(Scripted(ModelError("down"), "ok"), max_tokens=1)
    with pytest.raises(ModelError):
        await budgeted.complete(ask())
    assert (await budgeted.complete(ask())).text == "ok"


@pytest.mark.parametrize("settings", [{"max_cost": 1.0}, {"max_tokens": -1}, {"price": (-1.0, 1.0)}])
def test_impossible_budgets(settings):
    with pytest.raises(InputError):
        Budgeted(Scripted(), **settings)

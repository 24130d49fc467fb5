from __future__ import annotations

import asyncio

import pytest

from dialore.errors import BudgetError, InputError, ModelError
from dialore.llm.budget import Budgeted, Purse
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


async def test_several_models_spend_from_one_purse_each_at_its_price(tmp_path):
    purse = Purse(max_cost=100e-6)
    cheap, dear = Scripted(name="cheap"), Scripted(name="dear")
    models = [
        Budgeted(Cached(cheap, tmp_path / "cache"), price=(1.0, 1.0), purse=purse),
        Budgeted(dear, price=(4.0, 4.0), purse=purse),
    ]
    await models[0].complete(ask())
    await models[0].complete(ask())  # from the cache: free
    await models[1].complete(ask())
    assert purse.cost == pytest.approx(75e-6)
    assert (purse.tokens, models[0].tokens, models[1].tokens) == (30, 30, 30)
    assert (models[0].usage.cached, models[1].usage.cached) == (1, 0)
    await models[1].complete(ask())  # the last may pass the limit
    for model in models:
        with pytest.raises(BudgetError, match="is spent"):
            await model.complete(ask("something else"))
    assert (len(cheap.asked), len(dear.asked)) == (1, 2)


async def test_calls_under_way_when_a_shared_purse_runs_out_finish_and_are_counted():
    purse = Purse(max_tokens=15)
    gate = asyncio.Event()
    slow = [Scripted(name=name) for name in "ab"]
    for model in slow:
        model.gate = gate
    calls = [asyncio.create_task(Budgeted(model, purse=purse).complete(ask())) for model in slow]
    await asyncio.sleep(0)
    gate.set()
    assert [completion.text for completion in await asyncio.gather(*calls)] == ["ok", "ok"]
    assert purse.tokens == 30
    with pytest.raises(BudgetError, match="15 tokens is spent"):
        await Budgeted(Scripted(), purse=purse).complete(ask())


def test_a_purse_of_money_wants_a_price_of_every_model():
    purse = Purse(max_cost=1.0)
    Budgeted(Scripted(), price=(1.0, 1.0), purse=purse)
    with pytest.raises(InputError, match="needs a price"):
        Budgeted(Scripted(), purse=purse)

from __future__ import annotations

import asyncio

import pytest

from dialore.errors import BudgetError, InputError, ModelError
from dialore.experiments.store import RunStore
from dialore.llm.model import Budget, Usage, cost_of
from tests.llm.models import Scripted, ask, with_budget, with_cache


async def test_tokens_run_out_before_a_call():
    model = Scripted()
    budgeted = with_budget(model, Budget(30))
    await budgeted.complete(ask())
    await budgeted.complete(ask())
    assert budgeted.budget.tokens == 30
    with pytest.raises(BudgetError, match="30 tokens is spent"):
        await budgeted.complete(ask())
    assert len(model.asked) == 2


async def test_money_runs_out():
    budgeted = with_budget(Scripted(), Budget(max_cost=0.00004), price=(1.0, 2.0))
    await budgeted.complete(ask())
    assert budgeted.budget.cost == pytest.approx(20e-6)
    await budgeted.complete(ask())
    with pytest.raises(BudgetError, match="is spent"):
        await budgeted.complete(ask())


async def test_hits_of_the_cache_are_free(tmp_path):
    budgeted = with_budget(with_cache(Scripted(), tmp_path / "cache"), Budget(16))
    for _ in range(5):
        await budgeted.complete(ask())
    assert budgeted.budget.tokens == 15
    await budgeted.close()


async def test_failed_calls_are_not_counted():
    budgeted = with_budget(Scripted(ModelError("down"), "ok"), Budget(1))
    with pytest.raises(ModelError):
        await budgeted.complete(ask())
    assert (await budgeted.complete(ask())).text == "ok"


@pytest.mark.parametrize("settings", [{"max_tokens": -1}, {"max_cost": -0.5}])
def test_impossible_budgets(settings):
    with pytest.raises(InputError, match="cannot be negative"):
        Budget(**settings)


def test_impossible_prices():
    with pytest.raises(InputError, match="cannot be negative"):
        with_budget(Scripted(), Budget(), price=(-1.0, 1.0))


async def test_several_models_spend_from_one_budget_each_at_its_price(tmp_path):
    budget = Budget(max_cost=100e-6)
    cheap, dear = Scripted(name="cheap"), Scripted(name="dear")
    models = [
        with_budget(with_cache(cheap, tmp_path / "cache"), budget, (1.0, 1.0)),
        with_budget(dear, budget, (4.0, 4.0)),
    ]
    await models[0].complete(ask())
    await models[0].complete(ask())  # from the cache: free
    await models[1].complete(ask())
    assert budget.cost == pytest.approx(75e-6)
    assert budget.tokens == models[0].budget.tokens == models[1].budget.tokens == 30
    await models[1].complete(ask())  # the last may pass the limit
    for model in models:
        with pytest.raises(BudgetError, match="is spent"):
            await model.complete(ask("something else"))
    assert (len(cheap.asked), len(dear.asked)) == (1, 2)


async def test_calls_under_way_when_a_shared_budget_runs_out_finish_and_are_counted():
    budget = Budget(max_tokens=15)
    gate = asyncio.Event()
    slow = [Scripted(name=name) for name in "ab"]
    for model in slow:
        model.gate = gate
    calls = [asyncio.create_task(with_budget(model, budget).complete(ask())) for model in slow]
    await asyncio.sleep(0)
    gate.set()
    assert [completion.text for completion in await asyncio.gather(*calls)] == ["ok", "ok"]
    assert budget.tokens == 30
    with pytest.raises(BudgetError, match="15 tokens is spent"):
        await with_budget(Scripted(), budget).complete(ask())


def test_a_budget_of_money_wants_a_price_of_every_model():
    budget = Budget(max_cost=1.0)
    with_budget(Scripted(), budget, (1.0, 1.0))
    with pytest.raises(InputError, match="needs the price of scripted"):
        with_budget(Scripted(), budget)


async def test_cached_prompt_tokens_have_their_own_price():
    usage = Usage(calls=1, prompt_tokens=1000, cached_prompt_tokens=900, completion_tokens=100)
    assert cost_of(usage, (1.0, 2.0)) == pytest.approx(1200e-6)
    assert cost_of(usage, (1.0, 2.0, 0.1)) == pytest.approx(390e-6)


def test_a_budget_goes_on_in_the_next_command(tmp_path):
    usage = Usage(calls=1, prompt_tokens=7, completion_tokens=3)
    for commands in (1, 2):
        with RunStore.resumed(tmp_path / "run") as store:
            budget = Budget(20)
            store.count_spending(budget)
            budget.check()
            budget.spend(usage, (1.0, 1.0))
            assert budget.tokens == 10 * commands
    with RunStore.resumed(tmp_path / "run") as store:
        budget = Budget(20)
        store.count_spending(budget)
        with pytest.raises(BudgetError):
            budget.check()

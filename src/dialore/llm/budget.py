"""A budget of tokens or money, which stops a run cleanly."""

from __future__ import annotations

from dataclasses import dataclass

from dialore.errors import BudgetError, InputError
from dialore.llm.model import Completion, LanguageModel, OnText, Request, Wrapper


@dataclass(slots=True)
class Budget:
    """What may be spent (tokens of prompts and completions together, money), and what has been; models share one."""

    max_tokens: int | None = None
    max_cost: float | None = None
    tokens: int = 0
    cost: float = 0.0

    def __post_init__(self) -> None:
        if min(self.max_tokens or 0, self.max_cost or 0) < 0:
            raise InputError("a budget cannot be negative")

    def check(self) -> None:
        """Raise BudgetError where nothing is left."""
        mend = "raise it and run again: what is finished is kept"
        if self.max_tokens is not None and self.tokens >= self.max_tokens:
            raise BudgetError(f"the budget of {self.max_tokens:,} tokens is spent ({self.tokens:,} used)", mend=mend)
        if self.max_cost is not None and self.cost >= self.max_cost:
            raise BudgetError(f"the budget of {self.max_cost:g} is spent ({self.cost:.4f} used)", mend=mend)


class Budgeted(Wrapper):
    """A model that may be called until its budget is spent.

    Calls under way when the budget runs out finish and are counted, so the last few may pass it. Completions from
    the cache cost nothing. The price is of a million prompt tokens and of a million completion tokens.
    """

    def __init__(self, model: LanguageModel, budget: Budget, price: tuple[float, float] | None = None) -> None:
        super().__init__(model)
        if budget.max_cost is not None and price is None:
            raise InputError(f"a budget of money needs the price of {model.name}", mend="give the model a price")
        if min(price or (0,)) < 0:
            raise InputError("a price cannot be negative")
        self.budget = budget
        self._price = price or (0.0, 0.0)

    async def complete(self, request: Request, on_text: OnText | None = None) -> Completion:
        """See `LanguageModel.complete`; raises BudgetError where the budget is spent, and does not ask then."""
        self.budget.check()
        completion = await self._model.complete(request, on_text)
        usage = completion.usage
        if not usage.cached:
            self.budget.tokens += usage.prompt_tokens + usage.completion_tokens
            self.budget.cost += (usage.prompt_tokens * self._price[0] + usage.completion_tokens * self._price[1]) / 1e6
        return completion

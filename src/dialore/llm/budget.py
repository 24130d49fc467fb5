"""A budget of tokens or money, which stops a run cleanly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dialore.errors import BudgetError, InputError
from dialore.llm.model import Usage, Wrapper

if TYPE_CHECKING:
    from dialore.llm.model import Completion, LanguageModel, OnText, Request


@dataclass(slots=True)
class Budget:
    """What may be spent, and what has been; several models may spend from one.

    Attributes:
        max_tokens: the most tokens, prompts and completions together; None for no limit.
        max_cost: the most money; None for no limit.
        tokens: tokens paid for so far.
        cost: money spent so far.

    Raises:
        InputError: a limit is negative.
    """

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
    the cache cost nothing.

    Args:
        model: the model underneath.
        budget: what it spends from.
        price: money per million prompt tokens and per million completion tokens.

    Raises:
        InputError: the price is negative, or a budget of money has none.
    """

    def __init__(self, model: LanguageModel, budget: Budget, price: tuple[float, float] | None = None) -> None:
        super().__init__(model)
        if budget.max_cost is not None and price is None:
            raise InputError("a budget of money needs a price", mend="give the price per million tokens, in and out")
        if min(price or (0,)) < 0:
            raise InputError("a price cannot be negative")
        self.budget = budget
        self._price = price or (0.0, 0.0)
        self.usage = Usage()
        """Everything asked so far, hits of the cache included."""

    async def complete(self, request: Request, on_text: OnText | None = None) -> Completion:
        """See `LanguageModel.complete`; raises BudgetError where the budget is spent, and does not ask then."""
        self.budget.check()
        completion = await self._model.complete(request, on_text)
        usage = completion.usage
        self.usage += usage
        if not usage.cached:
            self.budget.tokens += usage.prompt_tokens + usage.completion_tokens
            self.budget.cost += (usage.prompt_tokens * self._price[0] + usage.completion_tokens * self._price[1]) / 1e6
        return completion

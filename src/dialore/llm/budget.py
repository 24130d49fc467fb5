"""A budget of tokens or money, which stops a run cleanly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dialore.errors import BudgetError, InputError
from dialore.llm.model import Usage

if TYPE_CHECKING:
    from dialore.llm.model import Completion, LanguageModel, OnText, Request


@dataclass(slots=True)
class Purse:
    """What has been spent, and what may be; several models may spend from one.

    Attributes:
        max_tokens: the most tokens, prompts and completions together; None for no limit.
        max_cost: the most money; None for no limit.
        tokens: tokens paid for so far.
        cost: money spent so far.
    """

    max_tokens: int | None = None
    max_cost: float | None = None
    tokens: int = 0
    cost: float = 0.0

    def check(self) -> None:
        """Raise BudgetError where nothing is left."""
        if self.max_tokens is not None and self.tokens >= self.max_tokens:
            raise BudgetError(
                f"the budget of {self.max_tokens:,} tokens is spent ({self.tokens:,} used)",
                mend="raise it and run again: what is finished is kept",
            )
        if self.max_cost is not None and self.cost >= self.max_cost:
            raise BudgetError(
                f"the budget of {self.max_cost:g} is spent ({self.cost:.4f} used)",
                mend="raise it and run again: what is finished is kept",
            )


class Budgeted:
    """A model that may be called until its budget is spent.

    Calls under way when the budget runs out finish and are counted, so the last few may pass it. Completions from
    the cache cost nothing.

    Args:
        model: the model underneath.
        max_tokens: the most tokens, prompts and completions together; None for no limit.
        max_cost: the most money, in the currency of the price; None for no limit.
        price: money per million prompt tokens and per million completion tokens.
        purse: what other models spend from too, in place of limits of its own.

    Raises:
        InputError: a limit is negative, or of money without a price.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        max_tokens: int | None = None,
        max_cost: float | None = None,
        price: tuple[float, float] | None = None,
        purse: Purse | None = None,
    ) -> None:
        self.purse = purse or Purse(max_tokens, max_cost)
        if self.purse.max_cost is not None and price is None:
            raise InputError("a budget of money needs a price", mend="give the price per million tokens, in and out")
        if min(self.purse.max_tokens or 0, self.purse.max_cost or 0, *(price or ())) < 0:
            raise InputError("a budget or price cannot be negative")
        self._model = model
        self._price = price or (0.0, 0.0)
        self.usage = Usage()
        """Everything asked so far, hits of the cache included."""

    @property
    def tokens(self) -> int:
        """Tokens paid for so far, by all that share the purse."""
        return self.purse.tokens

    @property
    def cost(self) -> float:
        """Money spent so far, by all that share the purse."""
        return self.purse.cost

    @property
    def name(self) -> str:
        """The name of the model underneath."""
        return self._model.name

    async def complete(self, request: Request, on_text: OnText | None = None) -> Completion:
        """Answer a request and count what it cost.

        Raises:
            BudgetError: the budget is spent; the model was not asked.
            ModelError: as the model underneath.
        """
        self.purse.check()
        completion = await self._model.complete(request, on_text)
        usage = completion.usage
        self.usage += usage
        if not usage.cached:
            self.purse.tokens += usage.prompt_tokens + usage.completion_tokens
            self.purse.cost += (usage.prompt_tokens * self._price[0] + usage.completion_tokens * self._price[1]) / 1e6
        return completion

    async def close(self) -> None:
        """Close the model underneath."""
        await self._model.close()

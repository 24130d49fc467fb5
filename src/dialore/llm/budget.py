"""A budget of tokens or money, which stops a run cleanly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore.errors import BudgetError, InputError
from dialore.llm.model import Usage

if TYPE_CHECKING:
    from dialore.llm.model import Completion, LanguageModel, OnText, Request


class Budgeted:
    """A model that may be called until its budget is spent.

    Calls under way when the budget runs out finish and are counted, so the last few may pass it. Completions from
    the cache cost nothing.

    Args:
        model: the model underneath.
        max_tokens: the most tokens, prompts and completions together; None for no limit.
        max_cost: the most money, in the currency of the price; None for no limit.
        price: money per million prompt tokens and per million completion tokens.

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
    ) -> None:
        if max_cost is not None and price is None:
            raise InputError("a budget of money needs a price", mend="give the price per million tokens, in and out")
        if min(max_tokens or 0, max_cost or 0, *(price or ())) < 0:
            raise InputError("a budget or price cannot be negative")
        self._model = model
        self._max_tokens, self._max_cost = max_tokens, max_cost
        self._price = price or (0.0, 0.0)
        self.usage = Usage()
        """Everything asked so far, hits of the cache included."""
        self.tokens = 0
        """Tokens paid for so far."""
        self.cost = 0.0
        """Money spent so far."""

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
        if self._max_tokens is not None and self.tokens >= self._max_tokens:
            raise BudgetError(
                f"the budget of {self._max_tokens:,} tokens is spent ({self.tokens:,} used)",
                mend="raise it and run again: what is finished is kept",
            )
        if self._max_cost is not None and self.cost >= self._max_cost:
            raise BudgetError(
                f"the budget of {self._max_cost:g} is spent ({self.cost:.4f} used)",
                mend="raise it and run again: what is finished is kept",
            )
        completion = await self._model.complete(request, on_text)
        usage = completion.usage
        self.usage += usage
        if not usage.cached:
            self.tokens += usage.prompt_tokens + usage.completion_tokens
            self.cost += (usage.prompt_tokens * self._price[0] + usage.completion_tokens * self._price[1]) / 1e6
        return completion

    async def close(self) -> None:
        """Close the model underneath."""
        await self._model.close()

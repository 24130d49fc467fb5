"""The client through which every request passes on its way to a language model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from dialore.errors import InputError, ModelError, WindowError
from dialore.llm.model import Completion, LanguageModel, OnToken, Price, Request, estimate_tokens

if TYPE_CHECKING:
    from dialore.llm.cache import CompletionCache
    from dialore.llm.model import Budget
    from dialore.llm.recording import Recorder


@dataclass(frozen=True, slots=True, eq=False)
class ModelClient:
    """A language model and the steps that each of its requests passes.

    `complete` checks the budget, applies the sampling overrides, refuses a prompt that exceeds the window, looks into
    the cache, calls the model, writes the recording, and charges the budget.

    Attributes:
        backend: The model that is called. The client closes it.
        sampling: Fields of `Sampling` that replace those of each request.
        sample: Added to the sample index of each request. A repetition of a run uses another index, so that the cache
            does not answer it with the completions of the first.
        window: Maximum number of tokens of a prompt and its completion together, by estimate. None for no limit.
        may_shorten: Whether callers may try again with a shorter prompt when one is too long. If False, the error is
            an ordinary ModelError.
        cache: Completions that were paid for before.
        recorder: Recording to which each completed call is appended.
        budget: Budget that is charged. Calls under way when it runs out are finished and counted, so the last few may
            exceed it. Completions from the cache cost nothing.
        price: Price of the model. None if it is not known.
    """

    backend: LanguageModel
    sampling: Mapping[str, object] = field(default_factory=dict)
    sample: int = 0
    window: int | None = None
    may_shorten: bool = True
    cache: CompletionCache | None = None
    recorder: Recorder | None = None
    budget: Budget | None = None
    price: Price | None = None

    @classmethod
    def around(cls, model: LanguageModel) -> ModelClient:
        """Return a client of a model. A client is returned as it is."""
        return model if isinstance(model, ModelClient) else cls(model)

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.backend.name

    @property
    def address(self) -> str:
        """Address of the endpoint, without secrets. Empty for a model that runs in this process."""
        return getattr(self.backend, "address", "")

    @property
    def runs_here(self) -> bool:
        """Whether this process runs the model, so that concurrent calls slow each other down."""
        return bool(getattr(self.backend, "runs_here", False))

    def with_budget(self, budget: Budget, price: Price | None = None) -> Self:
        """Return a client that charges a budget.

        Raises:
            InputError: The budget limits money and the price of the model is not known, or the price is negative.
        """
        if budget.max_cost is not None and price is None:
            raise InputError(f"a budget of money needs the price of {self.name}", hint="give the model a price")
        if min(price or (0,)) < 0:
            raise InputError("a price cannot be negative")
        return replace(self, budget=budget, price=price)

    def with_sample(self, sample: int) -> Self:
        """Return a client that asks for another sample of each completion."""
        return replace(self, sample=self.sample + sample)

    async def complete(self, request: Request, on_token: OnToken | None = None) -> Completion:
        """See `LanguageModel.complete`.

        Raises:
            BudgetError: The budget is spent. The model is not called.
            WindowError: The prompt is too long. A ModelError unless `may_shorten`.
            InputError: The cache or the recording cannot be used.
        """
        if self.budget is not None:
            self.budget.check()
        if self.recorder is not None:
            self.recorder.open()
        request = self._override_sampling(request)
        try:
            self._check_window(request)
            if self.cache is None:
                completion = await self.backend.complete(request, on_token)
            else:
                async with self.cache.entry(request, on_token) as entry:
                    if entry.completion is None:
                        entry.completion = await self.backend.complete(request, on_token)
                completion = entry.completion
        except WindowError as error:
            if self.may_shorten:
                raise
            raise ModelError(error.message, hint=error.hint, status=error.status) from error
        if self.recorder is not None:
            self.recorder.append(request, completion, self.name)
        if self.budget is not None and not completion.usage.cached:
            self.budget.spend(completion.usage, self.price or (0.0, 0.0))
        return completion

    async def close(self) -> None:
        """Close the cache, the recording and the model."""
        if self.cache is not None:
            self.cache.close()
        if self.recorder is not None:
            self.recorder.close()
        await self.backend.close()

    def _override_sampling(self, request: Request) -> Request:
        changes: dict[str, object] = {}
        if self.sampling:
            changes["sampling"] = request.sampling.model_copy(update=dict(self.sampling))
        if self.sample:
            changes["sample"] = request.sample + self.sample
        return request.model_copy(update=changes) if changes else request

    def _check_window(self, request: Request) -> None:
        if self.window is None:
            return
        prompt_tokens = sum(estimate_tokens(message.content) for message in request.messages)
        tokens = prompt_tokens + request.sampling.max_tokens
        if tokens > self.window:
            problem = f"prompt and answer of about {tokens:,} tokens do not fit {self.name}'s window of {self.window:,}"
            raise WindowError(problem, hint="shorten the dialogue, or raise model.window")

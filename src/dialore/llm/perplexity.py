"""How likely a model finds a text, given what stands before it: log-likelihood and perplexity, exact to the token."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from dialore.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LOCAL = "hf:"


class Scored(NamedTuple):
    """A text to be scored, and the context that it continues: joined as they stand, so the text brings its space."""

    context: str
    text: str


@dataclass(frozen=True, slots=True)
class Likelihood:
    """What a model makes of a text.

    Attributes:
        log_probability: natural logarithm, summed over the text's tokens.
        tokens: how many of the text's tokens have a probability. Without a context the first has one only where the
            model has a token for the beginning of a text.
    """

    log_probability: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """Base e to the mean negative log-likelihood a token; infinite where no token could be scored."""
        if not self.tokens:
            return math.inf
        mean = -self.log_probability / self.tokens
        return math.exp(mean) if mean < 700 else math.inf


def joint_perplexity(likelihoods: Sequence[Likelihood]) -> float:
    """The perplexity a token of many texts together."""
    tokens = sum(likelihood.tokens for likelihood in likelihoods)
    return Likelihood(sum(likelihood.log_probability for likelihood in likelihoods), tokens).perplexity


@runtime_checkable
class LikelihoodModel(Protocol):
    """Anything that says how likely texts are."""

    @property
    def name(self) -> str:
        """The model's name."""
        ...

    async def score(
        self, pairs: Sequence[Scored], on_step: Callable[[int, int], None] | None = None
    ) -> list[Likelihood]:
        """The likelihood of each text given its context, in order.

        Args:
            pairs: contexts and texts; a context may be empty.
            on_step: told how many are done, and of how many.

        Raises:
            InputError: an empty text, or a model that cannot be loaded.
            ModelError: a text longer than the model takes, or an endpoint that failed or tells no probabilities.
        """
        ...

    async def close(self) -> None:
        """Release memory and connections."""
        ...


def check_pairs(pairs: Sequence[Scored]) -> None:
    """Check that there is something to score in each; raises InputError."""
    for number, pair in enumerate(pairs, start=1):
        if not pair.text:
            raise InputError(f"text {number} to be scored is empty", mend="leave it out")


def likelihood_model(
    model: str,
    base_url: str | None = None,
    api_key: str | None = None,
    *,
    timeout: float = 120.0,
    retries: int = 4,
    concurrency: int = 16,
) -> LikelihoodModel:
    """The model of that name: `hf:NAME_OR_PATH` run here, else one behind a completions endpoint.

    Args:
        model: the model's name.
        base_url: the endpoint; where it is None the environment says, as for `connect`.
        api_key: its key.
        timeout: seconds for one call.
        retries: how often a failed call is tried again.
        concurrency: the most calls at once.

    Raises:
        InputError: no endpoint is known, or its address is wrong.
    """
    if model.startswith(_LOCAL):
        from dialore.llm.perplexity_local import LocalLikelihood

        return LocalLikelihood(model.removeprefix(_LOCAL))
    from dialore.llm.connection import find
    from dialore.llm.perplexity_endpoint import EndpointLikelihood

    found = find(model, base_url, api_key)
    if found.base_url is None:
        raise InputError(
            f"no endpoint is known for the model {model!r}", mend="set --base-url, or name hf:NAME to run it here"
        )
    return EndpointLikelihood(
        model, found.base_url, found.api_key, timeout=timeout, retries=retries, concurrency=concurrency
    )

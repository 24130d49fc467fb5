"""The language-model protocol: a request in, a completion out. It knows nothing of dialogue."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal, Protocol, Self, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

Role = Literal["system", "user", "assistant"]
OnText = Callable[[str], None]
"""Called with each new piece of text while a completion streams in."""


class Message(BaseModel):
    """One message of a chat prompt."""

    model_config = ConfigDict(frozen=True)

    role: Role
    content: str


class Sampling(BaseModel):
    """How the model samples. The papers' runs use a temperature of 0.7 (DCRAG, Appendix A.1.2)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: float = Field(default=0.7, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int = Field(default=1024, gt=0)
    stop: tuple[str, ...] = ()
    seed: int | None = None


class Steering(BaseModel):
    """Words that decoding is steered towards, and how hard (PPLM: Dathathri et al., ICLR 2020, Section 3).

    Only a model run here can be steered: endpoints refuse. The defaults are those that PPLM's authors publish for bags
    of words.

    Attributes:
        words: the bag; each that is one token of the model counts.
        iterations: gradient steps on the past's keys and values for each token.
        step_size: of a gradient step.
        gamma: exponent of the gradient's norm that a step is divided by.
        kl_scale: weight of the Kullback-Leibler term that holds the steered distribution to the plain one.
        gm_scale: share of the steered distribution in the geometric mean with the plain one.
        window: how many of the latest positions are moved; 0 for all.
        top_k: tokens that are left to choose from; 0 for all.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    words: tuple[str, ...]
    iterations: int = Field(default=3, ge=0)
    step_size: float = Field(default=0.03, ge=0)
    gamma: float = Field(default=1.5, ge=0)
    kl_scale: float = Field(default=0.01, ge=0)
    gm_scale: float = Field(default=0.99, ge=0, le=1)
    window: int = Field(default=5, ge=0)
    top_k: int = Field(default=10, ge=0)


class OutputSchema(BaseModel):
    """The JSON schema that a completion should follow; sent to servers that can enforce it."""

    model_config = ConfigDict(frozen=True)

    name: str
    definition: dict[str, Any]

    @cached_property
    def text(self) -> str:
        """The definition as JSON: written once a schema, which is sent with thousands of calls."""
        return json.dumps(self.definition)

    def __copy__(self) -> Self:
        """A copy, which may be given another definition: its text is written anew."""
        copied = super().__copy__()
        copied.__dict__.pop("text", None)
        return copied


class Request(BaseModel):
    """One call of a language model.

    Attributes:
        messages: the prompt.
        sampling: sampling settings.
        output_schema: the JSON schema wanted, or None for plain text.
        continuation: the prompt as plain text to be continued, for models without a chat form (a completions endpoint,
            a local model without a chat template, a sequence-to-sequence model); None where the messages will do.
        continuation_stop: further stop strings, for where the continuation is sent: a chat answer may have line breaks,
            the next line of a pattern that is continued is no longer the answer.
        steering: words that decoding is steered towards; a model that cannot do that refuses.
        label: an opaque name of the caller's, written into recordings; it does not change the answer.
        sample: which of several samples of the same prompt this is; part of the cache key.
    """

    model_config = ConfigDict(frozen=True)

    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    output_schema: OutputSchema | None = None
    continuation: str | None = None
    continuation_stop: tuple[str, ...] = ()
    steering: Steering | None = None
    label: str = ""
    sample: int = 0


class Usage(BaseModel):
    """Tokens and calls; usages add up. `cached` counts the calls answered from the cache."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached: int = 0
    retries: int = 0

    def __add__(self, other: Usage) -> Usage:
        """The sum, field by field."""
        return Usage(
            calls=self.calls + other.calls,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cached=self.cached + other.cached,
            retries=self.retries + other.retries,
        )


class Completion(BaseModel):
    """What a language model answered.

    Attributes:
        text: the answer's text.
        model: the model that answered, as the server names it.
        usage: what the call cost; `estimated` tells whether the server left the token counts out.
        seconds: wall-clock time, waiting for a free slot excluded.
        finish_reason: the server's word for why the text ends, e.g. `stop` or `length`.
        differs: the prompt was not the recorded one (only when replaying by label).
    """

    text: str
    model: str = ""
    usage: Usage = Field(default_factory=Usage)
    seconds: float = 0.0
    finish_reason: str = "stop"
    estimated: bool = False
    differs: bool = False


@runtime_checkable
class LanguageModel(Protocol):
    """Anything that completes a prompt: an endpoint, a local model, a cache, a recording."""

    @property
    def name(self) -> str:
        """The model's name, as written into traces and runs."""
        ...

    async def complete(self, request: Request, on_text: OnText | None = None) -> Completion:
        """Answer a request.

        Args:
            request: the prompt and how to sample.
            on_text: if given, the answer is streamed and each new piece of text passed to it; pieces are never
                taken back, so a call that breaks after the first piece is not retried.

        Returns:
            The completion.

        Raises:
            ModelError: nothing usable came back, retries included.
        """
        ...

    async def close(self) -> None:
        """Release connections and files."""
        ...


def estimate_tokens(text: str) -> int:
    """A rough token count for servers that report none: a token a CJK character, else one per four characters."""
    wide = sum(1 for character in text if "⺀" <= character <= "鿿" or "가" <= character <= "힯")
    return max(1, wide + (len(text) - wide) // 4)

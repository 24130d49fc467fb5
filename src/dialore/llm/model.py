"""The protocol of language models: requests, completions, usage and budgets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

from dialore.errors import BudgetError, InputError

Role = Literal["system", "user", "assistant"]
Api = Literal["chat", "completions"]
"""How a model is asked: by messages, or by plain text to be continued."""
_SPEAKERS: dict[Role, str] = {"system": "System", "user": "User", "assistant": "Assistant"}
OnToken = Callable[[str], None]
"""Called with each new piece of text while a completion streams in."""


class Message(BaseModel):
    """One message of a chat prompt."""

    model_config = ConfigDict(frozen=True)

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class ChatForm:
    """An arrangement of messages for a template or a server that does not take them as they are.

    It `folds` a system message into the user's that follows, or makes it one; `merges` neighbours of one role; `opens`
    by a user message of that text where the assistant would speak first.
    """

    folds: bool = False
    merges: bool = False
    opens: str | None = None

    def arrange(self, messages: Iterable[Message]) -> list[Message]:
        """Return the messages in this form; their texts are kept, joined by an empty line."""
        arranged: list[Message] = []
        follows_system = False
        for message in messages:
            is_folded = self.folds and message.role == "system"
            role: Role = "user" if is_folded else message.role
            if arranged and role == arranged[-1].role and (self.merges or follows_system):
                arranged[-1] = Message(role=role, content=f"{arranged[-1].content}\n\n{message.content}")
            else:
                arranged.append(Message(role=role, content=message.content))
            follows_system = is_folded
        first = next((place for place, message in enumerate(arranged) if message.role != "system"), 0)
        if self.opens is not None and arranged and arranged[first].role == "assistant":
            arranged.insert(first, Message(role="user", content=self.opens))
        return arranged


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
    of words, and the fields the options of the method `pplm`; of the bag each word that is one token counts.
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


class Request(BaseModel):
    """One call of a language model.

    Attributes:
        continuation: the prompt as plain text to be continued, for models without a chat form; None where the messages
            will do.
        continuation_stop: further stop strings, for where the continuation is sent: a chat answer may have line breaks,
            the next line of a pattern that is continued is no longer the answer.
        label: an opaque name of the caller's, written into recordings; it does not change the answer.
        prompt: the prompt file that the messages were made with, its version and hash, such as
            `dcrag/query-production.en v1 1a2b3c4d5e6f`; written into recordings like the label.
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
    prompt: str = ""
    sample: int = 0

    @property
    def plain_text(self) -> str:
        """The prompt as text to be continued: its own continuation, else a transcript of its messages."""
        if self.continuation is not None:
            return self.continuation
        lines = [f"{_SPEAKERS[message.role]}: {message.content}" for message in self.messages]
        return "\n".join([*lines, f"{_SPEAKERS['assistant']}:"])

    @property
    def plain_stop(self) -> tuple[str, ...]:
        """Where text to be continued ends; a transcript also where the other side would speak."""
        further = (f"\n{_SPEAKERS['user']}:",) if self.continuation is None else self.continuation_stop
        return tuple(dict.fromkeys((*self.sampling.stop, *further)))


class Usage(BaseModel):
    """Token and call counts. Instances can be added.

    `cached` counts the calls answered from the cache here, `cached_prompt_tokens` the prompt tokens that the server had
    in its own cache; `prompt_tokens` includes these.
    """

    calls: int = 0
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    completion_tokens: int = 0
    cached: int = 0
    retries: int = 0

    @classmethod
    def estimate(cls, messages: Iterable[Message], text: str) -> Usage:
        """Return the usage of a call that nobody counted."""
        sent = sum(estimate_tokens(message.content) for message in messages)
        return cls(calls=1, prompt_tokens=sent, completion_tokens=estimate_tokens(text))

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})


class Completion(BaseModel):
    """A language model's answer.

    Attributes:
        model: the model that answered, as the server names it.
        seconds: wall-clock time, waiting for a free slot excluded.
        finish_reason: the server's word for why the text ends, e.g. `stop` or `length`.
        estimated: the server left the token counts out.
        prompt_changed: the prompt was not the recorded one (only when replaying by label).
        recorded_with: the version of the prompt file that a replayed answer was recorded with, where the file has
            changed since: `version 3`.
    """

    text: str
    model: str = ""
    usage: Usage = Field(default_factory=Usage)
    seconds: float = 0.0
    finish_reason: str = "stop"
    estimated: bool = False
    prompt_changed: bool = False
    recorded_with: str = ""


@runtime_checkable
class LanguageModel(Protocol):
    """Anything that completes a prompt: an endpoint, a local model, a cache, a recording."""

    @property
    def name(self) -> str:
        """The model's name, as written into traces and runs."""
        ...

    async def complete(self, request: Request, on_token: OnToken | None = None) -> Completion:
        """Answer a request; raise ModelError where nothing usable came back, retries included.

        With `on_token` the answer is streamed and each new piece of text passed to it; pieces are never taken back, so
        a call that breaks after the first piece is not retried.
        """
        ...

    async def close(self) -> None:
        """Release connections and files."""
        ...


class Wrapper:
    """A model around another, the `wrapped` one, whose name it has and which it closes.

    `address` is where that is asked, empty for one that is run here; where this process itself runs it (`runs_here`),
    two calls at once wait for each other.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._model = self.wrapped = model
        self.name = model.name
        self.address: str = getattr(model, "address", "")
        self.runs_here: bool = getattr(model, "runs_here", False)

    async def close(self) -> None:
        """Close the model underneath."""
        await self._model.close()


Price: TypeAlias = tuple[float, float] | tuple[float, float, float]
"""Money per million prompt tokens and completion tokens, and per million prompt tokens that the server had cached.

Without the third number, cached prompt tokens cost what others cost.
"""


def cost_of(usage: Usage, price: Price) -> float:
    """Return what a usage costs."""
    cached_price = price[2] if len(price) == 3 else price[0]
    fresh = usage.prompt_tokens - usage.cached_prompt_tokens
    return (fresh * price[0] + usage.completion_tokens * price[1] + usage.cached_prompt_tokens * cached_price) / 1e6


@dataclass(slots=True)
class Budget:
    """A budget (tokens of prompts and completions together, money) and what is spent of it; models share one.

    `spent` is the usage of the calls that were paid for. `on_spend` is called after each of them.
    """

    max_tokens: int | None = None
    max_cost: float | None = None
    cost: float = 0.0
    spent: Usage = field(default_factory=Usage)
    on_spend: Callable[[Budget], None] | None = None

    def __post_init__(self) -> None:
        if min(self.max_tokens or 0, self.max_cost or 0) < 0:
            raise InputError("a budget cannot be negative")

    @property
    def tokens(self) -> int:
        """The tokens that are spent."""
        return self.spent.prompt_tokens + self.spent.completion_tokens

    def spend(self, usage: Usage, price: Price) -> None:
        """Count a call that was paid for."""
        self.add(usage, cost_of(usage, price))

    def add(self, usage: Usage, cost: float) -> None:
        """Count calls that were paid for, also elsewhere. Usage of nothing is not reported to `on_spend`."""
        if usage == Usage() and cost == 0.0:
            return
        self.spent += usage
        self.cost += cost
        if self.on_spend is not None:
            self.on_spend(self)

    def check(self) -> None:
        """Raise BudgetError where nothing is left."""
        hint = "raise it and run again: what is finished is kept"
        if self.max_tokens is not None and self.tokens >= self.max_tokens:
            raise BudgetError(f"the budget of {self.max_tokens:,} tokens is spent ({self.tokens:,} used)", hint=hint)
        if self.max_cost is not None and self.cost >= self.max_cost:
            raise BudgetError(f"the budget of {self.max_cost:g} is spent ({self.cost:.4f} used)", hint=hint)


_WIDE = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af]")


def estimate_tokens(text: str) -> int:
    """Return a rough token count for servers that report none: one a CJK character, else one per four others."""
    wide = len(_WIDE.findall(text))
    return max(1, wide + (len(text) - wide) // 4)

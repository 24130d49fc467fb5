"""Small models for tests of what is put around a model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dialore.llm.cache import CompletionCache
from dialore.llm.client import ModelClient
from dialore.llm.model import Completion, Message, OnToken, Request, Usage
from dialore.llm.recording import Recorder

if TYPE_CHECKING:
    import asyncio


def ask(text: str = "Hi", **changes) -> Request:
    return Request(messages=(Message(role="user", content=text),), **changes)


def with_cache(model, path, address="") -> ModelClient:
    return replace(ModelClient.around(model), cache=CompletionCache(path, model.name, address=address))


def with_recording(model, path) -> ModelClient:
    return replace(ModelClient.around(model), recorder=Recorder(path))


def with_budget(model, budget, price=None) -> ModelClient:
    return ModelClient.around(model).with_budget(budget, price)


class Scripted:
    """Answers (or raises) what its list says, in order, the last for ever; keeps what it was asked."""

    def __init__(self, *answers: str | Exception, name: str = "scripted") -> None:
        self.name = name
        self.answers = list(answers) or ["ok"]
        self.asked: list[Request] = []
        self.closed = False
        self.gate: asyncio.Event | None = None

    async def complete(self, request: Request, on_token: OnToken | None = None) -> Completion:
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if self.gate is not None:
            await self.gate.wait()
        if isinstance(answer, Exception):
            raise answer
        if on_token is not None:
            on_token(answer)
        return Completion(
            text=answer, model=self.name, usage=Usage(calls=1, prompt_tokens=10, completion_tokens=5), seconds=1.0
        )

    async def close(self) -> None:
        self.closed = True

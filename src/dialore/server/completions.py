"""OpenAI's chat completions: `/v1/chat/completions` and `/v1/models`."""

from __future__ import annotations

import secrets
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal

from fastapi import APIRouter, Request
from fastapi import Response as Reply
from pydantic import BaseModel, Field, field_validator

from dialore.server.common import (
    ChatMessage,
    SamplingOverride,
    Tokens,
    asked_of,
    begun,
    event_of,
    last,
    service_of,
    streamed,
    until_gone,
    usage_of,
)
from dialore.server.errors import ServiceError, reply
from dialore.server.service import Asked, Draft, Events, Stage, finish_reason, grounding_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

router = APIRouter(prefix="/v1")


class StreamOptions(BaseModel):
    """Options of a stream."""

    include_usage: bool = False


class ChatRequest(SamplingOverride):
    """A request for a chat completion."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    n: Literal[1] | None = None
    stream_options: StreamOptions | None = None
    response_format: dict[str, Any] | None = None
    logprobs: Literal[False] | None = None

    @field_validator("stop")
    @classmethod
    def _few(cls, stop: str | list[str] | None) -> list[str] | None:
        stops = [text for text in ([stop] if isinstance(stop, str) else stop or []) if text]
        if len(stops) > 4:
            raise ValueError("at most four texts")
        return stops or None

    @field_validator("response_format")
    @classmethod
    def _is_text_alone(cls, wanted: dict[str, Any] | None) -> dict[str, Any] | None:
        if wanted and wanted.get("type") != "text":
            raise ValueError("only text is supported")
        return wanted

    def asked(self, most: int) -> Asked:
        """Return what is asked of the service."""
        further: dict[str, object] = {"seed": self.seed, "stop": tuple(self.stop) if self.stop else None}
        sampling = self.sampling(self.max_completion_tokens or self.max_tokens, most, **further)
        return asked_of(self.model, self.messages, sampling, self.user, self.conversation_id, self.persona)


@router.get("/models")
async def list_models(request: Request) -> Reply:
    """Return the agents of this service, each as a model."""
    return reply({"object": "list", "data": [_model(*entry) for entry in service_of(request).agents.models.items()]})


@router.get("/models/{model:path}")
async def show_model(request: Request, model: str) -> Reply:
    """One model."""
    models = service_of(request).agents.models
    if model not in models:
        raise ServiceError(404, "there is no such model", code="model_not_found", param="model")
    return reply(_model(model, models[model]))


def _model(name: str, method: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "dialore", "method": method}


@router.post("/chat/completions")
async def complete(request: Request, body: ChatRequest) -> Reply:
    """Answer the last message, at once or as a stream of events."""
    service, caller = service_of(request), request.state.caller
    asked = body.asked(service.settings.server.max_tokens)
    head: dict[str, object] = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time())}
    head |= {"model": body.model}
    events = service.answer(asked, caller)
    request.state.told = {"model": body.model}
    if body.stream:
        with_usage = body.stream_options is not None and body.stream_options.include_usage
        head["object"] = "chat.completion.chunk"
        return streamed(_chunks(await begun(events), head, asked.notes, with_usage=with_usage))
    trace, response = await until_gone(request, last(events))
    grounding = grounding_of(response, trace, asked.notes)
    message = {"role": "assistant", "content": response.text, "refusal": None, "grounding": grounding}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason(response), "logprobs": None}
    return reply({**head, "object": "chat.completion", "choices": [choice], "usage": usage_of(response.usage)})


async def _chunks(
    events: Events, head: dict[str, object], notes: Sequence[str], *, with_usage: bool
) -> AsyncGenerator[str]:
    def chunk(delta: dict[str, object], finish: str | None = None, **further: object) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return event_of({**head, "choices": [choice], **further})

    yield chunk({"role": "assistant", "content": ""})
    async with aclosing(events):
        async for event in events:
            if isinstance(event, str):
                yield chunk({"content": event})
            elif isinstance(event, Stage):
                yield chunk({}, stage=event.name, step=event.step, steps=event.steps)
            elif isinstance(event, Draft):
                yield chunk({}, draft=event.text)
            else:
                trace, response = event
                yield chunk({}, finish_reason(response), grounding=grounding_of(response, trace, notes))
                if with_usage:
                    yield event_of({**head, "choices": [], "usage": usage_of(response.usage)})
    yield "data: [DONE]\n\n"

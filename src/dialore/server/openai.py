"""OpenAI's API, as far as text goes: `/v1/models`, `/v1/chat/completions` and `/v1/responses`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi import Response as Reply
from pydantic import BaseModel, Field, field_validator

from dialore.response import Response
from dialore.server.common import (
    ChatMessage,
    CommonRequest,
    JsonRoute,
    Part,
    Tokens,
    event_of,
    last,
    service_of,
    stream_events,
    text_of_messages,
    until_gone,
    usage_of,
)
from dialore.server.errors import ServiceError, reply
from dialore.server.service import Asked, Draft, Event, Stage, finish_reason, grounding_of

router = APIRouter(prefix="/v1", route_class=JsonRoute)


class StreamOptions(BaseModel):
    """Options of a stream."""

    include_usage: bool = False


class TextFormat(BaseModel):
    """How the text is to be: plain, for nothing else can be promised."""

    type: Literal["text"] = "text"


class ChatRequest(CommonRequest):
    """A request for a chat completion."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    n: Literal[1] | None = None
    stream_options: StreamOptions | None = None
    response_format: TextFormat | None = None
    logprobs: Literal[False] | None = None

    @field_validator("stop")
    @classmethod
    def _few(cls, stop: str | list[str] | None) -> list[str] | None:
        stops = [text for text in ([stop] if isinstance(stop, str) else stop or []) if text]
        if len(stops) > 4:
            raise ValueError("at most four texts")
        return stops or None

    def asked(self, most: int) -> Asked:
        """Return what is asked of the service."""
        stop = tuple(self.stop) if self.stop else None
        sampling = self.sampling(self.max_completion_tokens or self.max_tokens, most, seed=self.seed, stop=stop)
        return text_of_messages(self.model, self.messages, sampling, self.user, self.conversation_id, self.persona)


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
        chunks = _Chunks({**head, "object": "chat.completion.chunk"}, asked.notes, with_usage=with_usage)
        return await stream_events(request, events, chunks.opening, chunks.convert)
    trace, response = await until_gone(request, last(events))
    grounding = grounding_of(response, trace, asked.notes)
    message = {"role": "assistant", "content": response.text, "refusal": None, "grounding": grounding}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason(response), "logprobs": None}
    return reply({**head, "object": "chat.completion", "choices": [choice], "usage": usage_of(response.usage)})


@dataclass(frozen=True, slots=True)
class _Chunks:
    """The events of a chat completion as chunks.

    Attributes:
        head: The fields of every chunk.
        notes: What of the request was passed over.
        with_usage: Whether the last chunk has the usage.
    """

    head: Mapping[str, object]
    notes: Sequence[str]
    with_usage: bool

    @property
    def opening(self) -> str:
        """The first chunk."""
        return self._chunk({"role": "assistant", "content": ""})

    def convert(self, event: Event) -> str:
        """Return the chunk of an event; the last event ends the stream."""
        if isinstance(event, str):
            return self._chunk({"content": event})
        if isinstance(event, Stage):
            return self._chunk({}, stage=event.name, step=event.step, steps=event.steps)
        if isinstance(event, Draft):
            return self._chunk({}, draft=event.text)
        trace, response = event
        text = self._chunk({}, finish_reason(response), grounding=grounding_of(response, trace, self.notes))
        if self.with_usage:
            text += event_of({**self.head, "choices": [], "usage": usage_of(response.usage)})
        return text + "data: [DONE]\n\n"

    def _chunk(self, delta: dict[str, object], finish: str | None = None, **fields: object) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return event_of({**self.head, "choices": [choice], **fields})


# --- responses


class Item(ChatMessage):
    """One message of the input."""

    type: Literal["message"] = "message"


class OtherItem(BaseModel):
    """A call of a tool, its result, a reasoning: what no text can stand for."""

    type: str = Field(max_length=64)

    @field_validator("type")
    @classmethod
    def _is_other(cls, kind: str) -> str:
        if kind == "message":
            raise ValueError("a message has a role and a content")
        return kind


class TextSettings(BaseModel):
    """The wanted form of the text."""

    format: TextFormat = TextFormat()


class ResponsesRequest(CommonRequest):
    """A request for a response; nothing is kept that a later one could go on from."""

    input: str | list[Item | OtherItem] = Field(min_length=1)
    text: TextSettings = TextSettings()
    prompt: None = None
    instructions: str | None = None
    max_output_tokens: Tokens | None = None
    previous_response_id: None = None
    conversation: None = None
    background: Literal[False] | None = None

    def asked(self, most: int) -> Asked:
        """Return what is asked of the service."""
        items = [ChatMessage(role="user", content=self.input)] if isinstance(self.input, str) else self.input
        messages = [
            item if isinstance(item, ChatMessage) else ChatMessage(role="assistant", content=[Part(type=item.type)])
            for item in items
        ]
        told = [ChatMessage(role="system", content=self.instructions)] if self.instructions else []
        sampling = self.sampling(self.max_output_tokens, most)
        return text_of_messages(self.model, [*told, *messages], sampling, self.user, self.conversation_id, self.persona)


@router.post("/responses")
async def respond(request: Request, body: ResponsesRequest) -> Reply:
    """Answer the last message, at once or as a stream of events."""
    service = service_of(request)
    asked = body.asked(service.settings.server.max_tokens)
    request.state.told = {"model": body.model}
    made = _Made(body, asked.notes)
    events = service.answer(asked, request.state.caller)
    if body.stream:
        return await stream_events(request, events, made.opening, made.convert)
    return reply(made.whole(*await until_gone(request, last(events))))


class _Made:
    def __init__(self, body: ResponsesRequest, notes: Sequence[str]) -> None:
        self._notes = notes
        self._item = f"msg_{secrets.token_hex(12)}"
        self._said = {
            "id": f"resp_{secrets.token_hex(12)}",
            "object": "response",
            "created_at": int(time.time()),
            **body.model_dump(include={"model", "instructions", "temperature", "top_p", "max_output_tokens"}),
            "parallel_tool_calls": False,
            "tool_choice": "none",
            "tools": [],
            "metadata": {},
            "error": None,
            "incomplete_details": None,
        }
        self._position: dict[str, object] = {"item_id": self._item, "output_index": 0, "content_index": 0}
        self._number = -1

    def _message(self, status: str, *texts: str) -> dict[str, Any]:
        content = list(map(_part, texts))
        return {"id": self._item, "type": "message", "role": "assistant", "status": status, "content": content}

    def whole(self, trace: str, response: Response) -> dict[str, Any]:
        """Return the response when it is done."""
        sent, made = response.usage.prompt_tokens, response.usage.completion_tokens
        counted = {"input_tokens": sent, "output_tokens": made, "total_tokens": sent + made}
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        cut = finish_reason(response) == "length"
        status = "incomplete" if cut else "completed"
        return {
            **self._said,
            "status": status,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [self._message(status, response.text)],
            "usage": counted | details,
            "grounding": grounding_of(response, trace, self._notes),
        }

    def _event(self, name: str, **fields: object) -> str:
        self._number += 1
        return event_of({"type": name, "sequence_number": self._number, **fields}, name)

    @property
    def opening(self) -> str:
        """The first events of the stream."""
        begun = {**self._said, "status": "in_progress", "output": []}
        return (
            self._event("response.created", response=begun)
            + self._event("response.in_progress", response=begun)
            + self._event("response.output_item.added", output_index=0, item=self._message("in_progress"))
            + self._event("response.content_part.added", **self._position, part=_part(""))
        )

    def convert(self, event: Event) -> str:
        """Return an event of the answer as events of the stream; stages and drafts have none."""
        if isinstance(event, str):
            return self._event("response.output_text.delta", **self._position, delta=event, logprobs=[])
        if isinstance(event, Stage | Draft):
            return ""
        whole = self.whole(*event)
        text = event[1].text
        return (
            self._event("response.output_text.done", **self._position, text=text, logprobs=[])
            + self._event("response.content_part.done", **self._position, part=_part(text))
            + self._event("response.output_item.done", output_index=0, item=whole["output"][0])
            + self._event(f"response.{whole['status']}", response=whole)
        )


def _part(text: str) -> dict[str, object]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

"""OpenAI's Responses API, as far as text goes: `/v1/responses`."""

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
    Part,
    SamplingOverride,
    Tokens,
    asked_of,
    begun,
    event_of,
    last,
    service_of,
    streamed,
    until_gone,
)
from dialore.server.errors import reply
from dialore.server.service import Asked, Events, finish_reason, grounding_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from dialore.response import Response

router = APIRouter(prefix="/v1")


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


class TextFormat(BaseModel):
    """How the text is to be: plain, for nothing else can be promised."""

    type: Literal["text"] = "text"


class TextSettings(BaseModel):
    """The wanted form of the text."""

    format: TextFormat = TextFormat()


class ResponsesRequest(SamplingOverride):
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
        messages = [item if isinstance(item, ChatMessage) else _passed_over(item) for item in items]
        told = [ChatMessage(role="system", content=self.instructions)] if self.instructions else []
        sampling = self.sampling(self.max_output_tokens, most)
        return asked_of(self.model, [*told, *messages], sampling, self.user, self.conversation_id, self.persona)


def _passed_over(item: OtherItem) -> ChatMessage:
    return ChatMessage(role="assistant", content=[Part(type=item.type)])


@router.post("/responses")
async def respond(request: Request, body: ResponsesRequest) -> Reply:
    """Answer the last message, at once or as a stream of events."""
    service = service_of(request)
    asked = body.asked(service.settings.server.max_tokens)
    request.state.told = {"model": body.model}
    made = _Made(body, asked.notes)
    events = service.answer(asked, request.state.caller)
    if body.stream:
        return streamed(made.events(await begun(events)))
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

    async def events(self, events: Events) -> AsyncGenerator[str]:
        """Yield the events of the stream."""
        begun = {**self._said, "status": "in_progress", "output": []}
        position: dict[str, object] = {"item_id": self._item, "output_index": 0, "content_index": 0}
        yield self._event("response.created", response=begun)
        yield self._event("response.in_progress", response=begun)
        yield self._event("response.output_item.added", output_index=0, item=self._message("in_progress"))
        yield self._event("response.content_part.added", **position, part=_part(""))
        async with aclosing(events):
            async for event in events:
                if isinstance(event, str):
                    yield self._event("response.output_text.delta", **position, delta=event, logprobs=[])
                elif isinstance(event, tuple):
                    whole = self.whole(*event)
                    text = event[1].text
                    yield self._event("response.output_text.done", **position, text=text, logprobs=[])
                    yield self._event("response.content_part.done", **position, part=_part(text))
                    yield self._event("response.output_item.done", output_index=0, item=whole["output"][0])
                    yield self._event(f"response.{whole['status']}", response=whole)


def _part(text: str) -> dict[str, object]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

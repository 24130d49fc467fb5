"""Parts that the routes share: bodies of requests, messages as a request, answers as streams of events."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Literal, Self, TypeVar

from fastapi import Depends, Request
from fastapi import Response as HTTPResponse
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from dialore.errors import first_line
from dialore.files import load_json, storable
from dialore.llm.model import Usage
from dialore.response import Response
from dialore.server.agents import MODEL
from dialore.server.errors import ServiceError
from dialore.server.service import Asked, Event, Events, Service, explain_errors

_NAMED = 256
_CLIENT_GONE = 499  # not a status of HTTP: nobody reads it
_STILL_AT_WORK = ": still at work\n\n"
Name = Annotated[str, StringConstraints(min_length=1, max_length=_NAMED, pattern=r"^[^\x00]+$")]
"""The pattern of names of users and conversations."""
Sentence = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=300)]
_NO_LIMIT = -1
Tokens = Annotated[Annotated[int, Field(ge=1)] | Literal[-1], Field()]
"""How many are asked for; llama.cpp's clients write -1 for no limit."""
T = TypeVar("T")
_TEXT = ("text", "input_text", "output_text")
_DEEP = 6


class _JsonRequest(Request):
    """A request whose JSON is refused if it is nested so deeply that validating or storing it could fail."""

    async def json(self) -> Any:  # noqa: ANN401 - decoded JSON
        """Decode the body; raises ServiceError if it is nested too deeply or not UTF-8."""
        try:
            return load_json(await self.body())
        except json.JSONDecodeError:  # FastAPI says where
            raise
        except ValueError as error:
            message = f"the body is no JSON: {first_line(error)}"
            raise ServiceError(400, message, code="invalid_value") from error


class JsonRoute(APIRoute):
    """A route whose JSON body is read by `load_json`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, HTTPResponse]]:
        """Return the handler, which gets a request with bounded JSON."""
        handle = super().get_route_handler()

        async def handle_bounded(request: Request) -> HTTPResponse:
            return await handle(_JsonRequest(request.scope, request.receive))

        return handle_bounded


class Body(BaseModel):
    """The body of a request; fields that it does not know are passed over, and null is what is not said."""

    @model_validator(mode="before")
    @classmethod
    def _is_text(cls, data: object) -> object:
        if storable(data) != data:
            raise ValueError("half of a surrogate pair is no text, and NaN or more than 64 bits no number of JSON")
        return _without_null(data)


def _without_null(data: object, deep: int = _DEEP) -> object:
    if isinstance(data, list) and deep:
        return [_without_null(item, deep - 1) for item in data]
    if isinstance(data, dict) and deep:
        return {name: _without_null(value, deep - 1) for name, value in data.items() if value is not None}
    return data


class Part(BaseModel):
    """A part of a message's content: a text, or something else, of which only the kind is read."""

    type: str = Field(max_length=64)
    text: str = ""

    @model_validator(mode="after")
    def _has_text(self) -> Self:
        if self.type in _TEXT and "text" not in self.model_fields_set:
            raise ValueError("a part of text has no text")
        return self


class ChatMessage(BaseModel):
    """One message."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None

    @property
    def text(self) -> str:
        """Its text."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if part.type in _TEXT)
        return self.content or ""

    @property
    def unread(self) -> str:
        """The parts of it that no text can stand for, in words; empty where it is text."""
        if self.role in {"tool", "function"}:
            return "a tool's result"
        parts = self.content if isinstance(self.content, list) else []
        if other := next((part.type for part in parts if part.type not in _TEXT), ""):
            return f"a part of the kind {other}"
        return "" if self.text.strip() or self.role in {"system", "developer"} else "no text"


class Metadata(BaseModel):
    """The notes of a request that the service reads."""

    conversation: Name | None = Field(default=None, description="The id to keep it under, where the user consents.")


class CommonRequest(Body):
    """Fields of requests about sampling and the speaker."""

    model_config = ConfigDict(protected_namespaces=())

    model: str = Field(default=MODEL, max_length=_NAMED)
    stream: bool = False
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    user: Literal[""] | Name = ""
    metadata: Metadata | None = None
    persona: list[Sentence] = Field(default_factory=list, max_length=200, description="Who the responder is.")

    @property
    def conversation_id(self) -> str:
        """The id to keep the conversation under; empty where there is none."""
        return (self.metadata and self.metadata.conversation) or ""

    def sampling(self, max_tokens: int | None, most: int, **further: object) -> dict[str, object]:
        """Return what the writing stages sample otherwise."""
        options = {"temperature": self.temperature, "top_p": self.top_p, **further}
        if self.top_p == 0:  # the likeliest word alone: not every endpoint takes it
            options |= {"temperature": 0.0, "top_p": None}
        if max_tokens is not None and max_tokens != _NO_LIMIT:
            options["max_tokens"] = min(max_tokens, most)
        return {name: value for name, value in options.items() if value is not None}


def text_of_messages(
    model: str,
    messages: Sequence[ChatMessage],
    sampling: dict[str, object],
    user: str = "",
    conversation: str = "",
    persona: Sequence[str] = (),
) -> Asked:
    """Return what messages ask; what is no text is left out with a note or, in the last, a ServiceError."""
    told = [entry.text.strip() for entry in messages if entry.role in {"system", "developer"}]
    talk = [entry for entry in messages if entry.role not in {"system", "developer"}]
    last = talk[-1] if talk else None
    if last is not None and (unread := last.unread):
        message = f"the last message has {unread}: this service answers the text of a user's message"
        at = next(number for number in range(len(messages) - 1, -1, -1) if messages[number] is last)
        raise ServiceError(400, message, code="invalid_request", param=f"messages.{at}")
    if last is None or last.role != "user":
        raise ServiceError(400, "the last message is to be the user's", code="invalid_request", param="messages")
    kept = [entry for entry in talk if entry.role in {"user", "assistant"} and entry.text.strip()]
    turns = [{"role": entry.role, "content": entry.text} for entry in kept]
    unread_before = Counter(entry.unread for entry in talk if entry.unread)
    notes = [f"earlier messages: {what} was passed over, {count} times" for what, count in unread_before.items()]
    return Asked(model, turns, tuple(persona), tuple(filter(None, told)), sampling, user, conversation, tuple(notes))


async def _explaining() -> AsyncIterator[None]:
    with explain_errors():
        yield


EXPLAINED = Depends(_explaining)
"""The dependency of routes whose errors are turned into what a client may know of them."""


def service_of(request: Request) -> Service:
    """Return the service that a request is for."""
    service: Service = request.app.state.service
    return service


def usage_of(usage: Usage) -> dict[str, int]:
    """Return the tokens of all stages, as OpenAI names them."""
    sent, made = usage.prompt_tokens, usage.completion_tokens
    return {"prompt_tokens": sent, "completion_tokens": made, "total_tokens": sent + made}


async def last(events: Events) -> tuple[str, Response]:
    """Return the trace's id and the whole response."""
    async with aclosing(events):
        async for batch in events:
            for event in batch:
                if isinstance(event, tuple):
                    return event
    raise RuntimeError("an answer ends in its response")


async def until_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return what work gives; it is stopped where the client goes before it is done."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    tasks = working, watching = asyncio.create_task(work), asyncio.create_task(gone())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ServiceError(499, "the client has gone", code="client_gone")
        return working.result()
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def event_of(data: dict[str, Any], name: str = "") -> str:
    """Return a server-sent event."""
    named = f"event: {name}\n" if name else ""
    return f"{named}data: {json.dumps(data)}\n\n"


async def stream_events(
    request: Request, events: Events, opening: str, convert: Callable[[Event], str]
) -> StreamingResponse:
    """Return a response that streams events as server-sent events; events that arrive together are sent together.

    An error before the first event is raised. A later one ends the stream with an error event, as OpenAI's servers do.
    If the client disconnects, the work is cancelled. During long silences, a comment keeps clients and proxies waiting.

    Args:
        request: The request, whose state gets the final status for the log.
        events: The events in batches. An empty batch stands for a silence.
        opening: The text that the stream begins with.
        convert: Returns an event as text, or "" if this API has no such event.
    """
    first_batch = await anext(events)

    async def send_events() -> AsyncGenerator[str]:
        try:
            async with aclosing(events):
                yield opening + "".join(map(convert, first_batch))
                async for batch in events:
                    text = "".join(map(convert, batch)) if batch else _STILL_AT_WORK
                    if text:
                        yield text
        except ServiceError as error:
            # The head said 200 before the failure; logs and figures report the outcome.
            request.state.status = error.status_code
            yield event_of(error.body)
        except asyncio.CancelledError:
            request.state.status = _CLIENT_GONE
            raise

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(send_events(), media_type="text/event-stream", headers=headers)

"""Hashes that stand for a request: in the cache by all that can change the answer, in recordings by the prompt."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dialore.llm.model import Request


def prompt_key(request: Request) -> str:
    """A hash of the messages and the name of the output schema (sha256, hexadecimal)."""
    return _hash([_messages(request), request.output_schema.name if request.output_schema else None])


def cache_key(model: str, request: Request) -> bytes:
    """A hash (sha256, 32 bytes) of the model's name and all of the request but its label.

    A model that continues plain text answers otherwise than one that chats, so its name should say so.
    """
    schema = request.output_schema
    parts: list[Any] = [
        model,
        _messages(request),
        list(request.sampling.model_dump().items()),
        [schema.name, schema.definition] if schema else None,
        request.sample,
    ]
    if request.continuation is not None:
        parts.append(request.continuation)
    if request.continuation_stop or request.steering is not None:
        steering = list(request.steering.model_dump().items()) if request.steering is not None else None
        parts.append([list(request.continuation_stop), steering])
    return bytes.fromhex(_hash(parts))


def _messages(request: Request) -> list[list[str]]:
    return [[message.role, message.content] for message in request.messages]


def _hash(value: list[Any]) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

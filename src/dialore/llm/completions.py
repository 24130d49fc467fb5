"""One attempt at an OpenAI-compatible completions endpoint: plain text that the model continues (`/v1/completions`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from dialore.llm.client import ChatClient
from dialore.llm.generation import continued_stops, plain_text
from dialore.llm.wire import Dialect

if TYPE_CHECKING:
    from dialore.llm.model import Request
    from dialore.llm.wire import JsonMode


class CompletionsDialect(Dialect):
    """How a server that continues text wants to be spoken to; it learns from refusals as `Dialect` does."""

    def body(self, model: str, request: Request, *, stream: bool) -> dict[str, Any]:
        """The JSON body for a request: its text in place of messages; JSON is asked for by the prompt alone."""
        body = super().body(model, request.model_copy(update={"output_schema": None}), stream=stream)
        del body["messages"]
        if (stop := continued_stops(request)) and "stop" not in self.left_out:
            body["stop"] = list(stop)
        return {"model": body.pop("model"), "prompt": plain_text(request), **body}


class CompletionsClient(ChatClient):
    """A completions endpoint, asked once a call; all else as `ChatClient`, whose arguments it has."""

    path: ClassVar[str] = "/completions"

    @staticmethod
    def _dialect(structured: JsonMode) -> Dialect:
        return CompletionsDialect(structured)

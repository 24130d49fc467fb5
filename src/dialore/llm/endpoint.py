"""An OpenAI-compatible endpoint as a language model: retries and adaptive concurrency around one client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore.llm.client import ChatClient
from dialore.llm.completions import CompletionsClient
from dialore.llm.concurrency import AdaptiveLimiter, Limited
from dialore.llm.retry import Retrying

if TYPE_CHECKING:
    from dialore.llm.model import Completion, OnText, Request
    from dialore.llm.wire import Api, JsonMode


class Endpoint:
    """Any OpenAI-compatible endpoint: OpenAI, vLLM, Ollama, llama.cpp and the like.

    JSON is asked for by schema where the server takes one, by `json_object` where it takes that, else by the prompt
    alone; parameters that the server refuses are left out. What was learnt is kept for the endpoint's life. Thoughts
    (`<think>...</think>`) before an answer are stripped.

    Args:
        model: the model's name at the server.
        base_url: the endpoint, e.g. `http://localhost:11434/v1`.
        api_key: the key, or None where none is wanted; it appears in no error, log or repr.
        timeout: seconds for one try of a whole answer.
        max_bytes: the most bytes that an answer may have.
        structured: how JSON is asked for; `auto` finds out.
        retries: how often a failed call is tried again, where that may help.
        concurrency: the most calls at once; how many really run adapts to what the server bears.
        api: `chat` sends messages; `completions` sends plain text to be continued, for base models: the request's
            continuation, else a transcript of its messages. JSON is then asked for by the prompt alone.

    Raises:
        InputError: the address is not a URL, the key cannot be one, or the concurrency is below 1.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        api_key: str | None = None,
        *,
        timeout: float = 120.0,
        max_bytes: int = 8_000_000,
        structured: JsonMode = "auto",
        retries: int = 4,
        concurrency: int = 64,
        api: Api = "chat",
    ) -> None:
        client = CompletionsClient if api == "completions" else ChatClient
        self._client = client(model, base_url, api_key, timeout=timeout, max_bytes=max_bytes, structured=structured)
        self.limiter = AdaptiveLimiter(concurrency)
        self._model = Retrying(Limited(self._client, self.limiter), retries=retries)

    def __repr__(self) -> str:
        return repr(self._client).replace(type(self._client).__name__, "Endpoint", 1)

    @property
    def name(self) -> str:
        """The model's name at the server."""
        return self._client.name

    @property
    def base_url(self) -> str:
        """The endpoint's address."""
        return self._client.base_url

    async def complete(self, request: Request, on_text: OnText | None = None) -> Completion:
        """Answer a request; see `LanguageModel.complete`.

        Raises:
            ModelError: nothing usable came back, retries included.
        """
        return await self._model.complete(request, on_text)

    async def models(self) -> list[str]:
        """The names of the models that the server offers.

        Raises:
            ModelError: it does not say.
        """
        return await self._client.models()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

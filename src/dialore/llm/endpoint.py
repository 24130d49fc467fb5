"""OpenAI-compatible endpoints as language models: what is sent, what is read back, and what a server refuses."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from dialore.errors import ModelError, ModelTimeoutError, UnknownNameError
from dialore.llm.capabilities import THOUGHTS, CallForm, ServerCapabilities, ThoughtsError, dialect_of
from dialore.llm.http import HttpClient, join_url, load_json, one_line, redact_url, reply_error
from dialore.llm.model import Api, Completion, OnToken, Request, Usage
from dialore.llm.pacing import AdaptiveLimiter, Retry, Tries
from dialore.llm.thoughts import ThoughtFilter, strip_thoughts
from dialore.parallel import check_event_loop
from dialore.text import storable

if TYPE_CHECKING:
    from aiohttp import ClientResponse

log = logging.getLogger(__name__)

_MAX_FORMS = 8  # forms of one call that are tried
_LIST_SECONDS = 10.0
_USAGE_SECONDS = 2.0  # how long a stream may still take to name its usage once the answer is whole
_DONE = "[DONE]"
_REFUSED_THROUGHOUT = 4  # so many refusals in a row (429), and nothing else, end a run
_REASONING = ("reasoning_content", "reasoning")
_PARSES = re.compile(r"fp_|b\d+-")
"""The fingerprints of OpenAI, Ollama and llama.cpp, which tell thoughts from answers themselves."""


Call = Callable[[Callable[[], dict[str, Any]], Request, OnToken | None], Awaitable[Completion]]
"""Answers a request. The body is made by a function, called when it is sent: a call may have to wait before that."""


class BrokenStreamError(ModelError):
    """A stream ended before the answer did."""


class _Listener:
    """Passes pieces on and remembers whether there were any."""

    def __init__(self, on_token: OnToken) -> None:
        self._on_token = on_token
        self.has_begun = False

    def __call__(self, piece: str) -> None:
        self.has_begun = True
        self._on_token(piece)


class Endpoint:
    """Any OpenAI-compatible endpoint: OpenAI, vLLM, Ollama, llama.cpp and the like.

    JSON is asked for by schema where the server takes one, by `json_object` where it takes that, else by the prompt
    alone; parameters that the server refuses are left out. What was learnt is kept for all endpoints of that address
    and model. Thoughts before an answer are stripped. Failed calls are retried, but not those that timed out for lack
    of speed; how many run at once adapts to what the server bears.

    Args:
        model: the model's name at the server.
        base_url: the endpoint, e.g. `http://localhost:11434/v1`.
        api_key: the key, or None where none is wanted; it appears in no error, log or repr.
        timeout: seconds of silence, before an answer begins or within it, that end a try.
        retries: how often a failed call is tried again, where that may help.
        api: `chat` sends messages, `completions` plain text to be continued (JSON is then left to the prompt).
        extra_body: further fields of every request's body; they win.
        thinking: tokens that thoughts may take beside an answer's own limit; None finds out whether the model thinks.

    Raises InputError for what is no URL, a key that cannot be one, and a concurrency below 1.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        api_key: str | None = None,
        *,
        timeout: float = 120.0,
        retries: int = 4,
        concurrency: int = 64,
        api: Api = "chat",
        extra_body: Mapping[str, object] | None = None,
        thinking: int | None = None,
    ) -> None:
        self.name = model
        self.http = HttpClient(base_url, api_key, timeout=timeout)
        self.address = self.http.where  # without what may be secret
        self.capabilities = dialect_of(self.address, model, api, thinking)
        self._extra_body = dict(extra_body or {})
        self.limiter, self.retry = AdaptiveLimiter(concurrency), Retry(retries)
        self._refused_in_a_row = 0
        self.path = {"chat": "/chat/completions", "completions": "/completions"}[api]
        self.call: Call = self._call
        """Sends a request; `BatchQueue` replaces it."""

    async def complete(self, request: Request, on_token: OnToken | None = None) -> Completion:
        """See `LanguageModel.complete`."""
        check_event_loop()
        if request.steering is not None:
            why = f"{self.name} is behind an endpoint, whose decoding cannot be steered"
            hint = "run a model here: hf:microsoft/DialoGPT-medium"
            raise ModelError(why, hint=hint, configuration=True)
        tries = Tries(self.retry)
        listener = None if on_token is None else _Listener(on_token)
        may_stream = True
        while True:
            try:
                async with self.limiter.slot():
                    return await self._try(request, listener, tries.failures, may_stream=may_stream)
            except ModelError as error:
                # A stream that breaks off before its first piece is asked for again in one piece.
                may_stream = may_stream and not isinstance(error, BrokenStreamError)
                # Pieces that were passed on are never taken back.
                await tries.wait_after(error, may_retry=listener is None or not listener.has_begun)

    async def close(self) -> None:
        """Close the connections."""
        await self.http.close()

    def _judge(self, error: ModelError, failures: int) -> None:
        """Judge whether a failure is worth another try: a slow call is so again, unless others crowded it."""
        if isinstance(error, ModelTimeoutError):
            error.retryable = error.retryable and failures == 0 and self.limiter.running > 1
            self.capabilities.slowest = self.http.timeout
        self._refused_in_a_row = self._refused_in_a_row + 1 if error.status == 429 else 0
        if error.status == 429 and failures >= self.retry.retries and self._refused_in_a_row >= _REFUSED_THROUGHOUT:
            error.message += f" (as {self._refused_in_a_row} times before, and nothing else)"
            error.configuration = True

    async def _try(self, request: Request, on_token: OnToken | None, failures: int, *, may_stream: bool) -> Completion:
        """Try a call once, in another form after each refusal of a form."""
        started = time.perf_counter()
        form = CallForm(
            self.capabilities,
            self.name,
            request,
            self._extra_body,
            has_listener=on_token is not None,
            timeout=self.http.timeout,
        )
        make_body = partial(form.body, may_stream=may_stream)
        for _ in range(_MAX_FORMS):
            try:
                completion = await self.call(make_body, request, on_token)
            except ModelError as error:
                if form.adapt(error, failures):
                    continue
                refusal = form.refusal or error
                if refusal.status == 404:
                    refusal = await self._not_found(refusal)
                self._judge(refusal, failures)
                raise refusal from None
            form.accept()
            self._refused_in_a_row = 0
            completion.seconds = time.perf_counter() - started
            completion.model = completion.model or self.name
            completion.usage.retries = failures
            self.capabilities.slowest = max(self.capabilities.slowest or 0.0, completion.seconds)
            return completion
        raise ModelError(f"{self.http.where} refuses every form of the call", hint=f"does it offer {self.path}?")

    async def _call(
        self, make_body: Callable[[], dict[str, Any]], request: Request, on_token: OnToken | None
    ) -> Completion:
        async with self.http.open(self.path, make_body(), flows=True) as response:
            begun = await self.http.begin(response)
            if response.status != 200:
                raise self.http.status_error(response, await self.http.read(response, begun))
            reader = Reader(request, self.http, self.capabilities, on_token)
            # What an answer is, its content type does not always say.
            if begun.lstrip().startswith((b"data:", b":", b"event:", b"id:", b"retry:")):
                await self._read_stream(response, reader, begun)
            else:
                answer = await self.http.read(response, begun)
                reader.take(self.http.decode(response, answer), "message")
            return reader.completion()

    async def _not_found(self, error: ModelError) -> ModelError:
        """Return whether the model or the path is unknown, as the server's own list of models tells."""
        names: list[str] | None = None
        with suppress(ModelError):
            names = await list_models(self.http)
        if names and self.name not in names:
            unknown = UnknownNameError("model", self.name, names)
            where = self.http.where
            return ModelError(f"{where}: {unknown.message}", hint=unknown.hint, status=404, configuration=True)
        base_url = self.http.base_url
        if names is None and not urlsplit(base_url).path.endswith("/v1"):
            async with HttpClient(join_url(base_url, "/v1"), self.http.key).once() as below:
                with suppress(ModelError):
                    await list_models(below)
                    error.hint = f"the base URL should be {redact_url(below.base_url)}"
        return error

    async def _read_stream(self, response: ClientResponse, reader: Reader, begun: bytes) -> None:
        import aiohttp

        try:
            async with asyncio.timeout(None) as rest, aclosing(self.http.events(response, begun)) as events:
                async for data in events:
                    if data == _DONE:
                        self.capabilities.stream_ended(whole=True)
                        return
                    reader.take(load_json(data, self.http.where), "delta")
                    self.http.has_answered = True
                    if reader.reason and rest.when() is None:
                        rest.reschedule(asyncio.get_running_loop().time() + _USAGE_SECONDS)
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            # The answer itself is whole once the server has said why it ends.
            if not reader.reason:
                raise
        self.capabilities.stream_ended(whole=bool(reader.reason))
        if not reader.reason:
            broken = f"{self.http.where} broke off in the middle of its answer"
            raise BrokenStreamError(broken, hint="try again", retryable=True)


async def list_models(http: HttpClient) -> list[str]:
    """Return the names of the models that a server offers; empty where its answer has no list. Raises ModelError."""
    payload = await http.json("/models", timeout=_LIST_SECONDS)
    rows = payload.get("data") if isinstance(payload, dict) else None
    if not isinstance(rows, list):
        return []
    return [row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]


# --- what is read back


class Reader:
    """Collects a completion from a whole body or from the events of a stream, whose pieces it passes on."""

    def __init__(
        self, request: Request, http: HttpClient, capabilities: ServerCapabilities, on_token: OnToken | None = None
    ) -> None:
        self._request, self._capabilities, self._on_token = request, capabilities, on_token
        self._where, self._key = http.where, http.key
        self._filter = ThoughtFilter(unopened=on_token is None or capabilities.unopened is not False)
        self._pieces: list[str] = []
        self._half = self._model = ""
        self._usage: dict[str, Any] = {}
        self._reasoned = False
        self._left = 4 * (request.sampling.max_tokens + max(capabilities.thoughts, THOUGHTS))
        self.reason = ""

    def take(self, payload: object, part: Literal["message", "delta"]) -> None:
        """Take a body or an event's data; raises ModelError where it is an error, a refusal, or of another kind."""
        where = self._where
        if isinstance(payload, list) and payload and isinstance(payload[0], dict) and payload[0].get("error"):
            payload = payload[0]
        if not isinstance(payload, dict):
            other = f"{where} answered with JSON of another kind"
            raise ModelError(other, hint="is it a chat endpoint?", retryable=True)
        self._left -= 1
        if self._left < 0:  # no silence ends such a stream
            raise ModelError(f"{where} goes on far beyond the limit of tokens", hint="see the server's log")
        choices = payload.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        self._check(payload, choice)
        self._model = _word(payload, "model") or self._model
        self._usage = usage if isinstance(usage := payload.get("usage"), dict) else self._usage
        if self._capabilities.unopened is None and _PARSES.match(_word(payload, "system_fingerprint")):
            self._capabilities.unopened = self._filter.unopened = False
        if choice.get("index"):  # another answer, that was not asked for
            choice = {}
        # A completions endpoint has the bare text in place of a message or delta.
        text = choice.get("text")
        delta = {"content": text} if isinstance(text, str) and part not in choice else choice.get(part)
        if isinstance(delta, dict):
            self._said(delta, choice.get("finish_reason"))
        elif part == "message":
            lacking, hint = "with a choice without a message", "is it a chat endpoint?"
            if not choice:
                lacking, hint = "without choices", "try again"
            raise ModelError(f"{where} answered {lacking}", hint=hint, retryable=True)
        self.reason = _word(choice, "finish_reason") or self.reason

    def completion(self) -> Completion:
        """Return the completion, once all is taken; raise ModelError where there is no text."""
        self._pass_on(self._filter.feed(storable(self._half)) + self._filter.finish())
        text, reason = "".join(self._pieces), self.reason or "stop"
        if self._filter.unopened:
            self._capabilities.unopened = self._filter.was_unopened or bool(self._capabilities.unopened)
        elif not self._filter.seen and (answer := strip_thoughts(text)) != text:
            # Its thoughts have no opening tag: that is known from now on.
            self._capabilities.unopened, text = True, answer
        if not text.strip():
            if reason == "length":
                spent = f"{self._where} spent all its tokens before the answer began"
                raise ThoughtsError(spent, hint="give its thoughts more: raise model.thinking")
            if self._filter.seen or self._reasoned:
                alone = f"{self._where} answered with thoughts alone{' (reasoning_content)' if self._reasoned else ''}"
                raise ModelError(alone, hint="switch off the server's reasoning parser, or the model's thinking")
            raise ModelError(f"{self._where} answered with an empty text", hint="try again", retryable=True)
        if self._filter.thought or self._reasoned:
            self._capabilities.saw_thoughts()
        sent, made = (_count(self._usage.get(name)) for name in ("prompt_tokens", "completion_tokens"))
        if sent is None or made is None:
            usage, estimated = Usage.estimate(self._request.messages, text), True
        else:
            cached = min(sent, _cached_tokens(self._usage))
            usage = Usage(calls=1, prompt_tokens=sent, cached_prompt_tokens=cached, completion_tokens=made)
            estimated = False
        return Completion(text=text, model=self._model, usage=usage, finish_reason=reason, estimated=estimated)

    def _check(self, payload: dict[str, Any], choice: dict[str, Any]) -> None:
        for part in (payload, choice):
            if part.get("error"):
                raise reply_error(f"{self._where} reports an error", {"error": part["error"]}, key=self._key)
        if choice.get("finish_reason") == "error":
            broken = f"{self._where} broke off its answer (finish_reason: error)"
            raise ModelError(broken, hint="try again", retryable=True)

    def _said(self, said: dict[str, Any], reason: object) -> None:
        declined = f"{self._where} held its answer back (content filter)" if reason == "content_filter" else ""
        if refusal := _word(said, "refusal"):
            declined = f"{self._where} refuses to answer: {one_line(refusal, self._key)}"
        if declined:
            raise ModelError(declined, hint="change the prompt", refused=True)
        self._reasoned |= any(_word(said, name).strip() for name in _REASONING)
        content = said.get("content")
        if isinstance(content, list):
            parts = [part.get("text") for part in content if isinstance(part, dict)]
            content = "".join(part for part in parts if isinstance(part, str))
        text = self._half + (content if isinstance(content, str) else "")
        # A character may be split over two pieces, too.
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        self._pass_on(self._filter.feed(storable(text.removesuffix(self._half) if self._half else text)))

    def _pass_on(self, piece: str) -> None:
        if piece:
            self._pieces.append(piece)
            if self._on_token is not None:
                self._on_token(piece)


def _word(fields: dict[str, Any], name: str) -> str:
    return storable(value) if isinstance(value := fields.get(name), str) else ""


def _cached_tokens(usage: dict[str, Any]) -> int:
    """Return how many prompt tokens a server had cached, as OpenAI, DeepSeek or Anthropic name them."""
    details = usage.get("prompt_tokens_details")
    values = [usage.get("prompt_cache_hit_tokens"), usage.get("cache_read_input_tokens"), usage.get("cached_tokens")]
    if isinstance(details, dict):
        values.insert(0, details.get("cached_tokens"))
    return next((count for value in values if (count := _count(value))), 0)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else None

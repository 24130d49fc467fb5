"""OpenAI-compatible endpoints as language models: what is sent, what is read back, and what a server refuses."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import re
import time
from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from dialore.errors import ModelError, UnknownNameError
from dialore.llm.http import AdaptiveLimiter, HttpClient, Retry, error_detail, join_url, load_json, one_line, shown_url
from dialore.llm.model import (
    Api,
    Completion,
    OnText,
    OutputSchema,
    Request,
    ThinkFilter,
    Usage,
    estimate_tokens,
    mend_surrogates,
    strip_thoughts,
)

if TYPE_CHECKING:
    from aiohttp import ClientResponse

log = logging.getLogger(__name__)

_ADAPTATIONS = 8
_LIST_SECONDS = 10.0
_USAGE_SECONDS = 2.0
"""How long a stream may still take to name its usage once the answer is whole."""
_DONE = "[DONE]"


class Endpoint:
    """Any OpenAI-compatible endpoint: OpenAI, vLLM, Ollama, llama.cpp and the like.

    JSON is asked for by schema where the server takes one, by `json_object` where it takes that, else by the prompt
    alone; parameters that the server refuses are left out. What was learnt is kept for the endpoint's life. Thoughts
    (`<think>...</think>`) before an answer are stripped. Failed calls are retried, and how many run at once adapts to
    what the server bears.

    Args:
        model: the model's name at the server.
        base_url: the endpoint, e.g. `http://localhost:11434/v1`.
        api_key: the key, or None where none is wanted; it appears in no error, log or repr.
        timeout: seconds for one try of a whole answer.
        retries: how often a failed call is tried again, where that may help.
        api: `chat` sends messages; `completions` sends plain text to be continued, for base models: the request's
            continuation, else a transcript of its messages. JSON is then asked for by the prompt alone.
        extra_body: further fields of every request's body; they win.

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
        retries: int = 4,
        concurrency: int = 64,
        api: Api = "chat",
        extra_body: Mapping[str, object] | None = None,
    ) -> None:
        self.name = model
        self.http = HttpClient(base_url, api_key, timeout=timeout, max_bytes=max_bytes)
        self.dialect = Dialect(api)
        self._extra_body = dict(extra_body or {})
        self.limiter = AdaptiveLimiter(concurrency)
        self.retry = Retry(retries)
        self._path = {"chat": "/chat/completions", "completions": "/completions"}[api]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.http.where!r})"

    @property
    def address(self) -> str:
        """Where it is asked, without what may be secret."""
        return self.http.where

    async def complete(self, request: Request, on_text: OnText | None = None) -> Completion:
        """See `LanguageModel.complete`."""
        if request.steering is not None:
            raise ModelError(
                f"{self.name} is behind an endpoint, whose decoding cannot be steered",
                mend="run a model here: --model hf:microsoft/DialoGPT-medium",
                configuration=True,
            )
        pieces = 0

        def pass_on(piece: str) -> None:
            nonlocal pieces
            pieces += 1
            if on_text is not None:
                on_text(piece)

        async def attempt(failures: int) -> Completion:
            async with self.limiter.slot():
                started = time.perf_counter()
                completion = await self._ask(request, None if on_text is None else pass_on)
                completion.seconds = time.perf_counter() - started
                completion.model = completion.model or self.name
                completion.usage.retries = failures
                return completion

        # Pieces that were passed on are never taken back.
        return await self.retry.run(attempt, is_over=lambda: pieces > 0)

    async def close(self) -> None:
        """Close the connections."""
        await self.http.close()

    async def _ask(self, request: Request, on_text: OnText | None) -> Completion:
        """One call, or a few where the server refuses a parameter."""
        for _ in range(_ADAPTATIONS):
            body = self.dialect.body(self.name, request, stream=on_text is not None) | self._extra_body
            async with self.http.open(self._path, body) as response:
                if response.status != 200:
                    await self._refused(response, body)
                    continue
                if on_text is not None and "json" not in response.content_type:
                    self.http.check_kind(response)
                    return await self._read_stream(response, request, on_text)
                reader = Reader(request, self.http)
                reader.take(self.http.decode(response, await self.http.read(response)), "message")
                completion = reader.completion()
                if on_text is not None:
                    on_text(completion.text)
                return completion
        raise ModelError(f"{self.http.where} refuses every form of the call", mend=f"does it offer {self._path}?")

    async def _refused(self, response: ClientResponse, body: dict[str, Any]) -> None:
        """Learn from a refusal, or raise the error that it is."""
        answer = await self.http.read(response)
        try:
            payload = json.loads(answer)
        except (ValueError, RecursionError):
            payload = answer[:4000].decode("utf-8", "replace")
        if self.dialect.learn(response.status, payload, body):
            return
        error = self.http.status_error(response, answer)
        raise await self._not_found(error) if response.status == 404 else error

    async def _not_found(self, error: ModelError) -> ModelError:
        """Whether the model or the path is unknown, as the server's own list of models tells."""
        names = await _models_or_none(self.http)
        if names and self.name not in names:
            unknown = UnknownNameError("model", self.name, names)
            where = self.http.where
            return ModelError(f"{where}: {unknown.message}", mend=unknown.mend, status=404, configuration=True)
        base_url = self.http.base_url
        if names is None and not urlsplit(base_url).path.endswith("/v1"):
            async with HttpClient(join_url(base_url, "/v1"), self.http.key).once() as below:
                if await _models_or_none(below) is not None:
                    error.mend = f"the base URL should be {shown_url(below.base_url)}"
        return error

    async def _read_stream(self, response: ClientResponse, request: Request, on_text: OnText) -> Completion:
        import aiohttp

        reader = Reader(request, self.http, on_text)
        whole = False
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as rest, aclosing(self.http.events(response)) as events:
                async for data in events:
                    if data == _DONE:
                        whole = True
                        break
                    reader.take(load_json(data, self.http.where), "delta")
                    if reader.reason and rest.when() is None:
                        rest.reschedule(loop.time() + _USAGE_SECONDS)
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            # The answer itself is whole once the server has said why it ends.
            if not reader.reason:
                raise
        if not whole and not reader.reason:
            broken = f"{self.http.where} broke off in the middle of its answer"
            raise ModelError(broken, mend="try again", retryable=True)
        return reader.completion()


async def list_models(http: HttpClient) -> list[str]:
    """The names of the models that a server offers; empty where its answer has no list. Raises ModelError."""
    payload = await http.json("/models", timeout=_LIST_SECONDS)
    rows = payload.get("data") if isinstance(payload, dict) else None
    if not isinstance(rows, list):
        return []
    return [row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]


async def _models_or_none(http: HttpClient) -> list[str] | None:
    try:
        return await list_models(http)
    except ModelError:
        return None


# --- what is read back


class Reader:
    """Collects a completion from a whole body or from the events of a stream, whose pieces it passes on."""

    def __init__(self, request: Request, http: HttpClient, on_text: OnText | None = None) -> None:
        self._request, self._on_text = request, on_text
        self._where, self._key = http.where, http.key
        self._filter = ThinkFilter()
        self._pieces: list[str] = []
        self._model: object = ""
        self._usage: dict[str, Any] = {}
        self.reason = ""

    def take(self, payload: object, part: Literal["message", "delta"]) -> None:
        """Take a body or an event's data; raises ModelError where it is an error, a refusal, or of another kind."""
        where = self._where
        if not isinstance(payload, dict):
            other = f"{where} answered with JSON of another kind"
            raise ModelError(other, mend="is it a chat endpoint?", retryable=True)
        if payload.get("error"):
            message = one_line(error_detail(payload)[0], self._key) or "no reason given"
            raise ModelError(f"{where} reports an error: {message}", mend="see the server's log", retryable=True)
        self._model = payload.get("model") or self._model
        self._usage = usage if isinstance(usage := payload.get("usage"), dict) else self._usage
        choices = payload.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if isinstance(choice, dict):
            # A completions endpoint has the bare text in place of a message or delta.
            text = choice.get("text")
            said = {"content": text} if isinstance(text, str) and part not in choice else choice.get(part)
            if isinstance(said, dict):
                self._said(said, choice.get("finish_reason"))
            elif part == "message":
                lacking = f"{where} answered with a choice without a message"
                raise ModelError(lacking, mend="is it a chat endpoint?", retryable=True)
            self.reason = _word(choice.get("finish_reason")) or self.reason
        elif part == "message":
            raise ModelError(f"{where} answered without choices", mend="try again", retryable=True)

    def completion(self) -> Completion:
        """The completion, once all is taken; raises ModelError where there is no text."""
        if self._on_text is not None:
            self._pass_on(self._filter.finish())
        text, reason = "".join(self._pieces), self.reason or "stop"
        if not text.strip() and reason == "length":
            spent = f"{self._where} spent all its tokens before the answer began"
            raise ModelError(spent, mend="raise max_tokens: the model thinks first")
        if not text.strip():
            raise ModelError(f"{self._where} answered with an empty text", mend="try again", retryable=True)
        prompt = _count(self._usage.get("prompt_tokens"))
        answer = _count(self._usage.get("completion_tokens"))
        estimated = prompt is None or answer is None
        if prompt is None or answer is None:
            prompt = sum(estimate_tokens(message.content) for message in self._request.messages)
            answer = estimate_tokens(text)
        return Completion(
            text=text,
            model=_word(self._model),
            usage=Usage(calls=1, prompt_tokens=prompt, completion_tokens=answer),
            finish_reason=reason,
            estimated=estimated,
        )

    def _said(self, said: dict[str, Any], reason: object) -> None:
        refusal = said.get("refusal")
        if isinstance(refusal, str) and refusal:
            declined = f"{self._where} refuses to answer: {one_line(refusal, self._key)}"
            raise ModelError(declined, mend="change the prompt", refused=True)
        if reason == "content_filter":
            declined = f"{self._where} held its answer back (content filter)"
            raise ModelError(declined, mend="change the prompt", refused=True)
        text = _content(said.get("content"))
        # A whole text also has thoughts whose opening tag the server's template had written.
        self._pass_on(strip_thoughts(text) if self._on_text is None else self._filter.feed(text))

    def _pass_on(self, piece: str) -> None:
        if piece:
            self._pieces.append(piece)
            if self._on_text is not None:
                self._on_text(piece)


def _content(content: object) -> str:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return mend_surrogates("".join(part for part in parts if isinstance(part, str)))
    return _word(content)


def _word(value: object) -> str:
    return mend_surrogates(value) if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else None


# --- what is sent

_REFUSED = re.compile(
    r"not.{0,12}support|unsupport|unknown|unrecogni|unexpected|not.{0,6}(?:permit|allow|accept)|extra|only the default"
    r"|invalid (?:param|field)|no such|deprecat|instead",
    re.IGNORECASE,
)
_FORMATS = re.compile(r"response[_ ]?format|json[_ ]?schema|json[_ ]?object|guided|grammar|structured", re.IGNORECASE)
_OPTIONAL = ("stream_options", "temperature", "top_p", "seed", "stop")
_NEXT: dict[str, Literal["json_object", "off"]] = {"json_schema": "json_object", "json_object": "off"}


class Dialect:
    """The form of the calls that one server takes; learnt from its refusals and kept for the endpoint's life."""

    def __init__(self, api: Api = "chat") -> None:
        self._api = api
        self.format: Literal["json_schema", "json_object", "off"] = "json_schema"
        self.length = "max_tokens"
        self.left_out: set[str] = set()

    def body(self, model: str, request: Request, *, stream: bool) -> dict[str, Any]:
        """The JSON body for a request."""
        sampling = request.sampling
        body: dict[str, Any] = {"model": model}
        stop = sampling.stop
        if self._api == "completions":
            body["prompt"], stop = request.plain_text, request.plain_stop
        else:
            body["messages"] = [{"role": message.role, "content": message.content} for message in request.messages]
            if request.output_schema is not None and self.format != "off":
                body["response_format"] = _response_format(self.format, request.output_schema)
        body["temperature"], body[self.length] = sampling.temperature, sampling.max_tokens
        if sampling.top_p is not None:
            body["top_p"] = sampling.top_p
        if stop:
            body["stop"] = list(stop)
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        if stream:
            body["stream"] = True
            body["stream_options"] = {"include_usage": True}
        for name in self.left_out:
            body.pop(name, None)
        return body

    def learn(self, status: int, payload: object, sent: dict[str, Any]) -> bool:
        """Learn from a refusal; says whether the call is worth sending again in another form.

        Calls run at once, so others may have learnt since the body was sent.
        """
        if status not in {400, 422}:
            return False
        message, code, parameter = error_detail(payload)
        said = f"{message} {code} {parameter}"
        if "max_tokens" in sent and "max_completion_tokens" in said:
            self.length = "max_completion_tokens"
            return True
        for name in _OPTIONAL:
            named = parameter == name or re.search(rf"\b{name}\b", message) is not None
            if name in sent and named and _REFUSED.search(said):
                if name not in self.left_out:
                    log.warning("the server refuses %s: it is left out from now on", name)
                self.left_out.add(name)
                return True
        if "response_format" in sent and _FORMATS.search(said):
            following = _NEXT[sent["response_format"]["type"]]
            if self.format == "json_schema" or following == "off":
                log.info("the server refuses %s as response_format: %s from now on", self.format, following)
                self.format = following
            return True
        return False


def _response_format(kind: str, schema: OutputSchema) -> dict[str, Any]:
    return {"type": "json_object"} if kind == "json_object" else _by_schema(schema.name, json.dumps(schema.definition))


@functools.lru_cache(maxsize=64)
def _by_schema(name: str, definition: str) -> dict[str, Any]:
    """A schema in the form that strict servers demand, where it has one: free-form mappings have none.

    Takes it as JSON, to be worked out once a schema and not once a call. The result is shared: do not change it.
    """
    loose, tight = json.loads(definition), json.loads(definition)
    is_strict = _tighten(tight)
    name = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "answer"
    wanted = {"name": name, "schema": tight if is_strict else loose, "strict": is_strict}
    return {"type": "json_schema", "json_schema": wanted}


def _tighten(node: object) -> bool:
    if isinstance(node, list):
        return all(_tighten(item) for item in node)
    if not isinstance(node, dict):
        return True
    node.pop("default", None)
    if "$ref" in node:
        # Strict servers refuse any word beside a reference.
        for name in [name for name in node if name not in {"$ref", "$defs"}]:
            del node[name]
    if node.get("type") == "object":
        if node.get("additionalProperties", False) is not False or "properties" not in node:
            return False
        node["additionalProperties"] = False
        node["required"] = list(node["properties"])
    parts = [*node.get("properties", {}).values(), *node.get("$defs", {}).values()]
    parts += [node[name] for name in ("items", "anyOf", "allOf", "oneOf", "prefixItems") if name in node]
    return all(_tighten(part) for part in parts)

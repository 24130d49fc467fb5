"""One attempt at an OpenAI-compatible endpoint, over aiohttp.

The openai SDK costs about 3 ms of CPU a call, aiohttp 0.5 to 1 ms; our whole call is to stay under 2.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from pydantic_core import PydanticSerializationError, to_json

from dialore.errors import ModelError, UnknownNameError
from dialore.llm.answer import StreamReader, load_json, model_names, read_body
from dialore.llm.faults import clean_key, connection_error, endpoint_url, join_url, shown_url, status_error
from dialore.llm.wire import Dialect

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from types import TracebackType

    from aiohttp import ClientResponse, ClientSession

    from dialore.llm.model import Completion, OnText, Request
    from dialore.llm.wire import JsonMode

_ADAPTATIONS = 8
_CONNECT_SECONDS = 10.0
_USAGE_SECONDS = 2.0
"""How long a stream may still take to name its usage once the answer is whole."""
_DONE = "[DONE]"


class ChatClient:
    """A chat endpoint, asked once a call: no retries, no limit on how many calls run.

    Args:
        model: the model's name at the server.
        base_url: the endpoint, e.g. `http://localhost:11434/v1`.
        api_key: the key, or None where none is wanted; it appears in no error, log or repr.
        timeout: seconds for a whole answer.
        max_bytes: the most bytes that an answer may have.
        structured: how JSON is asked for (see `Dialect`).

    Raises:
        InputError: the address is not a URL, or the key cannot be one.
    """

    path: ClassVar[str] = "/chat/completions"

    def __init__(
        self,
        model: str,
        base_url: str,
        api_key: str | None = None,
        *,
        timeout: float = 120.0,
        max_bytes: int = 8_000_000,
        structured: JsonMode = "auto",
    ) -> None:
        self.name = model
        self.base_url = endpoint_url(base_url)
        self.timeout = timeout
        self.max_bytes = max_bytes
        self.dialect = self._dialect(structured)
        self._key = clean_key(api_key)
        self._url = join_url(self.base_url, self.path)
        self._where = shown_url(self.base_url)
        self._session: ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_answered = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self._where!r})"

    async def complete(self, request: Request, on_text: OnText | None = None) -> Completion:
        """Answer a request with one call, or a few where the server refuses a parameter.

        Raises:
            ModelError: nothing usable came back.
        """
        refuse_steering(request, self.name)
        started = time.perf_counter()
        async with _Deadline(self._url, self.timeout):
            for _ in range(_ADAPTATIONS):
                completion = await self._attempt(request, on_text)
                if completion is not None:
                    self._has_answered = True
                    completion.seconds = time.perf_counter() - started
                    completion.model = completion.model or self.name
                    return completion
        raise ModelError(f"{self._where} refuses every form of the call", mend=f"does it offer {self.path}?")

    async def models(self) -> list[str]:
        """The names of the models that the server offers.

        Raises:
            ModelError: it does not say.
        """
        return await self._models_at(self.base_url)

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None and self._loop is asyncio.get_running_loop():
            await session.close()

    def _completion(self, payload: object, request: Request) -> Completion:
        """The completion in a whole body; raises ModelError where there is none."""
        return read_body(payload, request, where=self._where, key=self._key)

    @staticmethod
    def _dialect(structured: JsonMode) -> Dialect:
        return Dialect(structured)

    async def _attempt(self, request: Request, on_text: OnText | None) -> Completion | None:
        body = self.dialect.body(self.name, request, stream=on_text is not None)
        async with self._open().post(self._url, data=_as_json(body), allow_redirects=False) as response:
            if response.status != 200:
                await self._refused(response, body)
                return None
            if on_text is not None and "json" not in response.content_type:
                self._check_kind(response, b"")
                return await self._read_stream(
                    response, StreamReader(request, on_text, where=self._where, key=self._key)
                )
            answer = await self._read(response)
            self._check_kind(response, answer)
            completion = self._completion(load_json(answer, self._where), request)
            if on_text is not None:
                on_text(completion.text)
            return completion

    async def _refused(self, response: ClientResponse, body: dict[str, Any]) -> None:
        """Learn from a refusal, or raise it."""
        answer = await self._read(response)
        try:
            payload = json.loads(answer)
        except (ValueError, RecursionError):
            payload = answer[:4000].decode("utf-8", "replace")
        if self.dialect.learn(response.status, payload, body):
            return
        if response.status == 404:
            raise await self._not_found(answer, response)
        raise status_error(response.status, response.headers, answer, url=self._url, key=self._key)

    async def _not_found(self, answer: bytes, response: ClientResponse) -> ModelError:
        """Whether the model or the path is unknown, as the server's own list of models tells."""
        error = status_error(404, response.headers, answer, url=self._url, key=self._key)
        mend, configuration = "check the base URL, which usually ends in /v1, and the model's name", True
        names = await self._models_or_none(self.base_url)
        if names and self.name not in names:
            unknown = UnknownNameError("model", self.name, names)
            return ModelError(f"{self._where}: {unknown.message}", mend=unknown.mend, status=404, configuration=True)
        if names is None and not urlsplit(self.base_url).path.endswith("/v1"):
            below = join_url(self.base_url, "/v1")
            if await self._models_or_none(below) is not None:
                mend = f"the base URL should be {shown_url(below)}"
        return ModelError(error.message, mend=mend, status=404, configuration=configuration)

    async def _models_or_none(self, base_url: str) -> list[str] | None:
        try:
            return await self._models_at(base_url)
        except ModelError:
            return None

    async def _models_at(self, base_url: str) -> list[str]:
        url = join_url(base_url, "/models")
        async with (
            _Deadline(url, min(self.timeout, _CONNECT_SECONDS)),
            self._open().get(url, allow_redirects=False) as response,
        ):
            answer = await self._read(response)
            if response.status != 200:
                raise status_error(response.status, response.headers, answer, url=url, key=self._key)
            return model_names(load_json(answer, shown_url(url)))

    def _check_kind(self, response: ClientResponse, answer: bytes) -> None:
        if response.content_type in {"text/html", "application/xhtml+xml"} or answer.lstrip()[:1] == b"<":
            # From an endpoint that has worked before, a page is a gateway's passing trouble.
            raise ModelError(
                f"{self._where} answered with a web page instead of JSON",
                mend="check the base URL, which usually ends in /v1",
                retryable=self._has_answered,
                configuration=not self._has_answered,
            )

    async def _chunks(self, response: ClientResponse) -> AsyncGenerator[bytes, None]:
        size = 0
        while chunk := await response.content.readany():
            size += len(chunk)
            self._check_size(size)
            yield chunk

    async def _read(self, response: ClientResponse) -> bytes:
        chunks: list[bytes] = []
        size = 0
        # Without `_chunks`: a generator costs more than the one or two chunks that most answers come in.
        while chunk := await response.content.readany():
            size += len(chunk)
            self._check_size(size)
            chunks.append(chunk)
        return b"".join(chunks)

    def _check_size(self, size: int) -> None:
        if size > self.max_bytes:
            raise ModelError(
                f"{self._where} sent more than {self.max_bytes:,} bytes", mend="lower max_tokens or raise max_bytes"
            )

    async def _read_stream(self, response: ClientResponse, reader: StreamReader) -> Completion:
        import aiohttp

        whole = False
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as rest, aclosing(self._chunks(response)) as chunks:
                async for data in _events(chunks):
                    if data == _DONE:
                        whole = True
                        break
                    reader.event(data)
                    if reader.reason and rest.when() is None:
                        rest.reschedule(loop.time() + _USAGE_SECONDS)
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            # The answer itself is whole once the server has said why it ends.
            if not reader.reason:
                raise
        return reader.completion(whole=whole)

    def _open(self) -> ClientSession:
        """The session of the running loop; one client may serve several loops one after another."""
        loop = asyncio.get_running_loop()
        if self._session is None or self._session.closed or self._loop is not loop:
            self._session, self._loop = (
                _new_session(self.base_url, self._key, min(_CONNECT_SECONDS, self.timeout)),
                loop,
            )
        return self._session


def _as_json(body: dict[str, Any]) -> bytes:
    try:
        return to_json(body)
    except PydanticSerializationError:
        # Seven times as slow, but half a surrogate pair in a prompt, which UTF-8 cannot hold, stops no call.
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def refuse_steering(request: Request, name: str) -> None:
    """Raises ModelError where decoding is to be steered: no server's API can do that."""
    if request.steering is not None:
        raise ModelError(
            f"{name} is behind an endpoint, whose decoding cannot be steered",
            mend="run a model here: --model hf:microsoft/DialoGPT-medium",
            configuration=True,
        )


class _Deadline:
    """Bounds a call in time and turns the failures of its connection into ModelErrors."""

    def __init__(self, url: str, seconds: float) -> None:
        self._url, self._seconds = url, seconds
        self._timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError as late:
            raise connection_error(late, url=self._url, timeout=self._seconds) from None
        if isinstance(error, Exception) and _is_connection_error(error):
            raise connection_error(error, url=self._url, timeout=self._seconds) from error


def _is_connection_error(error: Exception) -> bool:
    import aiohttp

    return isinstance(error, (aiohttp.ClientError, ConnectionError))


async def _events(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[str, None]:
    """The `data` of each server-sent event (WHATWG HTML, 9.2); comments and other fields are passed over."""
    rest = b""
    async for chunk in chunks:
        # A lone carriage return at the end may be half of a line end.
        *lines, rest = (rest + chunk).replace(b"\r\n", b"\n").split(b"\n")
        for line in lines:
            data = _data(line)
            if data:
                yield data
    if data := _data(rest):
        yield data


def _data(line: bytes) -> str:
    return line[5:].strip().decode("utf-8", "replace") if line.startswith(b"data:") else ""


def _new_session(base_url: str, key: str, connect_seconds: float) -> ClientSession:
    from urllib.request import getproxies, proxy_bypass

    import aiohttp

    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    parts = urlsplit(base_url)
    # Looked up once: aiohttp's own trust_env reads the environment and .netrc at every call.
    proxy = None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
    return aiohttp.ClientSession(
        headers=headers,
        connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds),
        proxy=proxy,
    )

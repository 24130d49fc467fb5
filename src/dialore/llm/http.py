"""The one HTTP client: addresses, keys, the table of faults, retries, adaptive concurrency.

Chat, completions, embeddings and search all stand on it. Every failure is a ModelError with one clear line, a mend, and
whether another try may help.

The openai SDK costs about 3 ms of CPU a call, aiohttp 0.5 to 1 ms; a whole call of ours is to stay under 2.
"""

from __future__ import annotations

import asyncio
import copy
import email.utils
import itertools
import json
import logging
import math
import random
import re
import socket
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

from pydantic_core import PydanticSerializationError, from_json, to_json

from dialore.errors import InputError, ModelError, WindowError
from dialore.llm.model import mend_surrogates

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

T = TypeVar("T")

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 10.0
_QUOTED = 240
_KEY_LIKE = re.compile(r"\b(?:sk|pk|gsk|hf|xai|nvapi)[-_][\w*.-]{4,}|(?i:bearer)\s+[\w.*~+/=-]{8,}")


class ModelTimeoutError(ModelError):
    """A server did not answer in time."""


class Fault(NamedTuple):
    """What a failure means: what to do about it, whether to ask again, whether only the user can change it."""

    mend: str = ""
    retryable: bool = False
    configuration: bool = False


_KEY = Fault("set DIALORE_API_KEY or --api-key to a key that this endpoint accepts", configuration=True)
_TROUBLE = Fault("the server is in trouble; try again later", retryable=True)
FAULTS: dict[int, Fault] = {
    401: _KEY,
    403: _KEY,
    404: Fault("check the address, which usually ends in /v1, and the model's name", configuration=True),
    429: Fault("lower the concurrency or wait", retryable=True),
    **dict.fromkeys((301, 302, 303, 307, 308), Fault("the endpoint has moved", configuration=True)),
    **dict.fromkeys((408, 409, 425, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529), _TROUBLE),
}
"""The faults by HTTP status; any other status is the request's own fault."""
_NO_CREDIT = Fault("the account behind the key has no credit left", configuration=True)
_LONG = re.compile(r"context|too long|max_model_len|maximum.{0,20}(?:length|tokens)", re.IGNORECASE)
_TOO_LONG = Fault("shorten the prompt or lower max_tokens")


# --- addresses and keys


def endpoint_url(base_url: str) -> str:
    """A base URL in one form, without a trailing slash, `/chat/completions` or `/completions`; raises InputError."""
    text = base_url.strip()
    with suppress(ValueError):
        parts = urlsplit(text)
        if parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0 and not re.search(r"\s", text):
            path = parts.path.rstrip("/").removesuffix("/completions").removesuffix("/chat").rstrip("/")
            return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))
    shown = re.sub(r"//[^/@]*@", "//", text)[:_QUOTED]
    mend = "give a full URL, such as http://localhost:11434/v1"
    raise InputError(f"not an endpoint's address: {shown!r}", mend=mend)


def join_url(base_url: str, path: str) -> str:
    """The URL of a path below a base URL; the base's query stays."""
    parts = urlsplit(base_url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path))


def shown_url(url: str) -> str:
    """A URL as errors show it: without user, password and query, where secrets may be."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def clean_key(api_key: str | None) -> str:
    """A key without stray white space; empty for none. Raises InputError where no HTTP header could hold it."""
    key = (api_key or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise InputError("the API key holds characters that no key has", mend="copy it again, without quotes or spaces")
    return key


def one_line(text: str, key: str = "", limit: int = _QUOTED) -> str:
    """Somebody else's text made fit to quote in an error: one line, short, free of keys."""
    if len(key) >= 4:
        text = text.replace(key, "[key]")
    text = mend_surrogates(text[:20_000])
    text = " ".join(_KEY_LIKE.sub("[key]", text).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


# --- faults


def error_detail(payload: object) -> tuple[str, str, str]:
    """`(message, code, parameter)` out of an error body, whichever of the usual shapes it has."""
    error = payload.get("error", payload) if isinstance(payload, dict) else payload
    if isinstance(error, str):
        return error, "", ""
    if not isinstance(error, dict):
        return "", "", ""
    message = error.get("message") or error.get("detail") or error.get("msg") or ""
    if not isinstance(message, str):
        message = json.dumps(message, ensure_ascii=False)
    code = error.get("code") or error.get("type") or ""
    return message, str(code), str(error.get("param") or "")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait, from `retry-after-ms` or `Retry-After` (seconds or HTTP date, RFC 9110)."""
    milliseconds = headers.get("retry-after-ms")
    value = headers.get("Retry-After")
    try:
        seconds = float(milliseconds) / 1000 if milliseconds else float(value or "")
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value or "").timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _connection_error(error: Exception, where: str, timeout: float) -> ModelError:
    """The error for a connection that could not be made or did not last."""
    import aiohttp  # loaded by whoever caught the error

    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return ModelTimeoutError(f"no connection to {where} in time", mend="is the address right?", retryable=True)
    if isinstance(error, TimeoutError):
        late = f"{where} did not finish its answer in {timeout:g} s"
        return ModelTimeoutError(late, mend="raise the time-out", retryable=True)
    if isinstance(error, (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError)):
        mend = "check the certificate (SSL_CERT_FILE) and whether the address wants http or https"
        return ModelError(f"no secure connection to {where}", mend=mend, configuration=True)
    if isinstance(error, aiohttp.ClientConnectorError):
        return _unreachable(error.os_error, where)
    if isinstance(error, aiohttp.ClientResponseError):
        return ModelError(f"{where} does not speak HTTP as it should", mend="is the address right?", retryable=True)
    return ModelError(f"{where} broke the connection before its answer was whole", mend="try again", retryable=True)


def _unreachable(error: OSError, where: str) -> ModelError:
    cause = error.__cause__ if isinstance(error.__cause__, socket.gaierror) else error
    if isinstance(cause, socket.gaierror) or "resolve" in str(error).lower() or "name" in str(error).lower():
        again = isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_AGAIN
        unknown = f"no host is called {urlsplit(where).hostname}"
        mend = "check the base URL and the network"
        return ModelError(unknown, mend=mend, retryable=again, configuration=not again)
    if isinstance(error, ConnectionRefusedError):
        return ModelError(f"nothing listens at {where}", mend="start the server or check its port", retryable=True)
    why = error.strerror or "unknown cause"
    return ModelError(f"cannot reach {where}: {why}", mend="check the network", retryable=True)


def load_json(data: bytes | str, where: str) -> object:
    """JSON as a server sent it; raises ModelError where there is none, or half of it."""
    if not data.strip():
        raise ModelError(f"{where} answered with an empty body", mend="try again", retryable=True)
    with suppress(ValueError):
        # Five times as fast as the standard library, which takes some things more: half a surrogate pair, UTF-16.
        return from_json(data)
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise ModelError(f"{where} answered with broken JSON", mend="try again", retryable=True) from None


# --- the client


class HttpClient:
    """A server asked over HTTP: a deadline, a limit on size, no redirects (a key must not travel to another host).

    One client may serve several event loops one after another, each with a session of its own.

    Args:
        base_url: the server's address, e.g. `http://localhost:11434/v1`.
        api_key: the key, or None where none is wanted; it appears in no error, log or repr.
        headers: further headers; by default the key is sent as a bearer token.
        timeout: seconds for a whole answer, of `max_bytes` at most.

    Raises:
        InputError: the address is not a URL, or the key cannot be one.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 120.0,
        max_bytes: int = 8_000_000,
    ) -> None:
        self.base_url = endpoint_url(base_url)
        self.where = shown_url(self.base_url)
        self.key = clean_key(api_key)
        self.timeout, self.max_bytes = timeout, max_bytes
        self._headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if headers is not None:
            self._headers |= headers
        elif self.key:
            self._headers["Authorization"] = f"Bearer {self.key}"
        self._session: ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_answered = False

    async def json(
        self,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - `open` bounds the body of its context as well
    ) -> Any:  # noqa: ANN401 - decoded JSON has any type
        """The decoded answer of a path below the address (`/embeddings`): by POST where there is a body, else by GET.

        The time-out holds where it is shorter than the client's. Raises ModelError where there is no answer (`FAULTS`).
        """
        async with self.open(path, body, query=query, timeout=timeout) as response:
            answer = await self.read(response)
            if response.status != 200:
                raise self.status_error(response, answer)
            return self.decode(response, answer)

    @asynccontextmanager
    async def open(
        self,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> AsyncIterator[ClientResponse]:
        """The response of a path, as for `json`, open to be read; the deadline holds until the context ends."""
        import aiohttp

        url = join_url(self.base_url, path)
        method, data = ("GET", None) if body is None else ("POST", _as_json(body))
        seconds = min(self.timeout, timeout or self.timeout)
        try:
            async with (
                asyncio.timeout(seconds),
                self._open_session().request(method, url, data=data, params=query, allow_redirects=False) as response,
            ):
                yield response
        except TimeoutError as error:
            raise _connection_error(error, shown_url(url), seconds) from None
        except (aiohttp.ClientError, ConnectionError) as error:
            raise _connection_error(error, shown_url(url), seconds) from error

    async def read(self, response: ClientResponse) -> bytes:
        """A whole body; raises ModelError where it is too big."""
        chunks: list[bytes] = []
        size = 0
        while chunk := await response.content.readany():
            size += len(chunk)
            self._check_size(size)
            chunks.append(chunk)
        return b"".join(chunks)

    def decode(self, response: ClientResponse, answer: bytes) -> Any:  # noqa: ANN401 - decoded JSON has any type
        """The JSON of a body with status 200; raises ModelError where it is a web page, or broken."""
        self.check_kind(response, answer)
        payload = load_json(answer, self.where)
        self._has_answered = True
        return payload

    def check_kind(self, response: ClientResponse, answer: bytes = b"") -> None:
        """Raise ModelError where the answer is a web page."""
        if response.content_type in {"text/html", "application/xhtml+xml"} or answer.lstrip()[:1] == b"<":
            # From a server that has answered before, a page is a gateway's passing trouble.
            raise ModelError(
                f"{self.where} answered with a web page instead of JSON",
                mend="check the base URL, which usually ends in /v1",
                retryable=self._has_answered,
                configuration=not self._has_answered,
            )

    async def events(self, response: ClientResponse) -> AsyncGenerator[str, None]:
        """The `data` of each server-sent event (WHATWG HTML, 9.2); raises ModelError where the stream is too big."""
        rest, size = b"", 0
        while chunk := await response.content.readany():
            size += len(chunk)
            self._check_size(size)
            # A lone carriage return at the end may be half of a line end.
            *lines, rest = (rest + chunk).replace(b"\r\n", b"\n").split(b"\n")
            for line in lines:
                if data := _data(line):
                    yield data
        if data := _data(rest):
            yield data

    def _check_size(self, size: int) -> None:
        if size > self.max_bytes:
            much = f"{self.where} sent more than {self.max_bytes:,} bytes"
            raise ModelError(much, mend="ask for less, or raise max_bytes")

    def status_error(self, response: ClientResponse, body: bytes) -> ModelError:
        """The error for a response of another status than 200."""
        status, headers = response.status, response.headers
        try:
            message, code, _ = error_detail(json.loads(body))
        except (ValueError, RecursionError):
            plain = body.lstrip()[:1] != b"<"
            message, code = (body[:2000].decode("utf-8", "replace") if plain else ""), ""
        said = one_line(message, self.key)
        phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else ""
        fault = FAULTS.get(status, Fault())
        if status == 429 and code == "insufficient_quota":
            fault = _NO_CREDIT
        elif status in {400, 413, 422} and _LONG.search(message):
            fault = _TOO_LONG
        elif 300 <= status < 400 and (target := headers.get("Location")):
            fault = fault._replace(mend=f"the endpoint has moved; try {one_line(shown_url(target), self.key)}")
        line = f"{shown_url(str(response.url))} answered {status} {phrase}".rstrip() + (f": {said}" if said else "")
        kind = WindowError if fault is _TOO_LONG else ModelError
        return kind(line, **fault._asdict(), retry_after=_retry_after(headers), status=status)

    @asynccontextmanager
    async def once(self) -> AsyncIterator[Self]:
        """The same client with a session of its own, closed at the end: for whoever asks seldom, or in many threads."""
        client = copy.copy(self)
        client._session = None  # noqa: SLF001 - a copy of our own
        try:
            yield client
        finally:
            await client.close()

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None and self._loop is asyncio.get_running_loop():
            await session.close()
        else:
            self._leave(session)

    def _open_session(self) -> ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._session.closed or self._loop is not loop:
            self._leave(self._session)
            self._session, self._loop = self._new_session(), loop
        return self._session

    def _leave(self, session: ClientSession | None) -> None:
        """Close the session of another loop, where that is running."""
        if session is not None and self._loop is not None and self._loop.is_running():
            asyncio.run_coroutine_threadsafe(session.close(), self._loop)

    def _new_session(self) -> ClientSession:
        from urllib.request import getproxies, proxy_bypass

        import aiohttp

        parts = urlsplit(self.base_url)
        # Looked up once: aiohttp's own trust_env reads the environment and .netrc at every call.
        is_here = parts.hostname in {"127.0.0.1", "localhost", "::1"}
        proxy = None if is_here or proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
        return aiohttp.ClientSession(
            headers=self._headers,
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=min(_CONNECT_SECONDS, self.timeout)),
            proxy=proxy,
        )


def _data(line: bytes) -> str:
    return line[5:].strip().decode("utf-8", "replace") if line.startswith(b"data:") else ""


def _as_json(body: object) -> bytes:
    try:
        return to_json(body)
    except PydanticSerializationError:
        # Seven times as slow, but half a surrogate pair in a prompt, which UTF-8 cannot hold, stops no call.
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine from synchronous code, in a thread of its own where this one runs an event loop already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, work).result()


# --- retries and concurrency


@dataclass(frozen=True)
class Retry:
    """Retries by exponential backoff with full jitter (Brooker, "Exponential Backoff and Jitter", AWS, 2015).

    The upper bound begins with `base` seconds and is doubled each time up to `cap`; of a server's Retry-After at most
    `longest_wait` seconds are honoured. `uniform` gives numbers in [0, 1).
    """

    retries: int = 4
    base: float = 0.5
    cap: float = 20.0
    longest_wait: float = 60.0
    uniform: Callable[[], float] = random.random
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep

    async def run(self, call: Callable[[int], Awaitable[T]], *, is_over: Callable[[], bool] = lambda: False) -> T:
        """What a call gives, which is told the failures before it, asked again where that may help and not `is_over`.

        Raises:
            ModelError: the last failure, once the retries are spent or another try would not help.
        """
        for failures in itertools.count():
            try:
                return await call(failures)
            except ModelError as error:
                if not error.retryable or failures >= self.retries or is_over():
                    raise
                seconds = self.uniform() * min(self.cap, self.base * 2.0 ** min(failures, 30))
                if error.retry_after is not None:
                    # A little jitter on top, so that not all clients return at once.
                    seconds = min(error.retry_after, self.longest_wait) + self.uniform() * self.base
                log.info("failure %d of %d, waiting %.1f s: %s", failures + 1, self.retries + 1, seconds, error.message)
                await self.sleep(seconds)
        raise AssertionError


_BUSY = frozenset({429, 503, 529})


class AdaptiveLimiter:
    """A limit on calls under way that adapts between 1 and a maximum, as TCP does.

    It starts at the maximum, so that a short run need not climb, halves at each overload, and grows by one a round of
    calls. Calls that began before a decrease say nothing about the limit after it, so a burst of refusals counts once.
    Waiting is first come, first served; a cancelled waiter loses no slot. Raises InputError for a maximum below 1.
    """

    def __init__(self, maximum: int = 64) -> None:
        if maximum < 1:
            raise InputError(f"concurrency must be at least 1, not {maximum}")
        self.maximum = maximum
        self.running = 0
        self._limit = float(maximum)
        self._round = 0
        self._peak = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def limit(self) -> int:
        """How many calls may run at once just now."""
        return int(self._limit)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold a slot; what the body raises tells the limiter how the call went."""
        await self._acquire()
        self._peak = max(self._peak, self.running)
        began = self._round
        try:
            yield
        except ModelError as error:
            if began == self._round and (error.status in _BUSY or isinstance(error, ModelTimeoutError)):
                self._shrink()
            raise
        else:
            self._grow()
        finally:
            self.running -= 1
            self._wake()

    async def _acquire(self) -> None:
        if self.running < self.limit and not self._waiting:
            self.running += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The slot was handed over in the moment of the cancellation: hand it on.
                self.running -= 1
            else:
                self._waiting.remove(turn)
            self._wake()
            raise

    def _wake(self) -> None:
        while self._waiting and self.running < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self.running += 1
                turn.set_result(None)

    def _grow(self) -> None:
        # A limit that was never reached proves nothing about a higher one (RFC 7661).
        if self.limit <= self._peak:
            self._limit = min(float(self.maximum), self._limit + 1.0 / self._limit)

    def _shrink(self) -> None:
        self._round += 1
        self._limit = max(1.0, self._limit / 2)
        self._peak = 0

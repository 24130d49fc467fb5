"""The one HTTP client, under chat, completions, embeddings and search: addresses, keys, the table of faults.

The openai SDK costs about 3 ms of CPU a call, aiohttp 0.5 to 1 ms; a whole call of ours is to stay under 2.
"""

from __future__ import annotations

import asyncio
import copy
import email.utils
import functools
import json
import logging
import math
import os
import re
import select
import socket
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

from pydantic_core import PydanticSerializationError, from_json, to_json

from dialore.errors import InputError, LoadingError, ModelError, ModelTimeoutError, WindowError
from dialore.text import storable

if TYPE_CHECKING:
    from aiohttp import ClientRequest, ClientResponse, ClientSession, ClientTimeout, TCPConnector
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

T = TypeVar("T")

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 10.0
_MAX_BUSY_S = 0.05
_QUOTED, _FIRST_BYTES = 240, 8
_KEY_LIKE = re.compile(r"\b(?:sk|pk|gsk|hf|xai|nvapi)[-_][\w*.-]{4,}|(?i:bearer)\s+[\w.*~+/=-]{8,}")


class Fault(NamedTuple):
    """A failure's meaning: what to do about it, whether to ask again, whether only the user can change it."""

    hint: str = ""
    retryable: bool = False
    configuration: bool = False


_KEY = Fault("set DIALORE_API_KEY or model.api_key to a key that this endpoint accepts", configuration=True)
_TROUBLE = Fault("the server is in trouble; try again later", retryable=True)
FAULTS: dict[int, Fault] = {
    401: _KEY,
    403: _KEY,
    404: Fault("check the address, which usually ends in /v1, and the model's name", configuration=True),
    402: Fault("the account behind the key has no credit left", configuration=True),
    429: Fault("lower model.concurrency or wait", retryable=True),
    **dict.fromkeys((301, 302, 303, 307, 308), Fault("the endpoint has moved", configuration=True)),
    **dict.fromkeys((408, 409, 425, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529), _TROUBLE),
}
"""The faults by HTTP status; any other status is the request's own fault."""
_REPORTED = Fault("see the server's log", retryable=True)
"""Of an error that stands in an answer with status 200 and has no status of its own."""
_KEY_REFUSED = re.compile(
    r"(?i)\b(?:invalid|incorrect|wrong|expired|missing|bad)\b.{0,24}\b(?:api|access)[ _-]?(?:key|token)"
    r"|\bapi[ _-]?key\b.{0,40}(?:not valid|invalid|incorrect|wrong|expired|missing|not found|required|not provided)"
    r"|unauthenticated|unauthori[sz]ed|authentication|permission_denied|(?:invalid|expired) token"
)
_LOADING = re.compile(r"\bloading\b|warming|starting up|not (?:yet )?(?:ready|loaded)|being loaded", re.IGNORECASE)
_LONG = re.compile(r"context|too long|max_model_len|maximum.{0,20}(?:length|tokens)", re.IGNORECASE)
_WINDOW_EXCEEDED = re.compile(
    r"exceed(?:s|ed|ing)?.{0,40}\bcontext[ _](?:length|size|window)|\bcontext[ _](?:length|size|window).{0,40}exceed"
    r"|maximum context length|exceed_context_size",
    re.IGNORECASE,
)
"""Explicit words for a prompt that is too long. Some servers send them with status 500, which is otherwise retried."""
_TOO_LONG = Fault("shorten the prompt or lower max_tokens")


# --- addresses and keys


def endpoint_url(base_url: str) -> str:
    """Return a base URL in one form, without slash, `/chat/completions` or `/completions`; raise InputError."""
    text = base_url.strip()
    with suppress(ValueError):
        parts = urlsplit(text)
        if parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0 and not re.search(r"\s", text):
            path = parts.path.rstrip("/").removesuffix("/completions").removesuffix("/chat").rstrip("/")
            return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))
    shown = re.sub(r"//[^/@]*@", "//", text)[:_QUOTED]
    hint = "give a full URL, such as http://localhost:11434/v1"
    raise InputError(f"not an endpoint's address: {shown!r}", hint=hint)


def join_url(base_url: str, path: str) -> str:
    """Return the URL of a path below a base URL; the base's query stays."""
    parts = urlsplit(base_url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path))


def redact_url(url: str) -> str:
    """Return a URL as errors show it: without user, password and query, where secrets may be."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def clean_key(api_key: str | None) -> str:
    """Return a key without stray white space; empty for none. Raises InputError where no HTTP header could hold it."""
    key = (api_key or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise InputError("the API key holds characters that no key has", hint="copy it again, without quotes or spaces")
    return key


def one_line(text: str, key: str = "") -> str:
    """Return a server's text as it can be quoted in an error: one line, short, without keys."""
    if len(key) >= 4:
        text = text.replace(key, "[key]")
    text = " ".join(_KEY_LIKE.sub("[key]", storable(text[:20_000])).split())
    return text if len(text) <= _QUOTED else text[: _QUOTED - 1] + "…"


# --- faults


def error_detail(payload: object) -> tuple[str, str, str]:
    """`(message, code, parameter)` out of an error body, whichever of the usual shapes it has."""
    if isinstance(payload, list) and payload:
        payload = payload[0]
    error = payload.get("error", payload) if isinstance(payload, dict) else payload
    if not isinstance(error, dict):
        return error if isinstance(error, str) else "", "", ""
    message = error.get("message") or error.get("detail") or error.get("msg") or ""
    if not isinstance(message, str):
        message = json.dumps(message, ensure_ascii=False)
    codes = [str(error[name]) for name in ("code", "type", "status") if error.get(name)]
    return message, " ".join(codes), str(error.get("param") or "")


def reply_error(line: str, payload: object, *, status: int = 0, key: str = "", wait: float | None = None) -> ModelError:
    """Return the error that a server's own words and status make: `line: <its words>`, with what they mean."""
    message, code, parameter = error_detail(payload)
    report = f"{message} {code} {parameter}"
    status = status or next((int(word) for word in code.split() if word.isdigit()), 0)
    fault = FAULTS.get(status, Fault() if status else _REPORTED)
    kind: type[ModelError] = ModelError
    if status != 429 and _KEY_REFUSED.search(report):
        fault = _KEY
    elif "insufficient_quota" in code:
        fault = FAULTS[402]
    elif (status in {400, 413, 422} and _LONG.search(message)) or (status != 429 and _WINDOW_EXCEEDED.search(report)):
        fault, kind = _TOO_LONG, WindowError
    elif status in {500, 503} and _LOADING.search(message):
        kind = LoadingError
    words = one_line(message, key)
    error = kind(f"{line}: {words}" if words else line, **fault._asdict(), retry_after=wait, status=status or None)
    error.said, error.parameter = report, parameter
    return error


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait, from `retry-after-ms` or `Retry-After` (seconds or HTTP date, RFC 9110)."""
    milliseconds, value = headers.get("retry-after-ms"), headers.get("Retry-After", "")
    try:
        seconds = float(milliseconds) / 1000 if milliseconds else float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _connection_error(error: Exception, where: str, timeout: float, *, flows: bool = False) -> ModelError:
    import aiohttp  # loaded already where such an error was caught

    wrong = "is the address right?"
    match error:
        case aiohttp.ConnectionTimeoutError():
            why, fault = f"no connection to {where} in time", Fault(wrong, retryable=True)
        case TimeoutError() if flows:
            fault = Fault("a slow model needs more: raise model.timeout", retryable=True)
            why = f"{where} was silent for {timeout:g} s"
        case TimeoutError():
            why, fault = f"{where} did not finish its answer in {timeout:g} s", Fault("raise the time-out", True)
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            hint = "check the certificate (SSL_CERT_FILE) and whether the address wants http or https"
            why, fault = f"no secure connection to {where}", Fault(hint, configuration=True)
        case aiohttp.ClientConnectorDNSError():
            passing = error.os_error.errno == socket.EAI_AGAIN
            fault = Fault("check the base URL and the network", passing, not passing)
            why = f"the host of {where} is not known"
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
            why, fault = f"nothing listens at {where}", Fault("start the server or check its port", retryable=True)
        case aiohttp.ClientConnectorError():
            why = f"cannot reach {where}: {error.os_error.strerror or 'unknown cause'}"
            fault = Fault("check the network", retryable=True)
        case aiohttp.ClientResponseError():
            why, fault = f"{where} does not speak HTTP as it should", Fault(wrong, retryable=True)
        case _:
            why, fault = f"{where} broke the connection before its answer was whole", Fault("try again", retryable=True)
    return (ModelTimeoutError if isinstance(error, TimeoutError) else ModelError)(why, **fault._asdict())


def load_json(data: bytes | str, where: str) -> object:
    """JSON as a server sent it; raises ModelError where there is none, or half of it."""
    if not data.strip():
        raise ModelError(f"{where} answered with an empty body", hint="try again", retryable=True)
    with suppress(ValueError):
        # Five times as fast as the standard library, which takes some things more: half a surrogate pair, UTF-16.
        return from_json(data)
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise ModelError(f"{where} answered with broken JSON", hint="try again", retryable=True) from None


# --- the client


class Pause:
    """Lets other tasks and deadlines of the event loop have their turn while data keeps coming in.

    Reading data that has already arrived never suspends a task, so a server that floods would postpone every timeout.
    """

    def __init__(self) -> None:
        self._last = time.monotonic()

    async def take(self) -> None:
        """Suspend the task if it has run for longer than `_MAX_BUSY_S`."""
        if time.monotonic() - self._last > _MAX_BUSY_S:
            await asyncio.sleep(0)
            self._last = time.monotonic()


class HttpClient:
    """A server asked over HTTP: a deadline, a limit on size, no redirects (a key must not travel to another host).

    One client may serve several event loops one after another, each with a session of its own. The key appears in no
    error, log or repr, and is sent as a bearer token unless there are `headers`. The time-out, in seconds, is for the
    whole of an answer or, where it flows, of silence. Raises InputError where the address is no URL, or the key cannot
    be one.
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
        self.where, self.key = redact_url(self.base_url), clean_key(api_key)
        self.timeout, self.max_bytes = timeout, max_bytes
        self._headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if headers is not None:
            self._headers |= headers
        elif self.key:
            self._headers["Authorization"] = f"Bearer {self.key}"
        self._session: ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0
        self.has_answered = False

    async def json(self, path: str, body: object = None, **options: Any) -> Any:  # noqa: ANN401 - of any type
        """Return the decoded answer of a path, asked for as by `open`; ModelError where there is none (`FAULTS`)."""
        async with self.open(path, body, **options) as response:
            answer = await self.read(response)
            if response.status not in {200, 201}:
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
        flows: bool = False,
    ) -> AsyncIterator[ClientResponse]:
        """Yield the response of a path below the address (`/embeddings`), by POST with a body, else by GET.

        A body may be a function that returns a form of aiohttp. The time-out holds where it is shorter than the
        client's, until the context ends; of an answer that `flows`, for each silence anew. A POST is sent once: if
        the connection breaks, the server may have received the request and charged for it. Callers that send it again
        count that as a retry (`Retry`).
        """
        import aiohttp

        url = join_url(self.base_url, path)
        seconds = min(self.timeout, timeout or self.timeout)
        connect, read = min(_CONNECT_SECONDS, seconds), seconds if flows else None
        silence = aiohttp.ClientTimeout(total=None, sock_connect=connect, sock_read=read)
        options: dict[str, Any] = {"params": query, "allow_redirects": False, "timeout": silence}
        method = "GET" if body is None else "POST"
        if callable(body):
            form = body()
            options |= {"data": form, "headers": {"Content-Type": form.content_type}}
        elif body is not None:
            options["data"] = as_json(body)
        try:
            async with asyncio.timeout(None if flows else seconds):
                async with self._open_session().request(method, url, **options) as response:
                    yield response
        except TimeoutError as error:
            raise _connection_error(error, redact_url(url), seconds, flows=flows) from None
        except (aiohttp.ClientError, ConnectionError) as error:
            raise _connection_error(error, redact_url(url), seconds) from error

    async def read(self, response: ClientResponse, begun: bytes = b"") -> bytes:
        """Return a whole body, after what has been read of it; raise ModelError where it is too big."""
        body = bytearray(begun)
        pause = Pause()
        while chunk := await response.content.readany():
            body += chunk
            self._check_size(len(body))
            await pause.take()
        return bytes(body)

    def decode(self, response: ClientResponse, answer: bytes) -> Any:  # noqa: ANN401 - decoded JSON has any type
        """Return the JSON of a body with status 200; raise ModelError where it is a web page, or broken."""
        if response.content_type in {"text/html", "application/xhtml+xml"} or answer.lstrip()[:1] == b"<":
            # From a server that has answered before, a page is a gateway's passing trouble.
            before, page = self.has_answered, f"{self.where} answered with a web page instead of JSON"
            hint = "check the base URL, which usually ends in /v1"
            raise ModelError(page, hint=hint, retryable=before, configuration=not before)
        payload = load_json(answer, self.where)
        self.has_answered = True
        return payload

    async def begin(self, response: ClientResponse) -> bytes:
        """Return the first line of a body, or its beginning; some servers send empty lines to stay connected."""
        begun = b""
        pause = Pause()
        while len(begun.lstrip()) < _FIRST_BYTES and (chunk := await response.content.readany()):
            begun += chunk
            self._check_size(len(begun))
            await pause.take()
        return begun

    async def events(self, response: ClientResponse, begun: bytes = b"") -> AsyncGenerator[str, None]:
        """Yield the `data` of each server-sent event (WHATWG HTML, 9.2); ModelError where the stream is too big."""
        rest, size = b"", 0
        pause = Pause()
        while chunk := begun or await response.content.readany():
            begun = b""
            size += len(chunk)
            self._check_size(size)
            await pause.take()
            # A lone carriage return at the end may be half of a line end.
            *lines, rest = (rest + chunk).replace(b"\r\n", b"\n").split(b"\n")
            for line in lines:
                if data := _data(line):
                    yield data
                    await pause.take()  # one chunk may hold thousands of events
        if data := _data(rest):
            yield data

    def _check_size(self, size: int) -> None:
        if size > self.max_bytes:
            raise ModelError(f"{self.where} sent more than {self.max_bytes:,} bytes", hint="ask for less")

    def status_error(self, response: ClientResponse, body: bytes) -> ModelError:
        """Return the error for a response of another status than 200."""
        status, target = response.status, response.headers.get("Location")
        payload: object = body[:4000].decode("utf-8", "replace") if body.lstrip()[:1] != b"<" else ""
        with suppress(ValueError, RecursionError):
            payload = json.loads(body)
        phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else ""
        line = f"{redact_url(str(response.url))} answered {status} {phrase}".rstrip()
        error = reply_error(line, payload, status=status, key=self.key, wait=_retry_after(response.headers))
        if 300 <= status < 400 and target:
            error.hint = f"the endpoint has moved; try {one_line(redact_url(target), self.key)}"
        return error

    @asynccontextmanager
    async def once(self) -> AsyncIterator[Self]:
        """Yield the same client with a session of its own, closed at the end, for rare calls or many threads."""
        client = copy.copy(self)
        client._session = None  # noqa: SLF001 - a copy of our own
        try:
            yield client
        finally:
            await client.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None and self._loop is asyncio.get_running_loop():
            await self._session.close()
        self._leave()

    def _leave(self) -> None:
        """Close a session of another loop, where that is running."""
        session, self._session = self._session, None
        if self._process != os.getpid():
            return  # the process was forked: the connections are the other one's
        if session is not None and not session.closed and self._loop is not None and self._loop.is_running():
            asyncio.run_coroutine_threadsafe(session.close(), self._loop)

    def _open_session(self) -> ClientSession:
        from urllib.request import getproxies, proxy_bypass

        import aiohttp

        loop = asyncio.get_running_loop()
        is_open = self._session is not None and not self._session.closed
        if self._session is not None and is_open and self._loop is loop and self._process == os.getpid():
            return self._session
        self._leave()
        parts = urlsplit(self.base_url)
        # Looked up once: aiohttp's own trust_env reads the environment and .netrc at every call.
        is_here = parts.hostname in {"127.0.0.1", "localhost", "::1"}
        proxy = None if is_here or proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
        connector, cookies = _connector_class()(limit=0, ttl_dns_cache=300), aiohttp.DummyCookieJar()
        made = aiohttp.ClientSession(headers=self._headers, connector=connector, cookie_jar=cookies, proxy=proxy)
        self._session, self._loop, self._process = made, loop, os.getpid()
        return made


@functools.cache
def _connector_class() -> type[TCPConnector]:
    """Return the connector class. It is made on first use, because aiohttp takes long to import."""
    import aiohttp

    class CheckedConnector(aiohttp.TCPConnector):
        """Reuses an idle connection only if the server has not closed it, so that no request is lost on it."""

        def __init__(self, **options: Any) -> None:  # noqa: ANN401 - those of TCPConnector
            super().__init__(**options)
            self._used: weakref.WeakSet[asyncio.BaseProtocol] = weakref.WeakSet()

        async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:  # noqa: ASYNC109
            while True:
                connection = await super().connect(req, traces, timeout)
                protocol = connection.protocol
                if protocol is None:
                    return connection
                if protocol in self._used and _is_readable(connection.transport):
                    connection.close()
                    continue
                self._used.add(protocol)
                return connection

    return CheckedConnector


def _is_readable(transport: asyncio.BaseTransport | None) -> bool:
    """Return whether data or the end of the stream waits in a socket. On an idle connection, it is the end."""
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is None or sock.fileno() < 0:
        return False
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([sock], [], [], 0)[0])
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _data(line: bytes) -> str:
    return line[5:].strip().decode("utf-8", "replace") if line.startswith(b"data:") else ""


def as_json(body: object) -> bytes:
    """Return a body as JSON in UTF-8."""
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

"""What an endpoint's failures mean: each becomes a ModelError with one clear line, a mend, and whether to ask again."""

from __future__ import annotations

import email.utils
import json
import math
import re
import socket
import time
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit, urlunsplit

from dialore.errors import InputError, ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

_TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
_KEY_LIKE = re.compile(r"\b(?:sk|pk|gsk|hf|xai|nvapi)[-_][\w*.-]{4,}|(?i:bearer)\s+[\w.*~+/=-]{8,}")
_QUOTED = 240
_KEY_MEND = "set DIALORE_API_KEY or --api-key to a key that this endpoint accepts"


class ModelTimeoutError(ModelError):
    """A model did not answer in time."""


def endpoint_url(base_url: str) -> str:
    """A base URL checked and brought into one form: no trailing slash, no `/chat/completions` or `/completions`.

    Raises:
        InputError: it is not an http or https URL with a host.
    """
    text = base_url.strip()
    parts = _split(text)
    if parts is None:
        shown = re.sub(r"//[^/@]*@", "//", text)[:_QUOTED]
        raise InputError(
            f"not an endpoint's address: {shown!r}", mend="give a full URL, such as http://localhost:11434/v1"
        )
    path = parts.path.rstrip("/").removesuffix("/completions").removesuffix("/chat").rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def _split(text: str) -> SplitResult | None:
    try:
        parts = urlsplit(text)
        _ = parts.port  # reading it checks it
    except ValueError:
        return None
    good = parts.scheme in {"http", "https"} and bool(parts.hostname) and not re.search(r"\s", text)
    return parts if good else None


def join_url(base_url: str, path: str) -> str:
    """The URL of a path below a base URL; the base's query stays."""
    parts = urlsplit(base_url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path))


def shown_url(url: str) -> str:
    """A URL as errors show it: without user, password and query, where secrets may be."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def clean_key(api_key: str | None) -> str:
    """A key without stray white space; empty for none.

    Raises:
        InputError: it could not be sent in an HTTP header.
    """
    key = (api_key or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise InputError("the API key holds characters that no key has", mend="copy it again, without quotes or spaces")
    return key


def one_line(text: str, key: str = "", limit: int = _QUOTED) -> str:
    """Somebody else's text made fit to quote in an error: one line, short, free of keys."""
    if len(key) >= 4:
        text = text.replace(key, "[key]")
    text = " ".join(_KEY_LIKE.sub("[key]", text[:20_000]).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait, from `retry-after-ms` or `Retry-After` (seconds or HTTP date, RFC 9110)."""
    milliseconds = headers.get("retry-after-ms")
    value = headers.get("Retry-After")
    try:
        seconds = float(milliseconds) / 1000 if milliseconds else float(value or "")
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value or "").timestamp() - time.time()
        except ValueError:
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


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


def status_error(status: int, headers: Mapping[str, str], body: bytes, *, url: str, key: str) -> ModelError:
    """The error for an HTTP status other than 200 (404 excepted, which wants the server's list of models)."""
    try:
        message, code, _ = error_detail(json.loads(body))
    except (ValueError, RecursionError):
        plain = body.lstrip()[:1] != b"<"
        message, code = (body[:2000].decode("utf-8", "replace") if plain else ""), ""
    said = one_line(message, key)
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else ""
    line = f"{shown_url(url)} answered {status} {phrase}".rstrip() + (f": {said}" if said else "")
    retryable = status in _TRANSIENT
    mend, configuration = "", False
    if status in {401, 403}:
        mend, configuration = _KEY_MEND, True
    elif 300 <= status < 400:
        target = one_line(shown_url(headers.get("Location", "")), key)
        mend, configuration = f"the endpoint has moved{f'; try {target}' if target else ''}", True
    elif status == 429 and code == "insufficient_quota":
        mend, configuration, retryable = "the account behind the key has no credit left", True, False
    elif status == 429:
        mend = "lower the concurrency or wait"
    elif "context" in message.lower() and status in {400, 413, 422}:
        mend = "shorten the prompt or lower max_tokens"
    elif retryable:
        mend = "the server is in trouble; try again later"
    return ModelError(
        line,
        mend=mend,
        retryable=retryable,
        retry_after=retry_after(headers),
        status=status,
        configuration=configuration,
    )


def connection_error(error: Exception, *, url: str, timeout: float) -> ModelError:
    """The error for a connection that could not be made or did not last."""
    import aiohttp  # loaded by whoever caught the error

    where = shown_url(url)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return ModelTimeoutError(f"no connection to {where} in time", mend="is the address right?", retryable=True)
    if isinstance(error, TimeoutError):
        return ModelTimeoutError(
            f"{where} did not finish its answer in {timeout:g} s", mend="raise the time-out", retryable=True
        )
    if isinstance(error, (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError)):
        return ModelError(
            f"no secure connection to {where}",
            mend="check the certificate (SSL_CERT_FILE) and whether the address wants http or https",
            configuration=True,
        )
    if isinstance(error, aiohttp.ClientConnectorError):
        return _unreachable(error.os_error, where)
    if isinstance(error, aiohttp.ClientResponseError):
        return ModelError(f"{where} does not speak HTTP as it should", mend="is it a chat endpoint?", retryable=True)
    return ModelError(f"{where} broke the connection before its answer was whole", mend="try again", retryable=True)


def _unreachable(error: OSError, where: str) -> ModelError:
    cause = error.__cause__ if isinstance(error.__cause__, socket.gaierror) else error
    if isinstance(cause, socket.gaierror) or "resolve" in str(error).lower() or "name" in str(error).lower():
        again = isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_AGAIN
        host = urlsplit(where).hostname
        return ModelError(
            f"no host is called {host}",
            mend="check the base URL and the network",
            retryable=again,
            configuration=not again,
        )
    if isinstance(error, ConnectionRefusedError):
        return ModelError(f"nothing listens at {where}", mend="start the server or check its port", retryable=True)
    return ModelError(
        f"cannot reach {where}: {error.strerror or 'unknown cause'}", mend="check the network", retryable=True
    )

"""Connections of the service: how many, how large a request's head may be, and how long a client may be silent.

uvicorn has no limits of this kind with httptools. Everything else about connections is left to it and to a proxy.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dialore.server.errors import ServiceError
from dialore.settings import ServerSettings

MAX_HEAD = 32_768
"""Maximum bytes of a request's line and headers."""
HEAD_S = 20.0
"""Seconds within which the head of a request has to come."""
READ_S = 120.0
"""Seconds within which a client has to read what was sent to it, before more is sent."""
_PHRASES = {408: "Request Timeout", 431: "Request Header Fields Too Large", 503: "Service Unavailable"}


class _Connection(HttpToolsProtocol):
    """A connection; `_head` counts the bytes of the head that is coming, None if none is."""

    settings: ClassVar[ServerSettings]
    by_address: ClassVar[Counter[str]]
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head: int | None = 0
        self._address = self.client[0] if self.client else ""
        self._waiting = self.loop.call_later(HEAD_S, self._refuse, 408, "no request came")
        self.by_address[self._address] += 1
        if self.by_address[self._address] > self.settings.connections_per_address:
            self._refuse(503, "too many connections from this address")
        elif len(self.connections) > self.settings.connections:
            self._refuse(503, "too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        self.by_address[self._address] -= 1
        if not self.by_address[self._address]:
            del self.by_address[self._address]
        self._waiting.cancel()
        if self._stalled is not None:
            self._stalled.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        self._stalled = self.loop.call_later(READ_S, self.transport.abort)
        super().pause_writing()

    def resume_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._head is not None:
            self._head += len(data)
            if self._head > MAX_HEAD:
                self._refuse(431, "the request's head is too large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = 0
        self._waiting.cancel()
        self._waiting = self.loop.call_later(HEAD_S, self._refuse, 408, "the head did not come")

    def on_headers_complete(self) -> None:
        self._waiting.cancel()
        self._head = None
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > MAX_HEAD:
            self._refuse(431, "the request's head is too large")
        if not self.transport.is_closing():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.transport.is_closing():
            super().on_message_complete()

    def _refuse(self, status: int, message: str) -> None:
        self._waiting.cancel()
        if self.transport.is_closing():
            return
        body = json.dumps(ServiceError(status, message, code="connection_refused").body).encode()
        head = f"HTTP/1.1 {status} {_PHRASES[status]}\r\nContent-Type: application/json\r\nConnection: close\r\n"
        self.transport.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.transport.close()


def bounded_protocol(settings: ServerSettings) -> type[asyncio.Protocol]:
    """Return uvicorn's reader of requests with these limits; a connection beyond them is refused and closed."""
    return type("Connection", (_Connection,), {"settings": settings, "by_address": Counter()})

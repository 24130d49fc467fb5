"""Limits on who may ask, how much, and how large: checked before a request is parsed."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import math
import operator
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dialore.errors import InputError
from dialore.retrieval.documents.filters import EVERY_GROUP
from dialore.server.errors import ServiceError, full_disk
from dialore.server.store import ServerStore
from dialore.server.telemetry import Telemetry
from dialore.settings import KeySettings, ServerSettings

_UPLOADS = "/v1/knowledge/files"
OPEN_PER_ADDRESS = 16
"""Maximum requests under way from one address to paths that need no key."""
BODY_S = 120.0
"""Seconds within which a whole body has to come."""
_PART_S = 30.0
"""Seconds within which the next part of a body has to come."""
_DAY = 86_400
_SINGLE_HEADERS = {"host", "origin", "authorization", "content-length"}
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def new_key() -> tuple[str, str]:
    """Return a key and its hash. It is random and long, so that a plain hash keeps it."""
    key = f"dlr-{secrets.token_urlsafe(32)}"
    return key, hashlib.sha256(key.encode()).hexdigest()


def check_address(settings: ServerSettings) -> None:
    """Raise InputError where a service would be open to others without keys."""
    try:
        is_this_machine = ipaddress.ip_address(settings.host).is_loopback
    except ValueError:
        is_this_machine = settings.host == "localhost"
    if not is_this_machine and not settings.keys:
        hint = "make one: dialore serve --new-key NAME"
        raise InputError(f"{settings.host} can be reached from outside, which needs keys", hint=hint)


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller with a key; without keys there is one caller, who may do anything."""

    settings: KeySettings

    @property
    def name(self) -> str:
        """The key's name."""
        return self.settings.name

    @property
    def groups(self) -> frozenset[str] | None:
        """The groups whose passages it may read; None: all."""
        return None if EVERY_GROUP in self.settings.groups else frozenset(self.settings.groups)

    def groups_of_new(self, asked: Sequence[str] | None) -> list[str] | None:
        """Return the groups that may read what the caller adds: those asked for, else the key's own.

        What a file itself says is narrowed to these. None: whatever the file says; an empty list: everybody, so that
        the file may name no groups. Raises ServiceError if the key may not write to the groups asked for.
        """
        own = self.groups
        if asked is None:
            return None if own is None else sorted(own)
        if not self.may_write(asked):
            named = ", ".join(asked) or "none, which is everybody"
            message = f"the key {self.name} does not have all of these groups: {named}"
            raise ServiceError(403, message, code="groups_not_allowed")
        return list(dict.fromkeys(asked))

    def may_write(self, groups: Sequence[str]) -> bool:
        """Return whether the caller may add, replace and delete passages for these groups; of none: for everybody."""
        own = self.groups
        if own is None:
            return True
        return own.issuperset(groups) and bool(own) == bool(groups)

    async def check(self, store: ServerStore) -> None:
        """Count a request, with those that other workers take; raises ServiceError where it is one too many."""
        rate, most = self.settings.requests_per_minute, self.settings.tokens_per_day
        if rate and await store.attempt(store.count(self.name, "requests", 1, 60), 0) > rate:
            raise _too_many("requests a minute", 60 - time.time() % 60)
        if most and await store.attempt(store.count(self.name, "tokens", 0, _DAY), 0) >= most:
            raise _too_many("tokens a day", _DAY - time.time() % _DAY)

    async def spend(self, tokens: int, store: ServerStore) -> None:
        """Count tokens."""
        if self.settings.tokens_per_day:
            await store.attempt(store.count(self.name, "tokens", tokens, _DAY), 0)


def _too_many(what: str, seconds: float) -> ServiceError:
    headers = {"Retry-After": str(max(1, int(seconds + 0.999)))}
    return ServiceError(429, f"too many {what}", code="rate_limit_exceeded", headers=headers)


def _read_headers(scope: Scope) -> dict[str, str]:
    """Return the headers of a request; raise ServiceError if one that decides about access is there twice."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name = raw_name.decode("latin-1")
        if name in headers and name in _SINGLE_HEADERS:
            raise ServiceError(400, f"the header {name} is there twice", code="invalid_request")
        headers[name] = raw_value.decode("latin-1")
    return headers


def _check_path(path: str) -> None:
    """Raise ServiceError if a path has empty or dot segments.

    An id that contains slashes arrives decoded, and proxies that resolve such segments would route it elsewhere.
    """
    segments = path.removeprefix("/").split("/")
    is_root = segments == [""]
    if not is_root and not {"", ".", ".."}.isdisjoint(segments):
        raise ServiceError(404, "the path has an empty or a dot segment", code="invalid_request")


def anybody() -> Caller:
    """Return the caller where there are no keys."""
    own = KeySettings(name="local", sha256="0" * 64, knowledge=True, groups=[EVERY_GROUP])
    return Caller(own.model_copy(update={"requests_per_minute": 0, "concurrency": 0}))


class Guard:
    """ASGI middleware that checks host, origin, key, rate and size of a request.

    Requests for `open_paths` need no key, and have no caller in the state of their scope.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        telemetry: Telemetry,
        store: ServerStore,
        open_paths: Collection[str],
    ) -> None:
        self._app, self._settings, self._telemetry, self._store = app, settings, telemetry, store
        self._open_paths = frozenset(open_paths)
        self._callers = [Caller(key) for key in settings.keys]
        self._under_way: Counter[str] = Counter()
        self._open: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        is_head = scope["method"] == "HEAD"  # as the same GET, without its body
        scope = {"state": {}, **scope, "method": scope["method"].replace("HEAD", "GET")}

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                scope["state"]["status"] = message["status"]
                own = [(b"x-content-type-options", b"nosniff"), (b"x-request-id", request.encode())]
                message = {**message, "headers": [*message.get("headers", []), *own]}
            else:
                if "held" in scope["state"] and not message.get("more_body", False):
                    scope["state"]["held"].close()  # before the end is sent: who has it may ask again
                message = {**message, "body": b""} if is_head else message
            await send(message)

        request = secrets.token_hex(8)
        with self._telemetry.request(scope, request):
            try:
                async with self._admit(scope):
                    await self._app(scope, self._limit_body(scope, receive), sent)
            except (ServiceError, OSError) as error:
                told = error if isinstance(error, ServiceError) else full_disk(error)
                if told is None:
                    raise
                if "status" not in scope["state"]:
                    await told.response(scope, receive, sent)

    @asynccontextmanager
    async def _admit(self, scope: Scope) -> AsyncIterator[None]:
        headers = _read_headers(scope)
        _check_path(scope["path"])
        self._check_place(headers)
        length = headers.get("content-length", "0")
        self._check_size(scope, float(length) if length.isdecimal() else math.inf)
        if is_open := scope["path"] in self._open_paths:
            name, most = scope["client"][0] if scope.get("client") else "", OPEN_PER_ADDRESS
        else:
            caller = scope["state"]["caller"] = self._caller(headers)
            name, most = caller.name, caller.settings.concurrency or self._settings.concurrency
        busy = self._open if is_open else self._under_way
        if busy[name] >= most or (not is_open and busy.total() >= self._settings.concurrency):
            raise _too_many("requests at once", 1)
        busy[name] += 1
        with ExitStack() as held:
            scope["state"]["held"] = held
            held.callback(operator.isub, busy, Counter([name]))  # none is kept of whom no request is under way
            if not is_open:
                await scope["state"]["caller"].check(self._store)
            yield

    def _check_place(self, headers: dict[str, str]) -> None:
        """Refuse pages of other sites and, on this machine, host names that are not its own (DNS rebinding)."""
        host, origin = headers.get("host", ""), headers.get("origin")
        try:
            name = urlsplit(f"//{host}").hostname if "@" not in host else None
            site = urlsplit(origin or "").netloc
        except ValueError:
            raise ServiceError(400, "the host or the origin is malformed", code="invalid_request") from None
        if not self._callers and name not in {*_LOOPBACK, *self._settings.hosts}:
            raise ServiceError(403, "this service does not answer to that host name", code="unknown_host")
        allowed = self._settings.origins
        if origin is not None and site != host and "*" not in allowed and origin.lower() not in allowed:
            raise ServiceError(403, "pages of that origin may not ask this service", code="unknown_origin")

    def _caller(self, headers: dict[str, str]) -> Caller:
        if not self._callers:
            return anybody()
        scheme, _, given = headers.get("authorization", "").partition(" ")
        mark = hashlib.sha256(given.strip().encode()).hexdigest()
        # All are compared, each in constant time: how long it takes tells nothing.
        same = [caller for caller in self._callers if hmac.compare_digest(caller.settings.sha256, mark)]
        if scheme.lower() != "bearer" or not same:
            headers = {"WWW-Authenticate": "Bearer"}
            raise ServiceError(401, "no such key", code="invalid_api_key", headers=headers)
        return same[0]

    def _check_size(self, scope: Scope, size: float) -> None:
        if size > (self._settings.max_upload + 10_000 if scope["path"] == _UPLOADS else self._settings.max_body):
            raise ServiceError(413, "the request is too large", code="request_too_large")

    def _limit_body(self, scope: Scope, receive: Receive) -> Receive:
        """Receives a body that has to stay small, and to come."""
        read, whole = 0, False
        until = asyncio.get_running_loop().time() + BODY_S

        async def measured() -> Message:
            nonlocal read, whole
            if whole:
                return await receive()
            try:
                async with asyncio.timeout_at(min(until, asyncio.get_running_loop().time() + _PART_S)):
                    message = await receive()
            except TimeoutError:
                raise ServiceError(408, "the request's body did not come", code="request_timeout") from None
            if message["type"] == "http.request":
                read += len(message.get("body", b""))
                whole = not message.get("more_body", False)
                self._check_size(scope, read)
            return message

        return measured

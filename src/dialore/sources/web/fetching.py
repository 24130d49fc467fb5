"""Pages fetched with care: from public addresses, small, in time, text only, and with nothing of the user's.

A search result or a redirect is anybody's word. Without a check, `http://169.254.169.254/` or a name that resolves to
127.0.0.1 would have this machine read its own services out to a language model (server-side request forgery).
"""

from __future__ import annotations

import asyncio
import gzip
import io
import socket
import unicodedata
import zlib
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from dialore._version import __version__
from dialore.encodings import decode
from dialore.errors import DialoreError, import_optional
from dialore.knowledge import Passage
from dialore.llm.pacing import AdaptiveLimiter
from dialore.sources.web.safety import without_controls

USER_AGENT = f"dialore/{__version__} (knowledge-grounded dialogue; fetches pages that a search has found)"
_HEADERS = {
    "User-Agent": USER_AGENT,
    "Accept": "text/html,application/xhtml+xml,text/plain;q=0.8",
    "Accept-Encoding": "gzip",
}
_KINDS = frozenset({"text/html", "application/xhtml+xml", "text/plain"})
_MOST_REDIRECTS = 5
_MAX_BYTES = 2_000_000
"""The most bytes of a page, on the wire and decompressed."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PORTS = {"http": 80, "https": 443}
_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
# Services of clouds for their own machines that stand at public-looking addresses.
_METADATA = frozenset({IPv4Address("168.63.129.16"), IPv4Address("100.100.100.200"), IPv4Address("192.0.0.192")})


class PageError(DialoreError):
    """A page that could not be had: refused, too big, too slow, no text. Its search snippet stands in for it."""


@dataclass(frozen=True)
class Fetched:
    """A page as it came: where it was in the end, its bytes, its content type, and the charset of its header."""

    url: str
    data: bytes
    kind: str
    charset: str


class PageFetcher:
    """Fetches pages from the public internet, some at once, each within so many seconds, redirects included.

    A host is resolved once, and that very address is connected to. No proxy is asked, for it would resolve anew. A page
    is given up after `read_timeout` seconds without a byte, too.
    """

    def __init__(
        self,
        *,
        rules: AddressRules | None = None,
        timeout: float = 10.0,
        read_timeout: float = 5.0,
        concurrency: int = 8,
    ) -> None:
        self._rules = rules or AddressRules()
        self._timeout, self._read_timeout = timeout, read_timeout
        self._limiter = AdaptiveLimiter(concurrency)

    async def fetch(self, url: str) -> Fetched:
        """Fetch a page; raise PageError with the reason where it cannot be had."""
        async with self._limiter.slot():
            try:
                async with asyncio.timeout(self._timeout), self._session() as session:
                    return await self._follow(session, url)
            except RefusedAddressError as error:
                raise PageError(f"refused: {error}") from error
            except TimeoutError as error:
                raise PageError(f"not whole within {self._timeout:g} s") from error
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise PageError(f"cannot be reached ({type(error).__name__})") from error

    def _session(self) -> aiohttp.ClientSession:
        """Return a session without cookies, credentials, proxy or memory: nothing of one page reaches another."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(resolver=self._rules, use_dns_cache=False, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            headers=_HEADERS,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._read_timeout, sock_read=self._read_timeout),
        )

    async def _follow(self, session: aiohttp.ClientSession, url: str) -> Fetched:
        for _ in range(_MOST_REDIRECTS + 1):
            self._rules.check(url)
            # What is connected to is the URL as the client folds it, and an address in it asks no resolver.
            asked = URL(url)
            self._rules.check(str(asked))
            async with session.get(asked, allow_redirects=False) as response:
                target = response.headers.get("Location")
                if response.status not in _REDIRECTS or not target:
                    return await _read(response)
                url = urljoin(url, target)
        raise PageError(f"more than {_MOST_REDIRECTS} redirects")


async def _read(response: aiohttp.ClientResponse) -> Fetched:
    if response.status != 200:
        raise PageError(f"answered {response.status}")
    kind = response.headers.get("Content-Type", "text/html").partition(";")[0].strip().lower()
    if kind not in _KINDS:
        raise PageError(f"not a page of text but {kind[:80]}")
    too_big = PageError(f"more than {_MAX_BYTES:,} bytes")
    if (response.content_length or 0) > _MAX_BYTES:
        raise too_big
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in {"", "identity", "gzip", "x-gzip"}:
        raise PageError(f"compressed as {encoding[:40]}, which was not asked for")
    data = bytearray()
    async for chunk in response.content.iter_any():
        data += chunk
        if len(data) > _MAX_BYTES:
            raise too_big
    page = bytes(data)
    if "gzip" in encoding:
        try:
            page = gzip.GzipFile(fileobj=io.BytesIO(page)).read(_MAX_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise PageError("its compressed data is damaged") from error
        if len(page) > _MAX_BYTES:
            raise PageError(f"more than {_MAX_BYTES:,} bytes once decompressed")
    return Fetched(str(response.url), page, kind, response.charset or "")


# --- what is to be read of it


def read_page(fetched: Fetched) -> Passage:
    """Return the readable text of a page, without menus, advertisements and comments; raise PageError for none."""
    text = decode(fetched.data, fetched.charset).text
    title = ""
    if fetched.kind != "text/plain":
        trafilatura = import_optional("trafilatura", "reading web pages", "documents")
        # Its default drops lists that stand in no <main> and no <article>.
        document: Any = trafilatura.bare_extraction(
            text, url=fetched.url, include_comments=False, with_metadata=True, favor_recall=True
        )
        title, text = (str(document.title or ""), str(document.text or "")) if document is not None else ("", "")
    text = without_controls(text).strip()
    if not text:
        raise PageError("no readable text")
    return Passage(text, " ".join(without_controls(title).split()), fetched.url)


# --- which addresses


class RefusedAddressError(ValueError):
    """An address that no page may be fetched from; the message says why."""


def is_public(address: str) -> bool:
    """Return whether an IP address is on the public internet.

    That is, not private, loopback, link-local, multicast, reserved, nor a cloud's metadata service. An IPv4 address
    inside an IPv6 one (mapped, 6to4, Teredo, NAT64) is judged too.
    """
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, IPv4Address):
        return parsed.is_global and not (parsed.is_multicast or parsed.is_reserved) and parsed not in _METADATA
    mapped = parsed.ipv4_mapped or (IPv4Address(int(parsed) & 0xFFFFFFFF) if parsed in _NAT64 else None)
    carried = (mapped, parsed.sixtofour, *(parsed.teredo or ()))
    if not all(is_public(str(inner)) for inner in carried if inner is not None):
        return False
    return mapped is not None or (parsed in _UNICAST and parsed.is_global)


def literal(host: str) -> str | None:
    """Return the IP address that a host is written as; None for a name.

    Any form counts that a resolver takes: `127.0.0.1`, `[::1]`, `2130706433`, `0x7f.1`, `0177.0.0.1`; and what a URL is
    folded to before it is asked: digits and full stops of other widths and scripts (UTS 46).
    """
    bare = unicodedata.normalize("NFKC", host.strip("[]")).replace("\u3002", ".")
    try:
        return str(ip_address(bare.partition("%")[0]))
    except ValueError:
        pass
    try:
        return socket.inet_ntoa(socket.inet_aton(bare))
    except (OSError, UnicodeEncodeError):
        return None


class AddressRules(AbstractResolver):
    """The limits of what may be fetched, and the resolver that keeps a connection to them.

    Args:
        allowed: `host:port` pairs that are exempt from the rules on ports and addresses, for a page server of one's
            own; everything else that they redirect to is checked as ever.
        resolver: what knows the addresses of hosts; None: the system.
    """

    def __init__(self, allowed: frozenset[str] = frozenset(), resolver: AbstractResolver | None = None) -> None:
        self._allowed, self._resolver = allowed, resolver

    def check(self, url: str) -> None:
        """Raise RefusedAddressError where a URL may not be asked, as far as the URL tells."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise RefusedAddressError("not a URL") from error
        host = parts.hostname
        if parts.scheme not in _PORTS or not host:
            raise RefusedAddressError("not an http or https address")
        if "@" in parts.netloc:
            raise RefusedAddressError("it carries a user's name or password")
        port = _PORTS[parts.scheme] if port is None else port
        if self._is_exempt(host, port):
            return
        if port not in _PORTS.values():
            raise RefusedAddressError(f"port {port} is neither 80 nor 443")
        address = literal(host)
        if address is not None and not is_public(address):
            raise RefusedAddressError(f"{address} is not a public address")

    def _is_exempt(self, host: str, port: int) -> bool:
        shown = f"[{host}]" if ":" in host else host
        return f"{shown}:{port}" in self._allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a host, to be connected to as they are: asking twice could give another answer.

        Raises RefusedAddressError where one of them is not public.
        """
        resolved = await (self._resolver or aiohttp.ThreadedResolver()).resolve(host, port, family)
        for address in () if self._is_exempt(host, port) else resolved:
            if not is_public(address["host"]):
                raise RefusedAddressError(f"{host} is at {address['host']}, which is not a public address")
        return resolved

    async def close(self) -> None:
        """Nothing is held open."""

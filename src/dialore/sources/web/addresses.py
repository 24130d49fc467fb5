"""Which addresses a page may be fetched from: public ones alone, so that no page leads into the user's own network.

A search result or a redirect is anybody's word. Without this, `http://169.254.169.254/` or a name that resolves to
127.0.0.1 would have this machine read its own services out to a language model (server-side request forgery).
"""

from __future__ import annotations

import asyncio
import socket
import unicodedata
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from urllib.parse import SplitResult

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""From host and port to the addresses of the host."""

_PORTS = {"http": 80, "https": 443}
_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
# Services of clouds for their own machines that stand at public-looking addresses.
_METADATA = frozenset({IPv4Address("168.63.129.16"), IPv4Address("100.100.100.200"), IPv4Address("192.0.0.192")})


class RefusedAddressError(ValueError):
    """An address that no page may be fetched from; the message says why."""


def is_public(address: str) -> bool:
    """Whether an IP address is on the public internet.

    That is, not private, loopback, link-local, multicast, reserved, nor a cloud's metadata service. An IPv4 address
    inside an IPv6 one (mapped, 6to4, Teredo, NAT64) is judged too.
    """
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, IPv4Address):
        return _is_public_v4(parsed)
    inner = _inside(parsed)
    if inner and not all(map(_is_public_v4, inner)):
        return False
    if parsed.ipv4_mapped is not None or parsed in _NAT64:
        return True
    return parsed in _UNICAST and parsed.is_global and not parsed.is_multicast


def _is_public_v4(address: IPv4Address) -> bool:
    return address.is_global and not (address.is_multicast or address.is_reserved) and address not in _METADATA


def _inside(address: IPv6Address) -> list[IPv4Address]:
    """The IPv4 addresses that an IPv6 address carries."""
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        found.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return [inner for inner in found if inner is not None]


def literal(host: str) -> str | None:
    """The IP address that a host is written as; None for a name.

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


@dataclass(frozen=True)
class AddressRules:
    """What may be fetched.

    Attributes:
        allowed: `host:port` pairs that are exempt from the rules on ports and addresses, for a page server of one's
            own; everything else that they redirect to is checked as ever.
        resolve: from host and port to addresses; None: the system's.
    """

    allowed: frozenset[str] = frozenset()
    resolve: Resolve | None = None

    def check(self, url: str) -> SplitResult:
        """The parts of a URL that may be asked, as far as the URL tells.

        Raises:
            RefusedAddressError: another scheme or port, a user or password, or an address that is not public.
        """
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
        if self.is_exempt(host, port):
            return parts
        if port not in _PORTS.values():
            raise RefusedAddressError(f"port {port} is neither 80 nor 443")
        address = literal(host)
        if address is not None and not is_public(address):
            raise RefusedAddressError(f"{address} is not a public address")
        return parts

    def is_exempt(self, host: str, port: int) -> bool:
        """Whether a host and port are exempt by name."""
        shown = f"[{host}]" if ":" in host else host
        return f"{shown}:{port}" in self.allowed

    async def addresses(self, host: str, port: int) -> list[str]:
        """The addresses of a host, to be connected to as they are: asking twice could give another answer.

        Raises:
            RefusedAddressError: one of them is not public.
            OSError: no host has that name.
        """
        found = await (self.resolve or _resolve)(host, port)
        if not self.is_exempt(host, port):
            for address in found:
                if not is_public(address):
                    raise RefusedAddressError(f"{host} is at {address}, which is not a public address")
        return found


async def _resolve(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))

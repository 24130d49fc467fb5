"""A web server on this machine that serves pages and misbehaves to order."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from aiohttp.abc import AbstractResolver, ResolveResult

Reply = Callable[["Handler"], None]

ARTICLE = """<!DOCTYPE html><html><head><title>{title}</title></head><body>
<nav><a href="/">Home</a> <a href="/shop">Shop</a></nav>
<article><h1>{title}</h1>{body}</article>
<footer>Copyright of nobody. Terms and conditions apply.</footer></body></html>"""


def article(title: str, *paragraphs: str) -> bytes:
    """A page with a menu, a text and a footer."""
    return ARTICLE.format(title=title, body="".join(f"<p>{text}</p>" for text in paragraphs)).encode()


def page(body: bytes, kind: str = "text/html; charset=utf-8", code: int = 200, **headers: str) -> Reply:
    """Any body, whole."""
    return lambda handler: handler.send(code, body, kind, headers)


def found(*results: dict[str, Any], **more: Any) -> Reply:
    """SearXNG's answer."""
    return page(json.dumps({"query": "q", "results": list(results), **more}).encode(), "application/json")


def redirect(target: str, code: int = 302) -> Reply:
    """A redirect."""
    return page(b"", code=code, Location=target)


def endless(kind: str = "text/html") -> Reply:
    """A page of 50 MB, as fast as it will go."""

    def reply(handler: Handler) -> None:
        handler.head(200, kind, {})
        for _ in range(50):
            handler.wfile.write(b"<p>" + b"word " * 200_000 + b"</p>")
            handler.server.site.sent += 1_000_000

    return reply


def trickle(pause: float) -> Reply:
    """A byte now and then, for ever."""

    def reply(handler: Handler) -> None:
        handler.head(200, "text/html", {})
        while not handler.server.stopping.wait(pause):
            handler.wfile.write(b" ")
            handler.wfile.flush()

    return reply


def silence() -> Reply:
    """No answer."""
    return lambda handler: handler.server.stopping.wait(20.0)


def gzip_bomb(megabytes: int = 60) -> Reply:
    """Zeros that are small on the wire."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = b"".join(packer.compress(bytes(1_000_000)) for _ in range(megabytes)) + packer.flush()
    return page(body, Content_Encoding="gzip")


def zipped(body: bytes) -> Reply:
    """A page compressed as usual."""
    return page(gzip.compress(body), Content_Encoding="gzip")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        site = self.server.site
        with site.lock:
            site.paths.append(self.path)
            site.headers.append(dict(self.headers.items()))
            replies = site.pages.get(urlsplit(self.path).path)
            reply = (
                page(b"nothing here", code=404) if not replies else replies[0] if len(replies) == 1 else replies.pop(0)
            )
        try:
            reply(self)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def head(self, code: int, kind: str, headers: dict[str, str]) -> None:
        self.send_response(code)
        if kind:
            self.send_header("Content-Type", kind)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.flush()

    def send(self, code: int, body: bytes, kind: str, headers: dict[str, str]) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.head(code, kind, {"Content-Length": str(len(body)), **named})
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    stopping: threading.Event
    site: Site

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class Site:
    """The server. Give `pages` replies by path; several are given one after another, the last one for ever."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pages: dict[str, list[Reply]] = {}
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.sent = 0
        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.stopping = threading.Event()
        self._server.site = self
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def host(self) -> str:
        """`host:port`, as it is allowed by name."""
        return f"127.0.0.1:{self.port}"

    def url(self, path: str) -> str:
        """The address of a path."""
        return f"http://{self.host}{path}"

    def serve(self, path: str, *replies: Reply) -> str:
        """Give a path its replies; gives its address."""
        self.pages[path] = list(replies)
        return self.url(path)

    def queries(self, path: str = "/search") -> list[str]:
        """What was searched for."""
        return [parse_qs(urlsplit(asked).query)["q"][0] for asked in self.paths if urlsplit(asked).path == path]

    def close(self) -> None:
        """Stop."""
        self._server.stopping.set()
        self._server.shutdown()
        self._server.server_close()


class Names(AbstractResolver):
    """A name server that gives one answer after the other, and the last for ever."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers, self.asked = list(answers), []

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_UNSPEC) -> list[ResolveResult]:
        self.asked.append((host, port))
        addresses = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        known = {"hostname": host, "port": port, "family": socket.AF_INET, "proto": 0, "flags": 0}
        return [ResolveResult(host=address, **known) for address in addresses]

    async def close(self) -> None:
        pass

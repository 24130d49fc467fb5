"""A chat endpoint that misbehaves to order: a real HTTP server on this machine, scripted reply by reply.

server.say("hello")                     # the next call gets this
server.reply(status(503), say("there")) # then these, in order; the last one set by `always` answers the rest
server.requests[0].body["messages"]     # what was asked
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[["Handler"], None]


@dataclass
class Asked:
    """One request that came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    at: float = field(default_factory=time.monotonic)


def chat(
    text: Any = "hello", *, usage: tuple[int, int] | None = (7, 3), finish: str = "stop", **message: Any
) -> dict[str, Any]:
    """A chat-completions body."""
    body: dict[str, Any] = {
        "id": "chat-1",
        "object": "chat.completion",
        "model": "served-model",
        "choices": [
            {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}
        ],
    }
    if usage:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return body


def say(text: Any = "hello", **settings: Any) -> Reply:
    """A good answer, streamed word by word if that was asked for."""

    def reply(handler: Handler) -> None:
        if handler.asked.body.get("stream"):
            words = text.split(" ")
            pieces = [word + " " for word in words[:-1]] + words[-1:]
            stream(*pieces, **settings)(handler)
        else:
            handler.send(200, json.dumps(chat(text, **settings)).encode())

    return reply


def answer(payload: Any, code: int = 200, **headers: str) -> Reply:
    """Any JSON body."""
    return lambda handler: handler.send(code, json.dumps(payload).encode(), headers=headers)


def raw(body: bytes, code: int = 200, kind: str = "application/json", **headers: str) -> Reply:
    """Any bytes."""
    return lambda handler: handler.send(code, body, kind, headers)


def status(code: int, message: str = "no", error_code: str = "", parameter: str = "", **headers: str) -> Reply:
    """An error as OpenAI words it; underscores in header names become dashes."""
    error = {"message": message, "type": "error", "code": error_code or None, "param": parameter or None}
    return answer({"error": error}, code, **headers)


def html(code: int = 200) -> Reply:
    """A web page."""
    return raw(b"<!DOCTYPE html><html><body>Welcome to nginx</body></html>", code, "text/html")


def hang(seconds: float = 30.0) -> Reply:
    """No answer for a while."""
    return lambda handler: handler.pause(seconds)


def slow(seconds: float, then: Reply) -> Reply:
    """A good answer after a while."""

    def reply(handler: Handler) -> None:
        handler.pause(seconds)
        then(handler)

    return reply


def drop() -> Reply:
    """The connection is closed without a word."""
    return lambda handler: handler.cut()


def half_body() -> Reply:
    """A body that ends before its length is reached."""

    def reply(handler: Handler) -> None:
        handler.head(200, "application/json", {"Content-Length": "5000"})
        handler.wfile.write(b'{"choices": [{"mess')
        handler.cut()

    return reply


def garbage() -> Reply:
    """Something that is not HTTP."""

    def reply(handler: Handler) -> None:
        handler.wfile.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
        handler.cut()

    return reply


def endless_body() -> Reply:
    """A body that never ends."""

    def reply(handler: Handler) -> None:
        handler.head(200, "application/json", {"Connection": "close"})
        while not handler.server.stopping.is_set():
            handler.wfile.write(b" " * 65536)

    return reply


def event(text: Any, *, finish: str | None = None, usage: tuple[int, int] | None = None) -> bytes:
    """One event of a stream."""
    body: dict[str, Any] = {
        "object": "chat.completion.chunk",
        "model": "served-model",
        "system_fingerprint": "fp_test",
        "choices": [{"index": 0, "delta": {} if text is None else {"content": text}, "finish_reason": finish}],
    }
    if usage:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def stream(
    *pieces: str | bytes,
    usage: tuple[int, int] | None = (7, 3),
    finish: str | None = "stop",
    done: bool = True,
    cut: bool = False,
    pause: float = 0.0,
    linger: float = 0.0,
) -> Reply:
    """A stream of pieces (bytes go out as they are); `cut` breaks the connection after them."""

    def reply(handler: Handler) -> None:
        handler.head(200, "text/event-stream", {"Transfer-Encoding": "chunked"})
        handler.chunk(b": keep-alive\r\n\r\n")
        for piece in pieces:
            handler.chunk(piece if isinstance(piece, bytes) else event(piece))
            handler.pause(pause)
        if cut:
            handler.cut()
            return
        if finish:
            handler.chunk(event(None, finish=finish))
        if usage:
            counts = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
            handler.chunk(b"data: " + json.dumps({"choices": [], "usage": counts}).encode() + b"\n\n")
        if done:
            handler.chunk(b"data: [DONE]\n\n")
        handler.pause(linger)
        handler.chunk(b"")

    return reply


def endless_stream(pause: float = 0.0) -> Reply:
    """A stream that never ends."""

    def reply(handler: Handler) -> None:
        handler.head(200, "text/event-stream", {"Connection": "close"})
        while not handler.server.stopping.is_set():
            handler.wfile.write(event("more "))
            handler.wfile.flush()
            handler.pause(pause)

    return reply


class Handler(BaseHTTPRequestHandler):
    """Answers as the script says."""

    protocol_version = "HTTP/1.1"
    server: Server
    asked: Asked

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(length)
        self.answer(json.loads(data) if data else None)

    def do_GET(self) -> None:
        self.answer(None)

    def answer(self, body: Any) -> None:
        self.asked = Asked(self.command, self.path, dict(self.headers.items()), body)
        with self.server.faulty.lock:
            reply = self.server.faulty.next_reply(self.asked)
        try:
            reply(self)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def head(self, code: int, kind: str, headers: dict[str, str]) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if headers.get("Connection") == "close":
            self.close_connection = True
        self.end_headers()
        self.wfile.flush()

    def send(
        self, code: int, body: bytes, kind: str = "application/json", headers: dict[str, str] | None = None
    ) -> None:
        self.head(code, kind, {"Content-Length": str(len(body)), **(headers or {})})
        self.wfile.write(body)

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def pause(self, seconds: float) -> None:
        if seconds:
            self.server.stopping.wait(seconds)

    def cut(self) -> None:
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    stopping: threading.Event
    faulty: FaultyServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class FaultyServer:
    """The server: give it replies, point an endpoint at `url`, look at `requests`.

    Chat calls take the scripted replies in order, then `always`; `/v1/models` lists `models`.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.requests: list[Asked] = []
        self.models: list[str] | None = ["served-model"]
        self.always: Reply = say()
        self.by_request: Callable[[Asked], Reply] | None = None
        self._script: list[Reply] = []
        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.stopping = threading.Event()
        self._server.faulty = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        """The base URL of the endpoint."""
        return f"{self.root}/v1"

    def reply(self, *replies: Reply) -> None:
        """Script the next replies."""
        self._script += replies

    def say(self, *texts: Any) -> None:
        """Script good answers."""
        self.reply(*[say(text) for text in texts])

    @property
    def calls(self) -> list[Asked]:
        """The chat calls that came in."""
        return [asked for asked in self.requests if asked.method == "POST"]

    def next_reply(self, asked: Asked) -> Reply:
        self.requests.append(asked)
        if asked.path == "/v1/models":
            if self.models is None:
                return status(404)
            return answer({"object": "list", "data": [{"id": name} for name in self.models]})
        if asked.path not in {"/v1/chat/completions", "/v1/completions"}:
            return status(404, "no such path")
        if self._script:
            return self._script.pop(0)
        return self.by_request(asked) if self.by_request else self.always

    def close(self) -> None:
        """Stop."""
        self._server.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

"""A server that speaks Neo4j's Bolt protocol (5.4) over real sockets and knows the queries of the Neo4j store.

It is no Neo4j: it runs none but these queries, each recognised by its whole text and done in Python as the text says.
What it tests is real, though: the official driver's handshake, log-on, routing, parameters, rows, failures and
connections. https://neo4j.com/docs/bolt/current/bolt/message/
"""

from __future__ import annotations

import socketserver
import struct
import threading
from typing import Any

from tests.sources.cypher_queries import QUERIES, Database
from tests.sources.packstream import Structure, pack, unpack

HELLO, GOODBYE, RESET, RUN, DISCARD, PULL, TELEMETRY, ROUTE, LOGON, LOGOFF = (
    *(0x01, 0x02, 0x0F, 0x10, 0x2F, 0x3F),
    *(0x54, 0x66, 0x6A, 0x6B),
)
SUCCESS, RECORD, IGNORED, FAILURE = 0x70, 0x71, 0x7E, 0x7F
USER, PASSWORD = "neo4j", "geheim: #1"


class FailureError(Exception):
    """A FAILURE to be sent: a code and a message."""


class BoltServer:
    """The server, on a free port of this machine, with an empty database.

    Attributes:
        database: what it holds.
        asked: every query that came: the text, its parameters, and the mode and database it was to run in.
        failures: codes and messages to answer the next queries with.
        drops: how many of the next queries to answer by hanging up.
        connections: how many connections were made.
    """

    def __init__(self) -> None:
        self.database = Database()
        self.asked: list[tuple[str, dict[str, Any], str, str | None]] = []
        self.failures: list[tuple[str, str]] = []
        self.drops = 0
        self.connections = 0
        self.open: set[Any] = set()
        outer = self

        class Handler(_Connection):
            owner = outer

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    def url(
        self, name: str = "", scheme: str = "bolt", user: str = "neo4j:geheim%3A%20%231@", database: str = ""
    ) -> str:
        """The URL of a graph of the server."""
        return f"{scheme}://{user}{self.address}/{database}" + (f"#{name}" if name else "")

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Connection(socketserver.StreamRequestHandler):
    owner: BoltServer
    disable_nagle_algorithm = True

    def handle(self) -> None:
        self.owner.connections += 1
        if self.rfile.read(20)[:4] != b"\x60\x60\xb0\x17":
            return
        self.wfile.write(bytes([0, 0, 4, 5]))
        self._failed, self._known, self._rows = False, False, []
        while (message := self._read()) is not None:
            if message.tag == GOODBYE or not self._answer(message):
                return

    def _read(self) -> Structure | None:
        data = b""
        while True:
            header = self.rfile.read(2)
            if len(header) < 2:
                return None
            (size,) = struct.unpack(">H", header)
            if size:
                data += self.rfile.read(size)
            elif data:
                return unpack(data)

    def _send(self, tag: int, *fields: object) -> None:
        data = pack(Structure(tag, fields))
        chunks = (data[start : start + 0xFFFF] for start in range(0, len(data), 0xFFFF))
        self.wfile.write(b"".join(struct.pack(">H", len(chunk)) + chunk for chunk in chunks) + b"\0\0")

    def _answer(self, message: Structure) -> bool:
        """Answer a message; False where the connection is to end."""
        if message.tag == RESET:
            self._failed, self._rows = False, []
            self._send(SUCCESS, {})
        elif self._failed:
            self._send(IGNORED)
        elif message.tag == RUN and self.owner.drops:
            self.owner.drops -= 1
            return False
        else:
            try:
                self._send(SUCCESS, self._do(message))
            except FailureError as failure:
                self._failed = True
                code, text = failure.args
                self._send(FAILURE, {"code": code, "message": text})
        return True

    def _do(self, message: Structure) -> dict[str, Any]:
        tag, fields = message.tag, message.fields
        if tag == HELLO:
            return {"server": "Neo4j/5.4.0", "connection_id": "bolt-1", "hints": {}}
        if tag == LOGON:
            self._known = (fields[0].get("principal"), fields[0].get("credentials")) == (USER, PASSWORD)
        if not self._known:
            raise FailureError("Neo.ClientError.Security.Unauthorized", "The client is unauthorized.")
        if tag == ROUTE:
            servers = [{"role": role, "addresses": [self.owner.address]} for role in ("READ", "WRITE", "ROUTE")]
            return {"rt": {"ttl": 300, "db": fields[2].get("db") or "neo4j", "servers": servers}}
        if tag == RUN:
            return self._run(*fields)
        if tag == PULL:
            return self._pull(*fields)
        if tag in {LOGON, DISCARD, TELEMETRY, LOGOFF}:
            return {}
        raise FailureError("Neo.ClientError.Request.Invalid", f"no such message: {tag:#x}")

    def _pull(self, extra: dict[str, Any]) -> dict[str, Any]:
        if extra.get("n") != -1:
            raise FailureError("Neo.ClientError.Request.Invalid", "the rows were to come at once")
        for row in self._rows:
            self._send(RECORD, row)
        return {"type": "r", "db": "neo4j"}

    def _run(self, text: str, parameters: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
        mode = extra.get("mode", "w")
        self.owner.asked.append((text, parameters, mode, extra.get("db")))
        if self.owner.failures:
            raise FailureError(*self.owner.failures.pop(0))
        query = QUERIES.get(" ".join(text.split()))
        if query is None:
            raise FailureError("Neo.ClientError.Statement.SyntaxError", f"Invalid input: {text}")
        if query.writes and mode != "w":
            raise FailureError("Neo.ClientError.Statement.AccessMode", "Writing in read access mode not allowed.")
        if set(parameters) != query.parameters:
            raise FailureError("Neo.ClientError.Statement.ParameterMissing", f"Expected {query.parameters}")
        self._rows = query.run(self.owner.database, **parameters)
        return {"fields": list(query.fields), "t_first": 0}

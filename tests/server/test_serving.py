"""Serving: what the log says, and when."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket

from starlette.applications import Starlette

from dialore.server import app as module
from dialore.settings import ServerSettings


class Caller(logging.Handler):
    """Calls every address that is said to answer, at the moment when it is said."""

    def __init__(self):
        super().__init__()
        self.reached = asyncio.Queue()

    def emit(self, record):
        if found := re.search(r"http://([\d.]+):(\d+)", record.getMessage()):
            try:
                socket.create_connection((found[1], int(found[2])), timeout=5).close()
            except OSError:
                self.reached.put_nowait(False)
            else:
                self.reached.put_nowait(True)


async def test_what_is_said_to_answer_takes_connections_by_then(monkeypatch):
    settings = ServerSettings(port=0)
    caller = Caller()
    monkeypatch.setattr(module.log, "handlers", [caller])
    monkeypatch.setattr(module.log, "level", logging.INFO)
    with module.bound(settings) as shared:
        serving = asyncio.create_task(module.run_app(Starlette(), settings, shared))
        try:
            assert await asyncio.wait_for(caller.reached.get(), 10)
        finally:
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving

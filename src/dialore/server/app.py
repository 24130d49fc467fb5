"""The service as an application: its routes, its guard, how it begins and how it ends."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing.connection
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from dialore import __version__
from dialore.errors import DialoreError, InputError
from dialore.server import annotate, knowledge, memory, openai, pages, runs
from dialore.server.connections import bounded_protocol
from dialore.server.errors import ServiceError, full_disk, reply
from dialore.server.middleware import Guard, check_address
from dialore.server.service import Service
from dialore.server.telemetry import FIGURES, JsonLines, Telemetry
from dialore.session import Connect, open_model
from dialore.settings import ServerSettings, Settings

log = logging.getLogger(__name__)
_OPEN_PATHS = {"/healthz", "/readyz", "/v1/annotate/sheet", "/v1/annotate/answers", *pages.FILES}
"""Paths that are answered without a key; annotators have codes."""


def create_app(settings: Settings, *, connect: Connect = open_model) -> FastAPI:
    """Return the application that serves agents; InputError as `Session`, and for an open address without keys."""
    check_address(settings.server)
    telemetry = Telemetry()
    service = Service(settings, telemetry, connect=connect)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            app.state.is_ready = True
            yield
            app.state.is_ready = False

    app = FastAPI(title="Dialore", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.router.redirect_slashes = False  # a path with an empty id would otherwise become that of all items
    app.state.service, app.state.is_ready = service, False
    app.state.desk = annotate.Desk(folder) if (folder := settings.server.annotate) else None
    for room in (openai, knowledge, memory, annotate, runs, pages):
        app.include_router(room.router)

    @app.get("/healthz")
    async def healthz() -> Response:
        """Return whether the process is alive."""
        return reply({"status": "ok"})

    @app.get("/readyz")
    async def readyz() -> Response:
        """Return whether it can answer."""
        return reply({"status": "ok"}) if app.state.is_ready else reply({"status": "not ready"}, 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        """Figures for Prometheus."""
        return Response(telemetry.figures(), media_type=CONTENT_TYPE_LATEST)

    app.add_exception_handler(RequestValidationError, _answer_malformed)
    for kind in (HTTPException, Exception):
        app.add_exception_handler(kind, _answer_error)
    app.add_middleware(
        Guard, settings=settings.server, telemetry=telemetry, store=service.store, open_paths=_OPEN_PATHS
    )
    if settings.server.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.server.origins,
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["*"],  # clients of OpenAI's send a dozen of their own
        )
    return app


async def _answer_error(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        return ServiceError(500, "an unforeseen error; the log has it", code="internal_error").response
    if isinstance(error, ServiceError):
        return error.response
    if told := full_disk(error):  # an upload's form is written to disk, too
        return told.response
    return ServiceError(error.status_code, error.detail, code="invalid_request").response


async def _answer_malformed(_: Request, error: Exception) -> Response:
    """Return what is wrong with a body, without the body: it may be large, or secret."""
    issues = error.errors() if isinstance(error, RequestValidationError) else []
    field = ".".join(str(step)[:80] for step in issues[0]["loc"][1:8])
    message = "; ".join(dict.fromkeys(f"{issue['msg'].removeprefix('Value error, ')}"[:300] for issue in issues[:3]))
    return ServiceError(400, f"{field or 'the body'}: {message}", code="invalid_value", param=field or None).response


def serve(settings: Settings, *, connect: Connect = open_model) -> None:
    """Serve until the process is asked to end; what is being answered then is finished first.

    Raises InputError as `create_app`, for a taken address or a source that cannot be opened; DialoreError where a
    worker has ended unasked.
    """
    check_address(settings.server)
    with bound(settings.server) as shared:
        work = _work if settings.server.workers == 1 else _supervise
        work(settings, connect, shared)


def _supervise(settings: Settings, connect: Connect, shared: socket.socket) -> None:
    with tempfile.TemporaryDirectory(prefix="dialore-") as figures:
        os.environ[FIGURES] = figures
        begin = multiprocessing.get_context("spawn").Process
        given = (settings, connect, shared)
        workers = [begin(target=_worker, args=given) for _ in range(settings.server.workers)]
        asked: list[int] = []

        def end(number: int, _: object) -> None:
            asked.append(number)
            for worker in workers:
                worker.terminate()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, end)
        for worker in workers:
            worker.start()
        multiprocessing.connection.wait([worker.sentinel for worker in workers])
        has_died = not asked
        for worker in workers:  # whatever runs the service is to begin it anew
            worker.terminate()
        for worker in workers:
            worker.join()
    if has_died:
        raise DialoreError("a worker has ended unasked, and the service with it", hint="its log tells why")


def _worker(settings: Settings, connect: Connect, shared: socket.socket) -> None:
    try:
        _work(settings, connect, shared)
    except DialoreError as error:
        log.error("%s", error)  # noqa: TRY400 - its one line says it all
        sys.exit(1)


def _work(settings: Settings, connect: Connect, shared: socket.socket) -> None:
    log_lines()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # uvicorn finishes the streams, then sends it once more
    asyncio.run(run_app(create_app(settings, connect=connect), settings.server, shared))


def log_lines() -> None:
    """Log on standard error, in lines of JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    for name in ("dialore", "uvicorn.error", "mcp"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)


def bound(settings: ServerSettings) -> socket.socket:
    """Return a socket of the address, which refuses until it is served; raise InputError where it is taken."""
    shared = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    try:
        if os.name == "posix":  # elsewhere it would let two services have one port
            shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        shared.bind((settings.host, settings.port))
    except OSError as error:
        shared.close()
        hint = "see server.host and server.port"
        raise InputError(f"cannot serve at {settings.host}:{settings.port}: {error.strerror}", hint=hint) from error
    return shared


class _Server(uvicorn.Server):
    """Says where it answers once it does: a socket that is bound alone refuses connections."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for shared in sockets or ():
            host, port = shared.getsockname()[:2]
            log.info("ready to answer at http://%s:%s", f"[{host}]" if ":" in host else host, port)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if service := getattr(self.config.app.state, "service", None):  # type: ignore[union-attr]
            service.knowledge.close()  # the service does not wait for a file that takes long to read
        await super().shutdown(sockets)


async def run_app(app: Starlette, settings: ServerSettings, shared: socket.socket) -> None:
    """Serve an application on a socket until asked to end; its lifespan's DialoreError is raised, not logged."""
    off: dict[str, Any] = {"ws": "none", "lifespan": "off", "log_config": None}
    off |= {"access_log": False, "server_header": False, "timeout_graceful_shutdown": int(settings.max_seconds) + 5}
    server = _Server(uvicorn.Config(app, http=bounded_protocol(settings), **off))
    with server.capture_signals():  # sent once more when all is closed
        async with app.router.lifespan_context(app):
            await server.serve([shared])

"""What the service tells of itself: a log line a request in JSON, and figures for Prometheus."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

if TYPE_CHECKING:
    from starlette.types import Scope

    from dialore.response import Grounding

log = logging.getLogger("dialore.server")
_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class JsonLines(logging.Formatter):
    """A log record as a line of JSON, with the fields that it was given as `extra={"fields": {...}}`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class Telemetry:
    """Figures of one service."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._requests = Counter("dialore_requests", "Requests.", ["route", "status"], registry=registry)
        self._seconds = Histogram(
            "dialore_request_seconds", "Seconds of requests.", ["route"], buckets=_SECONDS, registry=registry
        )
        self._under_way = Gauge("dialore_requests_under_way", "Requests under way.", registry=registry)
        self._first = Histogram(
            "dialore_first_text_seconds", "Seconds to the first text.", ["model"], buckets=_SECONDS, registry=registry
        )
        self._tokens = Counter("dialore_tokens", "Tokens of all stages.", ["model", "kind"], registry=registry)
        self._stages = Counter("dialore_stages", "Stages.", ["stage", "outcome"], registry=registry)

    @contextmanager
    def request(self, scope: Scope, identifier: str) -> Iterator[None]:
        """Count and log a request; neither headers nor bodies are logged, for they hold keys and what people say."""
        started = time.perf_counter()
        self._under_way.inc()
        state = scope["state"]
        try:
            yield
        except BaseException:
            state.setdefault("status", 500)
            raise
        finally:
            self._under_way.dec()
            seconds = time.perf_counter() - started
            route = getattr(scope.get("route"), "path", "none")
            status = state.get("status", 499)  # 499: it went before it was answered
            self._requests.labels(route, status).inc()
            self._seconds.labels(route).observe(seconds)
            caller = getattr(state.get("caller"), "name", "")
            fields = {"request": identifier, "method": scope["method"], "route": route, "status": status}
            fields |= {"seconds": round(seconds, 4), "key": caller, **state.get("told", {})}
            log.info("request", extra={"fields": fields})

    def first_text(self, model: str, seconds: float) -> None:
        """Note how long somebody waited for the first text."""
        self._first.labels(model).observe(seconds)

    def made(self, model: str, result: Grounding) -> None:
        """Count what a response took."""
        self._tokens.labels(model, "prompt").inc(result.usage.prompt_tokens)
        self._tokens.labels(model, "completion").inc(result.usage.completion_tokens)
        for stage in result.trace:
            self._stages.labels(stage.stage, stage.outcome).inc()

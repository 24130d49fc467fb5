"""The service's telemetry: a log line a request in JSON, figures for Prometheus, spans of OpenTelemetry."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.types import Scope

from dialore.errors import import_optional
from dialore.llm.model import Usage
from dialore.response import StageTrace

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

log = logging.getLogger("dialore.server")
FIGURES = "PROMETHEUS_MULTIPROC_DIR"
"""The variable by which workers share their figures, in files of a folder."""
_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class JsonLines(logging.Formatter):
    """A log record as a line of JSON, with the fields that it was given as `extra={"fields": {...}}`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": record.process,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class Telemetry:
    """Figures and spans of one service; MissingExtraError where spans are wanted and OpenTelemetry is missing."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        count = functools.partial(Counter, registry=self.registry)
        gauge = functools.partial(Gauge, registry=self.registry)
        times = functools.partial(Histogram, buckets=_SECONDS, registry=self.registry)
        self._requests = count("dialore_requests", "Requests.", ["route", "status"])
        self._seconds = times("dialore_request_seconds", "Seconds of requests.", ["route"])
        self._under_way = gauge("dialore_requests_under_way", "Requests under way.", multiprocess_mode="livesum")
        self._tasks = gauge("dialore_tasks", "Tasks of the worker that answers.", multiprocess_mode="mostrecent")
        self._first = times("dialore_first_text_seconds", "Seconds to the first text.", ["model"])
        self._tokens = count("dialore_tokens", "Tokens of all stages.", ["model", "kind"])
        self._stages = count("dialore_stages", "Stages.", ["stage", "outcome"])
        self._provider = _provider()

    def figures(self) -> bytes:
        """Return the figures as Prometheus reads them; of all workers together where there are several."""
        self._tasks.set(len(asyncio.all_tasks()))
        registry = self.registry
        if FIGURES in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)

    def close(self) -> None:
        """Send the spans that are not sent yet."""
        if self._provider is not None:
            self._provider.shutdown()

    @contextmanager
    def request(self, scope: Scope, identifier: str) -> Iterator[None]:
        """Count and log a request; neither headers nor bodies are logged, for they hold keys and what people say."""
        started = time.perf_counter()
        self._under_way.inc()
        state = scope["state"]
        try:
            with self._within(scope):
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
        """Record the seconds until the first text."""
        self._first.labels(model).observe(seconds)

    def made(
        self, operation: str, model: str, stages: Sequence[StageTrace], usage: Usage, began: float, error: str = ""
    ) -> None:
        """Count what a response took that was begun then, and give its spans; `error` says why there is none."""
        self._tokens.labels(model, "prompt").inc(usage.prompt_tokens)
        self._tokens.labels(model, "completion").inc(usage.completion_tokens)
        for stage in stages:
            self._stages.labels(stage.stage, stage.outcome).inc()
        if self._provider is None:
            return
        from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

        tracer, now = self._provider.get_tracer("dialore"), time.time()

        def add(name: str, kind: SpanKind, start: float, end: float, attributes: dict[str, Any], error: str) -> Span:
            span = tracer.start_span(name, scope, kind, attributes, start_time=int(start * 1e9))
            if error:
                span.set_status(StatusCode.ERROR)
                span.set_attribute("error.type", error)
            span.end(int(end * 1e9))
            return span

        scope = None
        whole = add(f"{operation} {model}", SpanKind.SERVER, began, now, _used(operation, model, usage), error)
        scope = set_span_in_context(whole)
        for stage in stages:
            name, kind = stage.stage, SpanKind.INTERNAL
            attributes: dict[str, Any] = {"dialore.stage": stage.stage, "dialore.outcome": stage.outcome}
            if stage.messages:
                name, kind = f"chat {stage.model}", SpanKind.CLIENT
                attributes |= _used("chat", stage.model, stage.usage)
            start = began + stage.started
            end = start + stage.seconds if stage.seconds else now
            add(name, kind, start, end, attributes, "stage_failed" if stage.outcome == "failed" else "")

    @contextmanager
    def _within(self, scope: Scope) -> Iterator[None]:
        if self._provider is None:
            yield
            return
        from opentelemetry import context, propagate

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        token = context.attach(propagate.extract(headers))
        try:
            yield
        finally:
            context.detach(token)


def _provider() -> TracerProvider | None:
    """Return what sends spans where OpenTelemetry's own variables say; None where they say nothing."""
    variable = os.environ.get
    off = variable("OTEL_SDK_DISABLED", "").lower() == "true" or variable("OTEL_TRACES_EXPORTER", "otlp") != "otlp"
    if off or not (variable("OTEL_EXPORTER_OTLP_ENDPOINT") or variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")):
        return None
    import_optional("opentelemetry.sdk.trace", "OTEL_EXPORTER_OTLP_ENDPOINT", "telemetry")
    exporter = import_optional("opentelemetry.exporter.otlp.proto.http.trace_exporter", "OTLP", "telemetry")
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource({"service.name": "dialore"}).merge(OTELResourceDetector().detect()))
    provider.add_span_processor(BatchSpanProcessor(exporter.OTLPSpanExporter()))
    return provider


def _used(operation: str, model: str, usage: Usage) -> dict[str, Any]:
    """Return what was done, by the GenAI conventions; nothing of what was said."""
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "dialore",
        "gen_ai.request.model": model,
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
    }

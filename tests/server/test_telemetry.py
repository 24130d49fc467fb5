"""Spans by OpenTelemetry's GenAI conventions: off unless the environment names a collector, without what is said."""

from __future__ import annotations

import pytest

from dialore.server.telemetry import Telemetry
from tests.server.conftest import Scripted, need, wait_until

pytest.importorskip("opentelemetry.sdk", reason="the telemetry extra is not installed")
exporting = pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")


@pytest.fixture
def exported(monkeypatch):
    """What would be sent."""
    exporter = memory.InMemorySpanExporter()
    monkeypatch.setattr(exporting, "OTLPSpanExporter", lambda: exporter)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    return exporter


def spans(running, exported):
    running.service._telemetry._provider.force_flush()
    return exported.get_finished_spans()


def test_a_request_has_a_span_with_one_for_each_stage(serving, exported):
    running = serving(Scripted(needs=[need("secret dogs")]))
    running.http.post("/v1/knowledge/documents", json={"text": "My secret dog is welcome."})
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    running.http.headers["traceparent"] = f"00-{trace}-{parent}-01"
    assert running.say("May I bring my secret dog?").status_code == 200
    found = spans(running, exported)
    [whole] = [each for each in found if each.kind.name == "SERVER"]
    stages = [each for each in found if each is not whole]
    assert whole.name == "chat dialore"
    assert (whole.context.trace_id, whole.parent.span_id) == (int(trace, 16), int(parent, 16))
    calls = [each for each in stages if each.kind.name == "CLIENT"]
    assert len(calls) >= 2
    assert {each.name for each in calls} == {"chat scripted"}
    assert len(stages) > len(calls)
    usage = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
    assert [sum(each.attributes[name] for each in calls) for name in usage] == [
        whole.attributes[name] for name in usage
    ]
    for each in [whole, *calls]:
        assert each.attributes["gen_ai.operation.name"] == "chat"
        assert each.attributes["gen_ai.provider.name"] == "dialore"
    assert whole.attributes["gen_ai.request.model"] == "dialore"
    for each in stages:
        assert each.parent.span_id == whole.context.span_id
        assert whole.start_time - 5_000_000 <= each.start_time <= each.end_time <= whole.end_time + 5_000_000
    assert "secret" not in "".join(each.to_json() for each in found)
    assert whole.resource.attributes["service.name"] == "dialore"


def test_what_is_given_up_and_what_fails_say_so(serving, exported):
    class Failing(Scripted):
        async def complete(self, request, on_token=None):
            from dialore.errors import ModelError

            raise ModelError("secret")

    running = serving(Scripted("word " * 2000, pause=0.02), server={"max_seconds": 2})
    assert running.say().status_code == 504
    [whole] = [each for each in spans(running, exported) if each.kind.name == "SERVER"]
    assert (whole.status.status_code.name, whole.attributes["error.type"]) == ("ERROR", "TimeoutError")
    assert whole.attributes["gen_ai.usage.input_tokens"] > 0
    exported.clear()
    running = serving(Failing())
    assert running.say().status_code == 502
    found = spans(running, exported)
    assert {each.attributes["error.type"] for each in found if not each.status.is_ok} == {"stage_failed"}
    assert "secret" not in "".join(each.to_json() for each in found)


def test_what_is_left_is_sent_at_the_end(serving, exported):
    running = serving()
    running.say()
    running.server.should_exit = True
    wait_until(lambda: [each for each in exported.get_finished_spans() if each.name == "chat dialore"])


@pytest.mark.parametrize("said", [{}, {"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_it_is_off_unless_the_environment_says_where_to(said, monkeypatch):
    if said:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert Telemetry()._provider is None

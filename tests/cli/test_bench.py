"""`dialore bench`."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def live(url):
    return ("--base-url", url, "--model", "wait-40")


def test_figures_of_an_endpoint(call, live):
    figures = json.loads(call("bench", *live, "-n", 8, "--set", "model.concurrency=4", "--json").out)
    assert (figures["responses"], figures["failed"]) == (8, 0)
    assert 8 * 2 <= figures["calls"] <= 8 * 3
    assert figures["latency_ms"]["p50"] >= 40
    assert figures["latency_ms"]["p50"] <= figures["latency_ms"]["p95"] <= figures["latency_ms"]["p99"]
    assert figures["calls_a_second"] == pytest.approx(figures["calls"] / figures["seconds"], rel=0.01)
    assert 0 < figures["share_of_ideal"] <= 1
    assert figures["completion_tokens_a_second"] > 0
    assert figures["own_cpu_ms_a_call"] > 0


def test_words_for_people_and_dialogues_of_a_file(call, live, talks):
    done = call("bench", talks, *live, "-n", 2, "-M", "vanilla")
    assert done.code == 0
    for words in ("wait-40, vanilla, 2 dialogues", "calls a second", "of the ideal", "our CPU a call"):
        assert words in done.out


def test_an_endpoint_is_needed(call, monkeypatch):
    for name in ("DIALORE_BASE_URL", "OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    done = call("bench")
    assert done.code == 2
    assert "--base-url" in done.err
    assert "--model" in done.err

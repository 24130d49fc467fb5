"""`dialore bench endpoint` and `dialore bench handbook`."""

from __future__ import annotations

import json

import pytest

from dialore.experiments.benches import METHODS


@pytest.fixture
def live(url):
    return ("--base-url", url, "--model", "wait-40")


def test_figures_of_an_endpoint(call, live):
    figures = json.loads(call("bench", "endpoint", *live, "-n", 8, "--set", "model.concurrency=4", "--json").out)
    assert (figures["responses"], figures["failed"]) == (8, 0)
    assert 8 * 2 <= figures["calls"] <= 8 * 3
    assert figures["latency_ms"]["p50"] >= 40
    assert figures["latency_ms"]["p50"] <= figures["latency_ms"]["p95"] <= figures["latency_ms"]["p99"]
    assert figures["calls_a_second"] == pytest.approx(figures["calls"] / figures["seconds"], rel=0.01)
    assert 0 < figures["share_of_ideal"] <= 1
    assert figures["completion_tokens_a_second"] > 0
    assert figures["own_cpu_ms_a_call"] > 0


def test_words_for_people_and_dialogues_of_a_file(call, live, talks):
    done = call("bench", "endpoint", talks, *live, "-n", 2, "-M", "vanilla")
    assert done.code == 0
    for words in ("wait-40, vanilla, 2 dialogues", "calls a second", "of the ideal", "our CPU a call"):
        assert words in done.out


def test_an_endpoint_is_needed(call, monkeypatch):
    for name in ("DIALORE_BASE_URL", "OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    done = call("bench", "endpoint")
    assert done.code == 2
    assert "set --base-url and --model" in done.err


def test_the_handbook_is_answered_once_and_its_table_printed(call, live, tmp_path):
    command = ("bench", "handbook", *live, "-M", "rag", "--limit", 4, "--out", tmp_path / "kept", "--json")
    (first,) = json.loads(call(*command).out)
    assert (first["method"], first["responses"], first["failed"]) == ("rag", 8, 0)
    assert first["steps"][0] == first["calls"][0] > 1
    assert first["draft_kept"] is None
    both = call(*command[:-1], "-M", "full-context")
    assert both.code == 0, both.err
    for words in ("full-context", "right", "citation precision", "refused", "draft kept", "prompt tokens"):
        assert words in both.out
    again = json.loads(call(*command).out)
    assert again[0] == first
    assert len(again) == 2


def test_where_no_method_is_named_all_that_read_documents_and_cite_answer_the_handbook(call, live, tmp_path):
    command = ("bench", "handbook", *live, "--limit", 1, "--language", "en", "--out", tmp_path / "kept", "--json")
    rows = json.loads(call(*command).out)
    assert [(row["method"], row["responses"], row["failed"]) for row in rows] == [(name, 1, 0) for name in METHODS]


def test_the_handbook_goes_on_at_another_address_where_that_is_accepted(call, url, tmp_path):
    command = (
        "bench",
        "handbook",
        "--model",
        "wait-0",
        "-M",
        "rag",
        "--limit",
        2,
        "--out",
        tmp_path / "kept",
        "--json",
    )
    assert call(*command, "--base-url", url).code == 0
    moved = (*command, "-M", "full-context", "--base-url", url.replace("127.0.0.1", "localhost"))
    assert "accept the changed server" in call(*moved).complaint
    rows = json.loads(call(*moved, "--accept-changed", "server").out)
    assert [(row["method"], row["responses"], row["failed"]) for row in rows] == [("rag", 4, 0), ("full-context", 4, 0)]


def test_retrieval_of_the_handbook_needs_no_model(call):
    rows = json.loads(call("bench", "handbook", "--retrieval", "--half", "both", "--json").out)
    assert [row["retriever"] for row in rows] == ["fused", "bm25", "dense"]
    for row in rows:
        assert 0.2 < row["recall_at_3_by_last_turn"][0] < row["recall_at_3_by_all_turns"][0] < 0.9


def test_what_the_handbook_cannot_do_is_said(call, live):
    assert "did you mean" in call("bench", "handbook", *live, "--half", "both!").complaint
    assert "--documents" in call("bench", "handbook", *live, "-M", "vanilla", "--limit", 2).complaint


def test_planted_orders_are_counted_and_what_is_done_is_kept(call, live, tmp_path):
    command = ("bench", "injection", *live, "-M", "rag", "--limit", 2, "--out", tmp_path / "kept")
    done = call(*command)
    assert done.code == 0, done.err
    for words in ("documents", "facts", "memory", "web", "reached", "0.0% [0%, "):
        assert words in done.out
    rows = json.loads(call(*command, "--json").out)
    assert [(row["of"], row["n"], row["changed"]) for row in rows[:2]] == [("all", 8, 0), ("documents", 2, 0)]
    assert "take rag or weave" in call(*command, "--no-fences", "-M", "edit").complaint

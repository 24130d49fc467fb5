"""`dialore demo`, with its own recordings, with recordings of a test's, and without any."""

from __future__ import annotations

import asyncio
import json
import shutil

import pytest

from dialore.cli import demo_work
from dialore.cli.options import KnowledgeSettings
from dialore.cli.wiring import open_agents
from dialore.dialogue import read_dialogues
from dialore.llm.connection import connect
from dialore.llm.recording import Recorder

BUNDLED = demo_work.demo_folder()


def record(folder, url, count):
    """A demo of some of the dialogues, recorded as scripts/record_demo.py records it."""
    lines = (BUNDLED / "dialogues.jsonl").read_text("utf-8").splitlines()
    (folder / "dialogues.jsonl").write_text("\n".join(lines[:count]), "utf-8")

    async def answer():
        model = Recorder(connect("wait-0", url), folder / "recordings.jsonl")
        async with open_agents(demo_work.METHODS, model, KnowledgeSettings()) as agents:
            for dialogue in read_dialogues(folder / "dialogues.jsonl"):
                for agent in agents:
                    assert (await agent.respond(dialogue)).status == "ok"

    asyncio.run(answer())
    return folder


@pytest.fixture
def recorded(url, tmp_path, monkeypatch):
    folder = record(tmp_path, url, 2)
    monkeypatch.setattr(demo_work, "demo_folder", lambda: folder)
    return folder


def test_the_dialogues_are_as_promised():
    dialogues = read_dialogues(BUNDLED / "dialogues.jsonl")
    assert [dialogue.language for dialogue in dialogues].count("en") >= 4
    assert [dialogue.language for dialogue in dialogues].count("zh") >= 2
    for dialogue in dialogues:
        assert 3 <= len(dialogue.turns) <= 5
        assert dialogue.last.speaker == "user"
        assert dialogue.topic


def test_every_method_side_by_side(call, recorded, tmp_path):
    done = call("demo", "--html", tmp_path / "page.html")
    assert done.code == 0, done.err
    assert done.err == ""
    for words in ("vanilla", "t-rag", "qp-rag", "dcrag", "a weekend in London", "6 calls", "foreseen", "Go live"):
        assert words in done.out
    assert "≈" not in done.out
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.count("<article ") == 8
    assert "Completions recorded from a capable instruction-tuned model; retrieval is live." in page


def test_wide_terminals_get_columns(call, recorded, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "160")
    out = call("demo", "--html", tmp_path / "page.html").out
    assert any(all(m in line for m in ("vanilla", "t-rag", "qp-rag", "dcrag")) for line in out.splitlines())


def test_a_prompt_that_differs_is_marked_and_no_error(call, recorded, tmp_path):
    path = recorded / "recordings.jsonl"
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for line in lines:
        if line["label"].endswith("vanilla/response-generation"):
            line["messages"][0]["content"] += " (as it was worded then)"
            del line["prompt"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    done = call("demo", "--html", tmp_path / "page.html")
    assert done.code == 0
    assert "vanilla ≈" in done.out
    assert "t-rag ≈" not in done.out
    assert "a prompt differs from the recorded one" in done.out


def test_a_call_that_was_never_recorded_is_shown_and_exits_with_1(call, recorded, tmp_path):
    path = recorded / "recordings.jsonl"
    kept = [line for line in path.read_text("utf-8").splitlines() if "/qp-rag/response" not in line]
    path.write_text("\n".join(kept), "utf-8")
    done = call("demo", "--html", tmp_path / "page.html")
    assert done.code == 1
    assert "not in the" in done.out


def test_without_recordings_the_lexical_responder_answers(call, tmp_path, monkeypatch):
    shutil.copy(BUNDLED / "dialogues.jsonl", tmp_path)
    monkeypatch.setattr(demo_work, "demo_folder", lambda: tmp_path)
    done = call("demo", "--json", "--html", tmp_path / "page.html")
    assert done.code == 0
    assert done.err.count("\n") == 1
    assert "recordings are missing" in done.err
    assert {line["method"] for line in done.lines} == {"vanilla", "t-rag", "dcrag"}
    assert len(done.lines) == 18


def test_replayed_calls_of_a_stage_run_at_once(call, recorded, tmp_path):
    done = call("demo", "--json", "--html", tmp_path / "page.html")
    assert done.code == 0
    assert "6 calls in 4 steps" in (tmp_path / "page.html").read_text("utf-8")


@pytest.mark.skipif(not (BUNDLED / "recordings.jsonl").is_file(), reason="the recordings are not made yet")
def test_the_bundled_recordings_answer_everything(call, tmp_path):
    done = call("demo", "--json", "--html", tmp_path / "page.html")
    assert done.code == 0, done.err
    assert len(done.lines) >= 24
    assert all(line["text"] for line in done.lines)

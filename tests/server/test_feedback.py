"""Feedback of users: kept with the trace, theirs alone, counted, exported, and its dialogues answered anew."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from dialore.dialogue import Dialogue
from dialore.experiments.feedback import as_dialogues, as_pairs, lacks_memory
from dialore.server.store import FEEDBACK, ServerStore
from dialore.sources.memory import MemorySource
from tests.cli.processes import DIALORE
from tests.server.browsing import checked
from tests.server.conftest import Scripted
from tests.server.test_memory import Listening, consent, memory, tell
from tests.server.test_store import ANN, BEN, OTHER_ANN, clock, place, store  # noqa: F401 - fixtures

DOCS = Path(__file__).parents[2] / "docs"
RESULT = {"method": "weave", "text": "At ten.", "sources": ["documents"], "plan": ["documents"]}
RESULT |= {"messages": [{"role": "user", "content": "When does it open?"}]}
RESULT |= {"persona": ["I am the host."], "instructions": ["Be kind."]}


async def give_all(store):  # noqa: F811
    """Feedback of two owners' users on their traces."""
    for user, trace in ((ANN, "t1"), (ANN, "t2"), (BEN, "t3"), (OTHER_ANN, "t4")):
        await store.keep_trace(user, trace, RESULT if trace != "t2" else {**RESULT, "method": "rag", "sources": []})
    assert await store.give_feedback(ANN, "t1", good=False, reason="wrong", better="At half past seven.")
    assert await store.give_feedback(ANN, "t2", good=True)
    assert await store.give_feedback(BEN, "t3", good=False)
    assert await store.give_feedback(OTHER_ANN, "t4", good=True)


async def test_feedback_is_kept_with_its_trace_and_the_last_word_counts(store, clock):  # noqa: F811
    await give_all(store)
    clock.now += timedelta(days=6)
    assert await store.give_feedback(ANN, "t1", good=True)
    clock.now += timedelta(days=6)
    assert [(row["trace"], row["good"], row["reason"]) for row in await store.feedback()] == [("t1", True, "")]
    assert await store.trace(ANN.owner, "t1") == RESULT


async def test_what_was_no_response_has_no_feedback(store):  # noqa: F811
    await store.keep_trace(ANN, "knowledge alone", {"method": "weave", "trace": []})
    assert not await store.give_feedback(ANN, "knowledge alone", good=True)


async def test_persona_and_instructions_are_exported_with_the_messages(store):  # noqa: F811
    await give_all(store)
    rows = [row for row in await store.feedback() if row["trace"] == "t1"]
    [dialogue] = as_dialogues(rows)
    assert (dialogue["persona"], dialogue["extra"]["instructions"]) == (["I am the host."], ["Be kind."])
    [pair] = as_pairs(rows)
    assert pair["prompt"][0] == {"role": "system", "content": "I am the host.\nBe kind."}


async def test_nobody_speaks_for_another_and_an_owner_sees_their_own_users(store):  # noqa: F811
    await give_all(store)
    for user, trace in ((BEN, "t1"), (OTHER_ANN, "t1"), (ANN, "t4"), (ANN, "no such")):
        assert not await store.give_feedback(user, trace, good=True)
        assert await store.forget(user, trace, FEEDBACK) == 0
    assert {row["trace"] for row in await store.feedback(ANN.owner)} == {"t1", "t2", "t3"}
    assert {row["trace"] for row in await store.feedback(OTHER_ANN.owner)} == {"t4"}
    assert await store.forget(ANN, "t2", FEEDBACK) == 1
    await store.set_consent(ANN, consents=False)  # deletes all that there is of the user
    assert {row["trace"] for row in await store.feedback()} == {"t3", "t4"}


def test_the_interface_takes_feedback_of_the_same_user_alone(serving):
    running = serving()
    trace = running.say(user="ann").json()["choices"][0]["message"]["grounding"]["trace"]
    body = {"user": "ann", "trace": trace, "good": False, "reason": "too short", "better": "Yes, on the terrace."}
    assert running.http.post("/v1/feedback", json=body).json() == {
        k: body[k] for k in ("trace", "good", "reason", "better")
    }
    assert running.http.post("/v1/feedback", json={**body, "user": "ben"}).status_code == 404
    assert running.http.post("/v1/feedback", json={**body, "trace": "trace-0"}).status_code == 404
    assert running.http.post("/v1/feedback", json={**body, "better": "x" * 20_001}).status_code == 400
    assert running.http.delete(f"/v1/feedback/{trace}", params={"user": "ben"}).status_code == 404
    assert running.http.delete(f"/v1/feedback/{trace}", params={"user": "ann"}).status_code == 200


async def test_an_exported_dialogue_has_the_memory_that_the_former_response_was_given(store):  # noqa: F811
    said = {"text": "Ann skis.", "said": "2025-03-01T09:30:00Z", "speaker": "Ben", "holds_from": "2024-01-01T00:00:00Z"}
    for trace, fields in (("t1", {"memory": [said]}), ("t2", {}), ("t3", {"memory": [], "sources": ["documents"]})):
        await store.keep_trace(ANN, trace, {**RESULT, "sources": ["memory"], **fields})
        assert await store.give_feedback(ANN, trace, good=False)
    rows = {row["trace"]: row for row in await store.feedback()}
    dialogues = {dialogue["id"]: Dialogue.model_validate(dialogue) for dialogue in as_dialogues(rows.values())}
    [statement] = MemorySource().of(dialogues["t1"])
    assert (statement.speaker, statement.said.hour, statement.begins.year) == ("Ben", 9, 2024)
    assert "memory" not in dialogues["t2"].extra  # nothing is invented
    assert [trace for trace, row in rows.items() if lacks_memory(row)] == ["t2"]


def test_the_service_keeps_the_memory_that_a_response_was_given(serving):
    running = serving(Listening(needs=[{"what": "pet", "source": "memory", "query": "dog", "asked": True}]))
    consent(running)
    tell(running, "I have a dog called Bello.")
    trace = tell(running, "What is my pet called?", said=())["grounding"]["trace"]
    assert running.http.post("/v1/feedback", json={"user": "ann", "trace": trace, "good": False}).status_code == 200
    [row] = asyncio.run(running.service.store.feedback())
    [dialogue] = as_dialogues([row])
    [kept] = memory(running)["data"]
    [statement] = MemorySource().of(Dialogue.model_validate(dialogue))
    assert (statement.text, statement.said) == (kept["text"], datetime.fromisoformat(kept["said"]))
    assert not lacks_memory(row)


async def test_an_export_says_how_many_responses_drew_on_memory_that_it_lacks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = ServerStore("store.sqlite")
    await kept.open()
    for trace, source in (("t1", "memory"), ("t2", "documents"), ("t3", "memory")):
        await kept.keep_trace(ANN, trace, {**RESULT, "sources": [source]})
        assert await kept.give_feedback(ANN, trace, good=False)
    await kept.close()
    done = said("export", "store.sqlite", "bad.jsonl", "--bad")
    assert done.returncode == 0, done.stderr
    assert "2 of 3" in done.stderr
    assert "memory" in done.stderr


def said(*arguments):
    """The command in a process of its own: Playwright's loop runs in this one."""
    return subprocess.run([*DIALORE, "feedback", *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [("report",), ("export", "out.jsonl")])
def test_a_store_that_is_none_or_has_no_feedback(serving, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    command, *rest = arguments
    missing = said(command, "none.sqlite", *rest)
    assert (missing.returncode, "no such store" in missing.stderr) == (2, True)
    serving()
    empty = said(command, tmp_path / "known" / "store.sqlite", *rest)
    assert (empty.returncode, "has no" in empty.stderr) == (2, True)


async def test_what_the_page_of_the_documentation_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = ServerStore("store.sqlite")
    await kept.open()
    await give_all(kept)
    await kept.close()
    shown = re.findall(r"^dialore (.*?)(?:\s+#.*)?$", (DOCS / "feedback.md").read_text("utf-8"), re.MULTILINE)
    assert len(shown) == 10
    for line in shown:
        model = ["--model", "rehearsal"] if line.startswith("run ") else []
        done = subprocess.run([*DIALORE, *line.split(), *model], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (line, done.stderr)
    assert len((tmp_path / "judged.jsonl").read_text("utf-8").splitlines()) == 2


def test_from_the_page_to_data(serving, page, tmp_path, monkeypatch):
    pytest.importorskip("playwright.sync_api", reason="the clients extra is not installed")
    monkeypatch.chdir(tmp_path)
    running = serving(Scripted("No idea."))
    page.goto(running.url)
    page.get_by_role("textbox", name="Your message").fill("May I bring my dog?")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="A bad response").click()
    page.get_by_role("textbox", name="What is wrong?").fill("It does not answer.")
    checked(page, "chat-feedback")
    page.get_by_role("textbox", name="A better answer").fill("Dogs are welcome on the terrace.")
    page.get_by_role("button", name="Send", exact=True).first.click()
    page.get_by_role("button", name="A bad response").and_(page.locator("[aria-pressed=true]")).wait_for()
    page.wait_for_function("() => !document.querySelector('form.feedback')")
    known = tmp_path / "known" / "store.sqlite"
    shown = said("report", known)
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"method\s+weave\s+1\s+100%", shown.stdout)
    assert "It does not answer." in shown.stderr
    for form in ("dialogues", "responses", "pairs"):
        assert said("export", known, f"{form}.jsonl", "--as", form).returncode == 0
    [dialogue] = map(json.loads, (tmp_path / "dialogues.jsonl").read_text("utf-8").splitlines())
    assert (dialogue["turns"][-1]["text"], dialogue["reference"]) == (
        "May I bring my dog?",
        "Dogs are welcome on the terrace.",
    )
    [pair] = map(json.loads, (tmp_path / "pairs.jsonl").read_text("utf-8").splitlines())
    assert [pair[side][0]["content"] for side in ("prompt", "chosen", "rejected")] == [
        "May I bring my dog?",
        "Dogs are welcome on the terrace.",
        "No idea.",
    ]

"""`dialore demo`, with its own recordings, with recordings of a test's, and without any."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from dialore.cli import demo
from dialore.cli.demo import COMMONSENSE, FURTHER, FURTHER_SYSTEMS, METHODS, PARTS, open_part
from dialore.dialogue import read_dialogues
from dialore.llm.connection import connect
from dialore.llm.recording import Recorder, Replay
from dialore.methods.few_shot import is_fit, overlaps, samples_of

BUNDLED = demo.demo_folder()
# What runs the demo with nothing but the core's packages, and without a network.
CORE_ONLY = """\
import socket, sys
EXTRAS = ("torch", "transformers", "trafilatura", "pypdfium2", "scipy", "onnxruntime", "sentence_transformers")
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ImportError(name + " is no part of the core")
sys.meta_path.insert(0, Refused())
def refused(*arguments, **rest):
    raise OSError("the demo asks the network for nothing")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refused
from dialore.cli import demo, main, render
demo._TOKENS_A_SECOND = 1_000_000
as_line = render.as_line
render.as_line = lambda response: as_line(response, trace=True)  # as the tests want to see it
try:
    main(["demo", "--json", "--html", sys.argv[1]])
finally:
    assert not set(EXTRAS) & set(sys.modules), sorted(set(EXTRAS) & set(sys.modules))
"""


@pytest.fixture(scope="module")
def bundled(tmp_path_factory, cache_folder):
    """The demo as it is shipped, run once: its lines and its page."""
    folder = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [sys.executable, "-c", CORE_ONLY, str(folder / "page.html")],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "DIALORE_CACHE": str(cache_folder), "PYTHONUTF8": "1"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {(line["id"], line["method"]): line for line in lines}, (folder / "page.html").read_text("utf-8")


@pytest.fixture
def recorded(url, tmp_path, monkeypatch):
    """A demo of two dialogues of the first part, recorded as scripts/record_demo.py records it."""
    lines = (BUNDLED / "dialogues.jsonl").read_text("utf-8").splitlines()
    (tmp_path / "dialogues.jsonl").write_text("\n".join(lines[:2]), "utf-8")
    use(monkeypatch, tmp_path, COMMONSENSE)

    async def answer():
        model = replace(connect("wait-0", url), recorder=Recorder(tmp_path / "recordings.jsonl"))
        async with open_part(COMMONSENSE, model) as agents:
            for dialogue in COMMONSENSE.dialogues():
                for agent in agents:
                    assert (await agent.respond(dialogue)).status == "ok"
        await model.close()

    asyncio.run(answer())
    return tmp_path


def use(monkeypatch, folder, *parts):
    monkeypatch.setattr(demo, "demo_folder", lambda: folder)
    monkeypatch.setattr(demo, "PARTS", parts)


# --- what is bundled


def test_the_dialogues_are_as_promised():
    first, further = COMMONSENSE.dialogues(), FURTHER_SYSTEMS.dialogues()
    assert Counter(dialogue.language for dialogue in first) == {"en": 4, "zh": 2}
    assert Counter(dialogue.language for dialogue in further) == {"en": 2, "zh": 1}
    for dialogue in first + further:
        assert 3 <= len(dialogue.turns) <= 5
        assert dialogue.last.speaker == "user"
        assert dialogue.topic
    with_persona = [dialogue for dialogue in further if dialogue.persona]
    assert len(with_persona) == 1
    assert list(with_persona[0].persona) == list(with_persona[0].extra["documents"])
    assert all(with_persona[0].extra["documents"].values())


def test_the_sources_are_as_promised():
    lines = (BUNDLED / "further" / "passages.jsonl").read_text("utf-8").splitlines()
    wide = sum(any("\u4e00" <= sign <= "\u9fff" for sign in json.loads(line)["text"]) for line in lines)
    assert (len(set(lines)), wide) == (60, 20)
    samples = list(samples_of(read_dialogues(BUNDLED / "further" / "samples.jsonl")))
    assert Counter(sample.language for sample in samples) == {"en": 15, "zh": 15}
    for sample in samples:  # each shows both of MSDP's generators what is wanted
        assert is_fit(sample), sample.id
        assert 0.6 <= overlaps(sample.knowledge, sample.response, sample.language)[0] <= 0.9, sample.id


def test_every_line_says_which_prompt_it_was_made_with():
    reference = r"[\w/-]+\.(en|zh) v\d+ \w{12}"
    for line in Replay(BUNDLED / "recordings.jsonl").lines:
        assert re.fullmatch(rf"{reference}( \+ {reference})*", line.made_with), line.label


def test_nothing_is_recorded_that_is_not_asked(bundled):
    responses, _ = bundled
    asked = {
        f"{id_}/{method}/{stage['stage']}"
        for (id_, method), line in responses.items()
        for stage in line["trace"]
        if stage["usage"]["calls"]
    }
    lines = Replay(BUNDLED / "recordings.jsonl").lines
    assert {line.label for line in lines} == asked
    assert [line.label for line in lines] == sorted(line.label for line in lines)
    assert {line.made_by for line in lines} == {line.model for line in lines} == {"a capable instruction-tuned model"}


def test_every_response_of_both_parts_is_replayed_offline_by_the_core_alone(bundled):
    responses, _ = bundled
    wanted = {(dialogue.id, method) for part in PARTS for dialogue in part.dialogues() for method in part.methods}
    assert set(responses) == wanted
    assert len(wanted) == 6 * len(METHODS) + 3 * len(FURTHER) == 39
    for key, line in responses.items():
        assert line["status"] == "ok", key
        assert line["text"], key
        assert line["model"] == "a capable instruction-tuned model"
        for stage in line["trace"]:
            # A prompt file may have changed since: then the trace says which version was recorded.
            assert stage["recorded_with"] or not stage["prompt_changed"], (key, stage["stage"])
            assert stage["outcome"] == "ok", (key, stage["stage"], stage["error"])


def test_each_further_system_does_what_it_is_shown_for(bundled):
    responses, _ = bundled
    planned = responses["bees-in-the-frost", "safari"]
    assert planned["plan"][:2] == ["persona", "documents"]
    assert [piece["source"] for piece in planned["knowledge"]][:2] == ["persona", "documents"]
    sources: dict[str, set[str]] = {}
    for (_, method), line in responses.items():
        sources.setdefault(method, set()).update(piece["source"] for piece in line["knowledge"])
    kept, woven = (responses[dialogue, "weave"] for dialogue in ("bitter-longjing", "stars-over-the-lake"))
    assert kept["text"].startswith(kept["draft"])  # it was shown what is asked
    assert len({each["knowledge"] for each in kept["citations"]}) >= 2
    assert not woven["text"].startswith(woven["draft"])
    assert woven["citations"]
    assert sources["scg-qp"] == {"web"}
    assert sources["msdp"] == {"model"}
    assert sources["edit"] <= {"model", "documents"}
    assert any(responses[dialogue.id, "scg-qp"]["demands"]["implicit"] for dialogue in FURTHER_SYSTEMS.dialogues())
    for dialogue in FURTHER_SYSTEMS.dialogues():
        chinese = dialogue.language == "zh"
        for method in FURTHER:
            line = responses[dialogue.id, method]
            assert any("\u4e00" <= sign <= "\u9fff" for sign in line["text"]) == chinese, (dialogue.id, method)
            assert all(c["knowledge"] in {p["id"] for p in line["knowledge"]} for c in line.get("citations", ()))
    assert any(line.get("citations") for line in responses.values())


def test_the_page_shows_how_each_response_came_about(bundled):
    responses, page = bundled
    assert page.count("<article ") == 39
    assert page.count('<header class="part"') == 2
    assert "Further systems" in page
    assert "nothing is searched online" in page
    assert "a shelf of our own passages, in the place of the web" in page
    for words in ("<h4>Plan", "<h4>On the way", "<h4>Open questions", "Who answers", "<sup>"):
        assert words in page, words
    for name in ("Directive", "Query", "Knowledge written", "Topic"):
        assert f"<dt>{name}</dt>" in page, name
    number = sum(len(stage["output"]["answers"]) for stage in stages(responses, "answer-integration"))
    assert page.count('<p class="question">') == number >= 9
    persona = FURTHER_SYSTEMS.dialogues()[0]
    assert all(sentence in page for sentence in persona.persona)


def stages(responses, name):
    return [stage for line in responses.values() for stage in line["trace"] if stage["stage"] == name]


def test_the_page_names_the_source_of_each_piece(bundled):
    _, page = bundled
    origins = set(re.findall(r'<span class="origin"[^>]*>(?:<b>\d+</b> )?([a-z]+)', page))
    assert {"persona", "documents", "web", "model"} <= origins


# --- what the command does


def test_every_method_side_by_side(call, recorded, tmp_path):
    done = call("demo", "--html", tmp_path / "page.html")
    assert done.code == 0, done.err
    assert done.err == ""
    for words in ("vanilla", "t-rag", "qp-rag", "dcrag", "a weekend in London", "6 calls", "foreseen", "Go live"):
        assert words in done.out
    assert "≈" not in done.out
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.count("<article ") == 8
    assert "6 calls in 4 steps" in page  # replayed calls of a stage run at once
    assert "Completions recorded from a capable instruction-tuned model; retrieval is live." in page


def test_both_parts_in_the_terminal(call, monkeypatch, tmp_path):
    one = dataclasses.replace(COMMONSENSE, methods=("vanilla",))
    monkeypatch.setattr(demo, "PARTS", (one, FURTHER_SYSTEMS))
    monkeypatch.setattr(demo, "_TOKENS_A_SECOND", 1_000_000)
    done = call("demo", "--html", tmp_path / "page.html")
    assert done.code == 0, done.err
    assert done.out.index("Commonsense from a graph") < done.out.index("Further systems") < done.out.index("Go live")
    for words in (*FURTHER, "Plan: PERSONA → DOCUMENTS", "Directive:", "Query:", "Asks: 5 open questions"):
        assert words in done.out, words


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


def test_a_prompt_file_that_has_changed_since_is_answered_and_its_version_said(call, recorded, tmp_path):
    path = recorded / "recordings.jsonl"
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for line in lines:
        if line["label"].endswith("vanilla/response-generation"):
            line["messages"][0]["content"] += " (as it was worded then)"
            line["made_with"] = re.sub(r" v\d+ \w+", " v0 0123456789ab", line["made_with"])
            del line["prompt"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    done = call("demo", "--html", tmp_path / "page.html")
    assert done.code == 0
    assert "vanilla ≈" in done.out
    assert "recorded with version 0" in done.out
    assert "recorded with version 0" in (tmp_path / "page.html").read_text("utf-8")


def test_a_call_that_was_never_recorded_is_shown_and_exits_with_1(call, recorded, tmp_path):
    path = recorded / "recordings.jsonl"
    kept = [line for line in path.read_text("utf-8").splitlines() if "/qp-rag/response" not in line]
    path.write_text("\n".join(kept), "utf-8")
    done = call("demo", "--html", tmp_path / "page.html")
    assert done.code == 1
    assert "not in the" in done.out


def test_missing_recordings_are_said(call, tmp_path, monkeypatch):
    use(monkeypatch, tmp_path, COMMONSENSE)
    assert "recordings are missing" in call("demo", "--html", tmp_path / "page.html").complaint


@pytest.mark.skipif("DIALORE_TEST_GGUF" not in os.environ, reason="DIALORE_TEST_GGUF names no file of real weights")
def test_a_model_of_ones_own_answers_beside_the_recordings(call, monkeypatch):
    monkeypatch.setenv("DIALORE_THREADS", "1")
    weights = os.environ["DIALORE_TEST_GGUF"]
    done = call("demo", "--live", "--model", f"gguf:{weights}", "--limit", "1", "--json")
    assert done.code == 0
    methods = [json.loads(line)["method"] for line in done.out.splitlines()]
    assert f"vanilla by {Path(weights).name}" in methods
    assert len(methods) == 2 * len(METHODS + FURTHER)


def test_a_demo_by_a_model_names_one(call):
    assert "--live needs a language model" in call("demo", "--live").complaint

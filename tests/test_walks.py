"""The two pages of a first hour, docs/researcher.md and docs/builder.md: all that they show is run, in their order."""

from __future__ import annotations

import importlib
import io
import re
import runpy
import shlex
import subprocess
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from dialore.cli import main
from dialore.llm.fake import plausible_answer
from tests.llm.server import say

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"(?:`([\w./]+)`:\n\n)?^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Walk:
    """Follows a page: writes its files, runs its commands, and its snippets, which share names as in a notebook."""

    def __init__(self, page, type_in=""):
        self.text, self.type_in = (DOCS / page).read_text("utf-8"), type_in
        self.names, self.commands, self.curls, self.printed = {}, [], [], ""

    def follow(self, monkeypatch, skip=()):
        for file, language, block in BLOCK.findall(self.text):
            if file:
                Path(file).parent.mkdir(parents=True, exist_ok=True)
                Path(file).write_text(block, "utf-8")
            elif language == "python":
                with redirect_stdout(io.StringIO()) as out:
                    exec(compile(block, "snippet", "exec"), self.names)
                self.printed += out.getvalue()
            elif not language:
                for line in block.splitlines():
                    self.run(line, monkeypatch)
        return self

    def run(self, line, monkeypatch):
        command = line.split("  #")[0].strip()
        if command.startswith("curl "):
            self.curls.append(shlex.split(command))
        if not command.startswith("dialore "):
            assert command.startswith(("pip install ", "export ", "uvicorn serve:app ", "curl ")), command
            return
        monkeypatch.setattr("sys.stdin", io.StringIO(self.type_in))
        with redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit) as left:
            main(shlex.split(command)[1:])
        assert not left.value.code, command
        self.commands.append(command)
        self.printed += out.getvalue()


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """An empty folder and an empty cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIALORE_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("page", ["researcher.md", "builder.md"])
def test_a_page_is_two_screens(page):
    assert len((DOCS / page).read_text("utf-8").splitlines()) <= 120


def test_the_researchers_page(fresh, monkeypatch):
    pytest.importorskip("matplotlib", reason="the report extra is not installed")
    walk = Walk("researcher.md").follow(monkeypatch)
    assert len(walk.commands) >= 8
    assert "without cross revision" in walk.printed
    assert (fresh / "f1.pdf").read_bytes().startswith(b"%PDF")
    report = (fresh / "report" / "report.md").read_text("utf-8")
    assert "## People" in report
    assert "sheets-dcrag is filled in" in report


def test_the_first_page_and_the_choice_of_a_method(fresh, monkeypatch):
    pytest.importorskip("sacrebleu", reason="the evaluation extra is not installed")
    shown = [line.strip().split("  #")[0] for line in (DOCS / "index.md").read_text("utf-8").splitlines()]
    walk = Walk("choose.md").follow(monkeypatch)
    for line in shown:
        if line.startswith("printf "):
            subprocess.run(line, shell=True, check=True)
        if line.startswith("dialore ") and not line.startswith("dialore serve"):  # tests/server/test_serve_docs.py
            walk.run(line, monkeypatch)
    assert len(walk.commands) == 7
    assert "Dogs are welcome" in walk.printed


def test_the_recipes(fresh, monkeypatch):
    pytest.importorskip("sacrebleu", reason="the evaluation extra is not installed")
    monkeypatch.setattr("dialore.prompts.library._BESIDE", [])
    walk = Walk("recipes.md").follow(monkeypatch)
    assert len(walk.commands) >= 12
    assert walk.printed.count("Dogs are welcome") >= 2
    assert "the last turn is the query" in walk.printed
    assert "length" in walk.printed
    monkeypatch.syspath_prepend(fresh)
    importlib.import_module("test_length").test_words_are_counted()
    importlib.import_module("test_mine").test_it_cites_what_it_found()


def stand_in(handler):
    """What a model would say: it asks, makes an answer of what was found, and cites it."""
    system, *_, asked = (message["content"] for message in handler.asked.body["messages"])
    schema = handler.asked.body.get("response_format", {}).get("json_schema", {}).get("schema")
    if "<sentences>" in asked:
        text = next(iter(re.findall(r"^\[\d+\] (.*Dogs.*)", asked, re.MULTILINE)), "NONE")
    elif "needs" in (schema or {}).get("properties", {}):
        text = '{"needs": []}'
    elif "square brackets" in system + asked:
        text = "Yes, on the terrace [1]."
    else:
        text = plausible_answer(asked, schema, system)
    say(text)(handler)


@pytest.mark.parametrize("has_model", [True, False])
def test_the_builders_page(fresh, monkeypatch, faulty_server, has_model):
    if has_model:
        faulty_server.always = stand_in
        monkeypatch.setenv("DIALORE_BASE_URL", faulty_server.url)
        monkeypatch.setenv("DIALORE_MODEL", "stand-in")
    walk = Walk("builder.md", "May I bring my dog?\n/why\n").follow(monkeypatch)
    assert len(walk.commands) >= 3
    assert "Dogs are welcome" in walk.printed
    assert ("Yes, on the terrace" in walk.printed) == has_model
    testclient = pytest.importorskip("fastapi.testclient", reason="the serve extra is not installed")
    _, url, *options = walk.curls[0]
    header, body = options[options.index("-H") + 1], options[options.index("-d") + 1]
    with testclient.TestClient(runpy.run_path("serve.py")["app"]) as http:
        answer = http.post("/" + url.partition("/")[2], content=body, headers=[tuple(header.split(": "))])
    assert answer.status_code == 200, answer.text
    served = answer.json()
    assert served["text"]
    if has_model:
        assert served["text"] == "Yes, on the terrace."
        (cited,) = served["citations"]
        assert "Dogs are welcome" in cited["text"]
        assert (cited["title"], cited["section"]) == ("Harbour Café", "Dogs")
        assert served["text"][cited["start"] : cited["end"]] == "Yes, on the terrace"

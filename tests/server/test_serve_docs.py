"""docs/serve.md: every command and snippet that it shows is run."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from dialore.retrieval.documents.indexing import build_documents
from dialore.settings import Limits, ServerSettings, read_settings
from tests.server.conftest import Scripted, is_up, need, wait_until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serve.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [line.split("  #")[0] for kind, block in BLOCKS if not kind for line in block.splitlines()]
[FILE] = [block for kind, block in BLOCKS if kind == "toml"]


@pytest.fixture
def world(tmp_path, monkeypatch):
    (tmp_path / "dialore.toml").write_text(FILE, "utf-8")
    (tmp_path / "handbook.md").write_text("# Dogs\n\nDogs are welcome on the terrace.\n", "utf-8")
    build_documents(tmp_path / "handbook.idx", [tmp_path / "handbook.md"])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_file_is_one(world):
    settings = read_settings(world / "dialore.toml")
    assert settings.agents["commonsense"].method == "dcrag"
    assert settings.server.max_seconds == 120


def test_the_snippet_shows_a_citation(serving):
    running = serving(Scripted("Dogs are welcome on the terrace [1].", needs=[need("dogs on the terrace")]))
    running.http.post("/v1/knowledge/documents", json={"text": "Dogs are welcome on the terrace."})
    [snippet] = [block for kind, block in BLOCKS if kind == "python"]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        names = {}
        exec(snippet.replace("http://127.0.0.1:8017", running.url), names)
        names["client"].close()
    assert "Dogs are welcome on the terrace." in printed.getvalue().splitlines()[0]
    assert "'number': 1" in printed.getvalue()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_every_request_is_answered(world, serving):
    running = serving()
    asked = [command for command in COMMANDS if command.startswith("curl ")]
    assert len(asked) >= 6
    for command in asked:
        where = running.url.removeprefix("http://")
        words = [word.replace("localhost:8017", where) for word in shlex.split(command)]
        done = subprocess.run([*words, "--fail", "-sS"], check=False, capture_output=True, text=True, timeout=30)
        assert not done.returncode, (command, done.stderr)


@pytest.mark.parametrize("command", [each for each in COMMANDS if each.startswith("dialore ")])
def test_every_command_runs(world, command, new_cache):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "dialore", *shlex.split(command)[1:]]
    for word in ("--port", "9000"):
        words = [each for each in words if each != word]
    homes = {"XDG_DATA_HOME": str(world / "data"), "DIALORE_CACHE": new_cache()}
    if "--new-key" in words:
        made = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60)
        shown = made.stdout
        [key] = re.findall(r"dlr-[\w-]{40,}", shown)
        assert key not in shown.replace(f"app: {key}", "")
        (world / "keyed.toml").write_text("[server]\n" + shown.strip() + "\n", "utf-8")
        [entry] = read_settings(world / "keyed.toml").server.keys
        assert (entry.name, entry.knowledge) == ("app", False)
        return
    words += ["--port", str(port), "--model", "rehearsal"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env={**os.environ, **homes}) as process:
        try:
            wait_until(lambda: process.poll() is not None or is_up(f"http://127.0.0.1:{port}/readyz"), 60)
            models = httpx.get(f"http://127.0.0.1:{port}/v1/models", trust_env=False).json()["data"]
            assert ("dialore/commonsense" in {model["id"] for model in models}) == ("dialore.toml" in words)
        finally:
            process.terminate()
            process.wait(30)


def test_every_limit_that_the_page_shows_is_the_default():
    """The tables of serve.md are the one place of the limits: the other pages link to them."""
    shown = 0
    for model, head in ((Limits, "| of a key |"), (ServerSettings, "| of the service |")):
        text = PAGE[PAGE.index(head) :].partition("\n\n")[0]
        for names, values in re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ([\d,. and]+) \|", text, re.MULTILINE):
            fields = re.findall(r"`(\w+)`", names)
            numbers = [float(value.replace(",", "")) for value in re.findall(r"\d{1,3}(?:,\d{3})+|\d+", values)]
            assert numbers == [float(model.model_fields[name].default) for name in fields], names
            shown += len(fields)
    days = dict(re.findall(r"^\| `(\w+_days)` \| (\d+) \|", PAGE, re.MULTILINE))
    assert days == {name: str(ServerSettings.model_fields[name].default) for name in ("memory_days", "kept_days")}
    assert shown >= 13
    others = {name: (ROOT / "docs" / f"{name}.md").read_text("utf-8") for name in ("sources", "operations")}
    assert not re.search(r"(?:kept|gone)[^.|]{0,60}\b\d+ days", others["sources"] + others["operations"])

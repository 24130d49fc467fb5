"""What a person at a terminal of 80 columns sees: progress, failures, and what a shell completes."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from tests.cli.processes import DIALORE
from tests.llm.server import say, status

NARROW = struct.pack("HHHH", 24, 80, 0, 0)
NOISY = """
import logging
from dataclasses import dataclass
from dialore.methods.base import Method
from dialore.response import Grounding

@dataclass(frozen=True, slots=True)
class Noisy(Method):
    name = "noisy"
    summary = "warns"

    async def respond(self, dialogue, stage):
        logging.getLogger("elsewhere").warning("something is odd")
        return Grounding().response("Well.", [])
"""
CONTROL = re.compile(r"\x1b\[\?25[lh]|\x1b\[[\d;]*m")


def at_terminal(*arguments, stdin=""):
    """The exit code and the lines of a terminal at which a command ran, each as it stood when it was left."""
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, NARROW)
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"TERM": "xterm"}
    command = [*DIALORE, *map(str, arguments)]
    streams = {"stdin": subprocess.PIPE, "stdout": inner, "stderr": inner}
    with subprocess.Popen(command, env=environment, **streams) as process:
        os.close(inner)
        process.stdin.write(stdin.encode())
        process.stdin.close()
        shown = b""
        while data := _read(outer):
            shown += data
    os.close(outer)
    text, again = CONTROL.sub("", shown.decode()), 1
    while again:  # a line that the cursor went up to and erased
        text, again = re.subn(r"[^\n]*\n\r?\x1b\[1A\x1b\[2K", "", text)
    lines = [line.rstrip("\r").rpartition("\x1b[2K")[2] for line in text.split("\n")]
    return process.returncode, lines, shown.decode()


def _read(terminal):
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the other side is closed
        return b""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals")
def test_results_and_messages_stand_above_the_bar(talks, faulty_server):
    faulty_server.reply(say("One."), status(500, "boom"))
    faulty_server.always = say("Three.")
    options = (
        "-M",
        "vanilla",
        "-u",
        faulty_server.url,
        "--set",
        "model.no_cache=true",
        "--set",
        "model.retries=0",
        "--set",
        "model.concurrency=1",
    )
    code, lines, shown = at_terminal("respond", talks, *options)
    assert code == 1
    assert "answering" in shown
    assert shown.count("boom") == 1
    seen = [line for line in lines if "answering" in line]
    assert [re.sub(r"^answering ━+\s+\d/3 [\d:]+ [-\d:]+\s*$", "", line) for line in seen] == [""] * len(seen)
    assert any(line.startswith("dialore: london, vanilla: failed: ") for line in lines)
    assert "system: One." in lines
    assert all(len(line) <= 80 for line in lines if not line.startswith("dialore: "))  # the terminal breaks these


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals")
def test_what_is_logged_stands_above_the_bar(talks, faulty_server, tmp_path):
    (tmp_path / "noisy.py").write_text(NOISY, "utf-8")
    faulty_server.always = say("One.")
    code, lines, shown = at_terminal(
        "respond",
        talks,
        "-M",
        "noisy.py",
        "-u",
        faulty_server.url,
        "--set",
        "model.no_cache=true",
        "--set",
        "model.concurrency=1",
    )
    assert code == 0
    assert "answering" in shown
    assert lines.count("dialore: something is odd") == 3


def test_a_chat_shows_the_stage_at_work(faulty_server):
    faulty_server.always = say("Honey helps.")
    code, lines, shown = at_terminal("chat", "-M", "vanilla", "-u", faulty_server.url, stdin="My throat hurts.\n")
    assert code == 0
    assert "response generation · 0 s" in CONTROL.sub("", shown)
    assert lines == ["Honey helps.", ""]


def test_a_question_shows_its_steps_and_the_draft_greyed_and_leaves_the_answer(faulty_server):
    faulty_server.always = say("Honey helps.")
    code, lines, shown = at_terminal("ask", "My throat hurts.", "-u", faulty_server.url, "--set", "model.no_cache=true")
    assert code == 0
    assert re.search(r"(draft|needs|look up graph) · 1 of 2 · 0 s", CONTROL.sub("", shown))
    assert "system: Honey helps." in lines
    assert not any("1 of 2" in line for line in lines)


def test_of_a_long_answer_the_end_is_shown_while_it_comes():
    from rich.console import Console

    from dialore.cli.waiting import Waiting
    from dialore.methods.stages import StageName

    out = Console(width=40, height=9, force_terminal=True, record=True, file=io.StringIO())
    waiting = Waiting(2)
    waiting.begin(StageName("look-up-library", 1))
    waiting.draft = " ".join(f"word{number}" for number in range(50))
    out.print(waiting)
    shown = out.export_text().splitlines()
    assert (len(shown), shown[-2].rstrip()[-6:]) == (6, "word49")
    assert shown[-1].endswith("look up library · 1 of 2 · 0 s")


def test_a_failure_is_said_once(call, talks, faulty_server):
    faulty_server.always = status(500, "boom")
    done = call("ask", "Why?", "-M", "vanilla", "-u", faulty_server.url, "--set", "model.retries=0")
    assert done.code == 2
    assert (done.out + done.err).count("boom") == 1


def test_one_question(call, faulty_server):
    faulty_server.always = say("It scatters.")
    options = ("-M", "vanilla", "-u", faulty_server.url, "--set", "model.no_cache=true")
    assert "system: It scatters." in call("ask", "Why is the sky blue?", *options).out
    [line] = call("ask", "-", *options, "--json", stdin="Why is the sky blue?\n").lines
    assert (line["id"], line["text"]) == ("question", "It scatters.")
    assert "Why is the sky blue?" in faulty_server.calls[-1].body["messages"][-1]["content"]
    assert "the question: field turns[0].text" in call("ask", " ").complaint


@pytest.mark.parametrize(
    ("line", "known"),
    [
        ("dialore respond talk.json -M e", {"edit", "edit-questions"}),
        ("dialore run -M e", {"edit", "edit-questions"}),
        ("dialore run --dataset k", {"kbp", "kdconv"}),
        ("dialore score runs/try -x cd", {"cdf", "cdp"}),
        ("dialore documents build x.idx --dataset k", {"kbp", "kdconv"}),
        ("dialore methods e", {"edit", "edit-questions"}),
        ("dialore data show k", {"kbp", "kdconv"}),
        ("dialore as", {"ask"}),
    ],
)
def test_values_are_completed(call, monkeypatch, line, known):
    monkeypatch.setenv("_DIALORE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    assert set(call().out.split()) == known

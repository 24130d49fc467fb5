"""The command as a process: exit codes, signals, pipes, and what is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import typer

import dialore
from dialore.cli.app import app
from tests.cli.processes import DIALORE, interrupted


def run(*arguments, **rest):
    return subprocess.run(
        [*DIALORE, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False, **rest
    )


def test_version_and_help():
    assert run("--version").stdout == f"dialore {dialore.__version__}\n"
    shown = run("--help")
    assert shown.returncode == 0
    for verb in ("respond", "ground", "chat", "demo", "methods", "graph", "prompts", "data", "bench"):
        assert verb in shown.stdout
    assert "install-completion" in shown.stdout


@pytest.mark.parametrize(
    "verb",
    ["respond", "ground", "chat", "methods", "graph build", "graph search", "data convert", "bench endpoint"],
)
def test_help_teaches_by_example(verb):
    shown = run(*verb.split(), "--help", env={**os.environ, "COLUMNS": "100"})
    assert shown.returncode == 0
    assert "Example" in shown.stdout
    assert f"dialore {verb}" in shown.stdout


def test_help_imports_nothing_heavy():
    code = "import sys; from dialore.cli.app import app; print([m for m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in ("numpy", "pydantic", "aiohttp", "openai", "jieba", "asyncio", "jinja2"):
        assert f"'{heavy}'" not in loaded, heavy


def test_a_list_of_commands_says_of_each_what_it_says_itself():
    group = typer.main.get_command(app)
    context = typer.Context(group, resilient_parsing=True)
    for name, listed in group.commands.items():
        command = group.resolve_command(context, [name])[1]
        assert command.help.startswith(listed.help), name


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["respnd"], "Did you mean 'respond'"),
        (["respond"], "Missing argument"),
        (["respond", "x.json", "--metod", "dcrag"], "--method"),
        (["respond", "nowhere.json"], "no such file: nowhere.json (check the path)"),
        (["graph", "show", "tea", "--graph", "none.graph"], "no such graph"),
        (["bench", "endpoint", "--dialogues", "0"], "--dialogues"),
    ],
)
def test_bad_usage_is_one_line(arguments, words, tmp_path):
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("dialore: error: ")
    assert words in done.stderr


def test_a_verb_group_without_a_verb_shows_its_help():
    done = run("graph")
    assert done.returncode == 2
    assert "search" in done.stdout + done.stderr
    assert "dialore: error" not in done.stderr


def test_a_reader_that_hangs_up_is_no_error(tmp_path):
    path = tmp_path / "whole.json"
    path.write_text(json.dumps([{"dialogue": [["Hello there .", "Hi ."]]}] * 20_000), "utf-8")
    command = [*DIALORE, "data", "convert", "dailydialog", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("{")
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=30) == 1


def test_an_interrupt_is_quiet(tmp_path, faulty_server):
    from tests.llm.server import hang

    faulty_server.always = hang()
    path = tmp_path / "one.json"
    path.write_text('{"turns": ["Hello."]}', "utf-8")
    interrupted(
        faulty_server, "respond", path, "-M", "vanilla", "-u", faulty_server.url, "--set", "model.no_cache=true"
    )


@pytest.mark.parametrize("begin", ["import dialore, typer", "from dialore.cli import main; main(['--version'])"])
def test_an_interrupt_while_modules_are_read_is_quiet(begin, tmp_path):
    # A module that is read early waits there until the interrupt has come.
    stop = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nsignal.pause()\n"
    (tmp_path / "typer.py").write_text(stop, "utf-8")
    script = "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\nsys.argv = ['-m']\n" + begin
    paths = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | {"PYTHONPATH": paths}, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


INTERRUPTED_WORK = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = ["-m"]
from dialore import cli
from pydantic import BaseModel

class Interrupting:
    @classmethod
    def __get_pydantic_core_schema__(cls, source, handler):
        os.kill(os.getpid(), signal.SIGINT)  # pydantic drops what is raised here and in its own code
        return handler.generate_schema(str)

def compile_validator():
    type("Compiled", (BaseModel,), {"__annotations__": {"field": Interrupting}})

def work(_arguments):
    try:
        WORK
        print("went on")
    finally:
        print("cleaned up")
    return 0

cli._begin = work
cli.main()
"""


@pytest.mark.parametrize(
    ("work", "out"), [("compile_validator()", ""), ("os.kill(os.getpid(), signal.SIGINT)", "cleaned up\n")]
)
def test_the_first_interrupt_ends_the_command(work, out):
    script = INTERRUPTED_WORK.replace("WORK", work)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, out, "")


def test_a_talk_over_a_pipe(url, tmp_path):
    done = run("chat", "-u", url, "-M", "vanilla", input="Hello, I feel tired.\n/quit\n", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "What would you like to do" in done.stdout


def test_small_products_are_left_to_one_thread_unless_the_user_says_otherwise():
    script = (
        "import contextlib, os, sys\nfrom dialore.cli import main\n"
        "with contextlib.suppress(SystemExit):\n    main(['--version'])\n"
        "print(os.environ['OPENBLAS_NUM_THREADS'], 'numpy' in sys.modules)"
    )
    told = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    for given, kept in (({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3")):
        said = subprocess.run(
            [sys.executable, "-c", script], env=told | given, capture_output=True, text=True, check=True
        ).stdout
        assert said.split()[-2:] == [kept, "False"]

"""Output that the terminal's encoding lacks is replaced; what YAML says twice, and paths at home."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dialore.errors import InputError
from dialore.files import parse_yaml
from dialore.settings import expand_home


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "dialore", *arguments],
        capture_output=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "gbk"])
def test_no_encoding_ends_a_command_in_a_traceback(encoding):
    done = run("data", "show", "everyday", "-n", "20", PYTHONIOENCODING=encoding)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr


def test_an_argument_is_utf8_whatever_the_locale():
    done = run("graph", "show", "饺子", "--json", LC_ALL="POSIX", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.returncode == 0, done.stderr
    assert b"IsA" in done.stdout


def test_a_key_that_stands_twice_is_an_error_and_a_merged_one_is_none():
    with pytest.raises(InputError, match=r"x\.yaml, line 3: not valid YAML: 'a' stands twice"):
        parse_yaml("b:\n  a: 1\n  a: 2\n", "x.yaml")
    merged = "a: &a {x: 1, y: 1}\nb: {<<: *a, x: 2}\n"
    assert parse_yaml(merged, "x.yaml")["b"] == {"x": 2, "y": 1}


def test_paths_begin_at_home(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    said = {"path": "~/x.jsonl", "graph": ["~/a.graph", "corpus:~/b"], "text": "costs ~/5", "n": 3}
    assert expand_home(said) == said | {
        "path": "/home/ann/x.jsonl",
        "graph": ["/home/ann/a.graph", "corpus:/home/ann/b"],
    }


def test_the_starter_graph_is_exported_by_its_name(call):
    done = call("graph", "export", "starter")
    assert done.code == 0
    assert done.out.startswith("head\trelation\ttail")

"""Texts of others on the terminal: no control characters, nothing printed past `cli/output.py`."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from pathlib import Path

import pytest

import dialore
from dialore.cli.output import Table, console, remove_controls, say, say_json
from tests.cli.processes import DIALORE

CLI = Path(dialore.__file__).parent / "cli"
HOSTILE = "a\x1b[2J\x1b]0;t\x07\x9b31m\u202eb\r\x7f"
UNSAFE = "\x1b\x07\x9b\u202e\r\x7f"
PRINTING = {"print", "input", "echo", "secho", "confirm", "prompt", "Console", "write"}


def test_control_characters_are_removed_also_when_a_sequence_is_split(capsys):
    assert remove_controls("a\tb\n") == "a\tb\n"
    for character in HOSTILE:
        say(character, newline=False)
        say(character, newline=False, stderr=True)
    out, err = capsys.readouterr()
    assert out == err
    assert not set(out) & set(UNSAFE)


def test_json_is_escaped_and_nothing_is_lost(capsys):
    say_json({"text": HOSTILE + "\ud800"})
    out = capsys.readouterr().out
    assert not set(out) & set(UNSAFE)
    assert json.loads(out) == {"text": HOSTILE + "\ud800"}


def test_tables_and_markup_show_texts_as_they_are(capsys):
    console().print(Table("name", rows=[[f"root:x:0 [red] {HOSTILE}"]], title=HOSTILE))
    console().print(f"root:x:0 {HOSTILE}")
    out = capsys.readouterr().out
    assert "root:x:0 [red]" in out
    assert out.count("root:x:0") == 2
    assert not set(out) & set(UNSAFE)


def called_name(node):
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def is_standard_stream(node):
    return isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value).startswith(
        ("sys.std", "typer", "click")
    )


@pytest.mark.parametrize("path", sorted(CLI.glob("*.py")), ids=lambda path: path.name)
def test_nothing_is_printed_past_the_output_module(path):
    if path.name in {"output.py", "terminal.py"}:
        return
    calls = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
    printing = [call for call in calls if called_name(call) in PRINTING]
    past = [call.lineno for call in printing if isinstance(call.func, ast.Name) or is_standard_stream(call)]
    local = {"confirm", "write"}  # functions of ours that have these names
    own = [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id in local]
    assert set(past) <= set(own)


def test_documents_cannot_send_commands_to_the_terminal(call, tmp_path):
    document = {"text": f"A terrace {HOSTILE} for dogs.", "title": HOSTILE}
    (tmp_path / "a.jsonl").write_text(json.dumps(document), "utf-8")
    assert call("documents", "build", "a.index", "a.jsonl").code == 0
    for options in ([], ["--json"]):
        done = call("documents", "search", "terrace", "a.index", *options)
        assert "terrace" in done.out
        assert not set(done.out) & set(UNSAFE)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_closed_standard_streams_are_no_failure(closed):
    command = f"{' '.join(DIALORE)} methods {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("width", ["0", "1", "-5", "x", "\u00b2", "99999999"])
def test_odd_widths_count_as_not_set(width):
    environment = os.environ | {"COLUMNS": width, "LINES": "0"}
    done = subprocess.run([*DIALORE, "methods"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "weave" in done.stdout


def test_yaml_that_holds_itself_is_one_clear_line(call, monkeypatch, tmp_path):
    (tmp_path / "agent.yaml").write_text("method: &a\n  x: *a\n", "utf-8")
    (tmp_path / "talk.json").write_text('{"turns": ["Hi."]}', "utf-8")
    monkeypatch.setenv("DIALORE_SETTINGS", "agent.yaml")
    assert "agent.yaml" in call("respond", "talk.json").complaint


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("agent.toml", "a = " + "[" * 3_000 + "]" * 3_000),
        ("agent.toml", f"[{'.'.join('a' * 3_000)}]"),
        ("agent.yaml", "a: " + "[" * 3_000 + "]" * 3_000),
    ],
)
def test_settings_that_are_nested_too_deeply_are_one_clear_line(call, monkeypatch, tmp_path, name, text):
    (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "talk.json").write_text('{"turns": ["Hi."]}', "utf-8")
    monkeypatch.setenv("DIALORE_SETTINGS", name)
    complaint = call("respond", "talk.json").complaint
    assert name in complaint
    assert "nested" in complaint


def test_an_empty_settings_file_and_the_home_folder(call, monkeypatch, tmp_path):
    (tmp_path / "talk.json").write_text('{"turns": ["Hi."]}', "utf-8")
    (tmp_path / "empty.yaml").write_text("", "utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DIALORE_SETTINGS", "~/empty.yaml")
    assert call("respond", "~/talk.json").code == 0

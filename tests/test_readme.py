"""Every command and program that README.md shows is run, in a folder with the files that it names."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dialore.cli import main
from tests.example_data import write_data
from tests.llm.server import say

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
COMMANDS = [
    command
    for language, block in BLOCKS
    if language == ""
    for line in block.splitlines()
    for command in line.split("  #")[0].split("&&")
    if command.strip().startswith("dialore ")
    and "gguf:" not in command  # weights are not at hand: tests/llm/test_gguf.py
]
INSTALLS = [line for _, block in BLOCKS for line in block.splitlines() if line.startswith("pip install")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files that the README's commands name."""
    folder = tmp_path_factory.mktemp("readme")
    turns = ["How was the interview?", "I was so nervous that I spilled my coffee."]
    (folder / "dialogues.jsonl").write_text(json.dumps({"id": "1", "turns": turns}) + "\n", encoding="utf-8")
    facts = [("coffee", "Causes", "stain"), ("interview", "Causes", "nervous"), ("coffee", "UsedFor", "wake_up")]
    lines = [
        f"/a/[/r/{name}/,/c/en/{head}/,/c/en/{tail}/]\t/r/{name}\t/c/en/{head}/n\t/c/en/{tail}\t"
        + json.dumps({"dataset": "/d/own", "weight": 2.0})
        for head, name, tail in facts
    ]
    (folder / "ours.tsv").write_text("coffee\tHasProperty\tour best seller\n", encoding="utf-8")
    (folder / "assertions.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    dialogues = [{"meta": [], "dialogue": [["Hello .", "Hi !"], ["How are you ?", ""]]} for _ in range(30)]
    (folder / "notes.txt").write_text("Take sixty grams of coffee for a litre of water.\n", encoding="utf-8")
    shutil.copytree(ROOT / "examples", folder / "examples")
    write_data(folder)
    (folder / "valid.json.gz").write_bytes(gzip.compress(json.dumps(dialogues).encode()))
    return folder


def run(arguments, folder, stdin=""):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "DIALORE_CACHE": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_exactly_two_set_up_commands():
    assert INSTALLS == ["pip install . && dialore demo", "pip install '.[test]' && pytest -n auto"]


def test_every_command_works_in_the_order_shown(folder):
    graph = ["graph", "build", "data/conceptnet-assertions-5.7.0.csv.gz", "--out", "data/conceptnet.en.graph"]
    assert run(["-m", "dialore", *graph, "--language", "en"], folder).returncode == 0
    assert len(COMMANDS) >= 9
    for command in COMMANDS:
        arguments = shlex.split(command)[1:]
        done = run(["-m", "dialore", *arguments], folder, stdin="I spilled my coffee.\n/why\n")
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert "Traceback" not in done.stderr


def test_the_program_works(folder):
    (program,) = [block for language, block in BLOCKS if language == "python"]
    done = run(["-c", program], folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_a_citation_looks_as_shown(faulty_server, tmp_path, monkeypatch, capsys):
    def stand_in(handler):
        asked = handler.asked.body
        needs = [{"what": "dogs", "source": "library", "query": "dogs", "asked": True}]
        say(json.dumps({"needs": needs}) if "response_format" in asked else "Yes, on the terrace [1].")(handler)

    faulty_server.always = stand_in
    monkeypatch.chdir(tmp_path)
    text = "# Harbour Café\n\n## Dogs\n\nDogs are welcome on the terrace, and there is always a bowl of water.\n"
    (tmp_path / "cafe.md").write_text(text, "utf-8")
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(SystemExit):
        main(
            [
                "ask",
                "May I bring my dog?",
                "--documents",
                "cafe.md",
                "-u",
                faulty_server.url,
                "--set",
                "model.no_cache=true",
            ]
        )
    (shown,) = [block for language, block in BLOCKS if language == "text"]
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert printed[1:5] == shown.splitlines()


def test_the_table_of_methods_is_true():
    from dialore.methods.registry import method_names

    cells = re.findall(r"^\| (`[^|]+`) \|", README, re.MULTILINE)
    assert sorted(name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)) == method_names()

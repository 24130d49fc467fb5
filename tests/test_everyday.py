"""The bundled dialogues, and the first table: what README and examples/everyday.yaml show, run as printed."""

from __future__ import annotations

import csv
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
from dialore.datasets.published import data_file
from dialore.datasets.registry import data_set
from dialore.experiments.config import make_config, read_config
from dialore.experiments.run import load_dialogues

ROOT = Path(__file__).parents[1]
FILE = ROOT / "examples" / "everyday.yaml"


def test_twenty_dialogues_in_two_languages_each_with_a_reference():
    dialogues = list(data_set("everyday").read(data_file("everyday")))
    assert [dialogue.language for dialogue in dialogues] == ["en"] * 14 + ["zh"] * 6
    for dialogue in dialogues:
        assert [turn.speaker for turn in dialogue.turns] == ["user", "friend", "user", "friend"]
        assert len(dialogue.answers) == 1


def test_they_are_read_whole_where_no_path_is_said():
    config = make_config({"name": "x", "dataset": {"name": "everyday"}, "systems": ["vanilla"]})
    dialogues = list(load_dialogues(config.dataset))
    assert len(dialogues) == 20
    assert (dialogues[0].id, len(dialogues[0].turns)) == ("first-marathon", 3)
    assert dialogues[0].reference.startswith("Sore legs mean it's working!")


def test_another_set_without_a_path_says_what_to_do(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("DIALORE_CACHE", str(tmp_path))
    for name, hint in (
        ("jsonl", "which file of jsonl is not said (name its file)"),
        (
            "personachat",
            "which file of personachat is not said (fetch it with `dialore data get personachat`, or name its file)",
        ),
    ):
        with pytest.raises(SystemExit) as left:
            main(["data", "show", "--stats", name])
        assert left.value.code == 2
        assert hint in capsys.readouterr().err


def readme():
    """The commands of the first table, without their remarks."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```\n(dialore run examples/everyday.yaml.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line.split("  #")[0] for line in block.splitlines()]


def test_the_first_table_has_figures_in_every_column(tmp_path):
    (tmp_path / "examples").mkdir()
    shutil.copy(FILE, tmp_path / "examples")  # all that a fresh checkout has, and nothing of data/
    commands = readme()
    assert [command.split()[1] for command in commands] == ["run", "score", "report"]
    for command in commands:
        ran = subprocess.run(
            [sys.executable, "-m", "dialore", *shlex.split(command)[1:]],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "DIALORE_CACHE": str(tmp_path / "cache")},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert ran.returncode == 0, (command, ran.stderr)
        assert "not available" not in ran.stderr
    with (tmp_path / "report" / "report.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    config = read_config(FILE)
    expected = {(system.method, metric) for system in config.systems for metric in config.metrics}
    figures = {(row["system"], row["metric"]): row["value"] for row in rows}
    assert expected <= figures.keys()
    assert all(float(figures[cell]) >= 0 for cell in expected)
    assert {path.suffix for path in (tmp_path / "report").iterdir()} >= {".html", ".md", ".tex", ".csv"}


def test_the_example_shows_the_commands_of_readme():
    shown = re.findall(r"^#   (dialore .*)$", FILE.read_text("utf-8"), re.MULTILINE)
    assert shown == [command.replace(" --model rehearsal", "").strip() for command in readme()]


def test_show_needs_no_file(capsys):
    with pytest.raises(SystemExit) as left:
        main(["data", "show", "--stats", "everyday", "--json"])
    assert not left.value.code
    found = json.loads(capsys.readouterr().out)
    assert (found["dialogues"], found["samples"], found["languages"]) == (20, 20, {"en": 14, "zh": 6})

"""Every `dialore train` command of the examples and pages fits the command line. Nothing is trained."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from dialore.cli import main, train
from dialore.cli.training import KINDS, TrainSettings
from dialore.datasets import data_set
from dialore.training.generators import RECIPES
from dialore.training.presets import PRESETS

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("**/*.yaml"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "scripts" / "learn_page.md"]
PARTS = set(train.part_names())
OPTIONS = {"--data", "--out", "--as", "--base", "--sources", "--set", "--json", "--help"}
CHOICES = {
    "kind": {"trees", "dual", "cross", *KINDS},
    "recipe": {*RECIPES},
    "negatives": {"hard", "random"},
}


@dataclass(frozen=True)
class Shown:
    """A command as a file shows it."""

    path: Path
    text: str

    @property
    def is_complete(self) -> bool:
        """Whether the command can be typed as it stands: prose may abbreviate."""
        return " --out " in self.text

    def __str__(self) -> str:
        return f"{self.path.name}: {self.text}"


def find_commands():
    """Return the commands on lines of their own or in YAML lists, and those in backticks, which may be wrapped."""
    found = []
    for path in (*EXAMPLES, *PAGES):
        text = path.read_text("utf-8")
        lines = re.findall(r"^(?:#\s*|\s*- )?(dialore train .*)$", text, re.MULTILINE)
        prose = re.sub(r"\n(?:#\s*| +)?", " ", text)
        quoted = re.findall(r"`(dialore train [^`]+)`", prose)
        commands = dict.fromkeys(line.split("  #")[0].strip() for line in [*lines, *quoted])
        found.extend(Shown(path, command) for command in commands)
    return found


SHOWN = find_commands()
COMPLETE = [shown for shown in SHOWN if shown.is_complete]
ABBREVIATED = [shown for shown in SHOWN if not shown.is_complete]


@pytest.fixture
def parse(monkeypatch):
    """Run a command up to the training, and return what it would have trained: kind, base and tuning."""
    started = []

    def run_finetuning(kind, base, _request, _targets, _card, _tokens, tuning):
        assert kind in KINDS
        started.append((kind, base, tuning))

    def run_encoder(kind, request, tuning, **_reading):
        data_set(request.data)
        started.append((kind, request.start, tuning))

    def run_part(_recipe, request, _reader=None):
        data_set(request.data)
        started.append(("trees", None, None))

    def read_data(_recipe, name, *_rest):
        data_set(name)
        return ([], [], {})

    monkeypatch.setattr(train, "run_finetuning", run_finetuning)
    monkeypatch.setattr(train, "run_encoder", run_encoder)
    monkeypatch.setattr(train, "run_part", run_part)
    monkeypatch.setattr(train, "split_files", lambda *_, **__: [])
    monkeypatch.setattr(train, "read_targets", lambda *given: (read_data(*given)[:2], {}))
    monkeypatch.setattr(train, "stage_targets", lambda *_, **__: (([], []), {}))
    monkeypatch.setattr(train, "missing_marks", lambda *_: ())

    def parse(command):
        with pytest.raises(SystemExit) as left:
            main(shlex.split(command)[1:])
        assert not left.value.code, command
        (result,) = started[-1:]
        return result

    return parse


def test_commands_are_found_in_examples_and_pages():
    folders = {shown.path.parent.name for shown in COMPLETE}
    assert folders >= {"edit", "msdp", "safari", "scg-qp", "docs"}
    assert {shown.text.split()[2] for shown in COMPLETE} <= PARTS
    assert ABBREVIATED


@pytest.mark.parametrize("shown", COMPLETE, ids=str)
def test_a_complete_command_is_accepted(shown, parse):
    _, base, _ = parse(shown.text)
    named_base = re.search(r"--base (\S+)", shown.text)
    assert named_base is None or base == named_base[1]


@pytest.mark.parametrize("shown", ABBREVIATED, ids=str)
def test_an_abbreviated_command_names_a_recipe_its_options_and_their_values(shown):
    part, *words = shown.text.split()[2:]
    assert part in PARTS or part == "..."
    for position, word in enumerate(words):
        if not word.startswith("--"):
            continue
        assert word in OPTIONS
        value = words[position + 1] if position + 1 < len(words) else ""
        if word == "--as" and value:
            assert value in {*PRESETS, "PRESET"}
        if word == "--set" and value:
            name, equals, setting = value.partition("=")
            assert name in TrainSettings.model_fields
            assert not equals or setting in CHOICES.get(name, {setting})


@pytest.mark.parametrize(
    ("command", "preset"),
    [
        ("dialore train stages rows.jsonl --as dpr --out models/x", "dpr"),
        ("dialore train retriever kbp --as scg-qp --data data --out models/x", "scg-qp"),
    ],
)
def test_a_preset_of_another_recipe_is_refused(command, preset, capsys):
    with pytest.raises(SystemExit) as left:
        main(shlex.split(command)[1:])
    assert left.value.code == 2
    assert preset in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        "dialore train generator kbp --data data --out models/x",
        "dialore train stages rows.jsonl --out models/x",
        "dialore train question coq --data data --out models/x",
        "dialore train query wizard-of-internet --data data --out models/x",
        "dialore train retriever kbp --set kind=dual --data data --out models/x",
        "dialore train nli kbp --set kind=cross --data data --out models/x",
    ],
)
def test_without_a_base_nothing_is_trained(command, parse, capsys):
    with pytest.raises(SystemExit) as left:
        main(shlex.split(command)[1:])
    assert left.value.code == 2
    assert "--base" in capsys.readouterr().err
    assert parse(f"{command} --base scratch")[1] == "scratch"

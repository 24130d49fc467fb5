"""Every `dialore` command in pages, examples, docstrings and messages exists, with its options and settings.

Nothing is run. `test_docs.py`, `test_readme.py` and `test_examples.py` run those that can be typed as they stand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
import typer.main

from dialore.cli.app import app
from dialore.cli.documents import BuildSettings
from dialore.cli.options import JudgeSettings
from dialore.cli.train import part_names
from dialore.cli.training import TrainSettings
from dialore.experiments.config import RunConfig
from dialore.settings import Settings

ROOT = Path(__file__).parents[1]
PATTERNS = (
    "*.md",
    "docs/*.md",
    "deploy/*",
    "examples/**/*.yaml",
    "examples/**/*.ipynb",
    "scripts/*.md",
    "scripts/*.py",
    "src/**/*.py",
)
# The changelog tells of options that are gone.
FILES = sorted({path for pattern in PATTERNS for path in ROOT.glob(pattern)} - {ROOT / "CHANGELOG.md"})
LINE = re.compile(r'^\s*(?:#\s*|- |\$ |"|\.\.\. )*(dialore [a-z].*)$', re.MULTILINE)
QUOTED = re.compile(r"`(dialore [a-z][^`]*)`")
# A comment, or the beginning of another program.
END = re.compile(r"  +#| \| | && |; |\\n")
SETTINGS = {"run": RunConfig, "distill": RunConfig, "import": RunConfig, "documents": BuildSettings}
SETTINGS["train"] = TrainSettings
SETTINGS |= dict.fromkeys(("score", "judge", "report", "models"), JudgeSettings)


@dataclass(frozen=True)
class Shown:
    """A command as a file shows it."""

    path: Path
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}: {self.text}"


def find_commands():
    """Return the commands on lines of their own, and those in backticks, which may be wrapped."""
    found = {}
    for path in FILES:
        text = path.read_text("utf-8")
        joined_strings = re.sub(r'"\s*\n\s*f?"', "", text)
        prose = re.sub(r"\n(?:\s*#\s*|\s+)?", " ", joined_strings)
        for command in (*LINE.findall(text), *QUOTED.findall(prose)):
            shown = Shown(path, END.split(command)[0].strip())
            found[shown.text] = shown
    return list(found.values())


def resolve(text):
    """Return a command's names, the command, and the words after its names."""
    command = typer.main.get_command(app)
    words = re.sub(r'"[^"]*"|\'[^\']*\'', "TEXT", text).split()[1:]
    names = []
    while words and hasattr(command, "commands"):
        name = words[0].partition("|")[0]  # prose lists alternatives: list|export|delete
        if name not in command.commands:
            break
        _, command, words = command.resolve_command(typer.Context(command, info_name=""), [name, *words[1:]])
        names.append(name)
    return names, command, words


def problems(text):
    """Return what the command line would refuse in a command."""
    names, command, words = resolve(text)
    if not names:
        return ["no such command"]
    if hasattr(command, "commands"):
        is_complete = not words or words[0] in {"...", "--help"}
        return [] if is_complete else [f"no such command of {names[0]}: {words[0]}"]
    if names == ["train"] and words and words[0] not in {*part_names(), "PART", "...", "--help"}:
        return [f"no such part: {words[0]}"]
    options = {"--help", "-h"}
    for parameter in command.params:
        options |= {*parameter.opts, *parameter.secondary_opts}
    flags = [re.split(r"[=.,;:)]", word)[0] for word in words if re.match(r"--?[A-Za-z]", word)]
    found = [f"no such option: {flag}" for flag in flags if flag not in options]
    settings = tuple(f"{setting.path}." for setting in SETTINGS.get(names[0], Settings).list_settings())
    paths = re.findall(r"(?:--set|-s) ([a-z_.]+)", " ".join(words))
    return found + [f"no such setting: {path}" for path in paths if not f"{path}.".startswith(settings)]


SHOWN = find_commands()


def test_commands_are_found_in_all_kinds_of_files():
    folders = {shown.path.relative_to(ROOT).parts[0] for shown in SHOWN}
    assert folders >= {"README.md", "docs", "examples", "scripts", "src"}
    assert len(SHOWN) > 500


def test_every_command_that_is_shown_exists_with_its_options_and_settings():
    found = {str(shown): problems(shown.text) for shown in SHOWN}
    assert {shown: reasons for shown, reasons in found.items() if reasons} == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("dialore answer talk.json", "no such command"),
        ("dialore train everything kbp", "no such part: everything"),
        ("dialore run x.yaml --stage-model a=b", "no such option: --stage-model"),
        ("dialore run x.yaml --set stage.model=b", "no such setting: stage.model"),
        ("dialore score runs/x --set dataset.cut=all", "no such setting: dataset.cut"),
    ],
)
def test_a_command_that_does_not_exist_is_noticed(text, problem):
    assert problems(text) == [problem]

"""The page of a first hour, docs/researcher.md: all that it shows is run, in its order."""

from __future__ import annotations

import io
import re
import shlex
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from dialore.cli import main

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"(?:`([\w.]+)`:\n\n)?^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Walk:
    """Follows a page: writes its files, runs its commands, and its snippets, which share names as in a notebook."""

    def __init__(self, page, type_in=""):
        self.text, self.type_in = (DOCS / page).read_text("utf-8"), type_in
        self.names, self.commands, self.curls, self.printed = {}, [], [], ""

    def follow(self, monkeypatch, skip=()):
        for file, language, block in BLOCK.findall(self.text):
            if file:
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
            assert command.startswith(("pip install ", "export ", "python serve.py", "curl ")), command
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


@pytest.mark.parametrize("page", ["researcher.md"])
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

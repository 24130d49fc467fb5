"""The notebooks of examples/notebooks are run as they stand, each in a fresh process and folder, by no endpoint."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def run_cells(cells: list[str], folder: Path) -> str:
    """Run cells in a fresh process; gives what they print."""
    (folder / "cells.json").write_text(json.dumps(cells), "utf-8")
    told = {"PYTHONPATH": str(ROOT / "src"), "DIALORE_CACHE": str(folder / "cache"), "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", ROOT / "tests" / "cells.py", "cells.json"],
        cwd=folder,
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Unclosed" not in done.stderr, done.stderr
    return done.stdout


def test_there_is_one_for_each_kind_of_user():
    assert [path.stem for path in NOTEBOOKS] == ["builder", "researcher"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_beginning_to_end(path, tmp_path):
    pytest.importorskip("matplotlib", reason="the report extra is not installed")
    book = json.loads(path.read_text("utf-8"))
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    folder = tmp_path / "notebooks"
    shutil.copytree(FOLDER, folder)
    shown = run_cells(["".join(cell["source"]) for cell in cells], folder)
    if path.stem == "builder":
        assert "Take 60 grams of coffee for a litre of water. ← Harbour Café" in shown
        assert "200 {'text'" in shown
        assert "We open at seven on weekdays" in shown
    else:
        assert "systems=vanilla, dcrag, dcrag, 5 facts, dialogues=12, responses=36" in shown
        assert "wilcoxon" in shown
        assert (folder / "scores.png").stat().st_size > 1000

"""The words of the code: docstrings that a stranger reads once, and one word for each thing (CONTRIBUTING.md).

That functions are described in the imperative is checked by ruff (D401).
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = sorted(path for folder in ("src", "benchmarks", "scripts") for path in (ROOT / folder).rglob("*.py"))
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
RETIRED = {
    r"\bworkbench(es)?\b": "session",
    r"\bWorkbench\b": "Session",
    r"\bNoModel\b": "NullRunner",
    r"\bModelResponder\b": "LLMRunner",
    r"\bRehearsal\b(?! of)": "FakeModel",
    r"\bShelf\b": "InMemoryPassages",
}
"""Names of before, and what each is called now."""


@pytest.mark.parametrize("pattern", RETIRED, ids=list(RETIRED.values()))
def test_a_retired_name_is_used_nowhere(pattern):
    retired = re.compile(pattern)
    found = [
        f"{path.relative_to(ROOT)}:{number} says {match[0]}: it is called {RETIRED[pattern]}"
        for path in [*CODE, *PAGES]
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if (match := retired.search(line))
    ]
    assert not found


def stored(function):
    """The names that a function binds by assignment, loop or comprehension."""
    names = (node for node in ast.walk(function) if isinstance(node, ast.Name))
    return {node.id for node in names if isinstance(node.ctx, ast.Store)}


def test_locals_say_what_they_hold():
    vague = {"each", "one", "found", "said"}
    met = [
        f"{path.relative_to(ROOT)}:{node.lineno} {name}"
        for path in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for name in stored(node) & vague
    ]
    assert not met

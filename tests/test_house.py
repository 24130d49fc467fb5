"""The house of CONTRIBUTING.md: every room stands on the floors below it, and there are no circles."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

import dialore

ROOT = Path(dialore.__file__).parent
# The floor of each room; what is not named is on the ground.
FLOORS = {
    "retrieval": 2,
    "prompts": 2,
    "datasets": 2,
    "learned": 2.5,  # below the persona source, which ranks by it
    "sources": 3,
    "methods": 4,
    "evaluation": 4,
    "settings": 4,
    "agent": 5,
    "session": 6,
    "experiments": 7,
    "training": 7,
    "adapters": 7,
    "server": 8,
    "cli": 9,
    "__main__": 10,
    "__init__": 11,
}
GROUND = {
    "encodings",
    "parallel",
    "plugins",
    "dialogue",
    "knowledge",
    "response",
    "response_text",
    "text",
    "pages",
    "trained",
    "errors",
    "files",
    "sqlite_errors",
    "_lazy",
    "_version",
    "llm",
    "data",
}


SCRIPT = Path(__file__).parents[1] / "scripts" / "measure_house.py"


def load_script(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


HOUSE = load_script(SCRIPT)
# Circles that are still there: the list only ever gets shorter.
KNOWN_CIRCLES: list[set[str]] = []


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def module_name(path: Path) -> str:
    parts = ["dialore", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.startswith("dialore.")}


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_import_runs_up(path):
    room = room_of(module_name(path))
    assert room in FLOORS or room in GROUND, f"{room} has no floor: name it in FLOORS"
    own = FLOORS.get(room, 1)
    for name in imports_of(path):
        floor = FLOORS.get(room_of(name), 1)
        assert floor <= own, f"{room} (floor {own}) imports {name} (floor {floor})"
        assert not (floor == own and room_of(name) != room and own > 1), f"{room} imports its neighbour {name}"


def test_language_models_know_nothing_of_dialogue():
    modules = ("llm", "errors", "files", "text", "_lazy", "parallel", "sqlite_errors", "trained")
    allowed = tuple(f"dialore.{module}" for module in modules)
    for path in (ROOT / "llm").rglob("*.py"):
        others = [name for name in imports_of(path) if not name.startswith(allowed)]
        assert not others, f"{path.name} imports {others}"


def test_no_circles_between_modules():
    """Imports inside functions and for type checkers count too."""
    trees = {module_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
    imported = {name: HOUSE.imports(tree, set(trees)) - {name} for name, tree in trees.items()}
    found = [set(circle) for circle in HOUSE.circles(imported)]
    assert [circle for circle in found if circle not in KNOWN_CIRCLES] == [], "a new circle"
    assert [circle for circle in KNOWN_CIRCLES if circle not in found] == [], "gone: take it off KNOWN_CIRCLES"

"""The house of CONTRIBUTING.md: every room stands on the floors below it, and there are no circles."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dialore

ROOT = Path(dialore.__file__).parent
# The floor of each room; what is not named is on the ground.
FLOORS = {
    "retrieval": 2,
    "prompts": 2,
    "datasets": 2,
    "sources": 3,
    "methods": 4,
    "evaluation": 4,
    "agent": 5,
    "experiments": 6,
    "server": 7,
    "cli": 8,
    "__main__": 9,
    "__init__": 10,
}
GROUND = {
    "parallel",
    "dialogue",
    "knowledge",
    "response",
    "text",
    "pages",
    "errors",
    "_lazy",
    "llm",
    "data",
}


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
    allowed = ("dialore.llm", "dialore.errors", "dialore.text", "dialore._lazy", "dialore.parallel")
    for path in (ROOT / "llm").rglob("*.py"):
        others = [name for name in imports_of(path) if not name.startswith(allowed)]
        assert not others, f"{path.name} imports {others}"


def test_no_circles_between_modules():
    graph: dict[str, set[str]] = {}
    names = {module_name(path): path for path in FILES}
    for name, path in names.items():
        graph[name] = {other for other in imports_at_run_time(path) if other in names and other != name}
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, f"circle: {' -> '.join([*above[above.index(name) :], name])}"
        if name in done:
            return
        for other in graph[name]:
            visit(other, (*above, name))
        done.add(name)

    for name in graph:
        visit(name, ())


def imports_at_run_time(path: Path) -> set[str]:
    """Imports at a module's top level that are made when it runs, those for type checkers left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("dialore"):
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_is_too_long(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400

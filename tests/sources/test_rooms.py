"""The graph's rooms: no arrow between them runs up, whenever the import is made."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dialore.sources.graph as graph

ROOT = Path(graph.__file__).parent
FLOORS = {"facts": 0, "store": 1, "writing": 2, "linking": 2, "ranking": 3, "servers": 3}


def rooms_imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{graph.__name__}."):
            found.add(node.module.removeprefix(f"{graph.__name__}.").split(".")[0])
    return found


def test_every_room_has_a_floor() -> None:
    assert {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()} == set(FLOORS)


@pytest.mark.parametrize("room", FLOORS)
def test_no_import_between_rooms_runs_up(room: str) -> None:
    for path in sorted((ROOT / room).rglob("*.py")):
        for other in rooms_imported(path) - {room}:
            assert FLOORS.get(other, 9) < FLOORS[room], f"{room}/{path.name} imports {other}"

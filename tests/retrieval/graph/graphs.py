"""What the graph's tests share: small graphs, built for real, and where development data may lie."""

from __future__ import annotations

import functools
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dialore.knowledge import Fact
from dialore.retrieval.graph import GraphStore, build_graph
from dialore.retrieval.static import StaticEmbedder
from dialore.sources.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[3]


@functools.cache
def embedder() -> StaticEmbedder:
    """The shipped embedder, loaded once."""
    return StaticEmbedder()


def facts(*lines: str) -> list[Fact]:
    """Facts from "head | relation | tail" or "head | relation | tail | weight"."""
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    return [Fact(row[0], row[1], row[2], float(row[3]) if len(row) > 3 else 1.0, "test") for row in rows]


def build(path: Path, items: Iterable[Fact], name: str = "small") -> Path:
    """Build a graph of the facts at the path."""
    build_graph(items, path, name=name, embedder=embedder())
    return path


def change_file(path: Path, sql: str, *parameters: object) -> None:
    """Change a graph file behind the back of the store."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql, parameters)


def change_meta(path: Path, **fields: object) -> None:
    """Change fields of a graph's description."""
    [(meta,)] = read_file(path, "SELECT value FROM meta WHERE key = 'meta'")
    change_file(path, "UPDATE meta SET value = ? WHERE key = 'meta'", json.dumps({**json.loads(meta), **fields}))


def read_file(path: Path, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Read a graph file without the store."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql, parameters).fetchall()


def graph_of(folder: Path, *lines: str) -> Graph:
    """A graph of the lines, open."""
    return Graph(GraphStore(build(folder / "small.graph", facts(*lines))), embedder())


def development_data(name: str) -> Path:
    """A file of the development data; skips the test where it is absent."""
    path = Path(os.environ.get("DIALORE_DATA") or ROOT.parent / "shared" / "data") / name
    if not path.is_file():
        pytest.skip(f"development data {name} is not here; set DIALORE_DATA to its folder")
    return path

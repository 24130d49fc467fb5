"""Opening a graph by its path or its server's URL; the starter graph, shipped as text and built once a machine."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from dialore.errors import UnknownNameError
from dialore.files import cache_folder
from dialore.retrieval.graph.facts import read_facts
from dialore.retrieval.graph.store import FORMAT, FactStore, GraphStore
from dialore.retrieval.graph.writing import build_graph

if TYPE_CHECKING:
    from dialore.knowledge import Fact

NAME = "starter"
"""The name of the starter graph, whose everyday facts are of our own writing."""
_URL = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)


def open_store(spec: str | Path) -> FactStore:
    """Open a graph for reading.

    Args:
        spec: a graph file's path, or `postgresql://user:password@host:port/database#graph`.

    Raises:
        GraphError: there is no such graph, or its server cannot be reached.
        UnknownNameError: a URL of no known kind.
        MissingExtraError: the server's driver is not installed.
    """
    # A Path would have lost one of a URL's slashes.
    match = _URL.match(spec) if isinstance(spec, str) else None
    if match is None:
        return GraphStore(Path(spec))
    if match[1].lower() not in ("postgresql", "postgres"):
        raise UnknownNameError("kind of graph server", match[1], ("postgresql",))
    from dialore.retrieval.graph.postgres import PostgresStore

    return PostgresStore(str(spec))


def starter_files() -> list[Path]:
    """Return the fact files of the package, one a topic and language, in order of their names."""
    folder = Path(str(resources.files("dialore") / "data" / "starter"))
    return sorted(folder.glob("*.tsv"))


def starter_facts() -> Iterator[Fact]:
    """Yield every fact of the starter graph."""
    for path in starter_files():
        yield from read_facts(path, file_format="tsv")


def starter_graph() -> Path:
    """Return the built starter graph, built now where it is not there yet (about a second)."""
    from dialore.retrieval.embedding import load_embedder

    embedder = load_embedder()
    digest = hashlib.blake2b(f"{FORMAT} {embedder.fingerprint}".encode(), digest_size=6)
    for path in starter_files():
        digest.update(path.read_bytes())
    target = cache_folder() / f"starter-{digest.hexdigest()}.graph"
    if not target.is_file():
        build_graph(starter_facts(), target, name=NAME, embedder=embedder)  # type: ignore[arg-type]
    return target

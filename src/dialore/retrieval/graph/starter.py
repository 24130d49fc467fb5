"""The starter graph, shipped as text and built once per machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from dialore.files import cache_folder
from dialore.retrieval.graph.store import FORMAT

if TYPE_CHECKING:
    from dialore.knowledge import Fact

NAME = "starter"
"""The name of the starter graph. Its facts were written for this project."""


def starter_files() -> list[Path]:
    """Return the fact files of the package, one a topic and language, in order of their names."""
    folder = Path(str(resources.files("dialore") / "data" / "starter"))
    return sorted(folder.glob("*.tsv"))


def starter_facts() -> Iterator[Fact]:
    """Yield every fact of the starter graph."""
    from dialore.retrieval.graph.facts import read_facts

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
        from dialore.retrieval.graph.writing import build_graph

        build_graph(starter_facts(), target, name=NAME, embedder=embedder)  # type: ignore[arg-type]
    return target

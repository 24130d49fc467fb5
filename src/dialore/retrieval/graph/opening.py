"""Opening a graph store by its path, or by the URL of a server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from dialore.errors import UnknownNameError
from dialore.retrieval.graph.store import GraphStore

if TYPE_CHECKING:
    from dialore.retrieval.graph.store import FactStore

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

"""Opening a graph by what names it: a file's path, or the URL of a graph on a server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from dialore.errors import GraphError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dialore.knowledge import Fact
    from dialore.sources.graph.servers.neo4j import Neo4jStore
    from dialore.sources.graph.servers.postgres import PostgresStore
    from dialore.sources.graph.servers.remote import RemoteStore
    from dialore.sources.graph.store.protocol import FactStore

_POSTGRES = frozenset({"postgresql", "postgres"})
_NEO4J = frozenset(f"{scheme}{security}" for scheme in ("neo4j", "bolt") for security in ("", "+s", "+ssc"))
_URL = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)


def open_store(spec: str | Path) -> FactStore:
    """Open a graph for reading.

    Args:
        spec: a graph file's path; `postgresql://user:password@host:port/database#graph`; or
            `neo4j://user:password@host:port/database#graph`, likewise `neo4j+s`, `bolt` and their kin.

    Raises:
        GraphError: there is no such graph, or its server cannot be reached.
        UnknownNameError: a URL of no known kind.
        MissingExtraError: the server's driver is not installed.
    """
    kind = _server(spec)
    if kind is not None:
        return kind(str(spec))
    from dialore.sources.graph.store.embedded import GraphStore

    return GraphStore(Path(spec))


def load_store(
    facts: Iterable[Fact],
    url: str,
    *,
    name: str = "",
    on_step: Callable[[str, int, int], None] | None = None,
) -> RemoteStore:
    """Load facts into a server's graph, in place of the one of that name if there is one, and open it.

    Args:
        facts: the facts; duplicates are merged, keeping the heaviest weight.
        url: where to, as for `open_store`.
        name: the graph's name, carried by its facts; the URL's fragment if not given.
        on_step: called with a step's name, what is done of it and its total.

    Raises:
        GraphError: no facts, a server that cannot be reached or refuses; the old graph, if any, stays.
        UnknownNameError: a URL of no known kind.
        MissingExtraError: the server's driver is not installed.
    """
    kind = _server(url)
    if kind is None:
        raise GraphError(f"not a URL: {url}", mend="use `build_graph` for a file")
    return kind.load(facts, url, name=name, on_step=on_step)


def is_url(spec: str | Path) -> bool:
    """Whether a graph is named by URL: a Path would have lost one of its slashes."""
    return isinstance(spec, str) and _URL.match(spec) is not None


def _server(spec: str | Path) -> type[PostgresStore] | type[Neo4jStore] | None:
    """The store for a URL; None for a path."""
    match = _URL.match(spec) if isinstance(spec, str) else None
    if match is None:
        return None
    scheme = match[1].lower()
    if scheme in _POSTGRES:
        from dialore.sources.graph.servers.postgres import PostgresStore

        return PostgresStore
    if scheme in _NEO4J:
        from dialore.sources.graph.servers.neo4j import Neo4jStore

        return Neo4jStore
    raise UnknownNameError("kind of graph server", scheme, ("postgresql", *sorted(_NEO4J)))

"""Opening document stores: a file of SQLite, or a schema in PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.retrieval.documents.postgres import PostgresStore
    from dialore.retrieval.documents.sqlite import SqliteStore
    from dialore.retrieval.documents.store import IndexSettings
    from dialore.retrieval.embedding import Embedder

    Store = SqliteStore | PostgresStore

_SCHEMES = ("postgresql://", "postgres://")


def open_store(path: Path | str) -> Store:
    """Return the store of an index: a file of SQLite, or a schema in PostgreSQL where the path is an address of it."""
    if str(path).startswith(_SCHEMES):
        from dialore.retrieval.documents.postgres import PostgresStore

        return PostgresStore(str(path))
    from dialore.retrieval.documents.sqlite import SqliteStore

    return SqliteStore(Path(path))


def embedder_of(
    settings: IndexSettings, path: Path | str, embedder: Embedder | None = None, addresses: Sequence[str | None] = ()
) -> Embedder | None:
    """Return the embedder of an index's vectors, None where it has none; see `recorded_embedder`."""
    if not settings.embedder:
        return None
    from dialore.retrieval.embedding import recorded_embedder

    return recorded_embedder(settings.embedder, settings.embedder_fingerprint, shown(path), addresses, embedder)


def shown(path: Path | str) -> str:
    """Return an index's path as it is shown: an address without its password."""
    head, at, tail = str(path).rpartition("@")
    if not at or "://" not in head:
        return str(path)
    scheme, _, user = head.partition("://")
    return f"{scheme}://{user.partition(':')[0]}@{tail}"

"""Opening the store of an index, in a file or in PostgreSQL, and its embedder."""

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

_SQLITE_HEADER_BYTES, _APPLICATION_ID_OFFSET = 100, 68
_SCHEMES = ("postgresql://", "postgres://")


def open_store(path: Path | str) -> Store:
    """Return the store of an index: a file of SQLite, or a schema in PostgreSQL where the path is an address of it."""
    if str(path).startswith(_SCHEMES):
        from dialore.retrieval.documents.postgres import PostgresStore

        return PostgresStore(str(path))
    from dialore.retrieval.documents.sqlite import SqliteStore

    return SqliteStore(Path(path))


def is_index_file(path: Path) -> bool:
    """Return whether a file begins as the file of an index does."""
    from dialore.retrieval.documents.sqlite import APPLICATION_ID

    try:
        with path.open("rb") as file:
            head = file.read(_SQLITE_HEADER_BYTES)
    except OSError:
        return False
    application_id = head[_APPLICATION_ID_OFFSET : _APPLICATION_ID_OFFSET + 4]
    return head.startswith(b"SQLite format 3\0") and application_id == APPLICATION_ID.to_bytes(4, "big")


def embedder_of(
    settings: IndexSettings, path: Path | str, embedder: Embedder | None = None, addresses: Sequence[str | None] = ()
) -> Embedder | None:
    """Return the embedder of an index's vectors, None where it has none; see `recorded_embedder`."""
    if not settings.embedder:
        return None
    from dialore.retrieval.embedding import recorded_embedder

    return recorded_embedder(settings.embedder, settings.embedder_fingerprint, shown_place(path), addresses, embedder)


def shown_place(path: Path | str) -> str:
    """Return an index's path as it is shown: an address without its password."""
    head, at, tail = str(path).rpartition("@")
    if not at or "://" not in head:
        return str(path)
    scheme, _, user = head.partition("://")
    return f"{scheme}://{user.partition(':')[0]}@{tail}"

"""Graph files mapped into memory, each once a process however many stores read it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lmdb

from dialore.errors import GraphError
from dialore.sources.graph.layout import TABLES

if TYPE_CHECKING:
    from pathlib import Path

REBUILD = "build it again with `dialore graph build`"


@dataclass(slots=True)
class MappedFile:
    """An open graph file: lmdb opens a file once a process, so its stores share it.

    Attributes:
        env: the environment.
        tables: its tables' handles by name.
        key: what tells the file from any other, also from the one that took its place.
        users: how many stores read it.
    """

    env: lmdb.Environment
    tables: dict[bytes, Any]
    key: tuple[int, int]
    users: int = 0


_mapped: dict[tuple[int, int], MappedFile] = {}
_guard = threading.Lock()


def open_file(path: Path) -> MappedFile:
    """Map a graph file, or share the mapping that the process has of it already.

    Raises:
        GraphError: no such file, not a graph, or cut short.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise GraphError(f"no such graph: {path}", mend="build one with `dialore graph build`") from error
    if not path.is_file():
        raise GraphError(f"{path} is not a file", mend="name a graph file")
    key = (status.st_dev, status.st_ino)
    with _guard:
        file = _mapped.get(key)
        if file is None:
            file = _mapped[key] = _map(path, key)
        file.users += 1
        return file


def close_file(file: MappedFile) -> None:
    """Give a mapping back; the last user's return unmaps it."""
    with _guard:
        file.users -= 1
        if file.users == 0:
            del _mapped[file.key]
            file.env.close()


def _map(path: Path, key: tuple[int, int]) -> MappedFile:
    try:
        # A graph file never changes once it is in place, so its readers need no lock file; one that the readers of an
        # older graph hold would even name the wrong snapshot of a newer graph.
        env = lmdb.open(
            str(path), subdir=False, readonly=True, lock=False, max_dbs=len(TABLES), readahead=False, create=False
        )
    except (lmdb.Error, OSError) as error:
        raise GraphError(f"{path} is not a graph or is damaged: {error}", mend=REBUILD) from error
    try:
        _check_length(env, path)
        tables = {table: env.open_db(table, create=False) for table in TABLES}
    except lmdb.Error as error:
        env.close()
        raise GraphError(f"{path} is not a graph or is damaged", mend=REBUILD) from error
    except GraphError:
        env.close()
        raise
    return MappedFile(env, tables, key)


def _check_length(env: lmdb.Environment, path: Path) -> None:
    # A memory map of a file that is cut short would end the process at the first missing page.
    needed = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    have = path.stat().st_size
    if have < needed:
        raise GraphError(f"{path} is cut short: {have} of {needed} bytes", mend="copy it again or rebuild it")

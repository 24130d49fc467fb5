"""Graph files mapped into memory, each once a process however many stores read it."""

from __future__ import annotations

import os
import stat
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lmdb

from dialore.errors import GraphError
from dialore.sources.graph.store.layout import TABLES
from dialore.sources.graph.store.resident import Resident

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
        handle: the file, open for reading.
        end: where its pages end and the journal of changes begins.
        resident: its pages in this process's memory.
        users: how many stores read it.
    """

    env: lmdb.Environment
    tables: dict[bytes, Any]
    key: tuple[int, int]
    handle: int
    end: int
    resident: Resident
    users: int = 0


_mapped: dict[tuple[int, int], MappedFile] = {}
_guard = threading.Lock()


def open_file(path: Path) -> MappedFile:
    """Map a graph file, or share the mapping that the process has of it already.

    Raises:
        GraphError: no such file, not a graph, or cut short.
    """
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError as error:
        if not path.exists():
            raise GraphError(f"no such graph: {path}", mend="build one with `dialore graph build`") from error
        raise GraphError(f"cannot read {path}: {error.strerror}", mend="check its permissions") from error
    kept = False
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise GraphError(f"{path} is not a file", mend="name a graph file")
        key = (status.st_dev, status.st_ino)
        with _guard:
            file = _mapped.get(key)
            if file is None:
                file = _mapped[key] = _map(path, key, handle)
                kept = True
            file.users += 1
            return file
    finally:
        if not kept:
            os.close(handle)


def close_file(file: MappedFile) -> None:
    """Give a mapping back; the last user's return unmaps it."""
    with _guard:
        file.users -= 1
        if file.users == 0:
            del _mapped[file.key]
            file.env.close()
            os.close(file.handle)


def _map(path: Path, key: tuple[int, int], handle: int) -> MappedFile:
    try:
        # The pages of a graph file never change once it is in place, so its readers need no lock file; one that the
        # readers of an older graph hold would even name the wrong snapshot of a newer graph.
        env = lmdb.open(
            str(path), subdir=False, readonly=True, lock=False, max_dbs=len(TABLES), readahead=False, create=False
        )
    except (lmdb.Error, OSError) as error:
        raise GraphError(f"{path} is not a graph or is damaged: {error}", mend=REBUILD) from error
    try:
        end = _check_length(env, path, key, handle)
        tables = {table: env.open_db(table, create=False) for table in TABLES}
    except lmdb.Error as error:
        env.close()
        raise GraphError(f"{path} is not a graph or is damaged", mend=REBUILD) from error
    except GraphError:
        env.close()
        raise
    return MappedFile(env, tables, key, handle, end, Resident(key[1]))


def _check_length(env: lmdb.Environment, path: Path, key: tuple[int, int], handle: int) -> int:
    there = path.stat()
    if (there.st_dev, there.st_ino) != key:
        raise GraphError(f"{path} was replaced while it was opened", mend="open it again")
    # A memory map of a file that is cut short would end the process at the first missing page.
    needed: int = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    have = os.fstat(handle).st_size
    if have < needed:
        raise GraphError(f"{path} is cut short: {have} of {needed} bytes", mend="copy it again or rebuild it")
    return needed

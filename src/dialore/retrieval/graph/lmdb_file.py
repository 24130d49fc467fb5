"""How a graph lies on disk: the values of its tables, and its file, mapped once a process however many read it."""

from __future__ import annotations

import os
import stat
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from dialore.errors import GraphError

EDGE = np.dtype(
    [("other", "<u4"), ("weight", "<f4"), ("norm", "<f4")]
    + [(name, "<u2") for name in ("relation", "provenance", "parts", "unused")]
)
"""A fact as one of its concepts keeps it; `parts` counts those of the other end."""

REBUILD = "build it again with `dialore graph build`"
MAP_SIZE = 1 << 36
"""Address space for a graph's growth, not memory: 64 GiB hold some 600 million facts."""
_MAGIC = struct.pack("=I", 0xBEEFC0DE)
"""The first bytes of an LMDB file's first page, behind its own head."""


# --- values


def pack_concept(name: str, parts: bytes) -> bytes:
    """Return a concept's value of the table `concepts`."""
    return (len(parts) // 4).to_bytes(4, "little") + parts + name.encode()


def pack_side(records: NDArray[np.void], parts: NDArray[np.uint32]) -> bytes:
    """Return the value of a side: its facts, and the parts of their other ends one's after the other's."""
    return struct.pack("=I", len(records)) + records.tobytes() + parts.tobytes()


def unpack_side(value: bytes | memoryview | None) -> tuple[NDArray[np.void], NDArray[np.uint32]]:
    """Return a side's facts, and the parts of their other ends; both empty for None."""
    if value is None:
        return np.empty(0, EDGE), np.empty(0, np.uint32)
    count = int.from_bytes(value[:4], "little")
    end = 4 + count * EDGE.itemsize
    return np.frombuffer(value[4:end], EDGE), np.frombuffer(value[end:], "<u4")


def unpack_parts(
    value: bytes | memoryview, width: int
) -> tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.uint32]]:
    """Return a block of parts: rows of a width, their scales and their numbers in the embedder."""
    count = len(value) // (width + 8)
    rows, scales, numbers = value[: count * width], value[count * width : count * (width + 4)], value[-4 * count :]
    return np.frombuffer(rows, np.int8).reshape(-1, width), np.frombuffer(scales, "<f4"), np.frombuffer(numbers, "<u4")


# --- files


@dataclass(slots=True)
class MappedFile:
    """A graph file that is mapped: LMDB opens a file once a process, so all that read or write it share this.

    A forked process inherits the mapping and can neither open the file again nor close it. It begins transactions of
    its own: those of its parent would end with the parent's.
    """

    env: lmdb.Environment
    key: tuple[int, int]
    users: int = 0

    def close(self) -> None:
        """Give it back; the last user's return unmaps it."""
        with _guard:
            self.users -= 1
            if self.users == 0:
                del _files[self.key]
                self.env.close()


_files: dict[tuple[int, int], MappedFile] = {}
_guard = threading.RLock()
"""Reentrant, for a store that is collected while a file is opened gives its own back."""


def _renew_guard() -> None:
    """Replace the lock in a forked process: the thread that may have held it does not run there."""
    global _guard  # noqa: PLW0603
    _guard = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_guard)


def open_file(path: Path) -> MappedFile:
    """Map a graph file, or share the mapping that the process has of it already; raises GraphError."""
    try:
        # A new graph takes the place of an old one and of its lock file at once, or before or after this.
        with _guard, folder_lock(path.parent, exclusive=False):
            key = file_key(path)
            while True:
                file = _files.get(key)
                if file is None:
                    file = _files[key] = _map(path, key)
                file.users += 1
                if _files.get(key) is file:  # else its last user was collected just before
                    return file
    except OSError as error:
        if not path.exists():
            raise GraphError(f"no such graph: {path}", hint="build one with `dialore graph build`") from error
        raise GraphError(f"cannot read {path}: {error.strerror}", hint="check its permissions") from error


def file_key(path: Path) -> tuple[int, int]:
    """Return what tells a file from any other; raise GraphError for what is no file."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise GraphError(f"{path} is not a file", hint="name a graph file")
    return status.st_dev, status.st_ino


@contextmanager
def folder_lock(folder: Path, *, exclusive: bool, wait: bool = True) -> Iterator[None]:
    """Lock a folder until the body or its process ends; raises OSError where another has it and there is no waiting."""
    try:
        import fcntl
    except ImportError:  # Windows, where an open file is not replaced, so that readers need none, and no folder locked
        with FileLock(folder / ".lock", timeout=-1 if wait else 0) if exclusive else nullcontext():
            yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(handle)


def _map(path: Path, key: tuple[int, int]) -> MappedFile:
    with path.open("rb") as file:  # LMDB would make a graph of an empty file, and a lock file beside any other
        if file.read(20)[16:] != _MAGIC:
            raise GraphError(f"{path} is not a graph or is damaged", hint=REBUILD)
    settings: dict[str, Any] = {"subdir": False, "readahead": False, "create": False}
    try:
        try:
            readonly = not os.access(path, os.W_OK)
            env = lmdb.open(str(path), readonly=readonly, map_size=MAP_SIZE, max_readers=1024, **settings)
        except (lmdb.Error, OSError):
            # Where no lock file can be made, the graph cannot be changed either.
            env = lmdb.open(str(path), readonly=True, lock=False, **settings)
    except (lmdb.Error, OSError) as error:
        raise GraphError(f"{path} is not a graph or is damaged: {error}", hint=REBUILD) from error
    # A memory map of a file that is cut short would end the process at the first missing page.
    needed, have = (env.info()["last_pgno"] + 1) * env.stat()["psize"], path.stat().st_size
    if have < needed:
        env.close()
        raise GraphError(f"{path} is cut short: {have} of {needed} bytes", hint="copy it again or rebuild it")
    return MappedFile(env, key)

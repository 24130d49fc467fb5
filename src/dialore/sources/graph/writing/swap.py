"""Putting a file in place only when it is whole, whatever ends the process that writes it."""

from __future__ import annotations

import glob
import os
import secrets
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import lmdb

from dialore.errors import GraphError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE = 30.0
"""Seconds to wait for another writer."""


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Failures to write, as GraphErrors; apart from the reading of facts, which has reasons of its own."""
    try:
        yield
    except (OSError, lmdb.Error) as error:
        raise GraphError(f"cannot write {target}: {error}", mend="is the disk full or the folder read-only?") from error


@contextmanager
def replacing(target: Path, *, locked: bool = False) -> Iterator[Path]:
    """A temporary file beside the target that takes its place if the body ends well, and is removed if not.

    It is made first, so that a folder that cannot be written is known before the facts are read, and locked, so that
    other builds know it for one that is still being written. Whoever changes the old file is waited for, unless the
    caller has locked it already.
    """
    with writing(target):
        if target.is_dir():
            raise GraphError(f"cannot write {target}: it is a folder", mend="name a file")
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(target)
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        file = temporary.open("xb")
    try:
        with file:
            with writing(target):
                _lock(file.fileno())
            yield temporary
            with _unchanging(target, locked=locked), writing(target):
                os.replace(temporary, target)  # noqa: PTH105 - atomic on purpose
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _unchanging(target: Path, *, locked: bool) -> Iterator[None]:
    """Nobody changes the old file in the body, where there is one that can be read."""
    try:
        handle = None if locked else os.open(target, os.O_RDONLY)
    except OSError:
        handle = None
    try:
        if handle is not None:
            lock(handle, until=time.monotonic() + PATIENCE, path=target)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _remove_leftovers(target: Path) -> None:
    """Remove what builds that were killed left behind; a build that still runs keeps its file."""
    for path in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
        # Where there are no locks, the system refuses to remove a file that is open.
        with suppress(OSError), path.open("rb") as file:
            _lock(file.fileno())
            path.unlink()


def lock(handle: int, *, until: float, path: Path) -> None:
    """Lock an open graph file against other writers.

    Args:
        handle: the file.
        until: `time.monotonic` of when to give up.
        path: the file's name.

    Raises:
        GraphError: another writer has it all the time.
    """
    while True:
        try:
            _lock(handle)
        except OSError as error:
            if time.monotonic() > until:
                raise GraphError(f"{path} is being changed by another process", mend="try again later") from error
            time.sleep(0.002)
        else:
            return


def _lock(handle: int) -> None:
    """Lock an open file until it is closed or its process ends; raises OSError where another has."""
    try:
        import fcntl
    except ImportError:  # not on this system
        return
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

"""One writer of an index at a time; readers never wait."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from dialore.errors import InputError
from dialore.sources.documents.layout import LOCK, MANIFEST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE = 30.0
"""Seconds to wait for another writer."""
BASE = "base-"


@contextmanager
def alone(folder: Path, *, patience: float | None = None) -> Iterator[None]:
    """Nobody else writes to the index in the body; failures to write are InputErrors.

    Raises:
        InputError: another writer has it all the time, or it cannot be written.
    """
    try:
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror}", mend="check its permissions") from error
    try:
        _wait(handle, folder, time.monotonic() + (PATIENCE if patience is None else patience))
        yield
    except OSError as error:
        mend = "is the disk full or the folder read-only?"
        raise InputError(f"cannot write {folder}: {error.strerror or error}", mend=mend) from error
    finally:
        os.close(handle)


def _wait(handle: int, folder: Path, until: float) -> None:
    try:
        import fcntl
    except ImportError:  # not on this system
        return
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > until:
                raise InputError(f"{folder} is being changed by another process", mend="try again later") from error
            time.sleep(0.01)
        else:
            return


def is_ours(folder: Path) -> bool:
    """Whether a folder holds an index, what a build that was killed left, or nothing: it may be overwritten."""
    names = {path.name for path in folder.iterdir()}
    ours = {LOCK, f".{MANIFEST}.tmp"}
    return MANIFEST in names or all(name in ours or name.startswith(BASE) for name in names)


def sweep(folder: Path, base: str) -> None:
    """Remove the bases that the manifest does not name: old ones, and those of builds that were killed."""
    for path in folder.glob(f"{BASE}*"):
        if path.name != base:
            shutil.rmtree(path, ignore_errors=True)


def forget(folder: Path) -> None:
    """Remove what a build that failed left in a folder that has no index; other files stay."""
    if not (folder / MANIFEST).exists():
        sweep(folder, "")
        with suppress(OSError):
            (folder / LOCK).unlink(missing_ok=True)
            folder.rmdir()

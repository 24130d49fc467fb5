"""How much of a mapped file stays in a process's resident memory.

Pages that were read stay mapped until the system wants their memory, so a process that has asked much would seem to
hold the whole graph. To let go of them takes milliseconds: they stay in the system's cache and are mapped again.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 144 << 20
"""Bytes of files by which a process may grow before a graph's pages are let go of."""
_EVERY = 32
"""Looks for facts, or for changes, between two looks at the memory: one takes some 40 microseconds."""
_DONTNEED = 4
"""Linux's MADV_DONTNEED; of a shared mapping of a file it drops no data."""


class Resident:
    """The pages of one mapped file; does nothing where the system is not Linux.

    Args:
        inode: the file's.
    """

    def __init__(self, inode: int) -> None:
        self._inode = inode
        self._asked = 0
        self._before = _mapped()

    def asked(self) -> None:
        """A question is about to be asked: let go of the pages of earlier ones where they are many."""
        self._asked += 1
        if self._before is None or self._asked % _EVERY:
            return
        now = _mapped()
        if now is not None and now - self._before > LIMIT:
            self.let_go()
            self._before = _mapped()

    def let_go(self) -> None:
        """Unmap the pages from memory until they are read again; other threads may be reading."""
        advise = _advise()
        if advise is not None:
            for start, length in self._mappings():
                advise(ctypes.c_void_p(start), ctypes.c_size_t(length), _DONTNEED)

    def _mappings(self) -> Iterator[tuple[int, int]]:
        for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
            span, access, _, _, inode, *_ = line.split(maxsplit=5)
            if int(inode) == self._inode and access.startswith("r-") and access.endswith("s"):
                start, end = (int(edge, 16) for edge in span.split("-"))
                yield start, end - start


def _mapped() -> int | None:
    """Bytes of files in this process's resident memory; None where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[2]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


@functools.lru_cache(maxsize=1)
def _advise() -> Any | None:  # noqa: ANN401 - a function of the C library
    try:
        return ctypes.CDLL(None).madvise
    except (OSError, AttributeError, TypeError):
        return None

"""The changes made to a graph file since it was built: records behind its last page, each a whole change or nothing.

A record is a magic number, the length of what follows and its checksum, then a JSON header and arrays. Records are only
ever appended, so readers need no lock: they read as far as the records are whole, and see a change at once or not at
all. A change whose writer was killed leaves a torn record, which the next writer cuts off.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.sources.graph.store.layout import CHANGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_MAGIC = b"DLCH"
_FRAME = struct.Struct("<4sQ16s")
_HEADER = struct.Struct("<I")
_ARRAYS = {
    "changes": CHANGE,
    "parts": np.dtype("i1"),
    "scales": np.dtype("<f4"),
    "numbers": np.dtype("<u4"),
    "made": np.dtype("<u4"),
    "counts": np.dtype("<u4"),
    "relations": np.dtype("<f4"),
}


@dataclass(frozen=True, slots=True)
class Record:
    """One change.

    Attributes:
        facts: the number of facts after it.
        fingerprint: the graph's fingerprint after it.
        names: concepts that are new, in order of their numbers.
        keys: their stem keys.
        relations: names of new relations.
        provenances: new provenances.
        languages: the graph's languages after it.
        arrays: `changes` (CHANGE); `parts` (n, dimension), `scales` and `numbers` of new parts; `made` and `counts`,
            the parts of each new concept; `relations` (n, dimension), vectors of new relations.
    """

    facts: int
    fingerprint: str
    names: list[str]
    keys: list[str]
    relations: list[str]
    provenances: list[str]
    languages: list[str]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """The record as it is written."""
        values = {name: getattr(self, name) for name in self.__slots__ if name != "arrays"}
        blocks = {name: np.asarray(array, _ARRAYS[name]).tobytes() for name, array in self.arrays.items()}
        sizes = {name: len(block) for name, block in blocks.items()}
        header = json.dumps({**values, "arrays": sizes}, ensure_ascii=False).encode()
        body = b"".join([_HEADER.pack(len(header)), header, *blocks.values()])
        return _FRAME.pack(_MAGIC, len(body), _checksum(body)) + body

    @classmethod
    def decoded(cls, body: bytes) -> Record:
        """The record of a body whose checksum was right."""
        (length,) = _HEADER.unpack_from(body)
        values = json.loads(body[_HEADER.size : _HEADER.size + length])
        sizes, start = values.pop("arrays"), _HEADER.size + length
        arrays = {}
        for name, size in sizes.items():
            arrays[name] = np.frombuffer(body, _ARRAYS[name], size // _ARRAYS[name].itemsize, start)
            start += size
        return cls(**values, arrays=arrays)


def records(handle: int, start: int) -> Iterator[tuple[Record, int]]:
    """The whole records of an open file from a place on, each with the place where it ends; a torn one ends them."""
    while True:
        frame = os.pread(handle, _FRAME.size, start)
        if len(frame) < _FRAME.size:
            return
        magic, length, checksum = _FRAME.unpack(frame)
        if magic != _MAGIC or start + _FRAME.size + length > os.fstat(handle).st_size:
            return
        body = os.pread(handle, length, start + _FRAME.size)
        if len(body) < length or _checksum(body) != checksum:
            return
        start += _FRAME.size + length
        yield Record.decoded(body), start


def append(handle: int, start: int, record: Record) -> int:
    """Write a record at the end of the whole ones, cutting off what is torn; returns where it ends.

    Raises:
        OSError: the disk is full; the file is then as it was.
    """
    data = memoryview(record.encoded())
    os.ftruncate(handle, start)
    try:
        done = 0
        while done < len(data):
            done += os.pwrite(handle, data[done:], start + done)
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, start)
        raise
    return start + len(data)


def _checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()

"""PackStream, the encoding of the Bolt protocol, as far as a Neo4j server of the tests needs it.

https://neo4j.com/docs/bolt/current/packstream/
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Structure:
    """A message: its tag and fields."""

    tag: int
    fields: tuple[Any, ...]


def pack(value: object) -> bytes:
    """A value, as bytes."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        return struct.pack(">b", value) if -16 <= value < 128 else b"\xcb" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xc1" + struct.pack(">d", value)
    if isinstance(value, str):
        encoded = value.encode()
        return _sized(len(encoded), 0x80, 0xD0) + encoded
    if isinstance(value, (list, tuple)):
        return _sized(len(value), 0x90, 0xD4) + b"".join(map(pack, value))
    if isinstance(value, dict):
        return _sized(len(value), 0xA0, 0xD8) + b"".join(pack(key) + pack(item) for key, item in value.items())
    if isinstance(value, Structure):
        return bytes([0xB0 + len(value.fields), value.tag]) + b"".join(map(pack, value.fields))
    raise TypeError(f"not packed: {value!r}")


def _sized(size: int, tiny: int, wide: int) -> bytes:
    return bytes([tiny + size]) if size < 16 else bytes([wide + 2]) + struct.pack(">I", size)


def unpack(data: bytes) -> Any:
    """The value that the bytes hold."""
    value, end = _unpack(data, 0)
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes too many")
    return value


_NUMBERS = {0xC1: ">d", 0xC8: ">b", 0xC9: ">h", 0xCA: ">i", 0xCB: ">q"}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_WIDTHS = (">B", ">H", ">I")


def _unpack(data: bytes, at: int) -> tuple[Any, int]:
    marker = data[at]
    at += 1
    if marker < 0x80 or marker >= 0xF0:
        return (marker if marker < 0x80 else marker - 256), at
    if marker in _CONSTANTS:
        return _CONSTANTS[marker], at
    if marker in _NUMBERS:
        return struct.unpack_from(_NUMBERS[marker], data, at)[0], at + struct.calcsize(_NUMBERS[marker])
    kind, size = marker & 0xF0, marker & 0x0F
    if kind == 0xD0:
        form = _WIDTHS[size & 3]
        kind = {0xD0: 0x80, 0xD4: 0x90, 0xD8: 0xA0}[marker & 0xFC]
        (size,) = struct.unpack_from(form, data, at)
        at += struct.calcsize(form)
    if kind == 0x80:
        return data[at : at + size].decode(), at + size
    if kind == 0xB0:
        tag = data[at]
        fields, at = _items(data, at + 1, size)
        return Structure(tag, tuple(fields)), at
    if kind == 0xA0:
        items, at = _items(data, at, 2 * size)
        return dict(zip(items[::2], items[1::2], strict=True)), at
    if kind == 0x90:
        return _items(data, at, size)
    raise ValueError(f"no such marker: {marker:#x}")


def _items(data: bytes, at: int, count: int) -> tuple[list[Any], int]:
    items = []
    for _ in range(count):
        item, at = _unpack(data, at)
        items.append(item)
    return items, at

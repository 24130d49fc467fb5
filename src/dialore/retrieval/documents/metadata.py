"""Metadata of passages as any store keeps it: plain JSON that every database can read and filter, of bounded size."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import date, time
from typing import Any

from dialore.errors import InputError
from dialore.text import storable

MAX_METADATA_BYTES = 32_000
"""Size of the metadata of one document, row or line as JSON, in bytes."""
MAX_METADATA_DEPTH = 410
"""Levels of lists and objects within each other; databases and Python refuse about a thousand."""
_MAX_CHARACTER_BYTES = 6
_MAX_SHORT_BYTES = 40
"""Size of a number or another short value as JSON, with the marks around key and value."""
_MAX_INTEGER_BITS = 63
"""Integers beyond this size are kept as text, because databases would round or refuse them."""


class MetadataError(InputError):
    """Metadata that is too large or nested too deeply to be kept."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="move long texts into the text, or leave them out")


def encode_metadata(metadata: Mapping[Any, Any]) -> str:
    """Return metadata as JSON, or "" if there is none; raise MetadataError if it cannot be kept.

    Numbers that are not finite become null. Dates are written in ISO 8601, integers of more than 64 bits and values of
    other types as text. Characters that databases refuse are replaced.
    """
    if not metadata:
        return ""
    try:
        text = json.dumps(_as_json(metadata, 0), ensure_ascii=False, allow_nan=False)
    except RecursionError as error:
        raise MetadataError("its metadata is nested too deeply") from error
    size = len(text.encode())
    if size > MAX_METADATA_BYTES:
        raise MetadataError(f"its metadata has {size:,} bytes, more than {MAX_METADATA_BYTES:,}")
    return text


def check_metadata(metadata: Mapping[Any, Any]) -> None:
    """Raise MetadataError if metadata cannot be kept. Short values without nesting are not encoded for that."""
    size = 0
    for key, value in metadata.items():
        size += _MAX_SHORT_BYTES
        if isinstance(key, str) and isinstance(value, str):
            size += _MAX_CHARACTER_BYTES * (len(key) + len(value))
        elif isinstance(key, str) and _is_short(value):
            size += _MAX_CHARACTER_BYTES * len(key)
        else:
            size = MAX_METADATA_BYTES + 1
        if size > MAX_METADATA_BYTES:
            encode_metadata(metadata)
            return


def _is_short(value: object) -> bool:
    if isinstance(value, int):
        return value.bit_length() <= _MAX_INTEGER_BITS
    return value is None or isinstance(value, float)


def decode_metadata(text: str | None) -> dict[str, Any]:
    """Return metadata from its JSON; empty if there is none."""
    metadata: dict[str, Any] = json.loads(text) if text else {}
    return metadata


def _as_json(value: object, depth: int) -> object:
    """Return a value as JSON can hold it."""
    if depth > MAX_METADATA_DEPTH:
        raise MetadataError(f"its metadata is nested more than {MAX_METADATA_DEPTH} levels deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return storable(str(value))
    if isinstance(value, int):
        return _integer_as_json(int(value))
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return _container_as_json(value, depth + 1)


def _container_as_json(value: object, depth: int) -> object:
    """Return an object or list with its members as JSON can hold them, and anything else as text."""
    if isinstance(value, dict | Mapping):
        members: dict[str, object] = {}
        for key, member in value.items():
            members[_key_as_text(key)] = _as_json(member, depth)
        return members
    if isinstance(value, list | tuple | set | frozenset):
        items: list[object] = []
        for item in value:
            items.append(_as_json(item, depth))  # noqa: PERF401 - a comprehension is a level of recursion more
        return items
    return storable(value.isoformat() if isinstance(value, date | time) else str(value))


def _integer_as_json(value: int) -> int | str | None:
    if value.bit_length() <= _MAX_INTEGER_BITS:
        return value
    try:
        return str(value)
    except ValueError:  # more digits than Python writes
        return None


def _key_as_text(key: object) -> str:
    if key is None or isinstance(key, bool):
        return json.dumps(key)
    if isinstance(key, date | time):
        return key.isoformat()
    try:
        return storable(str(key))
    except ValueError:  # an integer with more digits than Python writes
        return "number"

"""Filters of passages: by their metadata, and by who may read them. The databases apply them, whoever asks.

`groups` of the metadata may read a passage, everybody where there are none. `year >= 2024 and tag in (news, "press
release")` is a filter of metadata; of a list any item counts.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace

from dialore.errors import InputError
from dialore.knowledge import GROUPS

EVERY_GROUP = "*"
"""The group of a reader who may read all passages."""
COLUMNS = ("text", "title", "url", "file", "page")
_Value = str | float | bool
_VALUE = r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|[^\s(),"\'=<>!]+'
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
_CONDITION = re.compile(
    rf"\s*(?P<field>[^\W\d][\w.-]*)\s*(?:(?P<operator>=|==|!=|<=|>=|<|>)\s*(?P<value>{_VALUE})"
    rf"|in\s*\((?P<values>\s*(?:{_VALUE})(?:\s*,\s*(?:{_VALUE}))*\s*)\))\s*"
)
_AND = re.compile(r"and\b", re.IGNORECASE)
_HINT = 'write year >= 2024 and lang = en and tag in (a, "b c")'


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a field of the metadata or on a passage's title, url, file or page; `in` has several values."""

    field: str
    operator: str
    values: tuple[_Value, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """Passages that are seen: all conditions hold; readers of some groups see what has none, or one of theirs."""

    conditions: tuple[Condition, ...] = ()
    groups: frozenset[str] | None = None

    def __bool__(self) -> bool:
        return bool(self.conditions) or self.groups is not None

    def narrowed(self, where: str) -> Filter:
        """Return the same with the conditions of an expression, too; raise InputError where it is none."""
        return replace(self, conditions=(*self.conditions, *parse_where(where)))


ALL = Filter()
_READER: ContextVar[frozenset[str] | None] = ContextVar("dialore_reader", default=None)


@contextlib.contextmanager
def reading_as(groups: Iterable[str] | None) -> Iterator[None]:
    """Have every index that is opened meanwhile show what a reader with these groups may read; None: all."""
    named = frozenset((EVERY_GROUP,) if groups is None else groups)
    token = _READER.set(None if EVERY_GROUP in named else named)
    try:
        yield
    finally:
        _READER.reset(token)


def filter_of_reader() -> Filter:
    """Return the filter of the reader for whom an index is opened now."""
    return Filter(groups=_READER.get())


def parse_where(text: str) -> tuple[Condition, ...]:
    """Return the conditions of an expression, joined by `and`; raise InputError where it is none."""
    conditions: list[Condition] = []
    position = 0
    while True:
        match = _CONDITION.match(text, position)
        if match is None:
            raise InputError(f"not a condition on metadata: {text[position:].strip() or text!r}", hint=_HINT)
        listed = match["values"]
        values = tuple(map(_value, re.findall(_VALUE, listed) if listed else [match["value"]]))
        operator = "in" if listed else match["operator"].replace("==", "=")
        conditions.append(Condition(match["field"], operator, values))
        if match.end() == len(text):
            return tuple(conditions)
        joined = _AND.match(text, match.end())
        if joined is None:
            raise InputError(f"not a condition on metadata: {text[match.end() :].strip()!r}", hint=_HINT)
        position = joined.end()


def _value(text: str) -> _Value:
    if text[0] == '"':
        try:
            return str(json.loads(text))
        except ValueError as error:
            raise InputError(f"not a condition on metadata: {text} is no text of JSON", hint=_HINT) from error
    if text[0] == "'":
        return text[1:-1]
    if text in {"true", "false"}:
        return text == "true"
    return float(text) if _NUMBER.fullmatch(text) else text


def metadata_of(pairs: Iterable[str], groups: str | None = None) -> dict[str, object]:
    """Return metadata that the command line says: `NAME=VALUE` (else InputError), and groups with commas between."""
    made: dict[str, object] = {}
    for pair in pairs:
        name, given, value = pair.partition("=")
        if not given or not name.strip():
            raise InputError(f"{pair!r} is no metadata", hint="write --meta NAME=VALUE")
        try:
            made[name.strip()] = json.loads(value)
        except ValueError:
            made[name.strip()] = value
    if groups is not None:
        made[GROUPS] = [name.strip() for name in groups.split(",") if name.strip()]
    return made

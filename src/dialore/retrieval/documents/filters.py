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
from dialore.text import storable

EVERY_GROUP = "*"
"""The group of a reader who may read all passages."""
COLUMNS = ("text", "title", "url", "file", "page")
_Value = str | float | bool
_OPERATOR = re.compile(r"==|!=|<=|>=|=|<|>")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'')
_BARE_FIELD = re.compile(r"\w[\w.-]*")
_BARE_VALUE = re.compile(r"""[^\s(),"'=<>!]+""")
_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
_DAY = re.compile(r"\d{4}(?:-\d\d(?:-\d\d(?:[T ].*)?)?)?")
"""A year, a month or a day, with a time or without: the beginning of dates that are written as ISO 8601 says."""
_HINT = 'write year >= 2024 and "Valid from" >= 2026-01 and tag in (a, "b c")'
_SHOWN_CHARS = 40


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
    """Return the conditions of an expression, joined by `and`; raise InputError where it is none.

    A condition is a field, an operator (`=`, `!=`, `<`, `<=`, `>`, `>=`) and a value, or a field and `in (a, b)`.
    Fields and values with spaces or signs stand in quotes. A field `a.b` is also the field `b` of an object `a`. A
    value such as 2026, 2026-01 or 2026-01-31 is compared with as much of a date as it gives.
    """
    parser = _Parser(text)
    conditions = [parser.condition()]
    while not parser.at_end():
        parser.join()
        conditions.append(parser.condition())
    return tuple(conditions)


class _Parser:
    """Reads conditions from a text, from left to right."""

    def __init__(self, text: str) -> None:
        self._text, self._position = text, 0

    def at_end(self) -> bool:
        """Return whether only spaces are left."""
        return not self._text[self._position :].strip()

    def condition(self) -> Condition:
        """Read a condition."""
        field = self._field()
        operator = self._take(_OPERATOR)
        if operator is not None:
            return Condition(field, operator.replace("==", "="), (self._value(),))
        word = self._take(_WORD)
        if word is None or word.lower() != "in":
            self._back(word)
            raise self._error(f"an operator after the field {field!r} (=, !=, <, <=, >, >= or in)")
        if not self._take_sign("("):
            raise self._error("'(' after in")
        values = [self._value()]
        while self._take_sign(","):
            values.append(self._value())
        if not self._take_sign(")"):
            raise self._error("',' or ')' after a value")
        return Condition(field, "in", tuple(values))

    def join(self) -> None:
        """Read an `and` between two conditions."""
        word = self._take(_WORD)
        if word is None or word.lower() != "and":
            self._back(word)
            raise self._error("'and' between conditions")

    def _field(self) -> str:
        quoted = self._take(_QUOTED)
        field = self._unquote(quoted) if quoted is not None else self._take(_BARE_FIELD)
        if not field:
            raise self._error("the name of a field")
        return field

    def _value(self) -> _Value:
        quoted = self._take(_QUOTED)
        if quoted is not None:
            return self._unquote(quoted)
        text = self._take(_BARE_VALUE)
        if text is None:
            raise self._error("a value")
        if text in {"true", "false"}:
            return text == "true"
        return float(text) if _NUMBER.fullmatch(text) else text

    def _unquote(self, text: str) -> str:
        if text[0] == "'":
            return storable(text[1:-1])
        try:
            return storable(str(json.loads(text)))
        except ValueError as error:
            message = f"not a condition on metadata: {text} is no text of JSON"
            raise InputError(message, hint=_HINT) from error

    def _take(self, pattern: re.Pattern[str]) -> str | None:
        """Read what matches next, after spaces; None if nothing does."""
        rest = self._text[self._position :]
        start = self._position + len(rest) - len(rest.lstrip())
        match = pattern.match(self._text, start)
        if match is None:
            return None
        self._position = match.end()
        return match[0]

    def _take_sign(self, sign: str) -> bool:
        return self._take(re.compile(re.escape(sign))) is not None

    def _back(self, word: str | None) -> None:
        self._position -= len(word or "")

    def _error(self, expected: str) -> InputError:
        rest = self._text[self._position :].strip()
        actual = f"not {rest[:_SHOWN_CHARS]!r}" if rest else "not its end"
        message = f"not a condition on metadata: {self._text!r} needs {expected}, {actual}"
        return InputError(message, hint=_HINT)


def comparisons(condition: Condition) -> tuple[str, list[object]]:
    """Return a condition as SQL over `text`, `number` and `day` of one item of its field, with its parameters.

    The operator `!=` is written as `=`: it holds if no item is equal.
    """
    operator = "=" if condition.operator in {"in", "!="} else condition.operator
    alternatives: list[str] = []
    parameters: list[object] = []
    for value in condition.values:
        if isinstance(value, bool):
            alternatives.append(f"text {operator} ?")
            parameters.append(str(value).lower())
            continue
        text = f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)
        is_day = _DAY.fullmatch(text) is not None
        if isinstance(value, float):
            alternatives.append(f"number {operator} ?")
            parameters.append(value)
        elif operator == "=" or not is_day or len(text) == len("2026"):
            alternatives.append(f"text {operator} ?")
            parameters.append(value)
        if is_day:
            alternatives.append(f"substr(day, 1, {len(text)}) {operator} ?")
            parameters.append(text)
    return " OR ".join(alternatives), parameters


def metadata_of(pairs: Iterable[str], groups: str | None = None) -> dict[str, object]:
    """Return metadata that the command line says: `NAME=VALUE` (else InputError), and groups with commas between."""
    made: dict[str, object] = {}
    for pair in pairs:
        name, given, value = pair.partition("=")
        if not given or not name.strip():
            raise InputError(f"{pair!r} is no metadata", hint="write NAME=VALUE")
        try:
            made[name.strip()] = json.loads(value)
        except ValueError:
            made[name.strip()] = value
    if groups is not None:
        made[GROUPS] = [name.strip() for name in groups.split(",") if name.strip()]
    return made

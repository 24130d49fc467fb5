"""JSON decoded an entry at a time, with the line at fault where it is none."""

from __future__ import annotations

import io
import json
import re
from itertools import chain
from typing import TYPE_CHECKING, Any

from dialore.dialogue import dialogue_from
from dialore.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import TextIO

_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_CHUNK = 1 << 16


def parse(data: bytes | str, place: str, form: str) -> Any:  # noqa: ANN401 - decoded JSON has any type
    """One JSON document; raises InputError naming the place and the line."""
    try:
        value = json.loads(data)
    except json.JSONDecodeError as error:
        raise InputError(f"{place}, line {error.lineno}: not valid JSON: {error.msg}", mend=form) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: not valid JSON: {error}", mend=form) from error
    refuse_halves(value, place)
    return value


def refuse_halves(data: object, place: str) -> None:
    """Refuse text that JSON's escapes can spell and UTF-8 cannot, naming its field."""
    try:
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        dialogue_from(data if isinstance(data, dict) else {"entry": data}, place=place, default_id="entry")


class Reader:
    """Decodes the entries of one JSON document, or of JSONL, holding little more than one of them.

    Attributes:
        escaped: whether the latest entry spells surrogates by escapes, and so may hold half of a pair.
    """

    def __init__(self, text: TextIO, path: Path, form: str) -> None:
        self.escaped = False
        self._text = text
        self._path = path
        self._form = form
        self._buffer = ""
        self._at = 0
        self._line = 1
        self._chunk = _CHUNK
        self._decoder = json.JSONDecoder()

    def items(self, *, keyed: bool) -> Iterator[tuple[int, str, Any]]:
        """Line, key (if any) and value of each entry."""
        first = self._peek()
        if first == "[" or (first == "{" and keyed):
            return self._document("]" if first == "[" else "}", keyed=first == "{")
        if first == "{":
            return self._lines()
        if first:
            raise self._error(
                "neither a list nor an object" if keyed else "not a list of objects, nor an object a line"
            )
        return iter(())

    def _document(self, end: str, *, keyed: bool) -> Iterator[tuple[int, str, Any]]:
        self._take(1)
        if self._peek() == end:
            return
        while True:
            self._peek()
            line = self._line
            key = str(self._value()) if keyed else ""
            if keyed:
                self._expect(":")
            yield line, key, self._value()
            if self._expect("," + end) == end:
                break
        if self._peek():
            raise self._error("more text after the end")

    def _lines(self) -> Iterator[tuple[int, str, Any]]:
        number = self._line
        # The buffer may end within a line, which the file then goes on with.
        held = io.StringIO(self._buffer[self._at :] + self._text.readline(), newline="\n")
        lines = chain(held, self._text)
        first = True
        for line in lines:
            if line.strip():
                self._line = number
                yield number, "", self._object(line, lines if first else iter(()))
                first = False
            number += 1

    def _object(self, line: str, others: Iterator[str]) -> object:
        """The object on a line; where none ends on it, the one object that it and the other lines are laid out over."""
        try:
            self.escaped = _HALF.search(line) is not None
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            rest = "" if line.rstrip().endswith("}") else "".join(others)
            if not rest.strip():
                raise self._error(f"not valid JSON: {error}") from error
            return parse(line + rest, str(self._path), self._form)

    def _value(self) -> object:
        """The next value, reading on until it is whole."""
        self._peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._at)
                if end < len(self._buffer) or not self._more():
                    self.escaped = _HALF.search(self._buffer, self._at, end) is not None
                    self._take(end - self._at)
                    return value
            except (ValueError, RecursionError) as error:
                # Counted now, as reading on moves the buffer.
                lines = self._buffer.count("\n", self._at, getattr(error, "pos", self._at))
                if not self._more():
                    self._line += lines
                    raise self._error(f"not valid JSON: {getattr(error, 'msg', error)}") from error

    def _peek(self) -> str:
        """The next character that is no white space; empty at the end."""
        while True:
            while self._at < len(self._buffer):
                if not self._buffer[self._at].isspace():
                    return self._buffer[self._at]
                self._take(1)
            if not self._more():
                return ""

    def _expect(self, allowed: str) -> str:
        found = self._peek()
        if not found or found not in allowed:
            raise self._error(f"not valid JSON: {' or '.join(allowed)} expected, found {found or 'the end'}")
        self._take(1)
        return found

    def _take(self, count: int) -> None:
        self._line += self._buffer.count("\n", self._at, self._at + count)
        self._at += count

    def _more(self) -> bool:
        """Read another chunk, twice as long each time one was not enough for an entry."""
        chunk = self._text.read(self._chunk)
        if self._at:
            self._chunk = _CHUNK
        else:
            self._chunk *= 2
        self._buffer = self._buffer[self._at :] + chunk
        self._at = 0
        return bool(chunk)

    def _error(self, problem: str) -> InputError:
        return InputError(f"{self._path}, line {self._line}: {problem}", mend=self._form)

"""Lines that do not parse: counted, the first ones shown, and fatal only where they are many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore.errors import GraphError

if TYPE_CHECKING:
    from pathlib import Path

_SHOWN = 10
_MOST = 0.01
"""More than this share of a file's lines, and it is not the file that it is taken for."""
_SOON = 10_000
"""After so many lines the share is told before the end."""


class Rejects:
    """Bad lines of the files of one build.

    Args:
        strict: whether the first one is an error already.

    Attributes:
        count: how many.
        first: the first ten, as sentences with file and line number.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.count = 0
        self.first: list[str] = []
        self._strict = strict
        self._of_file = 0
        self._error: GraphError | None = None

    def bad(self, path: Path, number: int, reason: str, mend: str = "") -> None:
        """Count a line; raises GraphError where one is too many, or too many were bad by now."""
        sentence = f"{path}, line {number}: {reason}"
        self.count += 1
        self._of_file += 1
        if len(self.first) < _SHOWN:
            self.first.append(sentence)
        if self._error is None:
            self._error = GraphError(sentence, mend=mend)
        if self._strict:
            raise self._error
        if number >= _SOON:
            self._check(number)

    def end_of(self, lines: int) -> None:
        """Judge a file by its number of lines; raises GraphError where too many were bad."""
        self._check(lines)
        self._of_file, self._error = 0, None

    def _check(self, lines: int) -> None:
        if self._error is not None and self._of_file > _MOST * lines:
            first = str(self._error)
            if self._of_file == 1:
                raise self._error
            raise GraphError(f"{self._of_file:,} of {lines:,} lines do not parse, first {first}")

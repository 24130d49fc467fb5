"""What could not be read: counted and shown, and nobody's end."""

from __future__ import annotations

from dataclasses import dataclass, field

_SHOWN = 10


class Unreadable(Exception):  # noqa: N818 - it never leaves the package
    """A file, or one line of it, that gives no passages; the message says why."""


@dataclass
class Rejects:
    """Files and lines that were left out.

    Attributes:
        files: how many files.
        lines: how many lines of files that could be read else.
        first: the first of them, a sentence each.
    """

    files: int = 0
    lines: int = 0
    first: list[str] = field(default_factory=list)

    def file(self, name: str, why: object) -> None:
        """A file was left out."""
        self.files += 1
        self._show(f"{name}: {why}")

    def line(self, name: str, number: int, why: object) -> None:
        """A line was left out, numbered from 1."""
        self.lines += 1
        self._show(f"{name}, line {number}: {why}")

    @property
    def count(self) -> int:
        """Files and lines together."""
        return self.files + self.lines

    def _show(self, sentence: str) -> None:
        if len(self.first) < _SHOWN:
            self.first.append(sentence)

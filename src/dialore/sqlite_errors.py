"""Errors of SQLite by their codes: what failed, in which file, and what the user can do about it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict

from dialore.errors import InputError

Problem = Literal["full", "io", "readonly", "cannot-open", "busy", "not-a-database", "damaged", "other"]
_PROBLEMS: dict[int, Problem] = {
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_IOERR: "io",
    sqlite3.SQLITE_READONLY: "readonly",
    sqlite3.SQLITE_PERM: "readonly",
    sqlite3.SQLITE_CANTOPEN: "cannot-open",
    sqlite3.SQLITE_BUSY: "busy",
    sqlite3.SQLITE_LOCKED: "busy",
    sqlite3.SQLITE_PROTOCOL: "busy",
    sqlite3.SQLITE_NOTADB: "not-a-database",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_FORMAT: "damaged",
}
_PRIMARY_CODE = 0xFF
"""Mask of the primary result code; the higher bits say which system call failed."""


class _Explanation(NamedTuple):
    message: str
    hint: str


_EXPLANATIONS: dict[Problem, _Explanation] = {
    "full": _Explanation(
        "cannot write {path}: {error}",
        "make room on the disk and try again; what the file held before is unchanged",
    ),
    "io": _Explanation(
        "cannot read or write {path}: {error}",
        "check the disk, its room, your quota and the limit of file sizes (ulimit -f), then try again; keep the file",
    ),
    "readonly": _Explanation(
        "cannot write {path}: {error}",
        "check the permissions of the file and its folder, and whether the disk is mounted read-only",
    ),
    "cannot-open": _Explanation(
        "cannot open {path}: {error}", "check the path, and the permissions of the file and its folder"
    ),
    "busy": _Explanation("{path} is being changed by another process", "wait until it is done"),
    "not-a-database": _Explanation("{path} is not {description}", "{other_file}"),
    "damaged": _Explanation("{path} is damaged: {error}", "{rebuild}"),
    "other": _Explanation("cannot use {path}: {error}", "try again; if the error stays, {rebuild}"),
}


def classify_sqlite_error(error: BaseException) -> Problem:
    """Return what is wrong, by the error's code; "other" if it has none."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return "other"
    return _PROBLEMS.get(code & _PRIMARY_CODE, "other")


def explain_sqlite_error(
    error: BaseException,
    path: Path | str,
    *,
    description: str,
    rebuild: str = "restore it from a copy",
    other_file: str = "name another file",
) -> InputError:
    """Return an InputError that names the file, the cause and the remedy.

    Args:
        error: The error of SQLite.
        path: The database file.
        description: What the file should be, with its article.
        rebuild: The remedy for a damaged file.
        other_file: The remedy for a file that is something else.
    """
    explanation = _EXPLANATIONS[classify_sqlite_error(error)]
    values = {"path": path, "error": error, "description": description, "rebuild": rebuild, "other_file": other_file}
    return InputError(explanation.message.format_map(values), hint=explanation.hint.format_map(values))


class ExplainAs(TypedDict):
    """Arguments of `explain_sqlite_error`."""

    path: Path | str
    description: str
    other_file: str


class ExplainedConnection(sqlite3.Connection):
    """A connection whose errors are InputErrors that name its file; set `explain_as` after opening it.

    Violated constraints and misuse by the program stay errors of SQLite.
    """

    explain_as: ExplainAs

    def execute(self, *arguments: Any) -> sqlite3.Cursor:  # noqa: ANN401 - as there
        """See `sqlite3.Connection`."""
        with self._explaining():
            return super().execute(*arguments)

    def executemany(self, sql: str, parameters: Iterable[Any]) -> sqlite3.Cursor:
        """See `sqlite3.Connection`."""
        with self._explaining():
            return super().executemany(sql, parameters)

    def commit(self) -> None:
        """See `sqlite3.Connection`."""
        with self._explaining():
            super().commit()

    def __exit__(self, *exception: Any) -> Literal[False]:  # noqa: ANN401 - as there
        """See `sqlite3.Connection`, which commits here without a call of `commit`."""
        with self._explaining():
            return super().__exit__(*exception)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        explain_as = getattr(self, "explain_as", None)
        try:
            yield
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
            raise
        except sqlite3.Error as error:
            if explain_as is None:
                raise
            raise explain_sqlite_error(error, **explain_as) from error

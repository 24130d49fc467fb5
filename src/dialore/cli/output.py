"""What commands write: data on standard output, everything about it on standard error."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Self

import typer

from dialore.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType
    from typing import TextIO

    from rich.console import Console
    from rich.table import Table


def say_error(message: str) -> None:
    """One line on standard error: why the command failed."""
    typer.echo(f"dialore: error: {' '.join(message.split())}", err=True)


def note(message: str) -> None:
    """One line on standard error: something to know that is no failure."""
    typer.echo(f"dialore: {' '.join(message.split())}", err=True)


def console(*, stderr: bool = False) -> Console:
    """A rich console on standard output, or on standard error."""
    from rich.console import Console

    return Console(highlight=False, stderr=stderr)


def table(*columns: str, title: str | None = None) -> Table:
    """An empty table in the style that all commands share.

    A column named with a leading `>` is right-aligned; with `!`, not broken over lines. Names are plain text; cells are
    markup, so that what others wrote must be escaped in them.
    """
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", header_style="bold cyan")
    for column in columns:
        name = column[column.startswith((">", "!")) :]
        justify: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        made.add_column(escape(name), justify=justify, overflow="fold", no_wrap=column.startswith("!"))
    return made


def print_json(data: object) -> None:
    """One JSON document on standard output: indented on a terminal, else on one line."""
    indent = 2 if sys.stdout.isatty() else None
    typer.echo(json.dumps(data, ensure_ascii=False, indent=indent))


@contextmanager
def progress(what: str) -> Iterator[Callable[[str, int, int | None], None]]:
    """A progress bar on standard error, where that is a terminal; the body calls it with (step, done, total)."""
    if not sys.stderr.isatty():
        yield lambda _step, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda step, done, total: bar.update(task, description=step or what, completed=done, total=total)


class Lines:
    """A JSONL file of results, opened at the first line, so that a command that fails before it leaves no file.

    Args:
        path: the file; None writes nothing. Each line is written at once: what is finished survives an interruption.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: TextIO | None = None

    def write(self, data: dict[str, Any]) -> None:
        """Write one line; raises InputError where the file cannot be written."""
        if self._path is None:
            return
        try:
            if self._file is None:
                self._file = self._path.open("w", encoding="utf-8")
            self._file.write(json.dumps(data, ensure_ascii=False) + "\n")
            self._file.flush()
        except OSError as error:
            raise _unwritable(self._path, error) from error

    def __enter__(self) -> Self:
        """The lines."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def check_targets(*targets: Path | None, source: Path | None = None) -> None:
    """Check before anything is paid for that files can be written, apart from each other and from what is read.

    Raises:
        InputError: naming the file.
    """
    seen = {source.resolve()} if source is not None else set()
    for path in targets:
        if path is None:
            continue
        if path.is_dir() or not path.resolve().parent.is_dir():
            raise InputError(
                f"cannot write {path}", mend="it is a folder" if path.is_dir() else "make its folder first"
            )
        if path.resolve() in seen:
            raise InputError(f"{path} is named twice", mend="give every file a name of its own")
        seen.add(path.resolve())


def write_whole(path: Path, text: str | bytes) -> None:
    """Write a file that is there whole or not at all; raises InputError where it cannot be written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(text.encode() if isinstance(text, str) else text)
        temporary.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(f"cannot write {path}: {error.strerror or error}", mend="check the folder and its permissions")

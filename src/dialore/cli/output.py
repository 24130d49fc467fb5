"""Output of commands: data on standard output, everything about it on standard error.

All output of the command line goes through this module, which removes control characters: documents, models, servers
and users must not be able to send commands to the terminal.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

import typer

from dialore.cli.controls import escape_controls, remove_controls
from dialore.errors import InputError
from dialore.files import unwritable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

    from dialore.experiments.run import Progress

_LONGEST = 30
"""Characters of a word that a table keeps whole; addresses and file names are longer."""
_live: dict[bool, Console] = {}
"""The console of a progress bar while it is shown, for what is on its terminal: standard error (True), output."""


def say(text: str = "", *, stderr: bool = False, newline: bool = True) -> None:
    """Print a text without control characters, above a progress bar if there is one."""
    text = remove_controls(text)
    if stderr in _live:
        _live[stderr].out(text, highlight=False, end="\n" if newline else "")
    else:
        typer.echo(text, err=stderr, nl=newline)


def say_json(data: object, *, indent: int | None = None) -> None:
    """Print a JSON document on standard output. Control characters are escaped, so that nothing is lost."""
    say_json_text(json.dumps(data, ensure_ascii=False, indent=indent))


def say_json_text(text: str) -> None:
    """Print a document that is JSON already, as `say_json` does."""
    say(escape_controls(text))


def confirm(question: str) -> bool:
    """Ask a yes-or-no question on the terminal. The answer is no by default."""
    return typer.confirm(remove_controls(question), err=True)


def read_line(prompt: str) -> str:
    """Read a line from the terminal. Raises EOFError at the end of the input."""
    return input(remove_controls(prompt))


def say_traceback(error: BaseException) -> None:
    """Print the traceback of an unexpected error on standard error."""
    say("".join(traceback.format_exception(error)).rstrip("\n"), stderr=True)


@contextmanager
def clean_diagnostics() -> Iterator[None]:
    """Print warnings and the tracebacks of threads and destructors through `say` while the body runs."""
    previous = warnings.showwarning, threading.excepthook, sys.unraisablehook

    def show_warning(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        text = warnings.formatwarning(message, category, filename, lineno, line)
        if file is None:
            say(text.rstrip("\n"), stderr=True)
        else:
            file.write(remove_controls(text))

    def show_thread_error(arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_value is not None and arguments.exc_type is not SystemExit:
            say_traceback(arguments.exc_value)

    def show_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.exc_value is not None:
            say_traceback(unraisable.exc_value)

    warnings.showwarning = show_warning
    threading.excepthook = show_thread_error
    sys.unraisablehook = show_unraisable
    try:
        yield
    finally:
        warnings.showwarning, threading.excepthook, sys.unraisablehook = previous


def say_error(message: str) -> None:
    """One line on standard error: why the command failed."""
    say(f"dialore: error: {' '.join(message.split())}", stderr=True)


def note(message: str) -> None:
    """One line on standard error: something to know that is no failure."""
    say(f"dialore: {' '.join(message.split())}", stderr=True)


class Notes(logging.Handler):
    """A handler that shows what is logged as notes, above a progress bar where there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say it."""
        note(self.format(record))


def note_languages(names: Iterable[str]) -> None:
    """Say of each language that is neither English nor Chinese, once, what that means; an empty name is either."""
    from dialore.methods.stage_runner import FOREIGN

    for name in sorted(set(names) - {""}):
        note(FOREIGN.format(name))


def note_rejects(first: Sequence[str], count: int) -> None:
    """Say what was left out of the input: the first rejects, a sentence each, and how many more there are."""
    for sentence in first:
        note(f"left out: {sentence}")
    if count > len(first):
        note(f"left out: {count - len(first):,} more lines or files")


def console(*, stderr: bool = False) -> Console:
    """Return a rich console on standard output, or on standard error; one for both where a bar is on their terminal."""
    if stderr in _live:
        return _live[stderr]
    from dialore.cli.terminal import SafeConsole

    return SafeConsole(stderr=stderr)


def escape(text: str) -> str:
    """Text whose square brackets are not markup."""
    from rich import markup

    return markup.escape(text)


def styled(markup: str) -> Text:
    """Return a table cell with markup; escape what others wrote."""
    from rich.text import Text

    return Text.from_markup(markup, emoji=False)


class Table:
    """A table in the style that all commands share; print it on a `console`.

    No word is broken over lines: where the terminal is too narrow for that, every row becomes a block of lines.

    Args:
        columns: their names, plain text; one with a leading `>` is right-aligned, one with `!` not broken over lines.
        rows: the cells of each row: a string is plain text, `styled` makes a cell with markup.
        title: what stands above it.
        shares: the columns' shares of the whole width; without them, columns are as wide as they need.
    """

    def __init__(
        self,
        *columns: str,
        rows: Iterable[Sequence[str | Text]] = (),
        title: str | None = None,
        shares: Sequence[int] = (),
    ) -> None:
        self._columns, self._title, self._shares = columns, title, shares
        self._rows: list[tuple[list[Text], bool]] = []
        for cells in rows:
            self.add_row(*cells)

    def add_row(self, *cells: str | Text, end_section: bool = False) -> None:
        """Add a row, with a line below it where a section ends."""
        from rich.text import Text

        texts = [Text(cell) if isinstance(cell, str) else cell for cell in cells]
        self._rows.append((texts, end_section))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield the table, or its rows as blocks."""
        from rich import box
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        names = [Text(column[column.startswith((">", "!")) :]) for column in self._columns]
        widths = self._widths(console, names, options.max_width)
        if widths is None:
            if self._title:
                yield Text(self._title, style="bold")
            for cells, _ in self._rows:
                yield Text.assemble(cells[0], style="bold")
                for name, cell in zip(names[1:], cells[1:], strict=False):
                    if cell:
                        yield Padding(Text.assemble((f"{name}:", "cyan"), " ", cell) if name else cell, (0, 0, 0, 2))
            yield ""
            return
        made = Table(box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
        made.title = Text(self._title) if self._title else None
        for column, name, width in zip(self._columns, names, widths, strict=True):
            justify: Literal["left", "right"] = "right" if column.startswith(">") else "left"
            made.add_column(name, justify=justify, overflow="fold", width=width, header_style="bold cyan")
        for cells, ends in self._rows:
            made.add_row(*cells, end_section=ends)
        yield made

    def _widths(self, console: Console, names: Sequence[Text], width: int) -> list[int] | None:
        """Return the columns' widths, what is left shared between those that want more; None where words do not fit."""
        room = width - 3 * len(names) - 1
        rows = [list(names), *(cells for cells, _ in self._rows)]
        sizes: list[tuple[int, int]] = []
        for number, column in enumerate(self._columns):
            cells = [console.measure(row[number]) for row in rows if number < len(row)]
            most = max(cell.maximum for cell in cells)
            least = most if column.startswith("!") else max(min(cell.minimum, _LONGEST) for cell in cells)
            sizes.append((least, most))
        spare = room - sum(least for least, _ in sizes)
        if spare < 0:
            return None
        if self._shares:
            wanted = [room * share // sum(self._shares) for share in self._shares]
            return wanted if all(size[0] <= share for size, share in zip(sizes, wanted, strict=True)) else None
        widths = [least for least, _ in sizes]
        wanting = sorted(range(len(sizes)), key=lambda number: sizes[number][1] - sizes[number][0])
        for done, number in enumerate(wanting):
            more = min(sizes[number][1] - widths[number], spare // (len(wanting) - done))
            widths[number] += more
            spare -= more
        return widths


def print_json(data: object) -> None:
    """One JSON document on standard output: indented on a terminal, else on one line. NaN and infinity become null."""
    from pydantic_core import to_jsonable_python

    plain = to_jsonable_python(data, inf_nan_mode="null")
    say_json(plain, indent=2 if sys.stdout.isatty() else None)


@contextmanager
def progress(what: str) -> Iterator[Callable[[str, int, int | None], None]]:
    """Yield a progress bar on standard error, where that is a terminal; the body calls it with (step, done, total).

    It is there from the first call on: until then questions may be asked. Messages, and results on the same terminal,
    stand above it.
    """
    if not sys.stderr.isatty():
        yield lambda _step, _done, _total: None
        return
    from rich import progress as shown

    words = shown.TextColumn("{task.description}", markup=False)
    times = (shown.TimeElapsedColumn(), shown.TimeRemainingColumn())
    out, live = console(stderr=True), {True} | ({False} if sys.stdout.isatty() else set())
    columns = (words, shown.BarColumn(), shown.MofNCompleteColumn(), *times)
    bar = shown.Progress(*columns, console=out, transient=True, redirect_stdout=False)
    task = bar.add_task(what, total=None)

    def show(step: str, done: int, total: int | None) -> None:
        bar.start()
        _live.update(dict.fromkeys(live, out))
        bar.update(task, description=step or what, completed=done, total=total)

    try:
        yield show
    finally:
        _live.clear()
        bar.stop()


@contextmanager
def run_progress(doing: str) -> Iterator[Callable[[Progress], None]]:
    """Yield a progress bar as `progress` does, which is told how far a run is."""
    with progress(doing) as step:

        def show(now: Progress) -> None:
            words = f"{doing}: {now.rate:.1f}/s, {now.failed} failed, {now.tokens:,} tokens{now.batches}"
            step(words, now.before + now.done, now.total)

        yield show


@contextmanager
def lines_to(path: Path | None) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield a JSONL file of results: the body calls it with each; None writes nothing.

    It is opened at the first line, so that a command that fails before it leaves no file, and each line is written at
    once: what is finished survives an interruption. Raises InputError where it cannot be written.
    """
    file: TextIO | None = None

    def write(data: dict[str, Any]) -> None:
        nonlocal file
        if path is None:
            return
        try:
            file = file or path.open("w", encoding="utf-8")
            file.write(json.dumps(data, ensure_ascii=False) + "\n")
            file.flush()
        except OSError as error:
            raise unwritable(path, error) from error

    try:
        yield write
    finally:
        if file is not None:
            with suppress(OSError):  # what could not be written has been said
                file.close()


def check_targets(*targets: Path | None, source: Path | None = None, begins: str = "") -> None:
    """Check before anything is paid for that files can be written, apart from each other and from what is read.

    One that is there and begins otherwise, which is no earlier output, is not written over. Raises InputError.
    """
    seen = {source.resolve()} if source is not None else set()
    for path in targets:
        if path is None:
            continue
        if path.is_dir() or not path.resolve().parent.is_dir():
            hint = "it is a folder" if path.is_dir() else "make its folder first"
            raise InputError(f"cannot write {path}", hint=hint)
        folder = path if path.exists() else path.resolve().parent
        if not os.access(folder, os.W_OK):
            raise InputError(f"cannot write {path}", hint="check the folder and its permissions")
        if begins and path.is_file() and not _head(path).startswith((*begins,)):
            raise InputError(f"{path} is there, and holds something else", hint="name another file, or delete it")
        if path.resolve() in seen:
            raise InputError(f"{path} is named twice", hint="give every file a name of its own")
        seen.add(path.resolve())


def _head(path: Path) -> str:
    """Return the beginning of a file; of one that is empty, or no file of its own, what any output begins with."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        return file.read(200).lstrip() or "{"

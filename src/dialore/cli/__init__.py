"""The `dialore` command: thin, one file a verb group. Everything it does can be done from Python too."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

__all__ = ["main"]

_INTERRUPTED = 130
_MIN_COLUMNS = 20
_BROKEN_PIPE = 1  # what typer exits with where it notices first


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit code: 0 done, 1 some of a batch failed, 2 bad input or usage.

    Args:
        arguments: what stands after `dialore`; those of this process where None.
    """
    _replace_closed_streams()
    _drop_odd_widths()
    _handle_interrupts()
    try:
        code = _begin(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # leave quietly, and keep the interpreter from flushing into it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = _BROKEN_PIPE
    except KeyboardInterrupt:  # also in the first moments, while modules are read
        code = _INTERRUPTED
    sys.exit(code)


def _replace_closed_streams() -> None:
    """Open the null device in place of standard streams that were closed before the start, as some daemons do.

    Otherwise the next file that is opened would take the descriptor, and output would be written into it.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        null = os.open(os.devnull, os.O_RDONLY if descriptor == 0 else os.O_WRONLY)
        if null != descriptor:
            os.dup2(null, descriptor)
            os.close(null)
        stream = open(descriptor, "r" if descriptor == 0 else "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)


def _drop_odd_widths() -> None:
    """Ignore sizes of the terminal in the environment that no output fits, such as COLUMNS=0."""
    for name, least in (("COLUMNS", _MIN_COLUMNS), ("LINES", 1), ("TERMINAL_WIDTH", _MIN_COLUMNS)):
        value = os.environ.get(name, "")
        if not re.fullmatch("[0-9]{1,4}", value) or int(value) < least:
            os.environ.pop(name, None)


def _handle_interrupts() -> None:
    """End the command at the first Ctrl-C wherever it is.

    pydantic, which is written in Rust, drops a KeyboardInterrupt that is raised while it compiles validators, and the
    command would go on. asyncio puts its own handler in place of `signal.default_int_handler` only.
    """
    if getattr(signal.getsignal(signal.SIGINT), "__module__", "") == "dialore":
        signal.default_int_handler = _on_interrupt
        signal.signal(signal.SIGINT, _on_interrupt)


def _on_interrupt(_signal: int, frame: FrameType | None) -> NoReturn:
    """Raise KeyboardInterrupt, or end the process at once if modules are being imported or validators compiled."""
    while frame is not None:
        is_import = frame.f_code.co_filename.startswith("<frozen importlib")
        if is_import or frame.f_globals.get("__name__", "").startswith("pydantic._internal"):
            os._exit(_INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


_HOME_PATH = re.compile(r"^((?:--?[\w-]+=)?(?:[\w+-]*:)?)~/(?=\S*$)")


def _expand_home(argument: str) -> str:
    """Return an argument with `~/` as the home folder, which a shell expands only at the start of a bare word."""
    return _HOME_PATH.sub(lambda match: match[1] + str(Path.home()) + "/", argument)


def _begin(arguments: Sequence[str] | None) -> int:  # noqa: C901 - a branch for each kind of failure
    import logging

    # Before numpy is loaded. Our products are small: several threads of BLAS would spend most of their time waiting for
    # each other, busily (msdp over 100,000 samples: 22 ms of CPU a response instead of 6).
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import sqlite3

    import typer

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a character that a terminal's encoding lacks ends no finished work
            stream.reconfigure(errors="replace")
    raw_arguments = sys.argv[1:] if arguments is None else arguments
    arguments = [_expand_home(_decode_argument(argument)) for argument in raw_arguments]
    from dialore.cli.app import app
    from dialore.cli.output import Notes, clean_diagnostics, say_error, say_traceback
    from dialore.errors import DialoreError

    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[Notes()])

    # Typer brings a click of its own, whose errors have no public name.
    usage_error: type[Exception] = typer.BadParameter.__mro__[2]
    try:
        with clean_diagnostics():
            code = app(arguments, prog_name="dialore", standalone_mode=False)
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except typer.Abort:
        return _INTERRUPTED
    except usage_error as error:
        message = _usage(error) if str(error) else ""  # a verb group without a verb: typer has shown its help
    except DialoreError as error:
        from dialore.cli.options import describe_error

        message = describe_error(error)
    except (OSError, sqlite3.Error) as error:  # a disk that is full, a file that is gone
        message = _failure(error)
    except Exception as error:  # noqa: BLE001 - a fault of ours; its text may hold control characters
        say_traceback(error)
        return 1
    else:
        return code if isinstance(code, int) else 0
    if message:
        say_error(message)
    return 2


def _failure(error: Exception) -> str:
    """Return what the system or SQLite says, with its remedy."""
    import sqlite3

    from dialore.sqlite_errors import explain_sqlite_error

    if isinstance(error, sqlite3.Error):
        return str(explain_sqlite_error(error, "a database", description="a database"))
    return f"{type(error).__name__}: {error}"


def _decode_argument(argument: str) -> str:
    """Return an argument as UTF-8 where the locale is not, unless it names a file as it stands."""
    if argument.isprintable() or os.path.exists(argument):  # noqa: PTH110 - any text
        return argument
    return os.fsencode(argument).decode("utf-8", "replace")


def _usage(error: Exception) -> str:
    """Return a usage error in one line, with where to read on."""
    wording: str = error.format_message() if hasattr(error, "format_message") else str(error)
    context = getattr(error, "ctx", None)
    if context is None:
        return f"{' '.join(wording.split())} (see `dialore --help`)"
    from dialore.cli.options import settings_for_option

    remedy = f"see `{context.command_path} --help`"
    settings = settings_for_option(context, str(getattr(error, "option_name", "")))
    if settings:
        wording = f"No such option: {error.option_name}"  # type: ignore[attr-defined]
        remedy = f"use {' or '.join(f'--set {path}=VALUE' for path in settings)}; {remedy}"
    return f"{' '.join(wording.split())} ({remedy})"

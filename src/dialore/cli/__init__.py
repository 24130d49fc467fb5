"""The `dialore` command: thin, one file a verb group. Everything it does can be done from Python too."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from dialore.errors import ON_COMMAND_LINE

__all__ = ["main"]

_INTERRUPTED = 130
_BROKEN_PIPE = 1  # what typer exits with where it notices first


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit code: 0 done, 1 some of a batch failed, 2 bad input or usage.

    Args:
        arguments: what stands after `dialore`; those of this process where None.
    """
    speaking = ON_COMMAND_LINE.set(True)
    try:
        if getattr(signal.getsignal(signal.SIGINT), "__module__", "") == "dialore":
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = _begin(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # leave quietly, and keep the interpreter from flushing into it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = _BROKEN_PIPE
    except KeyboardInterrupt:  # also in the first moments, while modules are read
        code = _INTERRUPTED
    finally:
        ON_COMMAND_LINE.reset(speaking)
    sys.exit(code)


def _begin(arguments: Sequence[str] | None) -> int:
    import logging

    # Before numpy is loaded. Our products are small: several threads of BLAS would spend most of their time waiting for
    # each other, busily (msdp over 100,000 samples: 22 ms of CPU a response instead of 6).
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import sqlite3

    import typer

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a character that a terminal's encoding lacks ends no finished work
            stream.reconfigure(errors="replace")
    arguments = [_decode_argument(argument) for argument in (sys.argv[1:] if arguments is None else arguments)]
    from dialore.cli.app import app
    from dialore.cli.output import Notes, say_error
    from dialore.errors import DialoreError

    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[Notes()])

    # Typer brings a click of its own, whose errors have no public name.
    usage_error: type[Exception] = typer.BadParameter.__mro__[2]
    try:
        code = app(arguments, prog_name="dialore", standalone_mode=False)
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except typer.Abort:
        return _INTERRUPTED
    except usage_error as error:
        message = _usage(error) if str(error) else ""  # a verb group without a verb: typer has shown its help
    except DialoreError as error:
        message = str(error)
    except (OSError, sqlite3.Error) as error:  # a disk that is full, a file that is gone
        message = _failure(error)
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
    command = context.command_path if context is not None else "dialore"
    return f"{' '.join(wording.split())} (see `{command} --help`)"

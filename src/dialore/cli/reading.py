"""Dialogues from a file or standard input, the malformed ones kept as errors with an id of their own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dialore.cli.output import note
from dialore.errors import InputError

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue


def read_entries(file: str) -> list[tuple[str, Dialogue | InputError]]:
    """The entries of a dialogue file, each with its id; `-` reads standard input.

    A malformed entry is said on standard error; where no entry is any good, the first one's error is raised.

    Raises:
        InputError: the file cannot be read, or holds no dialogue at all.
    """
    from dialore.dialogue import Dialogue, parse_dialogues, read_text

    if file == "-":
        if sys.stdin.isatty():
            note("reading a dialogue from the terminal; end it with Ctrl-D")
        text, name = _standard_input(), "stdin"
    else:
        path = Path(file)
        text, name = read_text(path), path.name
    stem = name.split(".", maxsplit=1)[0] or "dialogue"
    entries = [
        (entry.id if isinstance(entry, Dialogue) else f"{stem}-{number}", entry)
        for number, entry in enumerate(parse_dialogues(text, name=name), start=1)
    ]
    errors = [entry for _, entry in entries if isinstance(entry, InputError)]
    if errors and len(errors) == len(entries):
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise InputError(errors[0].message + more, mend=errors[0].mend)
    for error in errors:
        note(f"left out: {error}")
    return entries


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"standard input is not UTF-8: byte {error.start}", mend="send UTF-8") from error

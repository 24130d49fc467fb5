"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dialore.errors import InputError


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give a path beside a file that takes the file's place once the body has written it; its folder is made.

    Raises:
        InputError: the file cannot be written.
    """
    target = path.resolve()  # what a link, or a device, stands for is not replaced
    is_device = target.exists() and not target.is_file()
    temporary = target if is_device else target.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            if not is_device:
                temporary.replace(target)
        finally:
            if not is_device:
                temporary.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


def write_whole(path: Path, content: str | bytes | Iterable[str]) -> None:
    """Write a text, bytes, or lines as they come; see `written_whole`."""
    with written_whole(path) as temporary:
        if isinstance(content, bytes):
            temporary.write_bytes(content)
        else:
            with temporary.open("w", encoding="utf-8", newline="") as file:
                file.writelines([content] if isinstance(content, str) else content)


def unwritable(path: Path, error: OSError) -> InputError:
    """Return the error of a file that cannot be written."""
    return InputError(f"cannot write {path}: {error.strerror or error}", mend="check the folder and its permissions")

"""Which files are read: those named, and those of folders, by and by."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dialore.errors import InputError
from dialore.sources.documents.layout import MANIFEST
from dialore.sources.documents.reading import FileFormat, format_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Found(NamedTuple):
    """A file to be read; no format where its name does not say it."""

    path: Path
    file_format: FileFormat | None


def find_files(paths: Sequence[Path], file_format: FileFormat | None = None) -> Iterator[Found]:
    """The files, and those in the folders and below, each once, by absolute path.

    In a folder only files count whose names say that they can be read; hidden ones, and document indices, do not. What
    is named itself is read whatever it is called, as text where its name says nothing.

    Args:
        paths: files and folders.
        file_format: how all of them are read, whatever their names.

    Raises:
        InputError: there is nothing of that name.
    """
    for path in paths:
        if not path.exists():
            raise InputError(f"no such file or folder: {path}", mend="check the name")
    seen: set[Path] = set()
    for path in paths:
        if path.is_dir():
            known = [Found(each, format_of(each)) for each in _below(path.resolve())]
            wanted = [each for each in known if each.file_format is not None]
        else:
            wanted = [Found(path.resolve(), format_of(path) or "text")]
        for each in wanted:
            if each.path not in seen:
                seen.add(each.path)
                yield each if file_format is None else Found(each.path, file_format)


def _below(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        if MANIFEST in names and any(name.startswith("base-") for name in folders):
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(where) / name for name in sorted(names) if not name.startswith("."))


def lies_below(name: str, folders: Sequence[Path]) -> bool:
    """Whether a document's name is the path of a file in one of the folders or below."""
    return any(Path(name).is_relative_to(folder) for folder in folders)

"""Files and folders as they are named: which are read, and what was read of them before it is written anywhere."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dialore.errors import InputError, as_path
from dialore.files import unwritable
from dialore.retrieval.chunking import Section, Unreadable
from dialore.retrieval.documents.store import Document
from dialore.retrieval.groups import RefusedGroups
from dialore.retrieval.loaders.formats import format_of
from dialore.retrieval.loaders.reader import Reader, section_of
from dialore.retrieval.loaders.reading import guess_format
from dialore.text import shown_path

if TYPE_CHECKING:
    from dialore.retrieval.loaders.formats import FileFormat

    Step = Callable[[str, int, int | None], None]

_READERS = 4
"""Rises when files are read in another way: then they are read again though they have not changed."""


class ReadFile(NamedTuple):
    """A file that was read, and where its sections begin and end among those of all."""

    document: Document
    begin: int
    end: int


class ReadFiles(AbstractContextManager["ReadFiles"]):
    """Files that were read and are not written yet: their sections wait in an unnamed file of the folder.

    So neither an index is locked nor memory is filled while files are read. In a folder only files are read whose names
    say how, and none that is hidden; a file that is named itself is read by its content if its name says nothing. Links
    in a folder that lead out of it are not followed.

    Files that `is_known` knows by their hash are `unchanged`; names that do not say how to read them are `skipped`;
    `rejects` and `notices` are sentences. Files that are rejected because they name groups that cannot be applied are
    also `refused`.

    Raises:
        InputError: There is no such file or folder, or the folder for what was read cannot be written.
    """

    def __init__(
        self,
        named: str | Path | Sequence[str | Path],
        file_format: FileFormat | None = None,
        *,
        reader: Reader | None = None,
        folder: Path | None = None,
        is_known: Callable[[Document], bool] = lambda _: False,
        on_step: Step | None = None,
    ) -> None:
        self.files: list[ReadFile] = []
        self.unchanged: list[str] = []
        self.refused: list[str] = []
        self.folders: list[Path] = []
        self.formats: dict[Path, FileFormat] = {}
        self.skipped, self.rejects, self.notices = list[str](), list[str](), list[str]()
        self._find([named] if isinstance(named, str | Path) else named, file_format)
        step, total = on_step or (lambda *_: None), len(self.formats)
        with ExitStack() as stack:
            reader = reader or stack.enter_context(Reader())
            try:
                self._sections = stack.enter_context(tempfile.TemporaryFile(dir=folder))
                for done, (path, known_format) in enumerate(self.formats.items()):
                    step(f"reading {shown_path(Path(path.name))}", done, total)
                    self._read(path, known_format, reader, is_known)
                self._sections.flush()
            except OSError as error:
                raise unwritable(folder or Path(tempfile.gettempdir()), error) from error
            self._open = stack.pop_all()
        step("reading", total, total)

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _find(self, named: Sequence[str | Path], file_format: FileFormat | None) -> None:
        """Take in the files that are named, and those in the folders and below."""
        paths = [as_path("a file", path) for path in named]
        for path in paths:
            if not os.path.exists(path):  # noqa: PTH110 - False, too, where one may not look
                raise InputError(f"no such file or folder: {shown_path(path)}", hint="check the name")
        allowed = [path.resolve() for path in paths]
        for path in paths:
            is_folder = path.is_dir()
            if is_folder:
                self.folders.append(Path(shown_path(path.resolve())))
            for file in self._below(path.resolve()) if is_folder else [path.resolve()]:
                known = format_of(file)
                if known is None and is_folder:
                    self.skipped.append(shown_path(file))
                elif is_folder and file.is_symlink() and file.resolve() in allowed:
                    continue  # it is read by the name that it was named by
                elif why := _unfit(file) or _outside(file, allowed):
                    (self.notices if is_folder else self.rejects).append(f"{shown_path(file)}: {why}")
                else:
                    self.formats.setdefault(file, file_format or known or self._guess(file))

    def _guess(self, file: Path) -> FileFormat:
        """Return how a file is read that is named itself, but whose name does not say how."""
        try:
            guess = guess_format(file)
        except (OSError, EOFError, zlib.error):
            return "text"  # its reader says what is wrong
        as_what = "plain text" if guess == "text" else guess
        self.notices.append(f"{shown_path(file)}: its name does not say what it is: read as {as_what}")
        return guess

    def _below(self, folder: Path) -> Iterator[Path]:
        def reject(error: OSError) -> None:
            self.rejects.append(f"{shown_path(Path(error.filename))}: {error.strerror}")

        for where, folders, names in os.walk(folder, onerror=reject):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for link in (Path(where, name) for name in folders):
                if link.is_symlink():
                    self.notices.append(f"{shown_path(link)}: a link to a folder is not followed")
            yield from (Path(where, name) for name in sorted(names) if not name.startswith("."))

    def sections(self, file: ReadFile) -> Iterator[Section]:
        """Yield the sections of a file."""
        self._sections.seek(file.begin)
        while self._sections.tell() < file.end:
            yield section_of(self._sections.readline().decode())

    def _read(self, path: Path, file_format: FileFormat, reader: Reader, is_known: Callable[[Document], bool]) -> None:
        begin, name = self._sections.tell(), shown_path(path)
        manner = hashlib.sha256(repr((_READERS, file_format, reader.ocr, reader.include_hidden)).encode()).digest()
        try:
            try:
                status = path.stat()
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16, key=manner)).hexdigest()
            except OSError as error:
                raise Unreadable(error.strerror or str(error)) from error
            document = Document(name=name, hash=digest, bytes=status.st_size, modified=status.st_mtime_ns)
            if is_known(document):
                self.unchanged.append(name)
                return
            for kind, text in reader.read(path, file_format):
                if kind == "section":
                    self._sections.write(text.encode() + b"\n")
                else:
                    told = self.rejects if kind == "reject" else self.notices
                    told.append(f"{name}, {text}" if text.startswith(("line", "page")) else f"{name}: {text}")
        except Unreadable as error:
            self.rejects.append(f"{name}: {error}")
            if isinstance(error, RefusedGroups):
                self.refused.append(name)
            self._sections.seek(begin)
            self._sections.truncate()
        else:
            self.files.append(ReadFile(document, begin, self._sections.tell()))


def _unfit(path: Path) -> str:
    """Why something that is named like a file is none; empty where it is one."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return "a link to nothing" if path.is_symlink() else error.strerror or "it cannot be opened"
    return "" if stat.S_ISREG(mode) else "no file but a pipe, a socket or a device"


def _outside(path: Path, allowed: Sequence[Path]) -> str:
    """Return why a link in a folder is not followed; empty if it is none, or leads to what is read anyway.

    Args:
        path: A file that exists.
        allowed: The files and folders that are named, without links. Hidden parts of the folders are not read.
    """
    if not path.is_symlink():
        return ""
    target = path.resolve()
    if target in allowed:
        return ""
    inside = [target.relative_to(folder).parts for folder in allowed if target.is_relative_to(folder)]
    if not inside:
        return f"a link out of the folder, to {shown_path(target)}, is not followed (name it to read it)"
    if all(any(map(_is_hidden, parts)) for parts in inside):
        return f"a link to the hidden file {shown_path(target)} is not followed (name it to read it)"
    return ""


def _is_hidden(name: str) -> bool:
    """Return whether a name is that of a hidden file; volumes of Kubernetes link to folders such as ..2026_01_31."""
    return name.startswith(".") and not name.startswith("..")

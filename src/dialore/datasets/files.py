"""Published files read entry by entry, plain, gzipped or from an archive, without holding them whole."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import zipfile
import zlib
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, TypeVar

from pydantic import BaseModel, ValidationError

from dialore.dialogue import describe
from dialore.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dialore.datasets.base import DataSet

_ARCHIVE = re.compile(r"^(?P<archive>.+\.(?:zip|tar\.gz|tgz|tar))(?::(?P<member>.+))?$", re.IGNORECASE)
_CHUNK = 1 << 16
Shape = TypeVar("Shape", bound=BaseModel)


class Place(NamedTuple):
    """Where an entry stands, for errors and ids.

    Attributes:
        said: file, line and entry in words.
        number: the entry's number in the file, from 1.
        key: its key, where the file is one object of named entries.
        form: what a file of the data set looks like.
    """

    said: str
    number: int
    key: str
    form: str

    def error(self, problem: str, field: str = "") -> InputError:
        """The error that this entry is at fault; `field` is its path, such as `conversation[2].P-K`."""
        return InputError(f"{self.said}: {f'field {field}: ' if field else ''}{problem}", mend=self.form)


def archive_of(path: Path) -> tuple[Path, str] | None:
    """The archive and the member that a path such as `kbp.zip:kbp/dev.json` names; None where it names no archive."""
    found = _ARCHIVE.match(str(path))
    return (Path(found["archive"]), found["member"] or "") if found else None


@contextmanager
def open_text(path: Path, *, form: str = "") -> Iterator[TextIO]:
    """A UTF-8 file as text: plain, `.gz`, or a member of a zip or tar archive (`kbp.zip:kbp/dev.json`).

    A member may be named by a part of its path. An archive of a single file needs no member.

    Raises:
        InputError: with the reason; also for what goes wrong while it is read in the body.
    """
    try:
        archive = archive_of(path)
        if archive is not None:
            text = _member(*archive)
        elif path.suffix == ".gz":
            text = gzip.open(path, "rt", encoding="utf-8-sig")  # noqa: SIM115 - closed below, whatever it is
        else:
            text = path.open(encoding="utf-8-sig")
        with text:
            yield text
    except FileNotFoundError as error:
        raise InputError(f"no such file: {path}", mend="check the path") from error
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError) as error:
        raise InputError(f"cannot read {path}: {error}", mend=form) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8: {error.reason}", mend="save it as UTF-8") from error


def _member(archive: Path, wanted: str) -> TextIO:
    """The one member of an archive whose path holds `wanted`, as text; read into memory."""
    if archive.suffix.lower() == ".zip":
        with zipfile.ZipFile(archive) as zipped:
            data = zipped.read(_choose(archive, [n for n in zipped.namelist() if not n.endswith("/")], wanted))
    else:
        with tarfile.open(archive) as tarred:
            names = [member.name for member in tarred if member.isfile()]
            found = tarred.extractfile(_choose(archive, names, wanted))
            data = found.read() if found is not None else b""
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig")


def _choose(archive: Path, names: list[str], wanted: str) -> str:
    # Archives made on a Mac hold a shadow of every file.
    real = [name for name in names if "__MACOSX" not in name]
    found = [name for name in real if name == wanted] or [name for name in real if wanted in name]
    if len(found) != 1:
        listed = ", ".join(found[:6] or real[:6])
        problem = "no file" if not found else "several files"
        raise InputError(
            f"{archive}: {problem} {wanted!r} in it", mend=f"name one as {archive.name}:FILE; it has {listed}"
        )
    return found[0]


def read_entries(path: Path, shape: type[Shape], of: DataSet, *, keyed: bool = False) -> Iterator[tuple[Place, Shape]]:
    """The entries of a JSON list, a JSON object of named entries, or JSONL, each checked against a shape.

    Args:
        path: the file.
        shape: what an entry must be.
        of: the data set, for errors.
        keyed: whether a file that starts with `{` is one object whose values are the entries; else it is JSONL.

    Raises:
        InputError: naming file, line, entry and field.
    """
    for place, data in json_entries(path, of, keyed=keyed):
        yield place, checked(data, shape, place)


def read_forms(
    path: Path, shapes: Mapping[str, type[BaseModel]], of: DataSet, *, keyed: bool = False
) -> Iterator[tuple[Place, BaseModel]]:
    """Like `read_entries`, of a data set that is published in several forms: each is known by a key of its entries.

    Args:
        path: the file.
        shapes: what an entry that has the key must be, the most telling key first.
        of: the data set, for errors.
        keyed: as for `read_entries`.
    """
    for place, data in json_entries(path, of, keyed=keyed):
        key = next((key for key in shapes if isinstance(data, dict) and key in data), None)
        if key is None:
            raise place.error(f"it has none of the fields {', '.join(shapes)}")
        yield place, checked(data, shapes[key], place)


def checked(data: object, shape: type[Shape], place: Place) -> Shape:
    """Decoded JSON as a shape; raises InputError naming the place and the fields at fault."""
    try:
        return shape.model_validate(data)
    except ValidationError as error:
        raise place.error(describe(error)) from error


def parse(data: bytes | str, place: str, form: str) -> Any:  # noqa: ANN401 - decoded JSON has any type
    """One JSON document; raises InputError naming the place and the line."""
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise InputError(f"{place}, line {error.lineno}: not valid JSON: {error.msg}", mend=form) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: not valid JSON: {error}", mend=form) from error


def json_entries(path: Path, of: DataSet, *, keyed: bool = False) -> Iterator[tuple[Place, Any]]:
    """What `read_entries` reads, not checked."""
    form = f"{of.name} is {of.form}"
    with open_text(path, form=form) as text:
        reader = _Reader(text, path, form)
        number = 0
        for number, (line, key, data) in enumerate(reader.items(keyed=keyed), start=1):
            yield Place(f"{path}, line {line}, entry {f'{key!r}' if key else number}", number, key, form), data
        if not number:
            raise InputError(f"{path}: the file is empty", mend=form)


class _Reader:
    """Decodes the entries of one JSON document, or of JSONL, holding little more than one of them."""

    def __init__(self, text: TextIO, path: Path, form: str) -> None:
        self._text = text
        self._path = path
        self._form = form
        self._buffer = ""
        self._at = 0
        self._line = 1
        self._chunk = _CHUNK
        self._decoder = json.JSONDecoder()

    def items(self, *, keyed: bool) -> Iterator[tuple[int, str, Any]]:
        """Line, key (if any) and value of each entry."""
        first = self._peek()
        if first == "[" or (first == "{" and keyed):
            return self._document("]" if first == "[" else "}", keyed=first == "{")
        if first == "{":
            return self._lines()
        if first:
            raise self._error(
                "neither a list nor an object" if keyed else "not a list of objects, nor an object a line"
            )
        return iter(())

    def _document(self, end: str, *, keyed: bool) -> Iterator[tuple[int, str, Any]]:
        self._take(1)
        if self._peek() == end:
            return
        while True:
            self._peek()
            line = self._line
            key = str(self._value()) if keyed else ""
            if keyed:
                self._expect(":")
            yield line, key, self._value()
            if self._expect("," + end) == end:
                break
        if self._peek():
            raise self._error("more text after the end")

    def _lines(self) -> Iterator[tuple[int, str, Any]]:
        number = self._line
        # The buffer may end within a line, which the file then goes on with.
        held = io.StringIO(self._buffer[self._at :] + self._text.readline(), newline="\n")
        lines = chain(held, self._text)
        first = True
        for line in lines:
            if line.strip():
                self._line = number
                yield number, "", self._object(line, lines if first else iter(()))
                first = False
            number += 1

    def _object(self, line: str, others: Iterator[str]) -> object:
        """The object on a line; where none ends on it, the one object that it and the other lines are laid out over."""
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            rest = "" if line.rstrip().endswith("}") else "".join(others)
            if not rest.strip():
                raise self._error(f"not valid JSON: {error}") from error
            return parse(line + rest, str(self._path), self._form)

    def _value(self) -> object:
        """The next value, reading on until it is whole."""
        self._peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._at)
                if end < len(self._buffer) or not self._more():
                    self._take(end - self._at)
                    return value
            except (ValueError, RecursionError) as error:
                if not self._more():
                    if isinstance(error, json.JSONDecodeError):
                        self._line += self._buffer.count("\n", self._at, error.pos)
                        raise self._error(f"not valid JSON: {error.msg}") from error
                    raise self._error(f"not valid JSON: {error}") from error

    def _peek(self) -> str:
        """The next character that is no white space; empty at the end."""
        while True:
            while self._at < len(self._buffer):
                if not self._buffer[self._at].isspace():
                    return self._buffer[self._at]
                self._take(1)
            if not self._more():
                return ""

    def _expect(self, allowed: str) -> str:
        found = self._peek()
        if not found or found not in allowed:
            raise self._error(f"not valid JSON: {' or '.join(allowed)} expected, found {found or 'the end'}")
        self._take(1)
        return found

    def _take(self, count: int) -> None:
        self._line += self._buffer.count("\n", self._at, self._at + count)
        self._at += count

    def _more(self) -> bool:
        """Read another chunk, twice as long each time one was not enough for an entry."""
        chunk = self._text.read(self._chunk)
        if self._at:
            self._chunk = _CHUNK
        else:
            self._chunk *= 2
        self._buffer = self._buffer[self._at :] + chunk
        self._at = 0
        return bool(chunk)

    def _error(self, problem: str) -> InputError:
        return InputError(f"{self._path}, line {self._line}: {problem}", mend=self._form)

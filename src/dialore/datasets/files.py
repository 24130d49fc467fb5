"""Published files read entry by entry, plain, gzipped or from an archive, without holding them whole."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, TypeVar

from pydantic import BaseModel, ValidationError

from dialore.datasets.stream import Reader, refuse_halves
from dialore.dialogue import describe
from dialore.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dialore.datasets.base import DataSet

_ARCHIVE = re.compile(r"^(?P<archive>.+\.(?:zip|tar\.gz|tgz|tar))(?::(?P<member>.+))?$", re.IGNORECASE)
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


def json_entries(path: Path, of: DataSet, *, keyed: bool = False) -> Iterator[tuple[Place, Any]]:
    """What `read_entries` reads, not checked."""
    form = f"{of.name} is {of.form}"
    with open_text(path, form=form) as text:
        reader = Reader(text, path, form)
        number = 0
        for number, (line, key, data) in enumerate(reader.items(keyed=keyed), start=1):
            place = Place(f"{path}, line {line}, entry {f'{key!r}' if key else number}", number, key, form)
            if reader.escaped:
                refuse_halves(data, place.said)
            yield place, data
        if not number:
            raise InputError(f"{path}: the file is empty", mend=form)

"""Published files read entry by entry, plain, gzipped or in an archive; errors name the line, entry and field."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PurePath
from typing import Any, NamedTuple, TextIO, TypeVar

from pydantic import BaseModel, ValidationError

from dialore import files
from dialore.errors import InputError, describe, first_line
from dialore.files import TOO_DEEP, check_depth, is_parquet, load_json, parquet_lines, storable

_ARCHIVE = re.compile(r"^(?P<archive>.+\.(?:zip|tar\.gz|tgz|tar))(?::(?P<member>.+))?$", re.IGNORECASE)
_AT_ONCE, _LARGEST = 1 << 20, 1 << 26
"""Characters of a JSON document that are read at once, and those that one of its entries has at most."""
Shape = TypeVar("Shape", bound=BaseModel)


class Place(NamedTuple):
    """The place of an entry, for errors and ids: file, line and entry in words, its number from 1, its key, if any."""

    where: str
    number: int
    key: str
    form: str

    def error(self, problem: str, field: str = "") -> InputError:
        """Return the error that this entry is at fault; `field` is its path, such as `conversation[2].P-K`."""
        return InputError(f"{self.where}: {f'field {field}: ' if field else ''}{problem}", hint=self.form)


def archive_of(path: PurePath) -> tuple[Path, str] | None:
    """Return the archive and the member that a path such as `kbp.zip:kbp/dev.json` names; None without one."""
    match = _ARCHIVE.match(str(path))
    return (Path(match["archive"]), match["member"] or "") if match else None


def reading(path: Path, form: str = "") -> AbstractContextManager[None]:
    """Turn what goes wrong while a file or an archive is read into an InputError; see `dialore.files.reading`."""
    return files.reading(path, form, (zipfile.BadZipFile, tarfile.TarError))


@contextmanager
def open_text(path: Path, *, form: str = "") -> Iterator[TextIO]:
    """Yield a file in UTF-8, or marked UTF-16, as text: plain, `.gz`, or in an archive (`kbp.zip:kbp/dev.json`).

    A member may be named by a part of its path. An archive of a single file needs no member. The rows of a Parquet file
    are yielded as JSONL.

    Raises:
        InputError: with the reason; also for what goes wrong while it is read in the body.
    """
    if is_parquet(path):
        yield io.StringIO(parquet_lines(path))
        return
    with reading(path, form):
        archive = archive_of(path)
        if archive is not None:
            data: Any = read_member(*archive)
        else:
            data = gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # noqa: SIM115 - closed below
        marked = data.read(2) in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}
        data.seek(0)
        with io.TextIOWrapper(data, encoding="utf-16" if marked else "utf-8-sig") as text:
            yield text


def read_member(archive: Path, wanted: str) -> io.BytesIO:
    """Return the one member of an archive whose path holds `wanted`, read into memory."""
    if archive.suffix.lower() == ".zip":
        with zipfile.ZipFile(archive) as zipped:
            data = zipped.read(_choose(archive, [n for n in zipped.namelist() if not n.endswith("/")], wanted))
    else:
        with tarfile.open(archive) as tarred:
            names = [member.name for member in tarred if member.isfile()]
            stream = tarred.extractfile(_choose(archive, names, wanted))
            data = stream.read() if stream is not None else b""
    return io.BytesIO(data)


def _choose(archive: Path, names: list[str], wanted: str) -> str:
    # Archives made on a Mac hold a shadow of every file.
    real = [name for name in names if "__MACOSX" not in name]
    matching = [name for name in real if name == wanted] or [name for name in real if wanted in name]
    if len(matching) != 1:
        listed = ", ".join(matching[:6] or real[:6])
        problem = "no file" if not matching else "several files"
        raise InputError(
            f"{archive}: {problem} {wanted!r} in it", hint=f"name one as {archive.name}:FILE; it has {listed}"
        )
    return matching[0]


def read_entries(
    path: Path, shape: type[Shape], form: str, *, keyed: bool = False, unused: Counter[str] | None = None
) -> Iterator[tuple[Place, Shape]]:
    """Yield the entries of a JSON list, of a JSON object (`keyed`), or of JSONL, each checked against a shape.

    Args:
        path: The file.
        shape: The fields that are read.
        form: What a file of the data set looks like, for errors.
        keyed: Whether the file is an object of named entries.
        unused: Counts the keys of entries that the shape does not have.

    Raises:
        InputError: File, line, entry and field are named.
    """
    for place, data in json_entries(path, form, keyed=keyed):
        count_unused(data, shape, unused)
        yield place, validate(data, shape, place)


def read_forms(
    path: Path, shapes: Mapping[str, type[BaseModel]], form: str, *, unused: Counter[str] | None = None
) -> Iterator[tuple[Place, BaseModel]]:
    """Like `read_entries`, of a data set in several forms: each is known by a key, the most telling first."""
    for place, data in json_entries(path, form):
        key = next((key for key in shapes if isinstance(data, dict) and key in data), None)
        if key is None:
            raise place.error(f"it has none of the fields {', '.join(shapes)}")
        count_unused(data, shapes[key], unused)
        yield place, validate(data, shapes[key], place)


def count_unused(data: object, shape: type[BaseModel], unused: Counter[str] | None) -> None:
    """Count the keys of an entry that its shape does not have."""
    if unused is None or not isinstance(data, dict):
        return
    names = set(shape.model_fields)
    for field in shape.model_fields.values():
        alias = field.validation_alias or field.alias
        names.update(str(choice) for choice in getattr(alias, "choices", [alias]))
    unused.update(key for key, value in data.items() if key not in names and value is not None)


def validate(data: object, shape: type[Shape], place: Place) -> Shape:
    """Return decoded JSON as a shape; raise InputError naming the fields at fault.

    A null counts as not said at every depth, so that fields with a default take it.
    """
    try:
        return shape.model_validate(without_nulls(data))
    except ValidationError as error:
        raise place.error(describe(error)) from error


def without_nulls(data: object) -> object:
    """Return decoded JSON without the fields of objects that are null. Items of lists keep their places."""
    if isinstance(data, dict):
        return {key: without_nulls(value) for key, value in data.items() if value is not None}
    if isinstance(data, list):
        return [without_nulls(item) for item in data]
    return data


def parse(data: bytes | str, where: str, form: str) -> Any:  # noqa: ANN401 - decoded JSON has any type
    """One JSON document; raises InputError naming the place and the line."""
    try:
        return storable(load_json(data))
    except ValueError as error:
        raise _invalid(where, error, form) from error


def _invalid(where: str, error: Exception, form: str, before: int = 0, line: int | None = None) -> InputError:
    """Return the error that a text is no JSON.

    Its line is that of the error, after those `before` the text; of an error without one, `line`.
    """
    if isinstance(error, json.JSONDecodeError):
        return InputError(f"{where}, line {before + error.lineno}: not valid JSON: {error.msg}", hint=form)
    if line is not None:
        where = f"{where}, line {line}"
    reason = TOO_DEEP if isinstance(error, RecursionError) else first_line(error)
    return InputError(f"{where}: not valid JSON: {reason}", hint=form)


def json_entries(path: Path, form: str, *, keyed: bool = False) -> Iterator[tuple[Place, Any]]:
    """Yield the entries that `read_entries` reads, not checked."""
    number = 0
    with open_text(path, form=form) as text:
        for number, (line, key, data) in enumerate(_entries(text, path, form, keyed=keyed), start=1):
            at = f"{path}, line {line}" if line else str(path)
            place = Place(f"{at}, entry {f'{key!r}' if key else number}", number, key, form)
            yield place, storable(data)
    if not number:
        raise InputError(f"{path}: the file is empty", hint=form)


def _entries(text: TextIO, path: Path, form: str, *, keyed: bool) -> Iterator[tuple[int, str, Any]]:
    """Line, key (if any) and value of each entry."""
    first, line = " ", 1
    while first.isspace():
        first = text.read(1)
        line += first == "\n"
    if first == "{" and not keyed:
        text.seek(0)
        return _lines(text, path, form)
    if first not in {"[", "{", ""}:
        problem = "neither a list nor an object" if keyed else "not a list of objects, nor an object a line"
        raise InputError(f"{path}, line 1: {problem}", hint=form)
    return _document(text, path, form, line, end="}" if first == "{" else "]") if first else iter(())


def _lines(text: TextIO, path: Path, form: str) -> Iterator[tuple[int, str, Any]]:
    """Yield the object of each line; where none ends on the first, the one object that is laid out over all lines."""
    any_line = False
    for number, line in enumerate(text, start=1):
        if not line.strip():
            continue
        source = line.rstrip()
        if not any_line and not source.endswith("}"):
            source += "\n" + text.read()
        try:
            value = load_json(source.rstrip())  # what is missing at a line's end is that line's error
        except ValueError as error:
            raise _invalid(str(path), error, form, before=number - 1, line=number) from error
        any_line = True
        yield number, "", value


def _document(text: TextIO, path: Path, form: str, line: int, *, end: str) -> Iterator[tuple[int, str, Any]]:
    """Yield the entries of a list, or of an object of named entries, decoded one by one as the file is read."""
    held, at, counted, before, is_whole = "", 0, 0, line - 1, False
    try:
        while True:
            try:
                entry = _entry(held, at, end)
            except json.JSONDecodeError:
                if is_whole or len(held) - at > _LARGEST:
                    raise
                line += held.count("\n", counted, at)
                more = text.read(max(_AT_ONCE, len(held) - at))
                held, at, counted, before, is_whole = held[at:] + more, 0, 0, line - 1, not more
                continue
            if entry is None:
                break
            begin, key, value, at = entry
            line, counted = line + held.count("\n", counted, begin), begin
            check_depth(value)
            yield line, key, value
        at = held.index(end, at) + 1
        held += text.read(_AT_ONCE)
        if _after(held, "", at) < len(held):
            raise json.JSONDecodeError("more text after the end", held, at)
    except (ValueError, RecursionError) as error:
        raise _invalid(str(path), error, form, before, line) from error


def _entry(text: str, at: int, end: str) -> tuple[int, str, Any, int] | None:
    """Return the next entry: its begin, its key, if any, its value, and the place behind its comma; None at the end."""
    decode = json.JSONDecoder().raw_decode
    begin = at = _after(text, "", at)
    if text.startswith(end, at):
        return None
    key = ""
    if end == "}":
        key, at = decode(text, at)
        at = _after(text, ":", at)
    value, at = decode(text, at)
    if not text.startswith(end, at := _after(text, "", at)):
        at = _after(text, ",", at)
    return begin, str(key), value, at


def _after(text: str, sign: str, at: int) -> int:
    """Return the place after white space, a sign and white space again."""
    match = re.compile(rf"\s*{sign}\s*").match(text, at)
    if match is None:
        raise json.JSONDecodeError(f"{sign!r} expected", text, at)
    return match.end()

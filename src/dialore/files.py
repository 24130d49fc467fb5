"""Files: texts, YAML and JSON that are read, files that are written whole or not at all, and the cache folder."""

from __future__ import annotations

import codecs
import csv
import errno
import functools
import gzip
import json
import math
import os
import re
import stat
import tempfile
import tomllib
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dialore.errors import InputError, first_line, import_optional

if TYPE_CHECKING:
    import yaml

T = TypeVar("T")

# --- reading


@contextmanager
def reading(path: Path, form: str = "", also: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn what goes wrong while the body reads a file into an InputError with the reason.

    Its mend is the `form` that the file should have; further errors that say that it cannot be read are `also` caught.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"no such file: {path}", hint="check the path") from error
    except IsADirectoryError as error:
        raise InputError(f"cannot read {path}: it is a folder", hint="name a file in it") from error
    except UnicodeError as error:
        raise InputError(f"{path} is not UTF-8: {getattr(error, 'reason', error)}", hint="save it as UTF-8") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is cut short or not gzip: {error}", hint="fetch or copy it again") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", hint=form) from error
    except also as error:
        raise InputError(f"cannot read {path}: {error}", hint=form) from error


@functools.cache
def _yaml_loader() -> Any:  # noqa: ANN401 - yaml is imported when first used
    import yaml

    class Loader(yaml.SafeLoader):
        """The safe loader, to which a key that stands twice is an error."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} stands twice", key.start_mark)
                if isinstance(key, yaml.ScalarNode):
                    seen.add(key.value)
            return super().construct_mapping(node, deep)

    return Loader


def parse_yaml(text: str, place: str, hint: str = "") -> Any:  # noqa: ANN401 - decoded YAML has any type
    """Return what YAML text holds; raise InputError with the line where it is malformed."""
    import yaml

    try:
        data = yaml.load(text, _yaml_loader())  # noqa: S506 - a safe one
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InputError(f"{place}{line}: not valid YAML: {error.problem}", hint=hint) from error
    except RecursionError as error:
        raise InputError(f"{place}: not valid YAML: nested too deeply", hint=hint) from error
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{place}: not valid YAML: {first_line(error)}", hint=hint) from error
    if _holds_itself(data, ()):
        raise InputError(f"{place}: not valid YAML: an alias holds itself", hint=hint)
    return data


def parse_toml(text: str, location: str) -> dict[str, Any]:
    """Return what TOML text holds; raise InputError if it is malformed or nested too deeply."""
    try:
        tables = tomllib.loads(text)
        check_depth(tables)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise InputError(f"{location}: not valid TOML: {reason}") from error
    return tables


def _holds_itself(data: object, outer: tuple[int, ...], checked: set[int] | None = None) -> bool:
    """Return whether a list or mapping is an element of itself, at any depth."""
    if not isinstance(data, dict | list):
        return False
    checked = set() if checked is None else checked
    if id(data) in outer:
        return True
    if id(data) in checked:
        return False
    checked.add(id(data))
    elements = data.values() if isinstance(data, dict) else data
    return any(_holds_itself(element, (*outer, id(data)), checked) for element in elements)


def read_text(path: Path) -> str:
    """Return the text of a file, gunzipped if its name ends in `.gz`, UTF-8 or marked UTF-16; raise InputError.

    The rows of a Parquet file are returned as JSONL.
    """
    if is_parquet(path):
        return parquet_lines(path)
    with reading(path):
        return decode_text(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())


def decode_text(data: bytes) -> str:
    """Text in UTF-8 or, where it begins with that mark, UTF-16; raises UnicodeDecodeError."""
    return data.decode("utf-16" if data[:2] in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE} else "utf-8-sig")


def is_parquet(path: Path) -> bool:
    """Return whether a file is a Parquet table, by its name."""
    return path.suffix.lower() in {".parquet", ".pq"}


def parquet_lines(path: Path) -> str:
    """Return the rows of a Parquet file as JSONL: dates as ISO text, other values that JSON lacks as text.

    Raises:
        MissingExtraError: pyarrow is not installed.
        InputError: the file cannot be read.
    """
    parquet = import_optional("pyarrow.parquet", f"reading {path.name}", "parquet")
    with reading(path, "a Parquet file", (ValueError, RuntimeError)):
        rows = parquet.read_table(path).to_pylist()
    return "".join(json.dumps(row, ensure_ascii=False, default=_as_json) + "\n" for row in rows)


def _as_json(value: object) -> str:
    isoformat = getattr(value, "isoformat", None)
    return str(isoformat() if isoformat is not None else value)


_FORMS = "one JSON object a line, or one JSON document"


MAX_JSON_DEPTH = 512
"""Levels of nesting of JSON that is read: more cannot be processed by functions that call themselves."""


def load_json(data: str | bytes, pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:  # noqa: ANN401
    """Decode JSON from outside. Raises ValueError if it is malformed or nested too deeply, never RecursionError.

    `pairs_hook` makes each object from its pairs of names and values.
    """
    try:
        value = json.loads(data, object_pairs_hook=pairs_hook)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    openings = data.count("[") + data.count("{") if isinstance(data, str) else data.count(b"[") + data.count(b"{")
    if openings > MAX_JSON_DEPTH:
        check_depth(value)
    return value


def check_depth(value: object) -> None:
    """Raise ValueError if decoded JSON is nested too deeply."""
    level = [value]
    for _ in range(MAX_JSON_DEPTH + 1):
        children: list[object] = []
        for item in level:
            if isinstance(item, dict):
                children.extend(item.values())
            elif isinstance(item, list):
                children.extend(item)
        level = [child for child in children if isinstance(child, dict | list)]
        if not level:
            return
    raise ValueError(TOO_DEEP)


TOO_DEEP = f"nested more than {MAX_JSON_DEPTH} levels deep"


def json_document(text: str, name: str) -> Any:  # noqa: ANN401 - decoded JSON has any type
    """Return what a text holds as one JSON document; None where it is JSONL."""
    try:
        return load_json(text)
    except ValueError as error:
        first, _ = next(json_lines(text, name))
        if ".jsonl" in name or not isinstance(first, InputError):
            return None
        location = f"{name}, line {error.lineno}" if isinstance(error, json.JSONDecodeError) else name
        raise InputError(f"{location}: not valid JSON: {error}", hint=_FORMS) from error


def json_lines(text: str, name: str) -> Iterator[tuple[object, str]]:
    """Yield what each line of JSONL holds, or the error of a line that is none, with its place."""
    # Not splitlines: JSON may hold other line separators, such as U+2028, as they are.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        location = f"{name}, line {number}"
        try:
            yield load_json(line), location
        except ValueError as error:
            yield InputError(f"{location}: not valid JSON: {error}", hint=_FORMS), location


def storable(data: Any) -> Any:  # noqa: ANN401 - decoded JSON has any type
    """Return decoded JSON as it can be written again: numbers that JSON does not have, and endless ones, are null.

    Half of a surrogate pair, which escapes can spell and UTF-8 cannot, is the sign of what could not be read. So what
    nobody reads refuses no file; where such a number is wanted, it is missing, and its reader says so.
    """
    if isinstance(data, str):
        return data if data.isascii() else _HALF.sub("\ufffd", data)
    if isinstance(data, dict):
        return {storable(key): storable(value) for key, value in data.items()}
    if isinstance(data, list):
        return [storable(value) for value in data]
    endless = isinstance(data, float) and not math.isfinite(data)
    return None if endless or (isinstance(data, int) and data.bit_length() > 64) else data


_HALF = re.compile("[\ud800-\udfff]")


def with_long_cells(rows: Iterator[T]) -> Iterator[T]:
    """Yield a CSV reader's rows, whose cells may be long: the process's limit is raised only while a row is read."""
    while True:
        usual = csv.field_size_limit(2**31 - 1)
        try:
            row = next(rows)
        except StopIteration:
            return
        finally:
            csv.field_size_limit(usual)
        yield row


# --- writing


@contextmanager
def whole_file(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Give a path that takes a file's place once the body has written it, its folder made; InputError if it fails.

    A new file that is `private` may be read by this account alone. A file that is replaced keeps its permissions.
    """
    target = path.resolve()  # what a link, or a device, stands for is not replaced
    is_device = target.exists() and not target.is_file()
    temporary = target if is_device else target.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            if private and not is_device:
                create_private(temporary)
            yield temporary
            if not is_device:
                if target.exists():
                    temporary.chmod(stat.S_IMODE(target.stat().st_mode))
                temporary.replace(target)
        finally:
            if not is_device:
                temporary.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


def write_whole(path: Path, content: str | bytes | Iterable[str], *, private: bool = False) -> None:
    """Write a text, bytes, or lines as they come; see `whole_file`."""
    with whole_file(path, private=private) as temporary:
        if isinstance(content, bytes):
            temporary.write_bytes(content)
        else:
            with temporary.open("w", encoding="utf-8", newline="") as file:
                file.writelines([content] if isinstance(content, str) else content)


@contextmanager
def folder_lock(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Lock a folder until the body or the process ends; raises OSError if it is locked and `wait` is False."""
    try:
        import fcntl
    except ImportError:  # Windows cannot lock folders
        from filelock import FileLock

        with FileLock(folder / ".lock", timeout=-1 if wait else 0):
            yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(handle)


PRIVATE_MODE = 0o600


def create_private(path: Path) -> None:
    """Make an empty file that only this account may read, unless there is one; raises OSError."""
    if not path.exists():
        path.touch(mode=PRIVATE_MODE)


def create_private_folder(path: Path) -> None:
    """Make a folder, and those above it, that only this account may enter, unless there is one; raises OSError."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)


def unwritable(path: Path, error: OSError) -> InputError:
    """Return the error of a file that cannot be written."""
    hint = "check the folder and its permissions"
    if error.errno in _NO_ROOM:
        hint = "make room on the disk, or check your quota and the limit of file sizes (ulimit -f)"
    return InputError(f"cannot write {path}: {error.strerror or error}", hint=hint)


_NO_ROOM = frozenset({errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)})


# --- the cache


def cache_folder() -> Path:
    """Return the folder of what can be made or fetched again: `DIALORE_CACHE`, else the user's."""
    from platformdirs import user_cache_path

    wanted = os.environ.get("DIALORE_CACHE") or user_cache_path("dialore", appauthor=False)
    shared = Path(tempfile.gettempdir()) / "dialore"
    for folder in (Path(wanted), shared):
        with suppress(OSError):
            folder.mkdir(mode=0o700 if folder == shared else 0o777, parents=True, exist_ok=True)
            # Files of other accounts in a shared folder are not to be read.
            own = folder != shared or os.name == "nt" or folder.stat().st_uid == os.getuid()
            if own and os.access(folder, os.W_OK):
                return folder
    return Path(tempfile.mkdtemp(prefix="dialore-"))

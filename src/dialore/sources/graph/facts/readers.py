"""Facts from files: TSV in either column order, JSONL, and ConceptNet's assertions dump."""

from __future__ import annotations

import gzip
import io
import zlib
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Literal, get_args

from dialore.errors import GraphError, InputError
from dialore.sources.graph.facts.parsing import parse_conceptnet, parse_jsonl, parse_tsv
from dialore.sources.graph.facts.rejects import Rejects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from dialore.knowledge import Fact
    from dialore.text import Language

FileFormat = Literal["tsv", "jsonl", "conceptnet"]
FILE_FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)
_TOLD = 20_000
"""Lines between two reports of progress."""


@contextmanager
def _open(path: Path) -> Iterator[tuple[io.BufferedReader, IO[bytes], io.TextIOWrapper]]:
    """A file, its bytes and its text, unpacked where it is gzipped; what cannot be read becomes a GraphError."""
    try:
        with path.open("rb") as raw:
            binary: IO[bytes] = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw  # type: ignore[assignment]
            with io.TextIOWrapper(binary, encoding="utf-8-sig", newline="") as text:
                yield raw, binary, text
    except FileNotFoundError as error:
        raise GraphError(f"no such file: {path}", mend="check the path") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise GraphError(f"{path} is cut short or not gzip: {error}", mend="fetch or copy it again") from error
    except UnicodeDecodeError as error:
        raise GraphError(f"{path} is not UTF-8: {error.reason}", mend="convert it to UTF-8") from error
    except OSError as error:
        raise GraphError(f"cannot read {path}: {error}") from error


def _lines(text: io.TextIOWrapper, told: Callable[[int], None]) -> Iterator[tuple[int, str]]:
    """Numbered lines of UTF-8, blank ones left out."""
    for number, line in enumerate(text, start=1):
        if number % _TOLD == 0:
            told(number)
        stripped = line.rstrip("\r\n")
        if stripped:
            yield number, stripped


def guess_format(path: Path) -> FileFormat:
    """The format of a file by its name and first line; raises GraphError where neither tells."""
    name = path.name.removesuffix(".gz")
    if name.endswith((".jsonl", ".ndjson")):
        return "jsonl"
    with _open(path) as (_, _, text):
        first = next(_lines(text, lambda _number: None), (0, ""))[1]
    if not first:
        raise GraphError(f"{path} is empty", mend="head TAB relation TAB tail, one a line")
    if first.startswith("/a/["):
        return "conceptnet"
    if first.startswith("{"):
        return "jsonl"
    if first.count("\t") >= 2 or (name.endswith(".csv") and first.count(",") >= 2):
        return "tsv"
    raise GraphError(f"cannot tell the format of {path}", mend=f"say --format {' | '.join(FILE_FORMATS)}")


def read_facts(
    path: Path,
    *,
    file_format: FileFormat | None = None,
    languages: Sequence[Language] = ("en", "zh"),
    progress: Callable[[int], None] | None = None,
    rejects: Rejects | None = None,
) -> Iterator[Fact]:
    """The facts of a file, one by one.

    Args:
        path: the file; `.gz` is unpacked on the way.
        file_format: its format; guessed where None.
        languages: which concepts to keep of a ConceptNet dump: both ends must be in one of them.
        progress: called now and then with the bytes read so far.
        rejects: counts malformed lines and leaves them out; None makes the first one an error.

    Raises:
        GraphError: the file cannot be read, or a line, or more than 1% of them, are malformed; the line is named.
    """
    chosen = file_format or guess_format(path)
    rejects = rejects or Rejects(strict=True)
    with _open(path) as (raw, binary, text):

        def told(_number: int) -> None:
            if progress is not None:
                progress(raw.tell())

        if chosen == "conceptnet":
            yield from parse_conceptnet(binary, path, languages, rejects, told)
        elif chosen == "jsonl":
            yield from parse_jsonl(_lines(text, told), path, rejects)
        else:
            yield from parse_tsv(_lines(text, told), path, rejects)


def check_format(name: str | None) -> FileFormat | None:
    """The file format of that name, None for None; raises InputError for any other."""
    for known in FILE_FORMATS:
        if name == known:
            return known
    if name is None:
        return None
    raise InputError(f"unknown graph format: {name!r}", mend=f"known: {', '.join(FILE_FORMATS)}")

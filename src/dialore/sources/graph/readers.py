"""Facts from files: TSV in either column order, JSONL, and ConceptNet's assertions dump."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, get_args

from dialore.errors import GraphError, InputError
from dialore.knowledge import Fact
from dialore.sources.graph.relations import RELATIONS, canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from dialore.text import Language

FileFormat = Literal["tsv", "jsonl", "conceptnet"]
FILE_FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)


@contextmanager
def _open(path: Path, progress: Callable[[int], None] | None) -> Iterator[Iterator[tuple[int, str]]]:
    """Numbered lines of a UTF-8 file, gzipped or not; what cannot be read becomes a GraphError."""
    try:
        with path.open("rb") as raw:
            binary = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
            with io.TextIOWrapper(binary, encoding="utf-8-sig", newline="") as text:
                yield _numbered(text, raw, progress)
    except FileNotFoundError as error:
        raise GraphError(f"no such file: {path}", mend="check the path") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise GraphError(f"{path} is cut short or not gzip: {error}", mend="fetch or copy it again") from error
    except UnicodeDecodeError as error:
        raise GraphError(f"{path} is not UTF-8: {error.reason}", mend="convert it to UTF-8") from error
    except OSError as error:
        raise GraphError(f"cannot read {path}: {error}") from error


def _numbered(
    text: io.TextIOWrapper, raw: io.BufferedReader, progress: Callable[[int], None] | None
) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text, start=1):
        if progress is not None and number % 20000 == 0:
            progress(raw.tell())
        stripped = line.rstrip("\r\n")
        if stripped:
            yield number, stripped


def guess_format(path: Path) -> FileFormat:
    """The format of a file by its name and first line; raises GraphError where neither tells."""
    name = path.name.removesuffix(".gz")
    if name.endswith((".jsonl", ".ndjson")):
        return "jsonl"
    with _open(path, None) as lines:
        first = next(lines, (0, ""))[1]
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
) -> Iterator[Fact]:
    """The facts of a file, one by one.

    Args:
        path: the file; `.gz` is unpacked on the way.
        file_format: its format; guessed where None.
        languages: which concepts to keep of a ConceptNet dump: both ends must be in one of them.
        progress: called now and then with the bytes read so far.

    Raises:
        GraphError: the file cannot be read, or a line is malformed; the line is named.
    """
    chosen = file_format or guess_format(path)
    with _open(path, progress) as lines:
        if chosen == "conceptnet":
            yield from _conceptnet(lines, path, languages)
        elif chosen == "jsonl":
            yield from _jsonl(lines, path)
        else:
            yield from _tsv(lines, path)


def _fact(head: str, name: str, tail: str, weight: float, provenance: str) -> Fact | None:
    """A cleaned fact, or None where an end or the relation is blank."""
    clean_head, clean_tail, clean_name = _concept(head), _concept(tail), canonical(name)
    if not (clean_head and clean_tail and clean_name):
        return None
    return Fact(clean_head, clean_name, clean_tail, weight, provenance)


def _concept(text: str) -> str:
    """A concept's text: underscores to spaces, white space folded, case kept (names are names)."""
    return " ".join(text.replace("_", " ").split())


def _tsv(lines: Iterator[tuple[int, str]], path: Path) -> Iterator[Fact]:
    """`head relation tail [weight]` or `relation head tail [weight]`; commas where the file is a CSV."""
    buffered: list[tuple[int, list[str]]] = []
    rows = _rows(lines, path)
    for row in rows:
        buffered.append(row)
        if len(buffered) == 200:
            break
    columns = _columns(buffered, path)
    for number, cells in _chain(buffered, rows):
        if len(cells) <= max(columns[:3]):
            raise GraphError(
                f"{path}, line {number}: {len(cells)} columns, expected 3 or 4", mend="head TAB relation TAB tail"
            )
        if number == buffered[0][0] and cells[columns[1]].lower() in _HEADERS:
            continue
        weight = _weight(cells[3], path, number) if max(columns) == 2 and len(cells) == 4 else 1.0
        fact = _fact(cells[columns[0]], cells[columns[1]], cells[columns[2]], weight, path.name)
        if fact is not None:
            yield fact


_HEADERS = frozenset({"rel", "relation", "predicate"})


def _rows(lines: Iterator[tuple[int, str]], path: Path) -> Iterator[tuple[int, list[str]]]:
    comma = path.name.removesuffix(".gz").endswith(".csv")
    for number, line in lines:
        try:
            yield number, next(csv.reader([line])) if comma else line.split("\t")
        except csv.Error as error:
            raise GraphError(f"{path}, line {number}: {error}", mend="is it a CSV file?") from error


def _chain(
    first: list[tuple[int, list[str]]], rest: Iterator[tuple[int, list[str]]]
) -> Iterator[tuple[int, list[str]]]:
    yield from first
    yield from rest


def _columns(sample: Iterable[tuple[int, list[str]]], path: Path) -> tuple[int, int, int]:
    """Which columns hold head, relation and tail: the relation's is the one with known relation names.

    Where no column has enough, it is the second, or the first where that one has far fewer different values.
    """
    rows = [cells for _, cells in sample]
    if not rows:
        raise GraphError(f"{path} holds no facts", mend="head TAB relation TAB tail, one a line")
    width = min(len(cells) for cells in rows)
    if width < 3:
        short = next(number for number, cells in sample if len(cells) < 3)
        raise GraphError(f"{path}, line {short}: {width} columns, expected 3", mend="head TAB relation TAB tail")
    hits = [sum(canonical(cells[place]) in RELATIONS for cells in rows) for place in range(width)]
    if max(hits) * 2 >= len(rows):
        place = hits.index(max(hits))
    else:
        first, second = (len({cells[column] for cells in rows}) for column in (0, 1))
        place = 0 if len(rows) >= 20 and first * 4 < second else 1
    if place == width - 1:
        raise GraphError(f"{path}: the relation is in the last column", mend="head TAB relation TAB tail")
    # The relation first is ConceptNet 4's habit; anywhere else, the head stands before it and the tail after it.
    return (1, 0, 2) if place == 0 else (place - 1, place, place + 1)


def _weight(value: object, path: Path, number: int) -> float:
    try:
        weight = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        weight = math.nan
    if not math.isfinite(weight):
        raise GraphError(f"{path}, line {number}: weight {value!r} is not a number", mend="e.g. 1.0")
    return weight


def _jsonl(lines: Iterator[tuple[int, str]], path: Path) -> Iterator[Fact]:
    """`{"head", "relation", "tail", "weight"?, "provenance"?}` a line."""
    for number, line in lines:
        try:
            data = json.loads(line)
        except ValueError as error:
            raise GraphError(f"{path}, line {number}: not valid JSON: {error}", mend=_JSONL_SHAPE) from error
        if not isinstance(data, dict):
            raise GraphError(f"{path}, line {number}: not a JSON object", mend=_JSONL_SHAPE)
        head, name, tail = (_text_field(data, field, path, number) for field in ("head", "relation", "tail"))
        weight = _weight(data.get("weight", 1.0), path, number)
        fact = _fact(head, name, tail, weight, str(data.get("provenance") or path.name))
        if fact is not None:
            yield fact


def _text_field(data: dict[str, Any], field: str, path: Path, number: int) -> str:
    if field not in data:
        raise GraphError(f"{path}, line {number}: field {field} is missing", mend=_JSONL_SHAPE)
    value = data[field]
    if not isinstance(value, str) or _LONE_SURROGATE.search(value):
        raise GraphError(f"{path}, line {number}: field {field} must be text", mend=_JSONL_SHAPE)
    return value


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # half of an escaped pair: no text, and nothing can write it
_JSONL_SHAPE = '{"head": "sushi", "relation": "MadeOf", "tail": "rice", "weight": 1.0}'


def _conceptnet(lines: Iterator[tuple[int, str]], path: Path, languages: Sequence[Language]) -> Iterator[Fact]:
    """ConceptNet 5's assertions: URI, relation, start, end, JSON metadata, tab-separated.

    Sense suffixes (`/c/en/bank/n`) are dropped, so senses of one word share a concept, as the papers use it.
    """
    prefixes = tuple(f"/c/{language}/" for language in languages)
    for number, line in lines:
        cells = line.split("\t")
        if len(cells) != 5:
            raise GraphError(
                f"{path}, line {number}: {len(cells)} columns, expected the 5 of a ConceptNet dump",
                mend="is the file cut short?",
            )
        _, name, start, end, metadata = cells
        if not (start.startswith(prefixes) and end.startswith(prefixes)):
            continue
        try:
            data = json.loads(metadata)
        except ValueError as error:
            raise GraphError(f"{path}, line {number}: metadata is not JSON: {error}") from error
        if not isinstance(data, dict):
            raise GraphError(f"{path}, line {number}: metadata is not a JSON object")
        weight = _weight(data.get("weight", 1.0), path, number)
        fact = _fact(start.split("/")[3], name, end.split("/")[3], weight, str(data.get("dataset", "")))
        if fact is not None:
            yield fact


def check_format(name: str | None) -> FileFormat | None:
    """The file format of that name, None for None; raises InputError for any other."""
    for known in FILE_FORMATS:
        if name == known:
            return known
    if name is None:
        return None
    raise InputError(f"unknown graph format: {name!r}", mend=f"known: {', '.join(FILE_FORMATS)}")

"""Facts from files: TSV in either column order, JSONL, and ConceptNet's assertions dump."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, get_args

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
    rows = _rows(lines, comma=path.name.removesuffix(".gz").endswith(".csv"))
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
        if cells[columns[1]] in {"rel", "relation"}:  # a header
            continue
        weight = _weight(cells[3], path, number) if columns == (0, 1, 2) and len(cells) == 4 else 1.0
        fact = _fact(cells[columns[0]], cells[columns[1]], cells[columns[2]], weight, path.name)
        if fact is not None:
            yield fact


def _rows(lines: Iterator[tuple[int, str]], *, comma: bool) -> Iterator[tuple[int, list[str]]]:
    for number, line in lines:
        yield number, next(csv.reader([line])) if comma else line.split("\t")


def _chain(
    first: list[tuple[int, list[str]]], rest: Iterator[tuple[int, list[str]]]
) -> Iterator[tuple[int, list[str]]]:
    yield from first
    yield from rest


def _columns(sample: Iterable[tuple[int, list[str]]], path: Path) -> tuple[int, int, int]:
    """Which columns hold head, relation and tail: the relation's is the one with known relation names.

    Where no column has any, the one with the fewest different values is taken, if it has far fewer.
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
        kinds = [len({cells[column] for cells in rows}) for column in range(min(width, 3))]
        place = kinds.index(min(kinds))
    # The relation first is ConceptNet 4's habit; anywhere else, the head stands before it and the tail after it.
    return (1, 0, 2) if place == 0 else (place - 1, place, place + 1)


def _weight(text: str, path: Path, number: int) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise GraphError(f"{path}, line {number}: weight {text!r} is not a number") from error


def _jsonl(lines: Iterator[tuple[int, str]], path: Path) -> Iterator[Fact]:
    """`{"head", "relation", "tail", "weight"?, "provenance"?}` a line."""
    for number, line in lines:
        try:
            data = json.loads(line)
            head, name, tail = data["head"], data["relation"], data["tail"]
            weight = float(data.get("weight", 1.0))
        except KeyError as error:
            raise GraphError(f"{path}, line {number}: field {error.args[0]} is missing", mend=_JSONL_SHAPE) from error
        except (ValueError, TypeError, AttributeError) as error:
            raise GraphError(f"{path}, line {number}: {error}", mend=_JSONL_SHAPE) from error
        if not all(isinstance(part, str) for part in (head, name, tail)):
            raise GraphError(f"{path}, line {number}: head, relation and tail must be text", mend=_JSONL_SHAPE)
        fact = _fact(head, name, tail, weight, str(data.get("provenance") or path.name))
        if fact is not None:
            yield fact


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
            weight = float(data.get("weight", 1.0))
        except (ValueError, TypeError, AttributeError) as error:
            raise GraphError(f"{path}, line {number}: metadata is not JSON: {error}") from error
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

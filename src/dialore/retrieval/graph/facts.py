"""Facts from files and back: TSV in either column order, JSONL, and ConceptNet's assertions dump."""

from __future__ import annotations

import codecs
import csv
import functools
import gzip
import io
import itertools
import json
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from dialore.errors import GraphError, InputError
from dialore.files import load_json, reading, whole_file
from dialore.knowledge import Fact
from dialore.retrieval.graph.relations import RELATIONS, canonical
from dialore.text import count_noun

if TYPE_CHECKING:
    from dialore.retrieval.graph.store import GraphStore
    from dialore.text import Language

# --- lines that do not parse

_SHOWN = 10
_MOST = 0.01  # more than this share of a file's lines, and it is not the file that it is taken for
_SOON = 10_000  # lines after which that is told before the end


class Rejects:
    """Lines of the files of one build that are no facts.

    `count` and `first` (as sentences) are of malformed lines; if strict, the first one is an error. `left_out` counts
    lines that are well formed and state no fact, by reason.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.count = self._of_file = 0
        self.first: list[str] = []
        self.left_out = Counter[str]()
        self._strict = strict
        self._error: GraphError | None = None

    def bad(self, path: Path, number: int, reason: str, hint: str = "") -> None:
        """Count a line; raises GraphError where one is too many."""
        sentence = f"{path}, line {number}: {reason}"
        self.count += 1
        self._of_file += 1
        if len(self.first) < _SHOWN:
            self.first.append(sentence)
        self._error = self._error or GraphError(sentence, hint=hint)
        if self._strict:
            raise self._error
        if number >= _SOON and self._of_file > _MOST * number:
            self.end_of(number)

    def end_of(self, lines: int) -> None:
        """Judge a file by its number of lines; raises GraphError where too many were bad."""
        if self._error is not None and self._of_file > _MOST * lines:
            if self._of_file == 1:
                raise self._error
            raise GraphError(f"{self._of_file:,} of {lines:,} lines do not parse, first {self._error}")
        self._of_file, self._error = 0, None


# --- files

_FileFormat = Literal["tsv", "jsonl", "conceptnet"]
FILE_FORMATS: tuple[_FileFormat, ...] = get_args(_FileFormat)
_TOLD = 20_000  # lines between two reports of progress


@contextmanager
def _open(path: Path) -> Iterator[tuple[io.BufferedReader, IO[bytes], io.TextIOWrapper]]:
    """Yield a file, its bytes and its text, unpacked where it is gzipped; what cannot be read becomes a GraphError."""
    try:
        with reading(path), path.open("rb") as raw:
            binary: IO[bytes] = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw  # type: ignore[assignment]
            marked = binary.read(2) in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}
            binary.seek(0)
            encoding = "utf-16" if marked else "utf-8-sig"
            # A byte that is no UTF-8 is the fault of its line, not of the file.
            with io.TextIOWrapper(binary, encoding=encoding, errors="surrogateescape", newline="") as text:
                yield raw, binary, text
    except InputError as error:
        raise GraphError(error.message, hint=error.hint) from error


def guess_format(path: Path) -> _FileFormat:
    """Return the format of a file by its name and first line; raise GraphError where neither tells."""
    name = path.name.removesuffix(".gz")
    if name.endswith((".jsonl", ".ndjson")):
        return "jsonl"
    with _open(path) as (_, _, text):
        first = next((line.rstrip() for line in text if line.strip()), "")
    if not first:
        raise GraphError(f"{path} is empty", hint="head TAB relation TAB tail, one a line")
    if first.startswith("/a/["):
        return "conceptnet"
    if first.startswith("{"):
        return "jsonl"
    if first.count("\t") >= 2 or (name.endswith(".csv") and first.count(",") >= 2):
        return "tsv"
    raise GraphError(f"cannot tell the format of {path}", hint=f"name it: {' | '.join(FILE_FORMATS)}")


def read_facts(
    path: Path,
    *,
    file_format: _FileFormat | None = None,
    languages: Sequence[Language] = ("en", "zh"),
    progress: Callable[[int], None] | None = None,
    rejects: Rejects | None = None,
    keep_all: bool = False,
) -> Iterator[Fact]:
    """Yield the facts of a file, one by one. What is left out is logged as a warning.

    Args:
        path: the file; `.gz` is unpacked on the way.
        file_format: its format; guessed where None.
        languages: which concepts to keep of a ConceptNet dump: both ends must be in one of them.
        progress: called now and then with the bytes read so far.
        rejects: counts malformed lines and leaves them out; None makes the first one an error. It also counts the lines
            that state no fact: those with a weight of 0 or less, a blank cell, or ATOMIC's tail "none".
        keep_all: keeps facts with a weight of 0 or less and ATOMIC's tail "none", for example to delete them.

    Raises:
        GraphError: the file cannot be read, or a line, or more than 1% of them, are malformed; the line is named.
    """
    chosen = file_format or guess_format(path)
    rejects = rejects or Rejects(strict=True)
    left_out = Counter[str]()
    weights: set[float] = set()
    number = 0
    with _open(path) as (raw, binary, text):
        lines, parse, hint = _parser(chosen, binary, text, path, languages)
        for number, line in lines:
            if number % _TOLD == 0 and progress is not None:
                progress(raw.tell())
            try:
                fact = _fact(parse(line), languages)
            except _NoFact as reason:
                left_out[str(reason)] += 1
                continue
            except (_BadLine, csv.Error, UnicodeError) as reason:
                if line.strip():
                    rejects.bad(path, number, str(reason), hint)
                continue
            if fact is None:
                continue
            weights.add(fact.weight if len(weights) <= len(_LABELS) else 1.0)
            problem = "" if keep_all else _why_no_fact(fact)
            if problem:
                left_out[problem] += 1
            else:
                yield fact
        rejects.end_of(number)
    rejects.left_out.update(left_out)
    _log_left_out(path, left_out, is_label=weights == _LABELS)


def _parser(
    file_format: _FileFormat, binary: IO[bytes], text: io.TextIOWrapper, path: Path, languages: Sequence[Language]
) -> tuple[Iterator[tuple[int, Any]], Callable[[Any], _Row | None], str]:
    """Return a file's numbered lines, the function that parses one, and a hint for lines that do not parse."""
    if file_format == "conceptnet":
        in_bytes = binary if text.encoding != "utf-16" else map(str.encode, text)
        prefixes = tuple(f"/c/{language}/".encode() for language in languages)
        return enumerate(in_bytes, start=1), functools.partial(_assertion, prefixes=prefixes), "is the file cut short?"
    lines = enumerate(text, start=1)
    if file_format == "jsonl":
        return lines, functools.partial(_object, file=path.name), _JSONL_SHAPE
    facts, parse = _table(lines, path)
    return facts, parse, _TSV_SHAPE


def _log_left_out(path: Path, left_out: Counter[str], *, is_label: bool) -> None:
    for reason, count in left_out.items():
        hint = _LABEL_HINT if reason == _NOT_POSITIVE and is_label else ""
        lines = count_noun(count, "lines")
        logging.getLogger(__name__).warning("%s: %s left out: %s%s", path, lines, reason, hint)


_NOT_POSITIVE = "a weight of 0 or less"
_LABELS = {0.0, 1.0}
_LABEL_HINT = " (the column holds only 0 and 1: it is taken for a label, and 0 means false)"
_ATOMIC_RELATIONS = frozenset(
    f"{who}{what}" for who in "xo" for what in ("need", "intent", "want", "effect", "react", "attr", "reason")
)


def _why_no_fact(fact: Fact) -> str:
    """Return why a well-formed line states no fact; empty if it does."""
    if fact.weight <= 0:
        return _NOT_POSITIVE
    if fact.tail.casefold() == "none" and fact.relation.casefold() in _ATOMIC_RELATIONS:
        return 'the tail "none" of ATOMIC'
    return ""


# --- lines

_SAMPLE = 200
_QUOTED = re.compile(r'\A"(.*)"\Z', re.DOTALL)
"""A cell in the quotes that spreadsheets put around it."""
_TSV_SHAPE = "head TAB relation TAB tail"
_JSONL_SHAPE = '{"head": "sushi", "relation": "MadeOf", "tail": "rice", "weight": 1.0}'
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # half of an escaped pair: no text, and nothing can write it


class _BadLine(Exception):  # noqa: N818 - it never leaves this file
    """Why a line is no fact."""


class _NoFact(Exception):  # noqa: N818 - it never leaves this file
    """Why a well-formed line states no fact."""


_Row = tuple[str, str, str, float, str]
"""Head, relation, tail, weight and provenance, as a file has them."""


def _fact(row: _Row | None, languages: Sequence[Language]) -> Fact | None:
    """Return a cleaned fact, of ConceptNet's URIs (`/c/en/tea/n`) the words; None if it is in another language."""
    if row is None:
        return None
    head, relation, tail = _concept(row[0]), canonical(row[1]), _concept(row[2])
    if not (head and relation and tail):
        raise _NoFact("a blank head, relation or tail")
    if _LONE_SURROGATE.search(f"{head}{relation}{tail}{row[4]}"):
        raise _BadLine("half of a surrogate pair, or a byte that is not UTF-8")
    if head.startswith("/c/") or tail.startswith("/c/"):
        ends = [end.split("/") for end in (head, tail)]
        if any(len(end) < 4 or end[1] != "c" or end[2] not in languages for end in ends):
            return None
        head, tail = (_concept(end[3]) for end in ends)
    if not (head and tail):
        raise _NoFact("a blank head, relation or tail")
    return Fact(head, relation, tail, *row[3:])


def _concept(text: str) -> str:
    """Return a concept's text: underscores to spaces, white space folded, case kept (names are names)."""
    return " ".join(text.replace("_", " ").split())


def _weight(value: object) -> float:
    try:
        weight = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        weight = math.nan
    if not math.isfinite(weight):
        raise _BadLine(f"weight {value!r} is not a number")
    return weight


# --- TSV


class _Columns(NamedTuple):
    """Which cells hold what; -1 for none."""

    head: int
    relation: int
    tail: int
    weight: int = -1
    provenance: int = -1


def _table(lines: Iterator[tuple[int, str]], path: Path) -> tuple[Iterator[tuple[int, str]], Callable[[str], _Row]]:
    """Return the lines of facts and what parses one; raise GraphError where no column can be told from the others."""
    comma, name = path.name.removesuffix(".gz").endswith(".csv"), path.name

    def split(line: str) -> list[str]:
        line = line.rstrip("\r\n")
        if comma:
            return next(csv.reader([line]))
        cells = line.split("\t")
        if '"' not in line:
            return cells
        return [_QUOTED.sub(lambda cell: cell[1].replace('""', '"'), cell) for cell in cells]

    sample = [(number, line) for number, line in itertools.islice(lines, _SAMPLE) if line.strip()]
    rows = []
    for number, line in sample:
        with suppress(csv.Error):  # a bad line of the file, which is told when its turn comes
            rows.append((number, split(line)))
    columns, header = _columns(rows, path)
    facts = [entry for entry in sample if not header or entry[0] != rows[0][0]]
    return itertools.chain(facts, lines), lambda line: _row(split(line), columns, name)


def _row(cells: list[str], columns: _Columns, file: str) -> _Row:
    head, relation, tail, weight, provenance = columns
    count = len(cells)
    if count <= head or count <= relation or count <= tail:
        raise _BadLine(f"{count} columns, expected 3 or 4")
    weighed: object = cells[weight] if 0 <= weight < count else 1.0
    named = cells[provenance] if 0 <= provenance < count else file
    if isinstance(weighed, str) and weighed.startswith("{"):  # ConceptNet's metadata
        data = _json_object(weighed, "metadata is ")
        weighed, named = data.get("weight", 1.0), str(data.get("dataset") or file)
    return cells[head], cells[relation], cells[tail], _weight(weighed), named


_HEADERS = frozenset({"rel", "relation", "predicate"})
_OWN_HEADER = ("head", "relation", "tail")


def _columns(rows: list[tuple[int, list[str]]], path: Path) -> tuple[_Columns, int]:
    """Return which columns hold what, and lines of header; of no known relation, the second or one of few values."""
    if not rows:
        raise GraphError(f"{path} holds no facts", hint=f"{_TSV_SHAPE}, one a line")
    first = [cell.strip().lower() for cell in rows[0][1]]
    if all(name in first for name in _OWN_HEADER):
        places = {name: first.index(name) for name in _Columns._fields if name in first}
        return _Columns(**places), 1
    if uris := _uri_columns(rows[-1][1]):
        return uris, int(_uri_columns(rows[0][1]) is None)
    width = sorted(len(cells) for _, cells in rows)[len(rows) // 2]
    usual = [cells for _, cells in rows if len(cells) >= width]
    if width < 3:
        number, cells = next((number, cells) for number, cells in rows if len(cells) < 3)
        raise GraphError(f"{path}, line {number}: {len(cells)} columns, expected 3", hint=_TSV_SHAPE)
    hits = [sum(canonical(cells[relation]) in RELATIONS for cells in usual) for relation in range(width)]
    if max(hits) * 2 >= len(usual):
        relation = hits.index(max(hits))
    else:
        firsts, seconds = (len({cells[column] for cells in usual}) for column in (0, 1))
        relation = 0 if len(usual) >= 20 and firsts * 4 < seconds else 1
    if relation == width - 1:
        raise GraphError(f"{path}: the relation is in the last column", hint=_TSV_SHAPE)
    # The relation first is ConceptNet 4's habit; anywhere else, the head stands before it and the tail after it.
    order = (1, 0, 2) if relation == 0 else (relation - 1, relation, relation + 1)
    columns = _Columns(*order, *((3,) if max(order) == 2 and width == 4 else ()))
    return columns, int(len(first) > relation and first[relation] in _HEADERS)


def _uri_columns(cells: Sequence[str]) -> _Columns | None:
    """Return the columns of a row with ConceptNet's URIs, of its dump or cut out of it; None where it has none."""
    ends = [column for column, cell in enumerate(cells) if cell.startswith("/c/")]
    relations = [column for column, cell in enumerate(cells) if cell.startswith("/r/")]
    if len(ends) != 2 or len(relations) != 1:
        return None
    after = range(max(*ends, *relations) + 1, len(cells))
    weights = (at for at in after if cells[at].startswith("{") or cells[at].strip().replace(".", "", 1).isdecimal())
    return _Columns(ends[0], relations[0], ends[1], weight=next(weights, -1))


# --- JSONL


def _object(line: str, file: str) -> _Row | None:
    if not line.strip():
        return None
    data = _json_object(line)
    for field in _OWN_HEADER:
        if field not in data:
            raise _BadLine(f"field {field} is missing")
        if not isinstance(data[field], str) or _LONE_SURROGATE.search(data[field]):
            raise _BadLine(f"field {field} must be text")
    head, name, tail = (data[field] for field in _OWN_HEADER)
    return head, name, tail, _weight(data.get("weight", 1.0)), str(data.get("provenance") or file)


def _json_object(text: str | bytes, what: str = "") -> dict[str, Any]:
    try:
        data = load_json(text)
    except ValueError as error:
        raise _BadLine(f"{what}not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise _BadLine(f"{what}not a JSON object")
    return data


# --- ConceptNet


def _assertion(line: bytes, prefixes: tuple[bytes, ...]) -> _Row | None:
    """Return a line of ConceptNet 5's assertions, without sense suffixes (`/c/en/bank/n`), as the papers use it."""
    cells = line.split(b"\t")
    if len(cells) != 5:
        raise _BadLine(f"{len(cells)} columns, expected the 5 of a ConceptNet dump")
    _, name, start, end, metadata = cells
    if not (end.startswith(prefixes) and start.startswith(prefixes)):
        return None
    data = _json_object(metadata, "metadata is ")
    head, tail = (uri.split(b"/", 4)[3].decode() for uri in (start, end))
    return head, name.decode(), tail, _weight(data.get("weight", 1.0)), str(data.get("dataset", ""))


# --- export

_ExportFormat = Literal["tsv", "jsonl"]
EXPORT_FORMATS: tuple[_ExportFormat, ...] = get_args(_ExportFormat)
_HEADER = ("head", "relation", "tail", "weight", "provenance")
_BATCH = 4096


def lines_of(store: GraphStore, file_format: _ExportFormat) -> Iterator[str]:
    """Yield the facts of a graph as lines: a header and five columns of TSV, or JSON objects."""
    if file_format == "tsv":
        yield "\t".join(_HEADER)
    for fact in store.facts():
        values = (fact.head, fact.relation, fact.tail, fact.weight, fact.provenance)
        if file_format == "tsv":
            yield "\t".join(" ".join(str(value).split()) for value in values)
        else:
            yield json.dumps(dict(zip(_HEADER, values, strict=True)), ensure_ascii=False)


def export_graph(
    store: GraphStore, target: Path, file_format: _ExportFormat, on_step: Callable[[str, int, int], None] | None = None
) -> int:
    """Write the facts of a graph to a file, completely or not at all; gzipped if its name ends in `.gz`.

    Returns:
        The number of facts.

    Raises:
        InputError: The file cannot be written, or the disk is full.
    """
    total = store.meta.facts
    count = -1 if file_format == "tsv" else 0  # the header is not a fact
    open_file = gzip.open if target.suffix == ".gz" else open
    with whole_file(target, private=True) as path, open_file(path, "wt", encoding="utf-8", newline="\n") as file:
        for line in lines_of(store, file_format):
            file.write(line + "\n")
            count += 1
            if on_step is not None and count % _BATCH == 0:
                on_step("writing facts", count, total)
    return count

"""Lines into facts: TSV in either column order, JSONL, and ConceptNet's assertions."""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from dialore.errors import GraphError
from dialore.knowledge import Fact
from dialore.sources.graph.facts.relations import RELATIONS, canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from dialore.sources.graph.facts.rejects import Rejects
    from dialore.text import Language

_SAMPLE = 200
_TOLD = 20_000
_TSV_SHAPE = "head TAB relation TAB tail"
_JSONL_SHAPE = '{"head": "sushi", "relation": "MadeOf", "tail": "rice", "weight": 1.0}'
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # half of an escaped pair: no text, and nothing can write it


class _BadLine(Exception):  # noqa: N818 - it never leaves this file
    """Why a line is no fact."""


def _fact(head: str, name: str, tail: str, weight: float, provenance: str) -> Fact | None:
    """A cleaned fact, or None where an end or the relation is blank."""
    clean_head, clean_tail, clean_name = _concept(head), _concept(tail), canonical(name)
    if not (clean_head and clean_tail and clean_name):
        return None
    return Fact(clean_head, clean_name, clean_tail, weight, provenance)


def _concept(text: str) -> str:
    """A concept's text: underscores to spaces, white space folded, case kept (names are names)."""
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


def parse_tsv(lines: Iterator[tuple[int, str]], path: Path, rejects: Rejects) -> Iterator[Fact]:
    """`head relation tail [weight]`, or the relation first, or as a header says; commas where the file is a CSV.

    Raises:
        GraphError: it is not clear which columns hold what; or as `rejects` does.
    """
    comma = path.name.removesuffix(".gz").endswith(".csv")
    cut: Callable[[str], list[str]] = (
        (lambda line: next(csv.reader([line]))) if comma else (lambda line: line.split("\t"))
    )
    sample = list(itertools.islice(lines, _SAMPLE))
    columns, header = _columns(_cut_sample(sample, cut, path), path)
    number = 0
    for number, line in itertools.chain(sample[header:], lines):
        try:
            fact = _row(cut(line), columns, path.name)
        except (_BadLine, csv.Error) as reason:
            rejects.bad(path, number, str(reason), _TSV_SHAPE)
        else:
            if fact is not None:
                yield fact
    rejects.end_of(number)


def _row(cells: list[str], columns: _Columns, file: str) -> Fact | None:
    if len(cells) <= max(columns[:3]):
        raise _BadLine(f"{len(cells)} columns, expected 3 or 4")
    weight = _weight(cells[columns.weight]) if 0 <= columns.weight < len(cells) else 1.0
    provenance = cells[columns.provenance] if 0 <= columns.provenance < len(cells) else file
    return _fact(cells[columns.head], cells[columns.relation], cells[columns.tail], weight, provenance)


def _cut_sample(
    sample: Iterable[tuple[int, str]], cut: Callable[[str], list[str]], path: Path
) -> list[tuple[int, list[str]]]:
    rows = []
    for number, line in sample:
        try:
            rows.append((number, cut(line)))
        except csv.Error as error:
            raise GraphError(f"{path}, line {number}: {error}", mend="is it a CSV file?") from error
    return rows


_HEADERS = frozenset({"rel", "relation", "predicate"})
_OWN_HEADER = ("head", "relation", "tail")


def _columns(rows: list[tuple[int, list[str]]], path: Path) -> tuple[_Columns, int]:
    """Which columns hold what, and how many lines of header there are.

    The relation's is the one that a header says, else the one with known relation names; where no column has enough, it
    is the second, or the first where that one has far fewer different values.
    """
    if not rows:
        raise GraphError(f"{path} holds no facts", mend=f"{_TSV_SHAPE}, one a line")
    first = [cell.strip().lower() for cell in rows[0][1]]
    if all(name in first for name in _OWN_HEADER):
        places = {name: first.index(name) for name in _Columns._fields if name in first}
        return _Columns(**places), 1
    width = sorted(len(cells) for _, cells in rows)[len(rows) // 2]
    usual = [cells for _, cells in rows if len(cells) >= width]
    if width < 3:
        number, cells = next((number, cells) for number, cells in rows if len(cells) < 3)
        raise GraphError(f"{path}, line {number}: {len(cells)} columns, expected 3", mend=_TSV_SHAPE)
    hits = [sum(canonical(cells[place]) in RELATIONS for cells in usual) for place in range(width)]
    if max(hits) * 2 >= len(usual):
        place = hits.index(max(hits))
    else:
        one, two = (len({cells[column] for cells in usual}) for column in (0, 1))
        place = 0 if len(usual) >= 20 and one * 4 < two else 1
    if place == width - 1:
        raise GraphError(f"{path}: the relation is in the last column", mend=_TSV_SHAPE)
    # The relation first is ConceptNet 4's habit; anywhere else, the head stands before it and the tail after it.
    found = (1, 0, 2) if place == 0 else (place - 1, place, place + 1)
    columns = _Columns(*found, *((3,) if max(found) == 2 and width == 4 else ()))
    return columns, int(len(first) > place and first[place] in _HEADERS)


# --- JSONL


def parse_jsonl(lines: Iterator[tuple[int, str]], path: Path, rejects: Rejects) -> Iterator[Fact]:
    """`{"head", "relation", "tail", "weight"?, "provenance"?}` a line; raises GraphError as `rejects` does."""
    number = 0
    for number, line in lines:
        try:
            fact = _object(line, path.name)
        except _BadLine as reason:
            rejects.bad(path, number, str(reason), _JSONL_SHAPE)
        else:
            if fact is not None:
                yield fact
    rejects.end_of(number)


def _object(line: str, file: str) -> Fact | None:
    try:
        data = json.loads(line)
    except ValueError as error:
        raise _BadLine(f"not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise _BadLine("not a JSON object")
    head, name, tail = (_text_field(data, field) for field in _OWN_HEADER)
    return _fact(head, name, tail, _weight(data.get("weight", 1.0)), str(data.get("provenance") or file))


def _text_field(data: dict[str, Any], field: str) -> str:
    if field not in data:
        raise _BadLine(f"field {field} is missing")
    value = data[field]
    if not isinstance(value, str) or _LONE_SURROGATE.search(value):
        raise _BadLine(f"field {field} must be text")
    return value


# --- ConceptNet


def parse_conceptnet(
    lines: Iterable[bytes], path: Path, languages: Sequence[Language], rejects: Rejects, told: Callable[[int], None]
) -> Iterator[Fact]:
    """ConceptNet 5's assertions: URI, relation, start, end, JSON metadata, tab-separated.

    Nine in ten of a dump's lines are of other languages: they are left out before anything of them is decoded. Sense
    suffixes (`/c/en/bank/n`) are dropped, so senses of one word share a concept, as the papers use it.

    Raises:
        GraphError: as `rejects` does.
    """
    prefixes = tuple(f"/c/{language}/".encode() for language in languages)
    number = 0
    for number, line in enumerate(lines, start=1):
        if number % _TOLD == 0:
            told(number)
        cells = line.split(b"\t")
        if len(cells) != 5:
            if line.strip():
                rejects.bad(path, number, f"{len(cells)} columns, expected the 5 of a ConceptNet dump", _CUT_SHORT)
            continue
        if not (cells[3].startswith(prefixes) and cells[2].startswith(prefixes)):
            continue
        try:
            fact = _assertion(cells)
        except _BadLine as reason:
            rejects.bad(path, number, str(reason), _CUT_SHORT)
        else:
            if fact is not None:
                yield fact
    rejects.end_of(number)


_CUT_SHORT = "is the file cut short?"


def _assertion(cells: list[bytes]) -> Fact | None:
    _, name, start, end, metadata = cells
    try:
        data = json.loads(metadata)
    except ValueError as error:
        raise _BadLine(f"metadata is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise _BadLine("metadata is not a JSON object")
    head, tail = (uri.split(b"/", 4)[3].decode() for uri in (start, end))
    return _fact(head, name.decode(), tail, _weight(data.get("weight", 1.0)), str(data.get("dataset", "")))

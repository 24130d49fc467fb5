"""Whether a graph file is whole: every table against the others, and what it says of itself against what it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import lmdb
import numpy as np
from pydantic import BaseModel

from dialore.sources.graph.mapping import open_file, unpacked_side
from dialore.sources.graph.store import IDS, IN, KEYS, OUT, GraphState, concept_key, text_key
from dialore.sources.graph.vectors import fact_norms
from dialore.sources.graph.writing import fact_hashes, name_hashes
from dialore.text import normalise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    Step = Callable[[str, int, int], None]

_SAMPLE = 2000
_OFF = 0.02
"""How far a fact's length may lie from the exact one: a build works with vectors of one byte a component."""


class VerifyReport(BaseModel):
    """What was found.

    Attributes:
        path: the file.
        facts: facts that it holds.
        concepts: its concepts, those that lost their facts included.
        problems: what is wrong, one sentence each; empty where nothing is.
    """

    path: str
    facts: int = 0
    concepts: int = 0
    problems: list[str] = []


class _Facts(NamedTuple):
    """All facts as one of the two tables has them, in order of head, relation and tail."""

    head: NDArray[np.uint32]
    tail: NDArray[np.uint32]
    records: NDArray[np.void]


def verify(path: Path, on_step: Step | None = None) -> VerifyReport:
    """Check a graph file. A file that does not even open raises GraphError as GraphStore does.

    Args:
        path: the file.
        on_step: called with a step's name, what is done of it and its total.
    """
    file = open_file(path)
    try:
        with file.env.begin(buffers=True) as transaction:
            state = GraphState(file, transaction, str(path))
            report = VerifyReport(path=str(path), concepts=state.meta.concepts)
            try:
                report.problems.extend(_problems(state, report, on_step or (lambda _name, _done, _total: None)))
            except (lmdb.Error, UnicodeDecodeError, ValueError, IndexError) as error:
                report.problems.append(f"{path} cannot be read to its end: {error}")
            return report
    finally:
        file.close()


def _problems(state: GraphState, report: VerifyReport, step: Step) -> Iterator[str]:
    names = [found[0] if (found := state.concept(number)) else "" for number in range(state.meta.concepts)]
    step("names", 1, 4)
    outgoing, unsorted, damaged = _facts(state, OUT)
    incoming, also, too = _facts(state, IN)
    report.facts = len(outgoing.head)
    step("facts", 2, 4)
    for table, behind, parts in (("out", unsorted, damaged), ("in", also, too)):
        if behind:
            yield f"in table {table} {behind:,} facts stand before heavier ones of the same concept"
        if parts:
            yield f"in table {table} {parts:,} concepts have facts with other parts than those of their ends"
    yield from _of_facts(state, outgoing, incoming)
    step("directions", 3, 4)
    if max(int(side.max(initial=0)) for side in (outgoing.head, outgoing.tail)) < len(names):
        yield from _of_names(state, names, np.union1d(outgoing.head, outgoing.tail))
        yield from _of_meaning(state, names, outgoing)
    step("fingerprint", 4, 4)


def _facts(state: GraphState, table: bytes) -> tuple[_Facts, int, int]:
    """The facts of one table, how many stand behind a lighter one, and how many sides have wrong parts."""
    sides, owners, damaged = [], [], 0
    for key, value in state.items(table):
        records, parts = unpacked_side(value)
        damaged += int(records["parts"].sum()) != len(parts) or int(parts.max(initial=0)) >= max(1, len(state.rows))
        found = state.concept(int(records["other"][0])) if len(records) else None
        damaged += found is not None and not np.array_equal(found[1], parts[: int(records["parts"][0])])
        sides.append(records)
        owners.append(np.full(len(records), int.from_bytes(key, "big"), np.uint32))
    records, own = np.concatenate([*sides, np.empty(0, sides[0].dtype)]), np.concatenate(owners)
    behind = (records["weight"][1:] > records["weight"][:-1]) & (own[1:] == own[:-1])
    head, tail = (own, records["other"]) if table == OUT else (records["other"], own)
    order = np.lexsort((tail, records["relation"], head))
    return _Facts(head[order], tail[order], records[order]), int(behind.sum()), damaged


def _of_facts(state: GraphState, outgoing: _Facts, incoming: _Facts) -> Iterator[str]:
    meta, records = state.meta, outgoing.records
    if len(outgoing.head) != meta.facts:
        yield f"it holds {len(outgoing.head):,} facts where it says {meta.facts:,}"
    if len(outgoing.head) != len(incoming.head):
        yield f"{len(outgoing.head):,} facts have heads and {len(incoming.head):,} tails (tables out and in)"
    else:
        other = (outgoing.head != incoming.head) | (outgoing.tail != incoming.tail)
        for field in ("relation", "provenance", "weight", "norm"):
            other |= records[field] != incoming.records[field]
        if other.any():
            yield f"{int(other.sum()):,} facts are not the same in both directions (tables out and in)"
    ends = max(int(side.max(initial=0)) for side in (outgoing.head, outgoing.tail))
    for found, known, what in (
        (ends, meta.concepts, "concepts"),
        (int(records["relation"].max(initial=0)), len(meta.relations), "relations"),
        (int(records["provenance"].max(initial=0)), len(meta.provenances), "provenances"),
    ):
        if found >= known:
            yield f"facts name {what} that are not there"
    same = (outgoing.head[1:] == outgoing.head[:-1]) & (outgoing.tail[1:] == outgoing.tail[:-1])
    same &= records["relation"][1:] == records["relation"][:-1]
    if same.any():
        yield f"{int(same.sum()):,} facts stand in it twice"


def _of_names(state: GraphState, names: list[str], used: NDArray[np.uint32]) -> Iterator[str]:
    """Whether the concepts that have facts are found."""
    wrong = sum(state.find(normalise(names[number])) != number for number in used.tolist())
    if wrong:
        yield f"{wrong:,} concepts are not found by their names (tables concepts and ids)"
    entries = sum(1 for _ in state.items(IDS))
    if entries != len(used):
        yield f"table ids has {entries:,} entries where there are {len(used):,} concepts with facts"
    lost = 0
    for number in used[_sample(len(used))].tolist():
        key = concept_key(names[number])
        if key and text_key(key) != text_key(normalise(names[number])):
            lost += number not in np.frombuffer(state.get(KEYS, text_key(key)) or b"", "<u4")
    if lost:
        yield f"{lost:,} of {_SAMPLE:,} concepts are not found by their stems (table keys)"


def _of_meaning(state: GraphState, names: list[str], facts: _Facts) -> Iterator[str]:
    meta, relation = state.meta, facts.records["relation"]
    concepts, kinds = name_hashes(names), name_hashes(meta.relations)
    if int(relation.max(initial=0)) >= len(kinds):
        return
    weights = np.ascontiguousarray(facts.records["weight"])
    found = f"{fact_hashes(concepts[facts.head], kinds[relation], concepts[facts.tail], weights):016x}"
    if found != meta.fingerprint:
        yield f"its facts have the fingerprint {found}, not {meta.fingerprint} as it says"
    if not meta.dimension:
        return
    if len(state.relations) != len(meta.relations):
        yield f"{len(meta.relations):,} relations have {len(state.relations):,} vectors"
        return
    some = _sample(len(facts.head))
    norms = fact_norms(facts.head[some], relation[some], facts.tail[some], state.sums, state.relations)
    wrong = int((~(np.abs(facts.records["norm"][some] / norms - 1) <= _OFF)).sum())
    if wrong:
        yield f"the lengths of {wrong:,} of {len(some):,} facts are not those of their vectors"


def _sample(count: int) -> NDArray[np.intp]:
    return np.unique(np.linspace(0, count - 1, min(count, _SAMPLE)).astype(np.intp))

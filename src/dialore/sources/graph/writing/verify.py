"""Whether a graph file is whole: every table against the others, and what it says of itself against what it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import lmdb
import numpy as np
from pydantic import BaseModel

from dialore.sources.graph.store.layout import EDGE, concept_key
from dialore.sources.graph.store.vectors import fact_norms
from dialore.sources.graph.store.version import GraphVersion
from dialore.sources.graph.writing.collect import fact_hashes, name_hashes
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
        facts: facts that it holds now.
        concepts: its concepts.
        changed: sides of concepts that were changed since it was built.
        journal_bytes: how long the journal of these changes is.
        torn_bytes: what a writer that was killed left behind the journal; the next one cuts it off.
        problems: what is wrong, one sentence each; empty where nothing is.
    """

    path: str
    facts: int = 0
    concepts: int = 0
    changed: int = 0
    journal_bytes: int = 0
    torn_bytes: int = 0
    problems: list[str] = []


class _Facts(NamedTuple):
    """All facts as one of the two tables has them, in order of head, relation and tail."""

    head: NDArray[np.uint32]
    tail: NDArray[np.uint32]
    records: NDArray[np.void]


def verify(path: Path, on_step: Step | None = None) -> VerifyReport:
    """Check a graph file, changes included. A file that does not even open raises GraphError as GraphStore does.

    Args:
        path: the file.
        on_step: called with a step's name, what is done of it and its total.
    """
    version = GraphVersion.open(path)
    built, meta = version.built.file, version.meta
    report = VerifyReport(path=str(path), concepts=meta.concepts)
    report.changed = version.overlay.count if version.overlay else 0
    report.journal_bytes = version.end - built.end
    report.torn_bytes = path.stat().st_size - version.end
    step = on_step or (lambda _name, _done, _total: None)
    try:
        report.problems.extend(_problems(version, report, step))
    except (lmdb.Error, UnicodeDecodeError, ValueError, IndexError) as error:
        report.problems.append(f"{path} cannot be read to its end: {error}")
    return report


def _problems(version: GraphVersion, report: VerifyReport, step: Step) -> Iterator[str]:
    names = [version.concept(number) for number in range(version.meta.concepts)]
    step("names", 1, 5)
    yield from _of_tables(version, names)
    step("tables", 2, 5)
    yield from _of_vectors(version)
    outgoing, unsorted = _facts(version, b"out")
    incoming, also = _facts(version, b"in")
    step("facts", 3, 5)
    report.facts = len(outgoing.head)
    for table, count in (("out", unsorted), ("in", also)):
        if count:
            yield f"in table {table} {count:,} facts stand before heavier ones of the same concept"
    yield from _of_facts(version, outgoing, incoming)
    step("directions", 4, 5)
    if report.facts and max(outgoing.head.max(), outgoing.tail.max()) < len(names):
        yield from _of_meaning(version, names, outgoing)
    step("fingerprint", 5, 5)


def _of_tables(version: GraphVersion, names: list[str]) -> Iterator[str]:
    forms = [normalise(name) for name in names]
    if len(set(forms)) != len(forms):
        yield f"{len(forms) - len(set(forms)):,} concepts stand in it twice"
    wrong = sum(version.any_concept(form) != number for number, form in enumerate(forms))
    if wrong:
        yield f"{wrong:,} concepts are not found by their names (tables names and ids)"
    lost = 0
    for number in _sample(len(names)):
        key = concept_key(names[number])
        degree = version.degree(number)
        lost += bool(key) and degree > 0 and number not in version.with_stems(key)
    if lost:
        yield f"{lost:,} of {_SAMPLE:,} concepts are not found by their stems (table keys)"
    tables = version.built
    counts = {table.decode(): _entries(version, table) for table in (b"names", b"ids")}
    for table, count in counts.items():
        if count != tables.meta.concepts:
            yield f"table {table} has {count:,} entries where there are {tables.meta.concepts:,} concepts"


def _entries(version: GraphVersion, table: bytes) -> int:
    file = version.built.file
    with file.env.begin() as transaction:
        return int(transaction.stat(file.tables[table])["entries"])


def _of_vectors(version: GraphVersion) -> Iterator[str]:
    meta = version.meta
    if not meta.dimension:
        return
    vectors = version.vectors
    if len(vectors.ends) != meta.concepts:
        yield f"there are vectors of {len(vectors.ends):,} concepts, not of {meta.concepts:,}"
    elif int(vectors.ends[-1]) != len(vectors.made) or (np.diff(vectors.ends.astype(np.int64)) < 1).any():
        yield "where the parts of concepts end is damaged"
    elif int(vectors.made.max(initial=0)) >= len(vectors.rows):
        yield "concepts have parts that are not there"
    if not (len(vectors.rows) == len(vectors.scales) == len(version.numbers)):
        yield f"{len(vectors.rows):,} parts have {len(vectors.scales):,} scales and {len(version.numbers):,} numbers"
    if len(version.relation_vectors) != len(meta.relations):
        yield f"{len(meta.relations):,} relations have {len(version.relation_vectors):,} vectors"


def _facts(version: GraphVersion, table: bytes) -> tuple[_Facts, int]:
    """The facts of one table, and how many stand behind a lighter one."""
    sides = [bytes(version.side(table, number)) for number in range(version.meta.concepts)]
    records = np.frombuffer(b"".join(sides), EDGE)
    own = np.repeat(np.arange(len(sides), dtype=np.uint32), [len(side) // EDGE.itemsize for side in sides])
    behind = (records["weight"][1:] > records["weight"][:-1]) & (own[1:] == own[:-1])
    head, tail = (own, records["other"]) if table == b"out" else (records["other"], own)
    order = np.lexsort((tail, records["relation"], head))
    return _Facts(head[order], tail[order], records[order]), int(behind.sum())


def _of_facts(version: GraphVersion, outgoing: _Facts, incoming: _Facts) -> Iterator[str]:
    meta = version.meta
    if len(outgoing.head) != meta.facts:
        yield f"it holds {len(outgoing.head):,} facts where it says {meta.facts:,}"
    if len(outgoing.head) != len(incoming.head):
        yield f"{len(outgoing.head):,} facts have heads and {len(incoming.head):,} tails (tables out and in)"
    else:
        other: Any = (outgoing.head != incoming.head) | (outgoing.tail != incoming.tail)
        for field in ("relation", "provenance", "weight", "norm"):
            other |= outgoing.records[field] != incoming.records[field]
        if other.any():
            yield f"{int(other.sum()):,} facts are not the same in both directions (tables out and in)"
    ends = max(int(side.max(initial=0)) for side in (outgoing.head, outgoing.tail))
    for found, known, what in (
        (ends, meta.concepts, "concepts"),
        (int(outgoing.records["relation"].max(initial=0)), len(meta.relations), "relations"),
        (int(outgoing.records["provenance"].max(initial=0)), len(meta.provenances), "provenances"),
    ):
        if found >= known:
            yield f"facts name {what} that are not there"
    same: Any = (outgoing.head[1:] == outgoing.head[:-1]) & (outgoing.tail[1:] == outgoing.tail[:-1])
    same &= outgoing.records["relation"][1:] == outgoing.records["relation"][:-1]
    if same.any():
        yield f"{int(same.sum()):,} facts stand in it twice"


def _of_meaning(version: GraphVersion, names: list[str], facts: _Facts) -> Iterator[str]:
    meta, relation = version.meta, facts.records["relation"]
    concepts, kinds = name_hashes(names), name_hashes(meta.relations)
    if int(relation.max()) < len(kinds):
        found = fact_hashes(
            concepts[facts.head], kinds[relation], concepts[facts.tail], np.ascontiguousarray(facts.records["weight"])
        )
        if f"{found:016x}" != meta.fingerprint:
            yield f"its facts have the fingerprint {found:016x}, not {meta.fingerprint} as it says"
    if meta.dimension:
        some = _sample(len(facts.head))
        norms = fact_norms(
            facts.head[some], relation[some], facts.tail[some], version.vectors.sums, version.relation_vectors
        )
        kept = facts.records["norm"][some]
        wrong = int((~(np.abs(kept / norms - 1) <= _OFF)).sum())
        if wrong:
            yield f"the lengths of {wrong:,} of {len(some):,} facts are not those of their vectors"


def _sample(count: int) -> NDArray[np.intp]:
    return np.unique(np.linspace(0, count - 1, min(count, _SAMPLE)).astype(np.intp))

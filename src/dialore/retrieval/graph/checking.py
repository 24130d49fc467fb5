"""Checking a graph file: SQLite's own check, and what the tables say about each other."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dialore.errors import GraphError
from dialore.retrieval.graph.fingerprint import fact_hashes, format_fingerprint, name_hashes
from dialore.retrieval.graph.store import (
    EDGE,
    GraphState,
    GraphStore,
    PackedSide,
    concept_key,
    connect,
    sort_side,
    unpack_side,
)
from dialore.retrieval.graph.vectors import fact_norms

_SAMPLE_SIZE = 2000
_NORM_TOLERANCE = 0.02
_FIELDS = ("relation", "weight", "provenance", "norm")
_RECORD = np.dtype([("head", "<u4"), ("tail", "<u4"), *((field, EDGE[field]) for field in _FIELDS)])


def problems_of(path: Path) -> list[str]:
    """Return what is wrong with a graph file, one sentence each; empty if it is intact.

    Raises:
        GraphError: The file cannot be opened as a graph.
    """
    with closing(connect(path)) as connection:
        try:
            [status] = connection.execute("PRAGMA integrity_check(1)").fetchone()
        except sqlite3.DatabaseError as error:
            status = str(error)
    if status != "ok":
        return [f"SQLite finds it damaged: {status}"]
    with GraphStore(path) as store, store.read() as state:
        try:
            return list(_problems(store, state))
        except (GraphError, sqlite3.Error, ValueError, IndexError) as error:
            return [f"it cannot be read to its end: {error}"]


def _problems(store: GraphStore, state: GraphState) -> Iterator[str]:
    outgoing = _Side("head")
    incoming = _Side("tail")
    for number in range(state.meta.concepts):
        packed = store.sides(number)
        outgoing.add(number, packed[0], len(state.rows))
        incoming.add(number, packed[1], len(state.rows))
        if outgoing.last_count + incoming.last_count != store.degree(number):
            yield f"concept {number} has {store.degree(number)} facts by its degree, other than it stores"
    yield from outgoing.problems()
    yield from incoming.problems()
    facts = outgoing.facts()
    yield from _check_facts(state, facts, incoming.facts())
    if len(facts) and max(facts["head"].max(), facts["tail"].max()) < state.meta.concepts:
        yield from _check_concepts(store, state, np.union1d(facts["head"], facts["tail"]).tolist())
        yield from _check_meaning(store, state, facts)


class _Side:
    """The facts of all concepts at one end."""

    def __init__(self, end: str) -> None:
        self.last_count = 0
        self._end = end
        self._records: list[NDArray[np.void]] = [np.empty(0, _RECORD)]
        self._unsorted = self._without_parts = 0

    def add(self, concept: int, packed: PackedSide, part_count: int) -> None:
        """Unpack and check the facts of one concept."""
        edges, parts = unpack_side(packed)
        self._without_parts += int(edges["parts"].sum()) != len(parts) or int(parts.max(initial=0)) >= part_count
        self._unsorted += not np.array_equal(sort_side(concept, edges), np.arange(len(edges)))
        records = np.empty(len(edges), _RECORD)
        records[self._end] = concept
        records["tail" if self._end == "head" else "head"] = edges["other"]
        for field in _FIELDS:
            records[field] = edges[field]
        self._records.append(records)
        self.last_count = len(edges)

    def facts(self) -> NDArray[np.void]:
        """Return the facts by head, relation and tail."""
        facts = np.concatenate(self._records)
        return facts[np.lexsort((facts["tail"], facts["relation"], facts["head"]))]

    def problems(self) -> Iterator[str]:
        """Yield the problems of the packed values."""
        if self._unsorted:
            yield f"the facts of {self._unsorted:,} {self._end}s are not sorted by weight"
        if self._without_parts:
            yield f"the facts of {self._without_parts:,} {self._end}s lack the parts of their other ends"


def _check_facts(state: GraphState, outgoing: NDArray[np.void], incoming: NDArray[np.void]) -> Iterator[str]:
    meta = state.meta
    if len(outgoing) != meta.facts:
        yield f"it holds {len(outgoing):,} facts, but its description says {meta.facts:,}"
    if len(outgoing) != len(incoming):
        yield f"it holds {len(outgoing):,} facts by head and {len(incoming):,} by tail"
    elif (outgoing != incoming).any():
        yield f"{int((outgoing != incoming).sum()):,} facts differ by head and by tail"
    limits = {"head": meta.concepts, "tail": meta.concepts}
    limits |= {"relation": len(meta.relations), "provenance": len(meta.provenances)}
    for name, limit in limits.items():
        if (outgoing[name] >= limit).any():
            yield f"facts refer to an unknown {name}"
    if len(np.unique(outgoing[["head", "relation", "tail"]])) < len(outgoing):
        yield "facts are stored twice"


def _check_concepts(store: GraphStore, state: GraphState, used: list[int]) -> Iterator[str]:
    """Yield whether exactly the concepts with facts are found, by name and by stems."""
    names = {number: store.concept(number) for number in range(state.meta.concepts)}
    reached = {number for number, name in names.items() if store.find(name) == number}
    if wrong := reached.symmetric_difference(used):
        yield f"{len(wrong):,} concepts are not found by their names, or are found without facts"
    lost = 0
    for number in _sample(used):
        key = concept_key(names[number])
        lost += bool(key) and number not in store.with_stems(key)
    if lost:
        yield f"{lost:,} of {min(len(used), _SAMPLE_SIZE):,} concepts are not found by their stems"


def _check_meaning(store: GraphStore, state: GraphState, facts: NDArray[np.void]) -> Iterator[str]:
    """Yield whether the fingerprint and the lengths of the vectors are those of the facts."""
    meta = state.meta
    if int(facts["relation"].max()) >= len(meta.relations):
        return
    hashes = name_hashes(store.concept(number) for number in range(meta.concepts))
    fingerprint = format_fingerprint(fact_hashes(facts, hashes, name_hashes(meta.relations)))
    if fingerprint != meta.fingerprint:
        yield f"the fingerprint of its facts is {fingerprint}, but its description says {meta.fingerprint}"
    if len(state.relations) != len(meta.relations):
        yield f"{len(meta.relations):,} relations have {len(state.relations):,} vectors"
        return
    sample = facts[_sample(range(len(facts)))]
    norms = fact_norms(sample["head"], sample["relation"], sample["tail"], store.concept_sums, state.relations)
    is_wrong = ~(np.abs(sample["norm"] / norms - 1) <= _NORM_TOLERANCE)
    if wrong := int(is_wrong.sum()):
        yield f"the vector lengths of {wrong:,} of {len(sample):,} facts are wrong"


def _sample(values: Sequence[int]) -> list[int]:
    rows = np.unique(np.linspace(0, len(values) - 1, min(len(values), _SAMPLE_SIZE)).astype(np.intp))
    return [values[row] for row in rows.tolist()]

"""Check that a graph file is whole: each table against the others, and what it says of itself against what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import lmdb
import numpy as np
from numpy.typing import NDArray

from dialore.retrieval.graph.lmdb_file import EDGE, open_file, unpacked_side
from dialore.retrieval.graph.store import GraphState, Table, concept_key, text_key
from dialore.retrieval.graph.writing import (
    fact_hashes,
    fact_norms,
    fingerprint_of,
    name_hashes,
)
from dialore.text import normalise

_SAMPLE = 2000
_OFF = 0.02
"""How far a fact's length may lie from the exact one: a build works with vectors of one byte a component."""
_FACT = np.dtype([("head", "<u4"), ("tail", "<u4"), *((name, EDGE[name]) for name in (EDGE.names or ())[1:5])])


def problems_of(path: Path) -> list[str]:
    """Return what is wrong with a graph file, one sentence each; empty where nothing is."""
    problems: list[str] = []
    with closing(open_file(path)) as file, file.env.begin(buffers=True) as transaction:
        state = GraphState(file, transaction, str(path))
        try:
            problems += _problems(state)
        except (lmdb.Error, UnicodeDecodeError, ValueError, IndexError) as error:
            problems.append(f"{path} cannot be read to its end: {error}")
    return problems


def _problems(state: GraphState) -> Iterator[str]:
    """Yield the problems of each table and of what they have in common."""
    outgoing, problems = _facts(state, Table.OUT, "out")
    yield from problems
    incoming, problems = _facts(state, Table.IN, "in")
    yield from problems
    yield from _of_facts(state, outgoing, incoming)
    if len(outgoing) and max(outgoing["head"].max(), outgoing["tail"].max()) < state.meta.concepts:
        names = [state.concept(number) or "" for number in range(state.meta.concepts)]
        yield from _of_names(state, names, np.union1d(outgoing["head"], outgoing["tail"]))
        yield from _of_meaning(state, names, outgoing)


def _facts(state: GraphState, table: bytes, name: str) -> tuple[NDArray[np.void], list[str]]:
    """Return the facts of one table in order of head, relation and tail, and what is wrong with its values."""
    own, other = ("head", "tail") if table == Table.OUT else ("tail", "head")
    sides, lighter, damaged = [np.empty(0, _FACT)], 0, 0
    for key, value in state.items(table):
        records, parts = unpacked_side(value)
        damaged += int(records["parts"].sum()) != len(parts) or int(parts.max(initial=0)) >= max(1, len(state.rows))
        lighter += bool((records["weight"][1:] > records["weight"][:-1]).any())
        facts = np.empty(len(records), _FACT)
        facts[own], facts[other] = int.from_bytes(key, "big"), records["other"]
        for field in (_FACT.names or ())[2:]:
            facts[field] = records[field]
        sides.append(facts)
    every = np.concatenate(sides)
    told = {"facts before heavier ones": lighter, "facts without the parts of their ends": damaged}
    problems = [f"in table {name} {count:,} concepts have {what}" for what, count in told.items() if count]
    return every[np.lexsort((every["tail"], every["relation"], every["head"]))], problems


def _of_facts(state: GraphState, outgoing: NDArray[np.void], incoming: NDArray[np.void]) -> Iterator[str]:
    meta = state.meta
    if len(outgoing) != meta.facts:
        yield f"it holds {len(outgoing):,} facts where it says {meta.facts:,}"
    if len(outgoing) != len(incoming):
        yield f"{len(outgoing):,} facts have heads and {len(incoming):,} tails (tables out and in)"
    elif (outgoing != incoming).any():
        yield f"{int((outgoing != incoming).sum()):,} facts are not the same in both directions (tables out and in)"
    if (outgoing["head"] >= meta.concepts).any() or (outgoing["tail"] >= meta.concepts).any():
        yield "facts name concepts that are not there"
    for field, known in (("relation", meta.relations), ("provenance", meta.provenances)):
        if (outgoing[field] >= len(known)).any():
            yield f"facts name {field}s that are not there"
    if np.all([outgoing[field][1:] == outgoing[field][:-1] for field in ("head", "relation", "tail")], axis=0).any():
        yield "facts stand in it twice"


def _of_names(state: GraphState, names: list[str], used: NDArray[np.uint32]) -> Iterator[str]:
    """Yield whether the concepts that have facts are found."""
    if wrong := sum(state.find(normalise(names[number])) != number for number in used.tolist()):
        yield f"{wrong:,} concepts are not found by their names (tables concepts and ids)"
    entries = sum(1 for _ in state.items(Table.IDS))
    if entries != len(used):
        yield f"table ids has {entries:,} entries where there are {len(used):,} concepts with facts"
    lost = 0
    for number in used[_sample(len(used))].tolist():
        key = concept_key(names[number])
        if key and text_key(key) != text_key(normalise(names[number])):
            lost += number not in np.frombuffer(state.get(Table.KEYS, text_key(key)) or b"", "<u4")
    if lost:
        yield f"{lost:,} of {_SAMPLE:,} concepts are not found by their stems (table keys)"


def _of_meaning(state: GraphState, names: list[str], facts: NDArray[np.void]) -> Iterator[str]:
    """Yield whether the fingerprint and the facts' lengths are those of the facts."""
    meta = state.meta
    if int(facts["relation"].max()) >= len(meta.relations):
        return
    fingerprint = fingerprint_of(fact_hashes(facts, name_hashes(names), name_hashes(meta.relations)))
    if fingerprint != meta.fingerprint:
        yield f"its facts have the fingerprint {fingerprint}, not {meta.fingerprint} as it says"
    if len(state.relations) != len(meta.relations):
        yield f"{len(meta.relations):,} relations have {len(state.relations):,} vectors"
        return
    some = facts[_sample(len(facts))]
    norms = fact_norms(some["head"], some["relation"], some["tail"], state.sums, state.relations)
    if wrong := int((~(np.abs(some["norm"] / norms - 1) <= _OFF)).sum()):
        yield f"the lengths of {wrong:,} of {len(some):,} facts are not those of their vectors"


def _sample(count: int) -> NDArray[np.intp]:
    return np.unique(np.linspace(0, count - 1, min(count, _SAMPLE)).astype(np.intp))

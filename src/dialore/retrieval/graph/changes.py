"""Changing a graph while others read it, copying it compactly, and checking that it is whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import lmdb
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from dialore.errors import GraphError
from dialore.retrieval.graph.lmdb_file import EDGE, file_key, open_file, pack_concept, pack_side, unpack_side
from dialore.retrieval.graph.store import GraphState, Table, concept_key, id_key, text_key
from dialore.retrieval.graph.writing import (
    Numbered,
    PartNumbers,
    fact_hashes,
    fact_norms,
    fingerprint_of,
    form_of,
    name_hashes,
    relation_sums,
    replacing,
    writing,
)
from dialore.text import is_chinese, normalise

if TYPE_CHECKING:
    from dialore.knowledge import Fact
    from dialore.retrieval.static import StaticEmbedder

_Key = tuple[int, int, int]
_Value = tuple[float, int]  # A fact's weight, and its provenance by number
_FACT = np.dtype([("head", "<u4"), ("relation", "<u2"), ("tail", "<u4"), ("weight", "<f4"), ("provenance", "<u2")])


class ChangeReport(BaseModel):
    """The report of a change.

    `missing` counts facts that were to be deleted or updated and were not there, `left_out` facts that were to be added
    or updated with a weight of 0 or less.
    """

    added: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    missing: int = 0
    left_out: int = 0
    facts: int = 0
    concepts: int = 0
    fingerprint: str = ""


class GraphEditor(AbstractContextManager["GraphEditor"]):
    """Collects changes to a graph file and makes them all at once, or none.

    Nothing is read or locked before `commit`. Readers never wait: each question sees the graph before or after.

    Args:
        path: the graph file.
        embedder: the one that made the graph's vectors; None loads it.

    Example:
        >>> with GraphEditor(path) as editor:
        ...     editor.add([Fact("sushi", "MadeOf", "rice", 2.0)])
        ...     editor.delete([Fact("sushi", "MadeOf", "snow")])
    """

    def __init__(self, path: Path, embedder: StaticEmbedder | None = None) -> None:
        self.path = path
        self.report = ChangeReport()
        self._embedder = embedder
        self._wanted: list[tuple[str, Fact]] = []

    def add(self, facts: Iterable[Fact]) -> None:
        """Facts to be there; of one that is there already, the heavier is kept, as when a graph is built."""
        self._wanted.extend(("add", fact) for fact in facts)

    def update(self, facts: Iterable[Fact]) -> None:
        """Facts that are there, with the weight and provenance that they shall have."""
        self._wanted.extend(("update", fact) for fact in facts)

    def delete(self, facts: Iterable[Fact]) -> None:
        """Facts to be gone, whatever their weight."""
        self._wanted.extend(("delete", fact) for fact in facts)

    def commit(self) -> ChangeReport:
        """Make the changes, in the order in which they were asked for; another writer is waited for.

        Raises:
            GraphError: no such graph; it cannot be written; a fact has a blank concept. The graph is then as it was.
            InputError: its embedder is another one, or an endpoint that the user's settings do not name; likewise.
        """
        wanted, self._wanted = self._wanted, []
        with _write_transaction(self.path) as state:
            change = _Change(state)
            for verb, fact in wanted:
                change.want(verb, fact)
            with writing(self.path):
                change.write(self.path, self._embedder)
                if change.changed:
                    state.transaction.commit()
        totals = state.meta.model_dump(include={"facts", "concepts", "fingerprint"})
        self.report = ChangeReport.model_validate(change.counts | totals)
        return self.report

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.commit()


@contextmanager
def _write_transaction(path: Path) -> Iterator[GraphState]:
    """Yield the newest state of a graph, to be written; what is not committed is as if it had never been."""
    while True:
        with closing(open_file(path)) as file, ExitStack() as stack:
            with writing(path):
                transaction = file.env.begin(write=True, buffers=True)
            stack.callback(transaction.abort)
            # A graph that was built anew while this waited is another file.
            if file_key(path) == file.key:
                file.env.reader_check()  # readers that were killed keep no pages from being used again
                yield GraphState(file, transaction, str(path))
                return


class _Change:
    """Changes to one state of a graph, in a transaction that may write, as numbers, and what they come to."""

    def __init__(self, state: GraphState) -> None:
        self.counts = dict.fromkeys(("added", "updated", "deleted", "unchanged", "missing", "left_out"), 0)
        self._state = state
        self._relations = Numbered("relations", state.meta.relations)
        self._provenances = Numbered("provenances", state.meta.provenances)
        self._names: list[str] = []
        self._new: dict[str, int] = {}
        self._before: dict[_Key, _Value | None] = {}
        self._now: dict[_Key, _Value | None] = {}

    @property
    def changed(self) -> dict[_Key, _Value | None]:
        """The facts that are others than they were, None for one that is gone."""
        return {key: value for key, value in self._now.items() if value != self._before[key]}

    # --- what is asked for

    def want(self, verb: str, fact: Fact) -> None:
        """Add a fact or keep the heavier; give one that is there its weight and provenance; or delete it."""
        if verb != "delete" and fact.weight <= 0:
            self.counts["left_out"] += 1
            return
        key = self._key(fact, new=verb == "add")
        present = self._value(key) if key is not None else None
        if key is None or (present is None and verb != "add"):
            self.counts["missing"] += 1
            return
        if verb != "delete" and not np.isfinite(fact.weight):
            raise GraphError(f"the weight of {fact.triple} is not a number", hint="e.g. 1.0")
        wanted = None if verb == "delete" else (float(np.float32(fact.weight)), self._provenances[fact.provenance])
        if wanted is None:
            done = "deleted"
        elif present == wanted or (present is not None and verb == "add" and present[0] >= wanted[0]):
            done, wanted = "unchanged", present
        else:
            done = "updated" if present else "added"
        self.counts[done] += 1
        self._now[key] = wanted

    def _key(self, fact: Fact, *, new: bool) -> _Key | None:
        """Return a fact's numbers, made where they may be new; None where one has no number."""
        if new:
            return self._concept(fact.head), self._relations[fact.relation], self._concept(fact.tail)
        head, tail = self._number(normalise(fact.head)), self._number(normalise(fact.tail))
        relation = self._relations.get(fact.relation)
        return None if head is None or tail is None or relation is None else (head, relation, tail)

    def _concept(self, name: str) -> int:
        form = form_of(name)
        number = self._number(form)
        if number is None:
            number = self._new[form] = self._state.meta.concepts + len(self._names)
            self._names.append(name)
        return number

    def _number(self, form: str) -> int | None:
        number = self._new.get(form)
        return number if number is not None else self._state.find(form)

    def _value(self, key: _Key) -> _Value | None:
        """Return a fact's weight and provenance as they are by now; None where it is not there."""
        if key not in self._now:
            head, relation, tail = key
            # The side of fewer facts: a hub's is long to search.
            sides = ((self._state.get(Table.OUT, id_key(head)), tail), (self._state.get(Table.IN, id_key(tail)), head))
            value, other = min(sides, key=lambda side: len(side[0] or b""))
            records, _ = unpack_side(value)
            rows = records[(records["other"] == other) & (records["relation"] == relation)]
            present = (float(rows["weight"][0]), int(rows["provenance"][0])) if len(rows) else None
            self._now[key] = self._before[key] = present
        return self._now[key]

    # --- what it comes to

    def write(self, path: Path, embedder: StaticEmbedder | None) -> None:
        """Write what changed; the embedder of the graph's vectors is loaded only where a fact is there after it."""
        changed = self.changed
        kept = [key for key, value in changed.items() if value is not None]
        norms: dict[_Key, np.float32] = {}
        if kept:
            from dialore.retrieval.embedding import recorded_embedder

            # A graph may be anybody's: it does not decide where texts and keys go.
            meta = self._state.meta
            made_by = recorded_embedder(meta.embedder, meta.embedder_fingerprint, str(path), given=embedder)
            norms = dict(zip(kept, self._with_vectors(kept, cast("StaticEmbedder", made_by)), strict=True))
        for table, own, other in ((Table.OUT, 0, 2), (Table.IN, 2, 0)):
            of_concepts: dict[int, list[_Key]] = {}
            for key in changed:
                of_concepts.setdefault(key[own], []).append(key)
            for number, keys in of_concepts.items():
                self._write_side(table, number, {(key[other], key[1]): (changed[key], norms.get(key)) for key in keys})
        for number in {end for key in changed for end in (key[0], key[2])}:
            if not self._state.degree(number):  # it is found no more, and its number is not used again
                name = self._state.concept(number) or ""
                self._put(Table.IDS, text_key(normalise(name)), b"")
                self._write_keys(name, number, there=False)
        if changed:
            self._write_meta(changed)

    def _put(self, table: bytes, key: bytes, value: bytes) -> None:
        if value:
            self._state.transaction.put(table + key, value)
        else:
            self._state.transaction.delete(table + key)

    def _with_vectors(self, kept: list[_Key], embedder: StaticEmbedder) -> NDArray[np.float32]:
        """Write the new concepts, parts and relations; return the lengths of the facts that are kept."""
        state, meta = self._state, self._state.meta
        numbers = PartNumbers(embedder, state.numbers.tolist())
        for number, (name, own) in enumerate(zip(self._names, numbers(self._names), strict=True), start=meta.concepts):
            self._put(Table.CONCEPTS, id_key(number), pack_concept(name, own))
            self._put(Table.IDS, text_key(normalise(name)), id_key(number))
            self._write_keys(name, number, there=True)
        first, block = numbers.block()
        self._put(Table.PARTS, id_key(first), block)
        new_relations = list(self._relations)[len(meta.relations) :]
        both = np.concatenate([state.relations, relation_sums(new_relations, embedder)])
        self._put(Table.META, b"relations", both.astype("<f4").tobytes())
        state.reload()  # what was written is read again, as readers will
        head, relation, tail = (np.array([key[column] for key in kept]) for column in range(3))
        return fact_norms(head, relation, tail, state.sums, state.relations)

    def _write_keys(self, name: str, number: int, *, there: bool) -> None:
        """Have a concept among those with its stems or not; one that is its own stems is found without."""
        key = concept_key(name)
        if key and text_key(key) != text_key(normalise(name)):
            ids = np.frombuffer(self._state.get(Table.KEYS, text_key(key)) or b"", "<u4").tolist()
            changed = [*(own for own in ids if own != number), *([number] if there else [])]
            self._put(Table.KEYS, text_key(key), np.array(changed, "<u4").tobytes())

    def _write_side(
        self, table: bytes, number: int, changes: dict[tuple[int, int], tuple[_Value | None, np.float32 | None]]
    ) -> None:
        """Change a concept's facts as head or as tail, by their other end and relation."""
        records, parts = unpack_side(self._state.get(table, id_key(number)))
        own_parts = np.split(parts, np.cumsum(records["parts"].astype(np.intp))[:-1]) if len(records) else []
        same = ~np.isin(_pairs(records["other"], records["relation"]), [_pairs(*pair) for pair in changes])
        new = np.zeros(sum(value is not None for value, _ in changes.values()), EDGE)
        kept = ((pair, value, norm) for pair, (value, norm) in changes.items() if value is not None)
        new_parts = []
        for row, ((other, relation), (weight, provenance), norm) in zip(new, kept, strict=True):
            new_parts.append(self._state.parts_of(other))
            row["other"], row["relation"], row["weight"], row["provenance"] = other, relation, weight, provenance
            row["norm"], row["parts"] = norm or 1, len(new_parts[-1])
        both = np.concatenate([records[same], new])
        all_parts = [*(own_parts[position] for position in np.flatnonzero(same)), *new_parts]
        order = np.lexsort((both["other"], both["relation"], -both["weight"]))
        joined = [all_parts[position] for position in order.tolist()]
        flat = np.concatenate(joined) if joined else np.empty(0, np.uint32)
        self._put(table, id_key(number), pack_side(both[order], flat) if len(both) else b"")

    def _write_meta(self, changed: dict[_Key, _Value | None]) -> None:
        meta = self._state.meta
        before = [(*key, *value) for key in changed if (value := self._before[key]) is not None]
        after = [(*key, *value) for key, value in changed.items() if value is not None]
        names: list[str] = []
        if after:  # else new names are of facts that were added and deleted again
            names, meta.relations, meta.provenances = self._names, list(self._relations), list(self._provenances)
        meta.fingerprint = fingerprint_of(int(meta.fingerprint, 16) + self._hash(after) - self._hash(before))
        meta.facts += len(after) - len(before)
        meta.concepts += len(names)
        meta.languages = sorted({*meta.languages, *("zh" if is_chinese(name) else "en" for name in names)})
        self._put(Table.META, b"meta", meta.model_dump_json().encode())

    def _hash(self, rows: list[tuple[int, int, int, float, int]]) -> int:
        facts = np.array(rows, _FACT)
        numbers, places = np.unique(np.stack([facts["head"], facts["tail"]]), return_inverse=True)
        facts["head"], facts["tail"] = places.reshape(2, -1)
        return fact_hashes(
            facts,
            name_hashes(self._state.concept(number) or "" for number in numbers.tolist()),
            name_hashes(self._relations),
        )


def _pairs(other: Any, relation: Any) -> Any:  # noqa: ANN401 - numbers, or arrays of them
    return (np.uint64(other) << np.uint64(16)) | np.uint64(relation)


def compact_graph(path: Path) -> None:
    """Copy a graph that was changed often without the pages that nothing uses any more, in its place."""
    with closing(open_file(path)) as file, replacing(path) as folder, writing(path):
        file.env.copy(str(folder / "graph"), compact=True)


# --- each table against the others, and what the graph says of itself against what it holds

_SAMPLE = 2000
_OFF = 0.02
"""How far a fact's length may lie from the exact one: a build works with vectors of one byte a component."""
_RECORD = np.dtype([("head", "<u4"), ("tail", "<u4"), *((name, EDGE[name]) for name in (EDGE.names or ())[1:5])])


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
    yield from _check_facts(state, outgoing, incoming)
    if len(outgoing) and max(outgoing["head"].max(), outgoing["tail"].max()) < state.meta.concepts:
        names = [state.concept(number) or "" for number in range(state.meta.concepts)]
        yield from _check_names(state, names, np.union1d(outgoing["head"], outgoing["tail"]))
        yield from _check_meaning(state, names, outgoing)


def _facts(state: GraphState, table: bytes, name: str) -> tuple[NDArray[np.void], list[str]]:
    """Return the facts of one table in order of head, relation and tail, and what is wrong with its values."""
    own, other = ("head", "tail") if table == Table.OUT else ("tail", "head")
    sides, lighter, damaged = [np.empty(0, _RECORD)], 0, 0
    for key, value in state.items(table):
        records, parts = unpack_side(value)
        damaged += int(records["parts"].sum()) != len(parts) or int(parts.max(initial=0)) >= max(1, len(state.rows))
        lighter += bool((records["weight"][1:] > records["weight"][:-1]).any())
        facts = np.empty(len(records), _RECORD)
        facts[own], facts[other] = int.from_bytes(key, "big"), records["other"]
        for field in (_RECORD.names or ())[2:]:
            facts[field] = records[field]
        sides.append(facts)
    every = np.concatenate(sides)
    told = {"facts before heavier ones": lighter, "facts without the parts of their ends": damaged}
    problems = [f"in table {name} {count:,} concepts have {what}" for what, count in told.items() if count]
    return every[np.lexsort((every["tail"], every["relation"], every["head"]))], problems


def _check_facts(state: GraphState, outgoing: NDArray[np.void], incoming: NDArray[np.void]) -> Iterator[str]:
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


def _check_names(state: GraphState, names: list[str], used: NDArray[np.uint32]) -> Iterator[str]:
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


def _check_meaning(state: GraphState, names: list[str], facts: NDArray[np.void]) -> Iterator[str]:
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

"""Changing a graph file while others read it, and compacting it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from dialore.errors import GraphError
from dialore.retrieval.graph.fingerprint import fact_hashes, format_fingerprint, name_hashes
from dialore.retrieval.graph.store import (
    EDGE,
    GraphState,
    GraphStore,
    PackedSide,
    concept_key,
    connect,
    explain_errors,
    load_state,
    pack_side,
    sort_side,
    unpack_side,
)
from dialore.retrieval.graph.vectors import PartNumbers, fact_norms, relation_sums
from dialore.retrieval.graph.writing import Numbered, explain_writing, form_of, new_revision
from dialore.text import is_chinese, normalise

if TYPE_CHECKING:
    import sqlite3

    from dialore.knowledge import Fact
    from dialore.retrieval.static import StaticEmbedder


class ChangeReport(BaseModel):
    """The report of a change.

    `missing` counts facts to be deleted that the graph does not have, `left_out` facts to be added with a weight of 0
    or less.
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
    """Collects changes of a graph file and commits them in one transaction.

    Nothing is read or locked before `commit`. Readers never wait: each question sees the graph before or after the
    change. To replace the weight of a fact, delete and add it.

    Args:
        path: The graph file.
        embedder: The embedder that made the graph's vectors; None loads it.

    Example:
        >>> with GraphEditor(path) as editor:
        ...     editor.delete([Fact("sushi", "MadeOf", "snow")])
        ...     editor.add([Fact("sushi", "MadeOf", "rice", 2.0)])
    """

    def __init__(self, path: Path, embedder: StaticEmbedder | None = None) -> None:
        self.path = path
        self.report = ChangeReport()
        self._embedder = embedder
        self._requests: list[tuple[Literal["add", "delete"], Fact]] = []

    def add(self, facts: Iterable[Fact]) -> None:
        """Add facts. If the graph has a fact already, the heavier one is kept, as in a build."""
        self._requests.extend(("add", fact) for fact in facts)

    def delete(self, facts: Iterable[Fact]) -> None:
        """Delete facts, whatever their weight."""
        self._requests.extend(("delete", fact) for fact in facts)

    def commit(self) -> ChangeReport:
        """Make the changes in the order of the calls. If it fails, the graph is unchanged.

        Raises:
            GraphError: There is no such graph, it cannot be written, another process changes it for too long, or a fact
                has a blank concept.
            InputError: The embedder is not the one of the graph, or it is an endpoint that the settings do not name.
        """
        requests, self._requests = self._requests, []
        with GraphStore(self.path) as store, explain_writing(self.path), store.write() as (connection, state):
            change = _Change(store, connection, state)
            for verb, fact in requests:
                if verb == "add":
                    change.add(fact)
                else:
                    change.delete(fact)
            if change.changed_facts():
                change.write(self._embedder)
                connection.execute("COMMIT")
                # Readers of the former state keep a part of the log; the next change empties it.
                connection.execute("PRAGMA busy_timeout = 0")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        report = change.report
        report.facts, report.concepts = state.meta.facts, state.meta.concepts
        report.fingerprint = state.meta.fingerprint
        self.report = report
        return report

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.commit()


class _Key(NamedTuple):
    """A fact by its numbers."""

    head: int
    relation: int
    tail: int


class _Value(NamedTuple):
    weight: float
    provenance: int


@dataclass(slots=True)
class _Edit:
    """A fact of one concept before and after a change; None if the graph does not have it."""

    before: _Value | None
    after: _Value | None


_FACT = np.dtype([("head", "<u4"), ("relation", "<u2"), ("tail", "<u4"), ("weight", "<f4")])


class _Change:
    """Changes of one state of a graph, collected fact by fact and then written concept by concept."""

    def __init__(self, store: GraphStore, connection: sqlite3.Connection, state: GraphState) -> None:
        self.report = ChangeReport()
        self._store, self._connection, self._state = store, connection, state
        self._relations = Numbered("relations", state.meta.relations)
        self._provenances = Numbered("provenances", state.meta.provenances)
        self._new_names: list[str] = []
        self._new_ids: dict[str, int] = {}
        self._edits: dict[_Key, _Edit] = {}

    def changed_facts(self) -> dict[_Key, _Edit]:
        """Return the facts that are different after the change."""
        return {key: edit for key, edit in self._edits.items() if edit.before != edit.after}

    # --- collecting

    def add(self, fact: Fact) -> None:
        """Add a fact, or keep the heavier one."""
        if fact.weight <= 0:
            self.report.left_out += 1
            return
        if not np.isfinite(fact.weight):
            raise GraphError(f"the weight of {fact.triple} is not a number", hint="e.g. 1.0")
        key = _Key(self._id_of(fact.head), self._relations[fact.relation], self._id_of(fact.tail))
        edit = self._edit(key)
        value = _Value(float(np.float32(fact.weight)), self._provenances[fact.provenance])
        if edit.after is None:
            self.report.added += 1
        elif edit.after.weight < value.weight:
            self.report.updated += 1
        else:
            self.report.unchanged += 1
            return
        edit.after = value

    def delete(self, fact: Fact) -> None:
        """Delete a fact."""
        head, tail = self._find(normalise(fact.head)), self._find(normalise(fact.tail))
        relation = self._relations.get(fact.relation)
        if head is not None and tail is not None and relation is not None:
            edit = self._edit(_Key(head, relation, tail))
            if edit.after is not None:
                edit.after = None
                self.report.deleted += 1
                return
        self.report.missing += 1

    def _id_of(self, name: str) -> int:
        form = form_of(name)
        number = self._find(form)
        if number is None:
            number = self._new_ids[form] = self._state.meta.concepts + len(self._new_names)
            self._new_names.append(name)
        return number

    def _find(self, form: str) -> int | None:
        number = self._new_ids.get(form)
        return self._store.find(form) if number is None else number

    def _edit(self, key: _Key) -> _Edit:
        edit = self._edits.get(key)
        if edit is None:
            present = self._present(key)
            edit = self._edits[key] = _Edit(present, present)
        return edit

    def _present(self, key: _Key) -> _Value | None:
        """Return the weight and the provenance that a fact has in the graph, or None."""
        outgoing, _ = self._store.sides(key.head)
        _, incoming = self._store.sides(key.tail)
        side, other = outgoing, key.tail
        if _size(incoming) < _size(outgoing):  # a hub's side takes long to search
            side, other = incoming, key.head
        records, _ = unpack_side(side)
        rows = records[(records["other"] == other) & (records["relation"] == key.relation)]
        return _Value(float(rows["weight"][0]), int(rows["provenance"][0])) if len(rows) else None

    # --- writing

    def write(self, embedder: StaticEmbedder | None) -> None:
        """Write all changes. The embedder is loaded only if facts are added."""
        changed = self.changed_facts()
        added = [key for key, edit in changed.items() if edit.after is not None]
        norms: dict[_Key, float] = {}
        if added:
            used = {key.head for key in added} | {key.tail for key in added}
            self._write_concepts(self._checked_embedder(embedder), used)
            head, relation, tail = np.array(added, np.uint32).T
            lengths = fact_norms(head, relation, tail, self._store.concept_sums, self._state.relations)
            norms = dict(zip(added, lengths.tolist(), strict=True))
        outgoing: dict[int, dict[tuple[int, int], _Key]] = {}
        incoming: dict[int, dict[tuple[int, int], _Key]] = {}
        for key in changed:
            outgoing.setdefault(key.head, {})[key.tail, key.relation] = key
            incoming.setdefault(key.tail, {})[key.head, key.relation] = key
        for number in outgoing.keys() | incoming.keys():
            old_outgoing, old_incoming = self._store.sides(number)
            out_count, new_outgoing = self._edit_side(number, old_outgoing, outgoing.get(number, {}), norms)
            in_count, new_incoming = self._edit_side(number, old_incoming, incoming.get(number, {}), norms)
            self._write_sides(number, out_count + in_count, new_outgoing, new_incoming)
        self._write_meta(changed)

    def _checked_embedder(self, embedder: StaticEmbedder | None) -> StaticEmbedder:
        """Return the embedder that made the graph's vectors; the graph alone does not decide where texts are sent."""
        from dialore.retrieval.embedding import recorded_embedder

        meta = self._state.meta
        checked = recorded_embedder(meta.embedder, meta.embedder_fingerprint, str(self._store.path), given=embedder)
        return cast("StaticEmbedder", checked)

    def _write_concepts(self, embedder: StaticEmbedder, used: set[int]) -> None:
        """Write new concepts, parts and relations, and load the state with them; only used concepts are found."""
        state, meta, execute = self._state, self._state.meta, self._connection.execute
        part_numbers = PartNumbers(embedder, state.part_numbers.tolist())
        new = zip(self._new_names, part_numbers(self._new_names), strict=True)
        for number, (name, parts) in enumerate(new, start=meta.concepts):
            keys = (normalise(name), concept_key(name) or None) if number in used else (None, None)
            execute("INSERT INTO concepts VALUES (?, ?, ?, ?, ?)", (number, name, *keys, parts))
        first, block = part_numbers.block()
        if block:
            execute("INSERT INTO parts VALUES (?, ?)", (first, block))
        new_relations = list(self._relations)[len(meta.relations) :]
        relations = np.concatenate([state.relations, relation_sums(new_relations, embedder)])
        self._set("relations", relations.astype("<f4").tobytes())
        meta.concepts += len(self._new_names)
        meta.relations, meta.provenances = list(self._relations), list(self._provenances)
        meta.languages = sorted({*meta.languages, *("zh" if is_chinese(name) else "en" for name in self._new_names)})
        # The vectors are read back as readers will read them.
        written = load_state(self._connection, self._store.path, revision=0)
        state.relations, state.rows, state.scales = written.relations, written.rows, written.scales

    def _edit_side(
        self, concept: int, side: PackedSide, changes: dict[tuple[int, int], _Key], norms: dict[_Key, float]
    ) -> tuple[int, PackedSide]:
        """Return the number of facts and the packed facts of a side; `changes` are by other end and relation."""
        records, parts = unpack_side(side)
        if not changes:
            return len(records), side
        part_lists = np.split(parts, np.cumsum(records["parts"].astype(np.intp)))[:-1]
        changed_pairs = [_pair_codes(*pair) for pair in changes]
        is_same = ~np.isin(_pair_codes(records["other"], records["relation"]), changed_pairs)
        part_lists = [part_lists[row] for row in np.flatnonzero(is_same).tolist()]
        new_records = []
        for (other, relation), key in changes.items():
            value = self._edits[key].after
            if value is None:
                continue
            other_parts = self._store.parts_of(other)
            part_lists.append(other_parts)
            new_records.append((other, value.weight, norms[key], relation, value.provenance, len(other_parts), 0))
        records = np.concatenate([records[is_same], np.array(new_records, EDGE)])
        if not len(records):
            return 0, (None, None)
        order = sort_side(concept, records)
        sorted_parts = np.concatenate([part_lists[row] for row in order.tolist()])
        return len(records), pack_side(records[order], sorted_parts)

    def _write_sides(self, number: int, degree: int, outgoing: PackedSide, incoming: PackedSide) -> None:
        execute = self._connection.execute
        if degree:
            columns = (outgoing[0], incoming[0], outgoing[1], incoming[1])
            execute("REPLACE INTO facts VALUES (?, ?, ?, ?, ?, ?)", (number, degree, *columns))
            return
        # A concept without facts is no longer found, and its number is not used again.
        execute("DELETE FROM facts WHERE concept = ?", (number,))
        execute("UPDATE concepts SET form = NULL, stems = NULL WHERE id = ?", (number,))

    def _write_meta(self, changed: dict[_Key, _Edit]) -> None:
        meta = self._state.meta
        before = [(*key, edit.before.weight) for key, edit in changed.items() if edit.before is not None]
        after = [(*key, edit.after.weight) for key, edit in changed.items() if edit.after is not None]
        total = int(meta.fingerprint, 16) + self._hash(after) - self._hash(before)
        meta.fingerprint = format_fingerprint(total)
        meta.facts += len(after) - len(before)
        self._set("meta", meta.model_dump_json())
        self._set("revision", new_revision())

    def _set(self, key: str, value: str | bytes | int) -> None:
        self._connection.execute("REPLACE INTO meta VALUES (?, ?)", (key, value))

    def _hash(self, rows: list[tuple[int, int, int, float]]) -> int:
        facts = np.array(rows, _FACT)
        numbers, places = np.unique(np.stack([facts["head"], facts["tail"]]), return_inverse=True)
        facts["head"], facts["tail"] = places.reshape(2, -1)
        concepts = name_hashes(self._store.concept(number) for number in numbers.tolist())
        return fact_hashes(facts, concepts, name_hashes(self._relations))


def _size(side: PackedSide) -> int:
    return sum(len(packed) for packed in side if packed is not None)


def _pair_codes(other: NDArray[np.uint32] | int, relation: NDArray[np.uint16] | int) -> NDArray[np.uint64]:
    """Return each pair of another end and a relation as one number."""
    return (np.asarray(other, np.uint64) << np.uint64(16)) | np.asarray(relation, np.uint64)


def compact_graph(path: Path) -> None:
    """Rewrite a graph file without the pages that changes have left unused. Readers may continue."""
    with explain_writing(path), explain_errors(path), closing(connect(path)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

"""The graph store: one SQLite file with one packed value of facts per concept.

| table | columns |
|---|---|
| `meta` | key and value: `meta` (JSON of `GraphMeta`), `revision` (a new random number for each commit), `relations` |
| `parts` | blocks of embedding parts: number of the first one, packed block (see `unpack_parts`) |
| `concepts` | id, name as written, normal form, stems of the content lemmas, packed part numbers |
| `facts` | concept, number of its facts, its facts as head, its facts as tail, the rest of both (see `pack_side`) |

The vectors of a static embedding add up: a concept's vector is the sum of its parts, a fact's vector is the sum of its
concepts and its relation, and the length of a fact's vector is stored with the fact. A graph therefore stores the
vectors of ten thousand parts instead of millions of concepts.

The heaviest `HUB_FACTS` facts of each side come first in a row and the rest last, so SQLite reads the facts that a
question ranks without the rest of a hub's facts.

The file is in WAL mode: readers continue with the state that they began with while one writer commits the next one.
"""

from __future__ import annotations

import functools
import os
import sqlite3
import stat
import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from dialore.errors import GraphError
from dialore.knowledge import Fact
from dialore.retrieval.graph.vectors import sum_parts, unpack_parts
from dialore.text import Language, content_words, is_chinese, lemma, normalise, stem, words

FORMAT = 8
APPLICATION_ID = 0x644C6772
"""SQLite's application id of graph files."""
REBUILD = "build it again with `dialore graph build`"
WRITER_TIMEOUT_S = 30.0
MMAP_BYTES = 1 << 40
"""SQLite maps at most about 2 GiB of a file; the rest is read."""
CACHE_SIZE = 50_000
"""Maximum number of cached concepts, about 10 MB."""
HUB_FACTS = 2048
"""Number of facts of one side of a concept that are stored apart from the rest."""
_PRODUCT_ROWS = 512
"""Rows multiplied at once, few enough for a processor's cache."""
_LOW_BITS = 0xFFFF
_RELATION_BITS = 16

EDGE = np.dtype(
    [("other", "<u4"), ("weight", "<f4"), ("norm", "<f4")]
    + [(name, "<u2") for name in ("relation", "provenance", "parts", "unused")]
)
"""A fact as stored with one of its concepts; `parts` is the number of parts of the other end."""
SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE parts (first INTEGER PRIMARY KEY, block BLOB NOT NULL);
CREATE TABLE concepts (id INTEGER PRIMARY KEY, name TEXT NOT NULL, form TEXT UNIQUE, stems TEXT, parts BLOB NOT NULL);
CREATE TABLE facts (
    concept INTEGER PRIMARY KEY, degree INTEGER NOT NULL,
    outgoing BLOB, incoming BLOB, more_outgoing BLOB, more_incoming BLOB
);
"""

Side = tuple[NDArray[np.void], NDArray[np.uint32]]
"""The facts of a concept as head or as tail: `EDGE` records, and the parts of their other ends."""
PackedSide = tuple[bytes | None, bytes | None]
"""The packed heaviest facts of a side and the rest; None if there are none."""


class GraphMeta(BaseModel):
    """The description of a graph.

    `fingerprint` is a hash of the facts. `concepts` includes concepts that lost all their facts.
    """

    kind: Literal["dialore graph"] = "dialore graph"
    name: str
    languages: list[str] = []
    concepts: int
    facts: int = 0
    relations: list[str]
    provenances: list[str]
    embedder: str
    embedder_fingerprint: str
    dimension: int
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Edges:
    """Facts of several concepts as columns, one row per fact; concepts, relations and provenances are numbers.

    Attributes:
        head_place: Position of each head in `asked`, or -1.
        tail_place: Position of each tail in `asked`, or -1. Each row has at least one end in `asked`.
        asked: The requested concepts in ascending order.
        degrees: Number of facts of each requested concept. A fact about itself counts twice.
        cosines: Cosine of each fact with the query, or None without a query.
    """

    head: NDArray[np.uint32]
    relation: NDArray[np.uint16]
    tail: NDArray[np.uint32]
    weight: NDArray[np.float32]
    provenance: NDArray[np.uint16]
    head_place: NDArray[np.intp]
    tail_place: NDArray[np.intp]
    asked: NDArray[np.uint32]
    degrees: NDArray[np.intp]
    cosines: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.head)

    @property
    def total(self) -> int:
        """Number of distinct facts of the requested concepts; more than the rows if hubs were read in part."""
        return int(self.degrees.sum()) - int(np.count_nonzero((self.head_place >= 0) & (self.tail_place >= 0)))

    def between(self, some: Sequence[int], others: Sequence[int]) -> NDArray[np.bool_]:
        """Return which facts connect one of some requested concepts with one of some others, in either direction."""
        asked = self.asked.tolist()
        # The last entry is selected by position -1, an end that was not requested.
        in_some = np.array([*map(frozenset(some).__contains__, asked), False])
        in_others = np.array([*map(frozenset(others).__contains__, asked), False])
        head, tail = self.head_place, self.tail_place
        joined: NDArray[np.bool_] = in_some.take(head, mode="wrap") & in_others.take(tail, mode="wrap")
        joined |= in_others.take(head, mode="wrap") & in_some.take(tail, mode="wrap")
        return joined


def places_among(asked: NDArray[np.uint32], ends: NDArray[np.uint32]) -> NDArray[np.intp]:
    """Return the position of each end in the ascending concepts `asked`, or -1."""
    matches = np.full(len(ends), -1)
    if len(asked):
        # The lowest bits rule out most ends of a hub's facts.
        low = np.zeros(_LOW_BITS + 1, np.bool_)
        low[asked & _LOW_BITS] = True
        rows = np.flatnonzero(low[ends & _LOW_BITS])
        places = np.minimum(np.searchsorted(asked, ends[rows]), len(asked) - 1)
        right = asked[places] == ends[rows]
        matches[rows[right]] = places[right]
    return matches


# --- keys


def concept_key(name: str) -> str:
    """Return the stem key of a concept in its own language; empty for punctuation."""
    language: Language = "zh" if is_chinese(name) else "en"
    # A name of function words is known by all of them.
    return stem_key(content_words(name, language) or words(name, language), language)


def stem_key(tokens: Sequence[str], language: Language) -> str:
    """Return the stems of a phrase's lemmas: lemmas join "ate" and "eat", stems "wedding" and "wed"."""
    return "".join(tokens) if language == "zh" else " ".join(map(_root, tokens))


@functools.lru_cache(maxsize=1 << 20)  # a graph of a million concepts has about half as many words
def _root(word: str) -> str:
    return stem(lemma(word, "en"))


# --- packed values


def sort_side(own: NDArray[np.uint32] | int, facts: NDArray[np.void], other: str = "other") -> NDArray[np.intp]:
    """Return the order in which the facts of sides are stored.

    Facts of a concept with itself come first, because they are always read; then the heaviest.

    Args:
        own: The concept of each fact, or of all.
        facts: Records with the fields `relation`, `weight` and the one named `other`.
        other: Name of the field with the other end of a fact.
    """
    is_other = facts[other] != own
    own_column = np.broadcast_to(own, len(facts))
    return np.lexsort((facts[other], facts["relation"], -facts["weight"], is_other, own_column))


def pack_side(records: NDArray[np.void], parts: NDArray[np.uint32]) -> PackedSide:
    """Pack the sorted facts of one side: the number of facts, `EDGE` records, parts of the other ends."""
    if not len(records):
        return None, None
    if len(records) <= HUB_FACTS:
        return _pack(records, parts), None
    end = int(records["parts"][:HUB_FACTS].sum(dtype=np.intp))
    return _pack(records[:HUB_FACTS], parts[:end]), _pack(records[HUB_FACTS:], parts[end:])


def _pack(records: NDArray[np.void], parts: NDArray[np.uint32]) -> bytes:
    return struct.pack("<I", len(records)) + records.tobytes() + parts.tobytes()


def unpack_side(packed: PackedSide) -> Side:
    """Return all facts of a side."""
    first, rest = packed
    if rest is None:
        return _unpack(first)
    return _join_sides(_unpack(first), _unpack(rest))


def _unpack(value: bytes | None) -> Side:
    if value is None:
        return _NO_EDGES, _NO_PARTS
    count = int.from_bytes(value[:4], "little")
    end = 4 + count * EDGE.itemsize
    return np.frombuffer(value, EDGE, count, 4), np.frombuffer(value, "<u4", offset=end)


def _join_sides(first: Side, second: Side) -> Side:
    return np.concatenate([first[0], second[0]]), np.concatenate([first[1], second[1]])


_NO_EDGES = np.empty(0, EDGE)
_NO_PARTS = np.empty(0, np.uint32)


@dataclass(slots=True)
class _ConceptFacts:
    """The facts read of one concept; the sides are incomplete if more facts are stored."""

    degree: int
    outgoing: Side
    incoming: Side
    has_more_outgoing: bool = False
    has_more_incoming: bool = False


# --- connections


@contextmanager
def explain_errors(path: Path) -> Iterator[None]:
    """Convert errors of SQLite to GraphErrors that name the file."""
    try:
        yield
    except sqlite3.Error as error:
        from dialore.sqlite_errors import explain_sqlite_error

        known = explain_sqlite_error(error, path, description="a graph", rebuild=REBUILD, other_file=REBUILD)
        raise GraphError(known.message, hint=known.hint) from error


def connect(path: Path, mode: str = "rw") -> sqlite3.Connection:
    """Open a graph file; raises GraphError if it is missing, not a graph, or of another version."""
    try:
        status = path.stat()
    except FileNotFoundError as error:
        raise GraphError(f"no such graph: {path}", hint="build one with `dialore graph build`") from error
    except OSError as error:
        raise GraphError(f"cannot read {path}: {error.strerror}", hint="check its permissions") from error
    if not stat.S_ISREG(status.st_mode):
        raise GraphError(f"{path} is not a file", hint="name a graph file")
    with explain_errors(path):
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=WRITER_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            _check_format(connection, path)
            connection.execute(f"PRAGMA mmap_size = {MMAP_BYTES}")
        except BaseException:
            connection.close()
            raise
    return connection


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    [application_id] = connection.execute("PRAGMA application_id").fetchone()
    if application_id != APPLICATION_ID:
        raise GraphError(f"{path} is not a graph", hint=REBUILD)
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if version != FORMAT:
        raise GraphError(f"{path} has layout {version}; this version reads {FORMAT}", hint=REBUILD)
    # SQLite itself refuses a file that lacks whole pages.
    [page_size] = connection.execute("PRAGMA page_size").fetchone()
    if path.stat().st_size % page_size:
        raise GraphError(f"{path} is cut short", hint="copy it again or rebuild it")


@dataclass(slots=True)
class GraphState:
    """What is loaded of one committed state of a graph, shared by all threads that read that state."""

    revision: int
    meta: GraphMeta
    relations: NDArray[np.float32]
    rows: NDArray[np.int8]
    scales: NDArray[np.float32]
    part_numbers: NDArray[np.uint32]
    concepts: dict[int, tuple[str, NDArray[np.uint32]]] = field(default_factory=dict)


def load_state(connection: sqlite3.Connection, path: Path, revision: int) -> GraphState:
    """Read the description and the vectors of a graph; raises GraphError if they are damaged."""
    values = dict(connection.execute("SELECT key, value FROM meta"))
    try:
        meta = GraphMeta.model_validate_json(values["meta"])
        width = max(1, meta.dimension)
        relations = np.frombuffer(values["relations"], "<f4").reshape(-1, width)
        blocks = connection.execute("SELECT block FROM parts ORDER BY first").fetchall()
        columns = zip(*(unpack_parts(block, width) for (block,) in blocks), strict=True)
        rows, scales, numbers = map(np.concatenate, columns)
    except (ValidationError, KeyError, TypeError, ValueError) as error:
        raise GraphError(f"{path} is damaged", hint=REBUILD) from error
    return GraphState(revision, meta, relations, rows, scales, numbers)


_INHERITED: list[object] = []
"""Connections of parent processes. SQLite allows a forked process neither to use nor to close them."""


class GraphStore:
    """A graph file opened for reading, for any number of threads and processes while one process changes it.

    Each call sees the newest committed state. All calls of a thread inside `with store.read():` see the same state.

    Args:
        path: The graph file.

    Raises:
        GraphError: The file is missing, damaged, not a graph, or of another version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._local = threading.local()
        self._idle: list[sqlite3.Connection] = []
        self._process = os.getpid()
        self._file: tuple[int, int] | None = None
        self._state: GraphState | None = None
        self._is_closed = False
        with self.read():
            pass

    def close(self) -> None:
        """Close the store. Idempotent."""
        self._is_closed = True
        self._transaction()  # sets aside what a forked process inherited
        self._close_idle()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- transactions

    @contextmanager
    def read(self) -> Iterator[GraphState]:
        """Have all calls of this thread in the body see one committed state: the newest one at the beginning."""
        transaction = self._transaction()
        if transaction is not None:
            yield transaction[1]
            return
        with explain_errors(self.path):
            connection, is_reusable = self._take_connection()
            is_idle = False
            try:
                connection.execute("BEGIN")
                self._state = state = self._current_state(connection)
                self._local.transaction = connection, state
                yield state
                connection.execute("ROLLBACK")
                is_idle = is_reusable and not self._is_closed
            finally:
                self._local.transaction = None
                if is_idle:
                    self._idle.append(connection)
                else:
                    connection.close()

    @contextmanager
    def write(self) -> Iterator[tuple[sqlite3.Connection, GraphState]]:
        """Yield a connection in a write transaction that the calls of this thread read from, and its state.

        The transaction is rolled back unless the body commits it.
        """
        with explain_errors(self.path), closing(connect(self.path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            state = load_state(connection, self.path, revision=0)
            self._local.transaction = connection, state
            try:
                yield connection, state
            finally:
                self._local.transaction = None
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def _take_connection(self) -> tuple[sqlite3.Connection, bool]:
        """Return a connection for one transaction and whether it can be reused."""
        if self._is_closed:
            raise GraphError(f"the graph {self.path} is closed", hint="open it again")
        file = self._file  # a file that was moved away can still be read by open connections
        with suppress(OSError):
            status = self.path.stat()
            file = status.st_dev, status.st_ino
        if file != self._file:
            self._close_idle()
            self._file = file
        with suppress(IndexError):
            return self._idle.pop(), True
        effective = os.access in os.supports_effective_ids
        if os.access(self.path.absolute().parent, os.W_OK, effective_ids=effective):
            connection = connect(self.path)
            connection.execute("PRAGMA query_only = ON")
            return connection, True
        # Without write access next to the file there is no shared memory for WAL. The file is then read as it is,
        # unless a writer of another user has a log.
        has_log = False
        with suppress(OSError):
            has_log = self.path.with_name(f"{self.path.name}-wal").exists()
        return connect(self.path, "ro" if has_log else "ro&immutable=1"), False

    def _transaction(self) -> tuple[sqlite3.Connection, GraphState] | None:
        """Return the transaction of this thread and its state, or None."""
        if self._process != os.getpid():  # in a forked process
            _INHERITED.extend((self._idle, self._local))
            self._idle, self._local, self._process = [], threading.local(), os.getpid()
        transaction: tuple[sqlite3.Connection, GraphState] | None = getattr(self._local, "transaction", None)
        return transaction

    def _close_idle(self) -> None:
        connections, self._idle = self._idle, []
        for connection in connections:
            connection.close()

    def _current_state(self, connection: sqlite3.Connection) -> GraphState:
        row = connection.execute("SELECT value FROM meta WHERE key = 'revision'").fetchone()
        if row is None:
            raise GraphError(f"{self.path} is damaged", hint=REBUILD)
        state = self._state
        if state is not None and state.revision == row[0]:
            return state
        return load_state(connection, self.path, row[0])

    def _row(self, query: str, *parameters: object) -> tuple[Any, ...] | None:
        """Return the first row of a query in the thread's transaction, or in one of its own."""
        transaction = self._transaction()
        if transaction is not None:
            row: tuple[Any, ...] | None = transaction[0].execute(query, parameters).fetchone()
            return row
        with self.read():
            return self._row(query, *parameters)

    # --- concepts

    @property
    def meta(self) -> GraphMeta:
        """The description of the graph."""
        with self.read() as state:
            return state.meta

    def find(self, name: str) -> int | None:
        """Return the id of the concept with the normal form of a name, or None."""
        row = self._row("SELECT id FROM concepts WHERE form = ?", normalise(name))
        return None if row is None else int(row[0])

    def with_stems(self, key: str) -> list[int]:
        """Return the ids of the concepts whose content words have these stems (see `stem_key`), ascending."""
        row = self._row("SELECT group_concat(id) FROM concepts WHERE stems = ?", key) if key else None
        if row is None or row[0] is None:
            return []
        return sorted(int(number) for number in row[0].split(","))

    def concept(self, number: int) -> str:
        """Return a concept as written; raises GraphError for an unknown id."""
        concept = self._concept(number)
        if concept is None:
            raise GraphError(f"{self.path} has no concept {number}", hint=REBUILD)
        return concept[0]

    def _concept(self, number: int) -> tuple[str, NDArray[np.uint32]] | None:
        """Return the name and the parts of a concept, or None for an unknown id."""
        transaction = self._transaction()
        if transaction is None:
            with self.read():
                return self._concept(number)
        connection, state = transaction
        concept: tuple[str, NDArray[np.uint32]] | None = state.concepts.get(number)
        if concept is None:
            row = connection.execute("SELECT name, parts FROM concepts WHERE id = ?", (number,)).fetchone()
            if row is None:
                return None
            concept = row[0], np.frombuffer(row[1], "<u4")
            if len(state.concepts) >= CACHE_SIZE:
                state.concepts.clear()
            state.concepts[number] = concept
        return concept

    def parts_of(self, number: int) -> NDArray[np.uint32]:
        """Return the parts of a concept; the part without meaning for an unknown id."""
        concept = self._concept(number)
        return _UNKNOWN_PARTS if concept is None else concept[1]

    def degree(self, number: int) -> int:
        """Return the number of facts of a concept; a fact about itself counts twice."""
        row = self._row("SELECT degree FROM facts WHERE concept = ?", number)
        return 0 if row is None else int(row[0])

    # --- facts

    def fact(self, edges: Edges, row: int) -> Fact:
        """Return one row as a fact."""
        meta = self.meta
        return Fact(
            head=self.concept(edges.head.item(row)),
            relation=meta.relations[edges.relation.item(row)],
            tail=self.concept(edges.tail.item(row)),
            weight=float(str(edges.weight[row])),  # the shortest decimal: 2.828, not 2.8280000686645508
            provenance=meta.provenances[edges.provenance.item(row)],
            graph=meta.name,
        )

    def facts(self) -> Iterator[Fact]:
        """Yield all facts of one state of the graph, by head, the heaviest of each head first."""
        # A store of its own: the caller may ask this one between two facts, or drop the iterator in another thread.
        with GraphStore(self.path) as store, store.read() as state:
            for number in range(state.meta.concepts):
                edges = store.edges_of([number])
                for row in np.flatnonzero(edges.head_place == 0).tolist():
                    yield store.fact(edges, row)

    def sides(self, number: int) -> tuple[PackedSide, PackedSide]:
        """Return all packed facts of a concept as head and as tail."""
        row = self._row("SELECT outgoing, more_outgoing, incoming, more_incoming FROM facts WHERE concept = ?", number)
        if row is None:
            return (None, None), (None, None)
        return (row[0], row[1]), (row[2], row[3])

    def edges_of(
        self, concepts: Iterable[int], query: NDArray[np.float32] | None = None, most: int | None = None
    ) -> Edges:
        """Return the facts that have one of the concepts as head or tail, each once.

        Args:
            concepts: Concept ids.
            query: Unit vector of shape (dimension,). If given, the cosine of each fact with it is computed.
            most: Maximum number of facts to read from each side of a concept: the heaviest facts. Facts that connect
                two of the concepts are always returned. None reads all.
        """
        with self.read() as state:
            return self._edges_of(state, sorted(set(concepts)), query, most)

    def _edges_of(
        self, state: GraphState, numbers: list[int], query: NDArray[np.float32] | None, most: int | None
    ) -> Edges:
        asked = np.array(numbers, np.uint32)
        if most is None or most > HUB_FACTS:
            concept_facts = [self._all_facts(number) for number in numbers]
        else:
            concept_facts = self._heaviest_facts(asked)
        degrees = np.array([facts.degree for facts in concept_facts], np.intp)
        outgoing = [self._heaviest(*facts.outgoing, most, asked) for facts in concept_facts]
        incoming = [self._heaviest(*facts.incoming, most, asked) for facts in concept_facts]
        both = [*outgoing, *incoming]
        # Joining bytes takes a third of the time of joining arrays of records.
        facts = np.frombuffer(b"".join([records.data for records, _ in both]), EDGE)
        parts = np.frombuffer(b"".join([ends.data for _, ends in both]), "<u4")
        counts = np.array([len(records) for records, _ in both], np.intp)
        owner = np.tile(np.arange(len(numbers)), 2).repeat(counts)
        outgoing_count = int(counts[: len(numbers)].sum())
        position = places_among(asked, facts["other"])
        is_outgoing = np.arange(len(facts)) < outgoing_count
        head_place, tail_place = np.where(is_outgoing, (owner, position), (position, owner))
        # A fact between two of the concepts may have been read from both sides.
        is_between = position >= 0
        codes = (head_place * len(asked) + tail_place) << _RELATION_BITS | facts["relation"]
        candidates = np.flatnonzero(is_between & ~is_outgoing)
        is_taken = np.ones(len(facts), np.bool_)
        is_taken[candidates[np.isin(codes[candidates], codes[is_between & is_outgoing])]] = False
        cosines = None
        if query is not None:
            cosines = np.empty(0, np.float32)
            if len(facts):
                cosines = self._cosines(state, facts, parts, owner, asked, query)
        rows = np.flatnonzero(is_taken)
        facts, is_outgoing = facts[rows], is_outgoing[rows]
        other, own = facts["other"], asked[owner[rows]]
        return Edges(
            head=np.where(is_outgoing, own, other),
            relation=facts["relation"].copy(),
            tail=np.where(is_outgoing, other, own),
            weight=facts["weight"].copy(),
            provenance=facts["provenance"].copy(),
            head_place=head_place[rows],
            tail_place=tail_place[rows],
            asked=asked,
            degrees=degrees,
            cosines=None if cosines is None else cosines[rows],
        )

    def _all_facts(self, number: int) -> _ConceptFacts:
        outgoing, incoming = map(unpack_side, self.sides(number))
        return _ConceptFacts(len(outgoing[0]) + len(incoming[0]), outgoing, incoming)

    def _heaviest_facts(self, asked: NDArray[np.uint32]) -> list[_ConceptFacts]:
        """Return the heaviest facts of each concept, and all facts between two of the concepts.

        A fact between two concepts is complete in one of their rows unless both have more facts than are stored first.
        """
        by_concept = {number: self._first_facts(number) for number in asked.tolist()}
        long_tails = [number for number, facts in by_concept.items() if facts.has_more_incoming]
        for number, facts in by_concept.items():
            if facts.has_more_outgoing and any(tail != number for tail in long_tails):
                row = self._row("SELECT more_outgoing FROM facts WHERE concept = ?", number)
                rest, _ = _unpack(None if row is None else row[0])
                selected = rest[places_among(asked, rest["other"]) >= 0]
                parts = [self.parts_of(other) for other in selected["other"].tolist()]
                facts.outgoing = _join_sides(facts.outgoing, (selected, np.concatenate([_NO_PARTS, *parts])))
        return list(by_concept.values())

    def _first_facts(self, number: int) -> _ConceptFacts:
        row = self._row(
            """SELECT degree, outgoing, incoming, more_outgoing IS NOT NULL, more_incoming IS NOT NULL
            FROM facts WHERE concept = ?""",
            number,
        )
        if row is None:
            return _ConceptFacts(0, _unpack(None), _unpack(None))
        degree, outgoing, incoming, has_more_outgoing, has_more_incoming = row
        sides = _unpack(outgoing), _unpack(incoming)
        return _ConceptFacts(degree, *sides, bool(has_more_outgoing), bool(has_more_incoming))

    def _heaviest(
        self, records: NDArray[np.void], parts: NDArray[np.uint32], most: int | None, asked: NDArray[np.uint32]
    ) -> tuple[NDArray[np.void], NDArray[np.uint32]]:
        """Return the first `most` facts of a side and those that lead to the requested concepts, with their parts."""
        if most is None or len(records) <= most:
            return records, parts
        others = records["other"][most:]
        rest = np.flatnonzero(places_among(asked, others) >= 0)
        end = int(records["parts"][:most].sum(dtype=np.intp))
        rest_parts = [self.parts_of(number) for number in others[rest].tolist()]
        return np.concatenate([records[:most], records[most:][rest]]), np.concatenate([parts[:end], *rest_parts])

    # --- vectors

    def concept_sums(self, concepts: NDArray[np.uint32]) -> NDArray[np.float32]:
        """Return the unnormalised vectors of concepts, shape (n, dimension); zero for unknown ids."""
        with self.read() as state:
            parts = [_UNKNOWN_PARTS, *map(self.parts_of, concepts.tolist())]
            counts = np.array([*map(len, parts)])
            return sum_parts(state.rows, state.scales, np.concatenate(parts), counts)[1:]

    def _cosines(
        self,
        state: GraphState,
        facts: NDArray[np.void],
        parts: NDArray[np.uint32],
        owner: NDArray[np.intp],
        asked: NDArray[np.uint32],
        query: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        """Return the cosine of each fact with the query; `parts` are the parts of the other ends."""
        own_parts = [self.parts_of(number) for number in asked.tolist()]
        own_starts = np.cumsum([0, *map(len, own_parts)])[:-1]
        all_own = np.concatenate(own_parts)
        products = _part_products(state, np.concatenate([parts, all_own]), query)
        counts = facts["parts"].astype(np.intp)
        total: NDArray[np.float32] = np.add.reduceat(products.take(parts), np.cumsum(counts) - counts)
        total += np.add.reduceat(products.take(all_own), own_starts).take(owner)
        total += (state.relations @ query).take(facts["relation"])
        total /= facts["norm"]
        return total


_UNKNOWN_PARTS = np.zeros(1, np.uint32)
"""The first part of each graph is the zero vector, for concepts that the embedder does not know."""


def _part_products(state: GraphState, parts: NDArray[np.uint32], query: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the product of each of these parts with the query, at its number; 0 for other parts."""
    is_used = np.zeros(len(state.rows), np.bool_)
    is_used[parts] = True
    reads_all = 2 * int(np.count_nonzero(is_used)) > len(is_used)  # reading them in a row is faster
    used = np.arange(len(is_used)) if reads_all else np.flatnonzero(is_used)
    used_products = np.empty(len(used), np.float32)
    buffer = np.empty((_PRODUCT_ROWS, len(query)), np.float32)
    for start in range(0, len(used), _PRODUCT_ROWS):
        numbers = used[start : start + _PRODUCT_ROWS]
        rows = state.rows[numbers[0] : numbers[-1] + 1] if reads_all else state.rows.take(numbers, axis=0)
        floats = buffer[: len(rows)]
        np.copyto(floats, rows)
        np.dot(floats, query, out=used_products[start : start + len(rows)])
    products = np.zeros(len(is_used), np.float32)
    products[used] = used_products * state.scales.take(used)
    return products

"""The embedded graph store: one LMDB file, read through a memory map while others change it.

| table | key | value |
|---|---|---|
| `meta` | `meta` | JSON: `GraphMeta` |
| `meta` | `relations` | float32 (relations, dimension): each relation's words as an unnormalised sum |
| `parts` | number of the first part | a block of parts: int8 rows, float32 scales, uint32 numbers in the embedder |
| `concepts` | concept id | number of parts, parts, and the concept as it is written |
| `ids` | normal form | id of the concept with that normal form |
| `keys` | stems of the content lemmas | ids of the concepts with those stems, less one whose form they are |
| `out`, `in` | concept id | number of its facts as head or tail, the facts (`EDGE`), parts of their other ends |

Vectors of a static embedding are linear: a concept's is the sum of its parts', a fact's that of its concepts' and its
relation's, and a fact's length is kept with it. So a graph keeps vectors of ten thousand parts, not of millions of
concepts. Changes are LMDB's write transactions: readers go on with the state that they opened.
"""

from __future__ import annotations

import functools
import hashlib
import os
import struct
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import lmdb
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from dialore.errors import GraphError
from dialore.knowledge import Fact
from dialore.retrieval.graph.lmdb_file import EDGE, REBUILD, MappedFile, open_file, unpack_parts, unpack_side
from dialore.text import Language, content_words, is_chinese, lemma, normalise, stem, words

FORMAT = 6
_MAX_KEY = 500  # LMDB's keys end at 511 bytes; longer ones are hashed
_REMEMBERED = 50_000
"""Concepts' names that are kept, about 5 MB: to read them again each time takes a sixth of a question's time."""
_CHUNK = 512  # rows that are multiplied at once: few enough to stay in a processor's cache
_LOW_BITS = 0xFFFF


class Table:
    """The first byte of a table's keys, in the order in which the tables are built."""

    IDS, CONCEPTS, KEYS, PARTS, OUT, IN, META = (bytes([number]) for number in range(7))


class GraphMeta(BaseModel):
    """A graph's own record; `fingerprint` is a hash of its facts, and concepts that lost theirs keep their numbers."""

    kind: Literal["dialore graph"] = "dialore graph"
    format: int = FORMAT
    name: str
    languages: list[str] = []
    concepts: int
    facts: int = 0
    relations: list[str]
    provenances: list[str]
    embedder: str = ""
    embedder_fingerprint: str = ""
    dimension: int = 0
    fingerprint: str = ""


def read_meta(raw: str | bytes, name: str, layout: int, hint: str) -> GraphMeta:
    """Return a graph's own record; raise GraphError where it is none, or of another layout."""
    try:
        meta = GraphMeta.model_validate_json(raw)
    except ValidationError as error:
        raise GraphError(f"{name} is not a graph or is damaged", hint=hint) from error
    if meta.format != layout:
        raise GraphError(f"{name} has layout {meta.format}; this version reads {layout}", hint=hint)
    return meta


@dataclass(frozen=True, slots=True)
class Edges:
    """Facts of several concepts as columns, one row a fact; concepts, relations and provenances by number.

    Attributes:
        head_place: each head's place in `asked`, -1 for one that was not asked for.
        tail_place: the same of the tails; each row has one end that was asked for.
        asked: the concepts whose facts these are, in ascending order.
        degrees: how many facts each of the asked concepts has in all; one about itself counts twice.
        cosines: each fact's cosine with the question; None where none was asked or the store has no vectors.
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
        """How many facts the asked concepts have in all, each once; more than rows where hubs were read in part."""
        return int(self.degrees.sum()) - int(np.count_nonzero((self.head_place >= 0) & (self.tail_place >= 0)))

    def between(self, some: Sequence[int], others: Sequence[int]) -> NDArray[np.bool_]:
        """Return which facts lead from some of the asked concepts to some others, or the reverse."""
        # The last entry is what the place -1 of an end that was not asked for finds.
        asked = self.asked.tolist()
        in_some, in_others = (np.array([*map(frozenset(side).__contains__, asked), False]) for side in (some, others))
        head, tail = self.head_place, self.tail_place
        joined: NDArray[np.bool_] = in_some.take(head, mode="wrap") & in_others.take(tail, mode="wrap")
        joined |= in_others.take(head, mode="wrap") & in_some.take(tail, mode="wrap")
        return joined


def places_among(asked: NDArray[np.uint32], ends: NDArray[np.uint32]) -> NDArray[np.intp]:
    """Return each end's place among the concepts asked for, in ascending order, -1 where it is none of them."""
    matches = np.full(len(ends), -1)
    if len(asked):
        # Most facts of a hub lead to concepts that were not asked for, as their lowest bits tell.
        low = np.zeros(_LOW_BITS + 1, np.bool_)
        low[asked & _LOW_BITS] = True
        rows = np.flatnonzero(low[ends & _LOW_BITS])
        places = np.minimum(np.searchsorted(asked, ends[rows]), len(asked) - 1)
        right = asked[places] == ends[rows]
        matches[rows[right]] = places[right]
    return matches


# --- keys


def concept_key(name: str) -> str:
    """Return the stem key of a concept, by its own language; empty for one of punctuation alone."""
    language: Language = "zh" if is_chinese(name) else "en"
    # Of a name of function words alone, all of them.
    return stem_key(content_words(name, language) or words(name, language), language)


def stem_key(tokens: Sequence[str], language: Language) -> str:
    """Return the stems of a phrase's lemmas: lemmas join "ate" and "eat", stems "wedding" and "wed"."""
    return "".join(tokens) if language == "zh" else " ".join(map(_root, tokens))


@functools.lru_cache(maxsize=1 << 20)  # a graph of a million concepts is made of about half as many words
def _root(word: str) -> str:
    return stem(lemma(word, "en"))


id_key = struct.Struct(">I").pack
"""A number as a key."""


def text_key(text: str) -> bytes:
    """Return a text as a key, hashed where it is too long."""
    encoded = text.encode()
    return encoded if len(encoded) <= _MAX_KEY else b"\0" + hashlib.blake2b(encoded, digest_size=32).digest()


# --- one state of a graph


class GraphState:
    """A transaction's view of a graph, with buffers: of its changes those that were there when it began."""

    def __init__(self, file: MappedFile, transaction: lmdb.Transaction, name: str) -> None:
        self.file, self.transaction, self.process = file, transaction, os.getpid()
        raw = self.get(Table.META, b"meta")
        if raw is None:
            raise GraphError(f"{name} is not a graph, or one of an earlier version", hint=REBUILD)
        self.meta = read_meta(bytes(raw), name, FORMAT, REBUILD)
        self.reload()

    def reload(self) -> None:
        """Read the vectors of relations and parts; those of one block of parts stay in the file's memory."""
        width = max(1, self.meta.dimension)
        relations = self.get(Table.META, b"relations") or b""
        self.relations = np.frombuffer(bytes(relations), "<f4").reshape(-1, width)
        blocks = [unpack_parts(value, width) for _, value in self.items(Table.PARTS)] or [unpack_parts(b"", width)]
        self.rows, self.scales, self.numbers = blocks[0]
        if len(blocks) > 1:
            self.rows, self.scales, self.numbers = (np.concatenate(column) for column in zip(*blocks, strict=True))

    def get(self, table: bytes, key: bytes) -> bytes | memoryview | None:
        """Return a value, in the file's own memory."""
        return self.transaction.get(table + key)

    def items(self, table: bytes) -> Iterator[tuple[bytes | memoryview, bytes | memoryview]]:
        """Yield all of a table in the order of its keys."""
        with self.transaction.cursor() as cursor:
            if cursor.set_range(table):
                for key, value in cursor:
                    if key[:1] != table:
                        return
                    yield key[1:], value

    def find(self, form: str) -> int | None:
        """Return the id of the concept with that normal form, or None."""
        raw = self.get(Table.IDS, text_key(form))
        return None if raw is None else int.from_bytes(raw, "big")

    def concept(self, number: int) -> str | None:
        """Return a concept's name, or None."""
        raw = self.get(Table.CONCEPTS, id_key(number)) if number >= 0 else None
        return None if raw is None else str(raw[4 + 4 * int.from_bytes(raw[:4], "little") :], "utf-8")

    def parts_of(self, number: int) -> NDArray[np.uint32]:
        """Return a concept's parts; that of nothing for one that is not there."""
        raw = self.get(Table.CONCEPTS, id_key(number))
        if raw is None:
            return _NOTHING
        return np.frombuffer(raw, "<u4", int.from_bytes(raw[:4], "little"), 4)

    def degree(self, number: int) -> int:
        """Return how many facts a concept has, as head or tail."""
        sides = (self.get(table, id_key(number)) for table in (Table.OUT, Table.IN))
        return sum(int.from_bytes(side[:4], "little") for side in sides if side is not None)

    def sides(
        self, numbers: Sequence[int], most: int | None
    ) -> tuple[NDArray[np.void], NDArray[np.intp], NDArray[np.uint32], NDArray[np.intp]]:
        """Return the facts of concepts as head, then as tail; how many of each side; parts of ends; degrees."""
        facts: list[Any] = []  # arrays whose bytes are joined, which takes a third of joining their records
        parts: list[Any] = []
        degrees = []
        for table in (Table.OUT, Table.IN):
            # Facts between two of the concepts are taken from the side of their head.
            among = np.array(numbers if table == Table.OUT else (), np.uint32)
            for number in numbers:
                records, ends = unpack_side(self.get(table, id_key(number)))
                degrees.append(len(records))
                if most is not None and len(records) > most:  # the first, and those that lead to the concepts
                    others = records["other"][most:]
                    rest = np.flatnonzero(places_among(among, others) >= 0)
                    end = int(records["parts"][:most].sum(dtype=np.intp))
                    ends = np.concatenate([ends[:end], *map(self.parts_of, others[rest].tolist())])
                    records = np.concatenate([records[:most], records[most:][rest]])
                facts.append(records)
                parts.append(ends)
        counts, together = np.array([*map(len, facts)], np.intp), np.array(degrees, np.intp).reshape(2, -1).sum(axis=0)
        return np.frombuffer(b"".join(facts), EDGE), counts, np.frombuffer(b"".join(parts), "<u4"), together

    # --- vectors

    def sums(self, concepts: NDArray[np.uint32]) -> NDArray[np.float32]:
        """(n, dimension): each concept's unnormalised vector; zero for one that is not there."""
        parts = [_NOTHING, *map(self.parts_of, concepts.tolist())]
        counts = np.array([*map(len, parts)])
        return sum_parts(self.rows, self.scales, np.concatenate(parts), counts)[1:]

    def cosines(
        self,
        facts: NDArray[np.void],
        parts: NDArray[np.uint32],
        owner: NDArray[np.intp],
        asked: NDArray[np.uint32],
        query: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        """(n,): the cosine with a question of each fact of the asked concepts, given the parts of their other ends."""
        own = [self.parts_of(number) for number in asked.tolist()]
        firsts = np.cumsum([0, *map(len, own)])[:-1]
        of_own = np.concatenate(own)
        values = self._products(np.concatenate([parts, of_own]), query)
        counts = facts["parts"].astype(np.intp)
        total: NDArray[np.float32] = np.add.reduceat(values.take(parts), np.cumsum(counts) - counts)
        total += np.add.reduceat(values.take(of_own), firsts).take(owner)
        total += (self.relations @ query).take(facts["relation"])
        total /= facts["norm"]
        return total

    def _products(self, parts: NDArray[np.uint32], query: NDArray[np.float32]) -> NDArray[np.float32]:
        """(parts of the graph,): the product with a question of each of these parts."""
        wanted = np.zeros(len(self.rows), np.bool_)
        wanted[parts] = True
        every = 2 * int(np.count_nonzero(wanted)) > len(wanted)  # a hub's: to read them in a row is quicker
        used = np.arange(len(wanted)) if every else np.flatnonzero(wanted)
        used_products = np.empty(len(used), np.float32)
        floats = np.empty((_CHUNK, len(query)), np.float32)
        for start in range(0, len(used), _CHUNK):
            places = used[start : start + _CHUNK]
            rows = self.rows[places[0] : places[-1] + 1] if every else self.rows.take(places, axis=0)
            some = floats[: len(rows)]
            np.copyto(some, rows)
            np.dot(some, query, out=used_products[start : start + len(rows)])
        products = np.zeros(len(self.rows), np.float32)
        products[used] = used_products * self.scales.take(used)
        return products


def sum_parts(
    rows: NDArray[np.int8], scales: NDArray[np.float32], parts: NDArray[np.uint32], counts: NDArray[np.intp]
) -> NDArray[np.float32]:
    """(n, dimension): the sums of so many parts each; a graph's parts have these rows and scales."""
    vectors = rows.take(parts, axis=0).astype(np.float32)
    vectors *= scales.take(parts)[:, None]
    starts = np.cumsum(counts) - counts
    total: NDArray[np.float32] = vectors[starts]
    for position in range(1, int(counts.max())):  # the second part of those that have one, then the third
        more = np.flatnonzero(counts > position)
        total[more] += vectors[starts[more] + position]
    return total


_NOTHING = np.zeros(1, np.uint32)
"""The part of concepts in which the embedder knows nothing: the zero vector, the first of a graph's parts."""


# --- the store


class FactStore(ABC):
    """A graph open for reading: its concepts by number, its facts as columns. Several threads may read at once.

    Every method raises GraphError where the store is closed or cannot be reached.

    Attributes:
        meta: what the graph says of itself; `embedder_fingerprint` is empty where it has no vectors.
    """

    meta: GraphMeta

    @abstractmethod
    def find(self, name: str) -> int | None:
        """Return the id of the concept with that normal form, or None."""

    @abstractmethod
    def with_stems(self, key: str) -> list[int]:
        """Ids of the concepts whose content words have these stems (see `stem_key`), in ascending order."""

    @abstractmethod
    def concept(self, number: int) -> str:
        """Return a concept as it is written; raise GraphError for an id that the graph does not have."""

    @abstractmethod
    def degree(self, number: int) -> int:
        """Return how many facts a concept has, as head or tail; a fact about itself counts twice."""

    @abstractmethod
    def edges_of(
        self, concepts: Iterable[int], query: NDArray[np.float32] | None = None, most: int | None = None
    ) -> Edges:
        """Return the facts with one of the concepts as head or tail, each once; the rows' order is the store's own.

        Args:
            concepts: their numbers.
            query: of unit length (dimension,). A store that has vectors then gives the facts' cosines with it; one
                without vectors ignores it.
            most: facts of each side of a concept that are needed: the heaviest, and all that lead to another of the
                concepts. A store may give more. None: all.
        """

    @abstractmethod
    def facts(self) -> Iterator[Fact]:
        """Return every fact of the graph, by head, the heaviest of each first."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the file or the connections; a second time does nothing."""

    def fact(self, edges: Edges, row: int) -> Fact:
        """One row as a fact."""
        return Fact(
            head=self.concept(edges.head.item(row)),
            relation=self.meta.relations[edges.relation.item(row)],
            tail=self.concept(edges.tail.item(row)),
            weight=float(str(edges.weight[row])),  # its shortest decimal: 2.828, not 2.8280000686645508
            provenance=self.meta.provenances[edges.provenance.item(row)],
            graph=self.meta.name,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class GraphStore(FactStore):
    """A graph file opened for reading: one state of the graph, whatever is changed meanwhile.

    Many threads and processes may read at once.

    Args:
        path: the graph file.

    Raises:
        GraphError: no such file, not a graph, cut short, or of another version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._state: GraphState | None = _read_state(path)
        self.meta = self._state.meta
        self._names: dict[int, str] = {}

    def _live(self) -> GraphState:
        if self._state is None:
            raise GraphError(f"the graph {self.path} is closed", hint="open it again")
        if self._state.process != os.getpid():  # a forked process must not use the transaction of its parent
            self._state = _read_state(self.path)
            self.meta, self._names = self._state.meta, {}
        return self._state

    def newest(self) -> GraphStore:
        """Return the store itself where nothing has changed, else one of the newest state; GraphError if it is gone."""
        if self._state is not None and self._state.process != os.getpid():
            return GraphStore(self.path)
        state = self._live()
        try:
            status = self.path.stat()
            same = (status.st_dev, status.st_ino) == state.file.key
        except FileNotFoundError:
            same = True  # moved away: what was opened can still be read
        if same and state.file.env.info()["last_txnid"] == state.transaction.id():
            return self
        return GraphStore(self.path)

    def close(self) -> None:
        """See `FactStore`."""
        self._state = None

    # --- concepts

    def find(self, name: str) -> int | None:
        """See `FactStore`."""
        return self._live().find(normalise(name))

    def with_stems(self, key: str) -> list[int]:
        """See `FactStore`."""
        state = self._live()
        raw = state.get(Table.KEYS, text_key(key)) if key else None
        numbers: list[int] = np.frombuffer(raw, "<u4").tolist() if raw is not None else []
        own = state.find(key)
        if own is not None and concept_key(self.concept(own)) == key:
            numbers.append(own)
        return sorted(numbers)

    def concept(self, number: int) -> str:
        """See `FactStore`."""
        state = self._live()
        name = self._names.get(number)
        if name is None:
            name = state.concept(number)
            if name is None:
                raise GraphError(f"{self.path} has no concept {number}", hint=REBUILD)
            if len(self._names) >= _REMEMBERED:
                self._names.clear()
            self._names[number] = name
        return name

    def degree(self, number: int) -> int:
        """See `FactStore`."""
        return self._live().degree(number)

    # --- facts

    def edges_of(
        self, concepts: Iterable[int], query: NDArray[np.float32] | None = None, most: int | None = None
    ) -> Edges:
        """See `FactStore`."""
        state = self._live()
        numbers = sorted(set(concepts))
        asked = np.array(numbers, np.uint32)
        facts, counts, parts, degrees = state.sides(numbers, most)
        owner = np.tile(np.arange(len(numbers)), 2).repeat(counts)
        outgoing = int(counts[: len(numbers)].sum())
        position = places_among(asked, facts["other"])
        # Facts between two of the concepts stand on both sides: they are taken as the head's.
        taken = position < 0
        taken[:outgoing] = True
        cosines = None
        if query is not None and state.meta.dimension:
            cosines = state.cosines(facts, parts, owner, asked, query) if len(facts) else np.empty(0, np.float32)
        rows = np.flatnonzero(taken)
        facts, owner, position = facts[rows], owner[rows], position[rows]
        first = rows < outgoing
        other, own = facts["other"], asked[owner]
        return Edges(
            head=np.where(first, own, other),
            relation=facts["relation"].copy(),
            tail=np.where(first, other, own),
            weight=facts["weight"].copy(),
            provenance=facts["provenance"].copy(),
            head_place=np.where(first, owner, position),
            tail_place=np.where(first, position, owner),
            asked=asked,
            degrees=degrees,
            cosines=None if cosines is None else cosines[rows],
        )

    def facts(self) -> Iterator[Fact]:
        """See `FactStore`."""
        for key, _ in self._live().items(Table.OUT):
            edges = self.edges_of([int.from_bytes(key, "big")])
            for row in np.flatnonzero(edges.head_place == 0).tolist():
                yield self.fact(edges, row)

    def concept_sums(self, concepts: NDArray[np.uint32]) -> NDArray[np.float32]:
        """(n, dimension): each concept's unnormalised vector."""
        return self._live().sums(concepts)


def _read_state(path: Path) -> GraphState:
    """Return the newest state of a graph file."""
    file = open_file(path)
    transaction = file.env.begin(buffers=True)
    try:
        state = GraphState(file, transaction, str(path))
    except (GraphError, lmdb.Error):
        _release(transaction, file, os.getpid())
        raise
    # A reader holds the state, so memory that is still read is never unmapped.
    weakref.finalize(state, _release, transaction, file, os.getpid())
    return state


_inherited: list[object] = []
"""Transactions of the process that this one was forked from: to end them would free memory that it still reads."""


def _release(transaction: lmdb.Transaction, file: MappedFile, process: int) -> None:
    if process != os.getpid():
        _inherited.append((transaction, file))
        return
    transaction.abort()
    file.close()

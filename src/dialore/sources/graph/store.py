"""The embedded graph store: opens a graph file in about a millisecond and reads it through a memory map."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

import lmdb
import numpy as np
from pydantic import ValidationError

from dialore.errors import GraphError
from dialore.knowledge import Fact
from dialore.sources.graph.layout import EDGE, FORMAT, GraphMeta, id_key, text_key
from dialore.sources.graph.mapped import REBUILD, close_file, open_file
from dialore.text import normalise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Edges:
    """Facts as columns, one row a fact; concepts and relations by number.

    `norm` is the length of the fact's vector: the sum of its head's, relation's and tail's.
    """

    head: NDArray[np.uint32]
    relation: NDArray[np.uint16]
    tail: NDArray[np.uint32]
    weight: NDArray[np.float32]
    norm: NDArray[np.float32]
    provenance: NDArray[np.uint16]

    def __len__(self) -> int:
        """How many facts."""
        return len(self.head)

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Edges:
        """Some of the rows, by number or mask."""
        columns = (self.head, self.relation, self.tail, self.weight, self.norm, self.provenance)
        return Edges(*(column[rows] for column in columns))  # type: ignore[arg-type]

    def distinct(self) -> Edges:
        """Each fact once, in order of head, relation and tail."""
        if not len(self):
            return self
        # 26 bits a concept and 12 a relation hold graphs of 67 million concepts.
        key = (self.head.astype(np.uint64) << 38) | (self.relation.astype(np.uint64) << 26) | self.tail
        _, first = np.unique(key, return_index=True)
        return self.take(first)


def _columns(parts: Sequence[tuple[int, NDArray[np.void], bool]]) -> Edges:
    """Edges from the records of several concepts; `outgoing` tells which end the concept is."""
    records = np.concatenate([part for _, part, _ in parts]) if parts else np.empty(0, EDGE)
    sizes = [len(part) for _, part, _ in parts]
    own = np.repeat(np.array([number for number, _, _ in parts], np.uint32), sizes)
    outgoing = np.repeat(np.array([side for _, _, side in parts], bool), sizes)
    other = records["other"]
    return Edges(
        head=np.where(outgoing, own, other),
        relation=records["relation"],
        tail=np.where(outgoing, other, own),
        weight=records["weight"],
        norm=records["norm"],
        provenance=records["provenance"],
    )


class GraphStore:
    """A graph file opened for reading. Many threads and processes may read at once.

    Args:
        path: the graph file.

    Raises:
        GraphError: no such file, not a graph, cut short, or of another version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open_file(path)
        self._transaction = self._file.env.begin(buffers=True)
        self._closed = False
        try:
            self.meta = self._read_meta()
        except (lmdb.Error, ValidationError) as error:
            self.close()
            raise GraphError(f"{path} is not a graph or is damaged", mend=REBUILD) from error
        except GraphError:
            self.close()
            raise

    def _read_meta(self) -> GraphMeta:
        raw = self._get(b"meta", b"meta")
        if raw is None:
            raise GraphError(f"{self.path} is not a finished graph", mend=REBUILD)
        meta = GraphMeta.model_validate_json(bytes(raw))
        if meta.format != FORMAT:
            raise GraphError(f"{self.path} has layout {meta.format}; this version reads {FORMAT}", mend=REBUILD)
        return meta

    def _get(self, table: bytes, key: bytes) -> memoryview | None:
        if self._closed:
            raise GraphError(f"the graph {self.path} is closed", mend="open it again")
        found: memoryview | None = self._transaction.get(key, db=self._file.tables[table])
        return found

    def close(self) -> None:
        """Let go of the file; a second time does nothing."""
        if self._closed:
            return
        self._closed = True
        # Arrays over memory that is no longer mapped would end the process when read.
        for view in ("_vectors", "_scales"):
            self.__dict__.pop(view, None)
        self._transaction.abort()
        close_file(self._file)

    def __enter__(self) -> Self:
        """The store itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    # --- concepts

    def find(self, name: str) -> int | None:
        """The id of the concept with that normal form, or None."""
        raw = self._get(b"ids", text_key(normalise(name)))
        return int(np.frombuffer(raw, "<u4")[0]) if raw is not None else None

    def with_stems(self, key: str) -> list[int]:
        """Ids of the concepts whose content words have these stems (see `layout.stem_key`)."""
        raw = self._get(b"keys", text_key(key))
        return [] if raw is None else np.frombuffer(raw, "<u4").tolist()

    def concept(self, number: int) -> str:
        """A concept as it is written; raises GraphError for an id that the graph does not have."""
        raw = self._get(b"names", id_key(number))
        if raw is None:
            raise GraphError(f"{self.path} has no concept {number}", mend=REBUILD)
        return bytes(raw).decode()

    def degree(self, number: int) -> int:
        """How many facts a concept has, as head or tail."""
        return len(self._records(b"out", number)) + len(self._records(b"in", number))

    # --- facts

    def _records(self, table: bytes, number: int) -> NDArray[np.void]:
        raw = self._get(table, id_key(number))
        return np.empty(0, EDGE) if raw is None else np.frombuffer(raw, EDGE)

    def edges_of(self, concepts: Sequence[int]) -> Edges:
        """The facts with one of the concepts as head or tail, each once."""
        parts = [(number, self._records(b"out", number), True) for number in concepts]
        parts += [(number, self._records(b"in", number), False) for number in concepts]
        return _columns(parts).distinct()

    def fact(self, edges: Edges, row: int) -> Fact:
        """One row as a fact."""
        return Fact(
            head=self.concept(int(edges.head[row])),
            relation=self.meta.relations[int(edges.relation[row])],
            tail=self.concept(int(edges.tail[row])),
            weight=float(str(edges.weight[row])),  # the shortest decimal of a float32: 2.828, not 2.8280000686645508
            provenance=self.meta.provenances[int(edges.provenance[row])],
            graph=self.meta.name,
        )

    def facts(self) -> Iterator[Fact]:
        """Every fact of the graph, by head."""
        for number in range(self.meta.concepts):
            edges = _columns([(number, self._records(b"out", number), True)])
            for row in range(len(edges)):
                yield self.fact(edges, row)

    # --- vectors

    @cached_property
    def _vectors(self) -> NDArray[np.int8]:
        raw = self._get(b"meta", b"vectors") or b""
        return np.frombuffer(raw, np.int8).reshape(-1, max(1, self.meta.dimension))

    @cached_property
    def _scales(self) -> NDArray[np.float32]:
        return np.frombuffer(self._get(b"meta", b"scales") or b"", np.float32)

    @cached_property
    def relation_vectors(self) -> NDArray[np.float32]:
        """(relations, dimension): the unnormalised sum of each relation's words."""
        raw = self._get(b"meta", b"relations") or b""
        return np.frombuffer(raw, np.float32).reshape(-1, max(1, self.meta.dimension)).copy()

    def concept_products(self, concepts: NDArray[np.uint32], query: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n,): the dot product of each concept's unnormalised vector with the query (dimension,)."""
        products: NDArray[np.float32] = (self._vectors[concepts].astype(np.float32) @ query) * self._scales[concepts]
        return products

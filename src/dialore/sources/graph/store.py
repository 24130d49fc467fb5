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
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

_CHUNK = 1024
"""Concepts whose vectors are multiplied at once: few enough to stay in a processor's cache."""


@dataclass(frozen=True, slots=True)
class Edges:
    """Facts as columns, one row a fact; concepts and relations by number.

    `norm` is the length of the fact's vector: the sum of its head's, relation's and tail's. `asked` holds the concepts
    whose facts these are, in ascending order; `head_place` and `tail_place` are each end's place in it, -1 for an end
    that was not asked for. Each row has one that was.
    """

    head: NDArray[np.uint32]
    relation: NDArray[np.uint16]
    tail: NDArray[np.uint32]
    weight: NDArray[np.float32]
    norm: NDArray[np.float32]
    provenance: NDArray[np.uint16]
    head_place: NDArray[np.intp]
    tail_place: NDArray[np.intp]
    asked: NDArray[np.uint32]

    def __len__(self) -> int:
        """How many facts."""
        return len(self.head)

    def between(self, some: Sequence[int], others: Sequence[int]) -> NDArray[np.bool_]:
        """Which facts have their head among some of the asked concepts and their tail among others, or the reverse."""
        # The last entry is what the place -1 of an end that was not asked for finds.
        one, other = (np.append(np.isin(self.asked, np.array(side, np.uint32)), False) for side in (some, others))
        head, tail = self.head_place, self.tail_place
        found: NDArray[np.bool_] = (one[head] & other[tail]) | (other[head] & one[tail])
        return found

    def best(self, scores: NDArray[np.float32], rows: NDArray[np.intp], top: int) -> list[int]:
        """The best-scored of the rows, best first; equal ones in order of head, relation and tail."""
        if top < len(rows):
            of_rows = scores[rows]
            least = np.partition(of_rows, len(rows) - top)[len(rows) - top] if top > 0 else np.inf
            rows = rows[of_rows >= least]
        order = np.lexsort((self.tail[rows], self.relation[rows], self.head[rows], -scores[rows]))
        chosen: list[int] = rows[order[:top]].tolist()
        return chosen


def _places(asked: NDArray[np.uint32], ends: NDArray[np.uint32]) -> NDArray[np.intp]:
    """Each end's place among the concepts asked for, -1 where it is none of them."""
    if not len(asked):
        return np.full(len(ends), -1)
    places = np.minimum(np.searchsorted(asked, ends), len(asked) - 1)
    places[asked[places] != ends] = -1
    return places


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
        key = id_key(number)
        return sum(len(self._get(table, key) or b"") for table in (b"out", b"in")) // EDGE.itemsize

    # --- facts

    def _records(self, table: bytes, concepts: NDArray[np.uint32]) -> tuple[NDArray[np.void], NDArray[np.intp]]:
        """The records of several concepts in a row, and the place among the concepts that each belongs to."""
        raw = [self._get(table, id_key(number)) or b"" for number in concepts.tolist()]
        places = np.repeat(np.arange(len(raw)), [len(part) // EDGE.itemsize for part in raw])
        return np.frombuffer(b"".join(raw), EDGE), places

    def edges_of(self, concepts: Iterable[int]) -> Edges:
        """The facts with one of the concepts as head or tail, each once."""
        asked = np.array(sorted(set(concepts)), np.uint32)
        outgoing, heads = self._records(b"out", asked)
        incoming, tails = self._records(b"in", asked)
        # Facts between two of the concepts are among both: they are taken as the head's.
        new = _places(asked, incoming["other"]) < 0
        incoming, tails = incoming[new], tails[new]
        other, relation, weight, norm, provenance = (
            np.concatenate([outgoing[name], incoming[name]])
            for name in ("other", "relation", "weight", "norm", "provenance")
        )
        middle = len(outgoing)
        return Edges(
            head=np.concatenate([asked[heads], other[middle:]]),
            relation=relation,
            tail=np.concatenate([other[:middle], asked[tails]]),
            weight=weight,
            norm=norm,
            provenance=provenance,
            head_place=np.concatenate([heads, np.full(len(tails), -1)]),
            tail_place=np.concatenate([_places(asked, other[:middle]), tails]),
            asked=asked,
        )

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
        """Every fact of the graph, by head, the heaviest of each first."""
        for number in range(self.meta.concepts):
            edges = self.edges_of([number])
            for row in np.flatnonzero(edges.head_place == 0).tolist():
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
        products = np.empty(len(concepts), np.float32)
        for start in range(0, len(concepts), _CHUNK):
            part = slice(start, start + _CHUNK)
            products[part] = self._vectors[concepts[part]].astype(np.float32) @ query
        products *= self._scales[concepts]
        return products

    def cosines(self, edges: Edges, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n,): each fact's cosine with a query of unit length (dimension,), from the graph's own vectors.

        A fact's vector is the sum of its parts', so each asked concept is multiplied once, whatever its facts.
        """
        if not len(edges):
            return np.empty(0, np.float32)
        asked = np.append(self.concept_products(edges.asked, query), np.float32(0))
        total: NDArray[np.float32] = (self.relation_vectors @ query)[edges.relation]
        for ends, places in ((edges.head, edges.head_place), (edges.tail, edges.tail_place)):
            total += asked[places]
            others = np.flatnonzero(places < 0)
            total[others] += self.concept_products(ends[others], query)
        return total / edges.norm

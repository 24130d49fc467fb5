"""A graph as it is at one moment: the file as it was built, and the changes up to a record of its journal."""

from __future__ import annotations

import functools
import weakref
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import lmdb
import numpy as np
from pydantic import ValidationError

from dialore.errors import GraphError
from dialore.knowledge import Fact
from dialore.sources.graph.store.edges import Edges, places_among
from dialore.sources.graph.store.hubs import LARGE, Hubs
from dialore.sources.graph.store.journal import records
from dialore.sources.graph.store.layout import EDGE, FORMAT, GraphMeta, concept_key, id_key, text_key
from dialore.sources.graph.store.mapped import REBUILD, MappedFile, close_file, open_file
from dialore.sources.graph.store.overlay import Overlay
from dialore.sources.graph.store.vectors import PartVectors
from dialore.text import normalise

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from dialore.sources.graph.store.hubs import HubSide
    from dialore.sources.graph.store.journal import Record
    from dialore.sources.graph.store.overlay import Side


_REMEMBERED = 4096
"""Names that are kept, about half a megabyte: some forty questions' worth."""


class BuiltGraph:
    """A graph file as it was built. It is unmapped when nothing refers to it any more.

    Args:
        path: the file.

    Raises:
        GraphError: no such file, not a graph, cut short, or of another version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = open_file(path)
        self._transaction = self.file.env.begin(buffers=True)
        # What reads the file keeps this object, so memory that is still read is never unmapped.
        self._release = weakref.finalize(self, _release, self._transaction, self.file)
        try:
            self.meta = self._read_meta()
        except (lmdb.Error, ValidationError) as error:
            self._release()
            raise GraphError(f"{path} is not a graph or is damaged", mend=REBUILD) from error
        except GraphError:
            self._release()
            raise

    def _read_meta(self) -> GraphMeta:
        raw = self.get(b"meta", b"meta")
        if raw is None:
            raise GraphError(f"{self.path} is not a finished graph", mend=REBUILD)
        meta = GraphMeta.model_validate_json(bytes(raw))
        if meta.format != FORMAT:
            raise GraphError(f"{self.path} has layout {meta.format}; this version reads {FORMAT}", mend=REBUILD)
        return meta

    def get(self, table: bytes, key: bytes) -> memoryview | None:
        """A value, in the file's own memory."""
        found: memoryview | None = self._transaction.get(key, db=self.file.tables[table])
        return found

    def array(self, name: str, dtype: Any, width: int = 0) -> NDArray[Any]:  # noqa: ANN401 - whatever numpy takes
        """An array of the table `meta`, in the file's own memory; rows of a width where one is given."""
        raw = np.frombuffer(self.get(b"meta", name.encode()) or b"", dtype)
        return raw.reshape(-1, width) if width else raw

    @cached_property
    def vectors(self) -> PartVectors:
        """The concepts' vectors."""
        rows = self.array("parts", np.int8, max(1, self.meta.dimension))
        wide = np.uint32 if len(rows) > np.iinfo(np.uint16).max else np.uint16
        ends = self.array("ends", np.uint32)
        return PartVectors(rows, self.array("scales", np.float32), ends, self.array("made", wide))

    @cached_property
    def numbers(self) -> NDArray[np.uint32]:
        """The embedder's numbers of the parts."""
        return self.array("numbers", np.uint32)

    @cached_property
    def relation_vectors(self) -> NDArray[np.float32]:
        """(relations, dimension): the unnormalised sum of each relation's words."""
        return self.array("relations", np.float32, max(1, self.meta.dimension)).copy()


def _release(transaction: lmdb.Transaction, file: MappedFile) -> None:
    transaction.abort()
    close_file(file)


@dataclass(frozen=True)
class GraphVersion:
    """A graph at one moment. Nothing of it ever changes, so threads share it.

    Attributes:
        built: the file as it was built.
        meta: what the graph says of itself.
        end: where the journal was read up to.
        overlay: the changes; None where there are none.
        vectors: the concepts' vectors.
        numbers: the embedder's numbers of the vectors' parts.
        relation_vectors: (relations, dimension), unnormalised.
        laid_out: sides of hubs that were asked for before it and are the same still.
        names: concepts that were asked for of late: a question asks for the same ones several times.
    """

    built: BuiltGraph
    meta: GraphMeta
    end: int
    overlay: Overlay | None = None
    changed: tuple[PartVectors, NDArray[np.uint32], NDArray[np.float32]] | None = None
    laid_out: Mapping[Side, HubSide] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path) -> GraphVersion:
        """The newest version of a graph file; raises GraphError as BuiltGraph does."""
        built = BuiltGraph(path)
        return cls(built, built.meta, built.file.end).latest()

    @property
    def vectors(self) -> PartVectors:
        """The concepts' vectors."""
        return self.changed[0] if self.changed else self.built.vectors

    @property
    def numbers(self) -> NDArray[np.uint32]:
        """The embedder's numbers of the vectors' parts."""
        return self.changed[1] if self.changed else self.built.numbers

    @property
    def relation_vectors(self) -> NDArray[np.float32]:
        """(relations, dimension): the unnormalised sum of each relation's words."""
        return self.changed[2] if self.changed else self.built.relation_vectors

    @cached_property
    def hubs(self) -> Hubs:
        """The hubs that were asked for, as they are now."""
        return Hubs(self.vectors, self.laid_out)

    # --- changes

    def latest(self) -> GraphVersion:
        """The newest version of the same file; itself where there is no newer one."""
        found = list(records(self.built.file.handle, self.end))
        if not found:
            return self
        changes = [record for record, _ in found]
        last, end = found[-1]
        names = sum(len(record.names) for record in changes)
        meta = self.meta.model_copy(
            update={
                "facts": last.facts,
                "concepts": self.meta.concepts + names,
                "fingerprint": last.fingerprint,
                "languages": last.languages,
                "relations": [*self.meta.relations, *(name for record in changes for name in record.relations)],
                "provenances": [*self.meta.provenances, *(name for record in changes for name in record.provenances)],
            }
        )
        overlay = (self.overlay or Overlay(self.built.meta.concepts)).after(changes)
        hubs = {side: hub for side, hub in list(self.hubs.sides.items()) if side not in overlay}
        vectors = self._vectors_after(changes)
        return GraphVersion(self.built, meta, end, overlay, vectors, {} if vectors is not self.changed else hubs)

    def _vectors_after(
        self, changes: Sequence[Record]
    ) -> tuple[PartVectors, NDArray[np.uint32], NDArray[np.float32]] | None:
        with_vectors = [record.arrays for record in changes if "parts" in record.arrays]
        if not with_vectors:
            return self.changed
        width = self.meta.dimension

        def joined(name: str) -> NDArray[Any]:
            return np.concatenate([arrays[name] for arrays in with_vectors])

        made = np.split(joined("made"), np.cumsum(joined("counts"))[:-1]) if len(joined("counts")) else []
        return (
            self.vectors.extended(made, joined("parts").reshape(-1, width), joined("scales")),
            np.concatenate([self.numbers, joined("numbers")]),
            np.concatenate([self.relation_vectors, joined("relations").reshape(-1, width)]),
        )

    # --- concepts

    def find(self, name: str) -> int | None:
        """The id of the concept with that normal form, or None."""
        form = normalise(name)
        raw = self.built.get(b"ids", text_key(form))
        if self.overlay is None:
            return int.from_bytes(raw, "little") if raw is not None else None
        found = int.from_bytes(raw, "little") if raw is not None else self.overlay.ids.get(form)
        return found if found is not None and self._has_facts(found) else None

    def with_stems(self, key: str) -> list[int]:
        """Ids of the concepts whose content words have these stems, in ascending order."""
        found = self._built_with_stems(key)
        if self.overlay is None:
            return found
        return [number for number in (*found, *self.overlay.keys.get(key, ())) if self._has_facts(number)]

    def _built_with_stems(self, key: str) -> list[int]:
        raw = self.built.get(b"keys", text_key(key))
        if raw is not None:
            found: list[int] = np.frombuffer(raw, "<u4").tolist()
            return found
        # A concept that is its own stem, and the only one with it, has no entry of its own.
        alone = self.built.get(b"ids", text_key(key))
        number = int.from_bytes(alone, "little") if alone is not None else None
        return [number] if number is not None and concept_key(self.concept(number)) == key else []

    def _has_facts(self, number: int) -> bool:
        """Whether a concept has any fact: one that lost all to changes is as good as gone."""
        overlay = self.overlay
        if overlay is None or ((b"out", number) not in overlay and (b"in", number) not in overlay):
            return True
        return self.degree(number) > 0

    def any_concept(self, form: str) -> int | None:
        """The id of the concept with that normal form, also of one that has no facts any more."""
        raw = self.built.get(b"ids", text_key(form))
        if raw is not None:
            return int.from_bytes(raw, "little")
        return self.overlay.ids.get(form) if self.overlay else None

    def concept(self, number: int) -> str:
        """A concept as it is written; raises GraphError for an id that the graph does not have."""
        found = self.names.get(number)
        if found is None:
            found = self._name(number)
            if len(self.names) >= _REMEMBERED:
                self.names.clear()
            self.names[number] = found
        return found

    def _name(self, number: int) -> str:
        raw = self.built.get(b"names", id_key(number))
        if raw is not None:
            return str(raw, "utf-8")
        if self.overlay and 0 <= number - self.overlay.first < len(self.overlay.names):
            return self.overlay.names[number - self.overlay.first]
        raise GraphError(f"{self.built.path} has no concept {number}", mend=REBUILD)

    def degree(self, number: int) -> int:
        """How many facts a concept has, as head or tail."""
        return sum(len(self.side(table, number)) for table in (b"out", b"in")) // EDGE.itemsize

    # --- facts

    def side(self, table: bytes, number: int) -> memoryview | bytes:
        """The records of a concept's facts as head (`out`) or as tail (`in`), the heaviest first."""
        raw = self.built.get(table, id_key(number))
        if self.overlay is not None and (table, number) in self.overlay:
            return self.overlay.records((table, number), np.frombuffer(raw or b"", EDGE)).tobytes()
        return b"" if raw is None else raw

    def _cut(
        self,
        sides: list[memoryview | bytes],
        large: list[int],
        query: NDArray[np.float32],
        keep: int,
        asked: NDArray[np.uint32],
    ) -> None:
        """Of large ones among the sides of concepts, `out` before `in`, leave the records near the question alone."""
        concepts = asked.tolist()
        tables = {place: b"in" if place >= len(concepts) else b"out" for place in large}
        places = {(table, concepts[place % len(concepts)]): place for place, table in tables.items()}
        hubs = {side: np.frombuffer(sides[place], EDGE) for side, place in places.items()}
        near = self.hubs.near(hubs, query, self.relation_vectors @ query, keep, asked)
        for side, rows in near.items():
            sides[places[side]] = hubs[side][rows].tobytes()

    def edges_of(self, concepts: Iterable[int], query: NDArray[np.float32] | None = None, keep: int = 1000) -> Edges:
        """The facts with one of the concepts as head or tail, each once; of hubs those near the query if one is given.

        Exact: on each side of a concept all facts are there that lead to another of the concepts and, of the rest,
        those whose cosines are the `keep` highest; what is left out has lower cosines than all of these.
        """
        numbers = sorted(set(concepts))
        asked = np.array(numbers, np.uint32)
        sides = [self.side(table, number) for table in (b"out", b"in") for number in numbers]
        kept = _counts(sides)
        counts = kept[: len(numbers)] + kept[len(numbers) :]
        if query is not None and self.meta.dimension:
            large = np.flatnonzero(kept > max(LARGE, 2 * keep)).tolist()
            if large:
                self._cut(sides, large, query, keep, asked)
                kept = _counts(sides)
        records = np.frombuffer(b"".join(sides), EDGE)
        places = np.arange(len(numbers))
        heads, tails = places.repeat(kept[: len(numbers)]), places.repeat(kept[len(numbers) :])
        middle = len(heads)
        outgoing, incoming = records[:middle], records[middle:]
        # Facts between two of the concepts are among both: they are taken as the head's.
        new = places_among(asked, incoming["other"]) < 0
        incoming, tails = incoming[new], tails[new]
        other, relation, weight, norm, provenance = (
            np.concatenate([outgoing[name], incoming[name]])
            for name in ("other", "relation", "weight", "norm", "provenance")
        )
        return Edges(
            head=np.concatenate([asked[heads], other[middle:]]),
            relation=relation,
            tail=np.concatenate([other[:middle], asked[tails]]),
            weight=weight,
            norm=norm,
            provenance=provenance,
            head_place=np.concatenate([heads, np.full(len(tails), -1)]),
            tail_place=np.concatenate([places_among(asked, other[:middle]), tails]),
            asked=asked,
            counts=counts,
            version=self,
        )

    def fact(self, edges: Edges, row: int) -> Fact:
        """One row as a fact."""
        return Fact(
            head=self.concept(edges.head.item(row)),
            relation=self.meta.relations[edges.relation.item(row)],
            tail=self.concept(edges.tail.item(row)),
            weight=_shortest(edges.weight.item(row)),
            provenance=self.meta.provenances[edges.provenance.item(row)],
            graph=self.meta.name,
        )

    def cosines(self, edges: Edges, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n,): each fact's cosine with a query of unit length (dimension,)."""
        if not len(edges):
            return np.empty(0, np.float32)
        heads, tails = np.flatnonzero(edges.head_place < 0), np.flatnonzero(edges.tail_place < 0)
        ends = np.concatenate([edges.asked, edges.head[heads], edges.tail[tails]])
        products = self.vectors.products(ends, query)
        asked = np.append(products[: len(edges.asked)], np.float32(0))
        others = products[len(edges.asked) :]
        total: NDArray[np.float32] = (self.relation_vectors @ query).take(edges.relation)
        total += asked.take(edges.head_place, mode="wrap")
        total += asked.take(edges.tail_place, mode="wrap")
        total[heads] += others[: len(heads)]
        total[tails] += others[len(heads) :]
        total /= edges.norm
        return total


def _counts(sides: Sequence[memoryview | bytes]) -> NDArray[np.intp]:
    """How many records each side has."""
    return np.array([*map(len, sides)], np.intp) // EDGE.itemsize


@functools.lru_cache(maxsize=4096)
def _shortest(weight: float) -> float:
    """The shortest decimal of a float32: 2.828, not 2.8280000686645508."""
    return float(str(np.float32(weight)))

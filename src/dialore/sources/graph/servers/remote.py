"""What the stores that lie on a server have in common: one round trip a question, and what was heard is remembered."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import ValidationError

from dialore.errors import GraphError
from dialore.knowledge import Fact
from dialore.sources.graph.store.edges import Edges, places_among
from dialore.sources.graph.store.layout import MAX_KEY, GraphMeta
from dialore.text import normalise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import TracebackType

    from numpy.typing import NDArray

    from dialore.sources.graph.servers.copying import Step

Column = Literal["id", "form", "stems"]
DEFAULT = "dialore"
"""The graph's name where a URL has none."""
SECONDS = 10
"""How long to wait for a connection."""
LOAD = "load it with `dialore.sources.graph.load_store`"
_REMEMBERED = 200_000
"""Names, forms and keys that a store keeps of each, about 20 MB: a linked dialogue asks for the same ones again."""
_HEADS = 1000
"""Concepts whose facts are asked for at once when all are read."""


class FoundConcept(NamedTuple):
    """A concept as a server knows it."""

    id: int
    name: str
    degree: int


class FoundFacts(NamedTuple):
    """Facts as a server sends them: columns of numbers, and the name of each one's end that was not asked for.

    Where both ends were asked for, it is the tail's name.
    """

    head: NDArray[np.integer[Any]]
    relation: NDArray[np.integer[Any]]
    tail: NDArray[np.integer[Any]]
    weight: NDArray[np.floating[Any]]
    provenance: NDArray[np.integer[Any]]
    names: Sequence[str]


class RemoteStore(ABC):
    """A graph on a server, without vectors. Many threads may read at once.

    Attributes:
        place: where it is, for people: no user, no password.
        meta: what the graph says of itself.
    """

    def __init__(self, url: str) -> None:
        self.place, self.meta = self._open(url)
        self._concepts: dict[int, FoundConcept] = {}
        self._ids: dict[str, int | None] = {}
        self._keys: dict[str, list[int]] = {}
        self._names: dict[int, str] = {}

    @classmethod
    def load(cls, facts: Iterable[Fact], url: str, *, name: str = "", on_step: Step | None = None) -> Self:
        """Load facts into a database, in place of the graph of that name if there is one, and open it.

        Args:
            facts: the facts; duplicates are merged, keeping the heaviest weight.
            url: where to, as for the store itself.
            name: the graph's name, carried by its facts; the URL's fragment if not given.
            on_step: called with a step's name, what is done of it and its total.

        Raises:
            GraphError: no facts, no server, no right to write, another load under way; the old graph stays.
        """
        cls._fill(facts, url, name, on_step or (lambda _name, _done, _total: None))
        return cls(url)

    @classmethod
    @abstractmethod
    def _fill(cls, facts: Iterable[Fact], url: str, name: str, step: Step) -> None:
        """Write the facts, to be seen when all of them are there."""

    @abstractmethod
    def _open(self, url: str) -> tuple[str, GraphMeta]:
        """Connect; the graph's place and what it says of itself. Nothing is left open where that fails."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the connections; a second time does nothing."""

    @abstractmethod
    def _concepts_by(self, column: Column, keys: list[Any]) -> Sequence[FoundConcept]:
        """The concepts that have one of the keys there, by id; several keys only where they are ids."""

    @abstractmethod
    def _facts_of(self, concepts: list[int]) -> FoundFacts:
        """The facts with one of the concepts as head or tail, each once, in one round trip."""

    def __enter__(self) -> Self:
        """The store itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    # --- concepts

    def _learn(self, found: Iterable[FoundConcept]) -> list[int]:
        _make_room(self._concepts)
        self._concepts.update((concept.id, concept) for concept in found)
        return [concept.id for concept in found]

    def find(self, name: str) -> int | None:
        """The id of the concept with that normal form, or None."""
        form = normalise(name)
        if form not in self._ids:
            found = self._learn(self._concepts_by("form", [key_text(form)]))
            _make_room(self._ids)
            self._ids[form] = found[0] if found else None
        return self._ids.get(form)

    def with_stems(self, key: str) -> list[int]:
        """Ids of the concepts whose content words have these stems (see `layout.stem_key`)."""
        known = self._keys.get(key)
        if known is None:
            known = self._learn(self._concepts_by("stems", [key_text(key)])) if key else []
            _make_room(self._keys)
            self._keys[key] = known
        return list(known)

    def _known(self, number: int) -> FoundConcept:
        known = self._concepts.get(number)
        if known is None:
            found = self._concepts_by("id", [number])
            if not found:
                raise GraphError(f"{self.place} has no concept {number}", mend="load it again, or open it again")
            self._learn(found)
            known = found[0]
        return known

    def concept(self, number: int) -> str:
        """A concept as it is written; raises GraphError for an id that the graph does not have."""
        return self._names.get(number) or self._known(number).name

    def degree(self, number: int) -> int:
        """How many facts a concept has, as head or tail."""
        return self._known(number).degree

    # --- facts

    def edges_of(self, concepts: Iterable[int]) -> Edges:
        """The facts with one of the concepts as head or tail, each once, in one round trip.

        The names of their other ends come with them and are remembered. There being no vectors, `norm` is 1 throughout.
        """
        numbers = sorted(set(concepts))
        asked = np.array(numbers, np.uint32)
        found = self._facts_of(numbers)
        head, tail = found.head.astype(np.uint32), found.tail.astype(np.uint32)
        head_place = places_among(asked, head)
        _make_room(self._names)
        self._names.update(zip(np.where(head_place < 0, head, tail).tolist(), found.names, strict=True))
        return Edges(
            head=head,
            relation=found.relation.astype(np.uint16),
            tail=tail,
            weight=found.weight.astype(np.float32),
            norm=np.ones(len(head), np.float32),
            provenance=found.provenance.astype(np.uint16),
            head_place=head_place,
            tail_place=places_among(asked, tail),
            asked=asked,
        )

    def fact(self, edges: Edges, row: int) -> Fact:
        """One row as a fact."""
        return Fact(
            head=self.concept(int(edges.head[row])),
            relation=self.meta.relations[int(edges.relation[row])],
            tail=self.concept(int(edges.tail[row])),
            weight=float(str(edges.weight[row])),  # the shortest decimal of a float32
            provenance=self.meta.provenances[int(edges.provenance[row])],
            graph=self.meta.name,
        )

    def facts(self) -> Iterator[Fact]:
        """Every fact of the graph, by head, the heaviest of each first."""
        for start in range(0, self.meta.concepts, _HEADS):
            heads = range(start, min(start + _HEADS, self.meta.concepts))
            self._learn(self._concepts_by("id", list(heads)))
            edges = self.edges_of(heads)
            order = np.lexsort((edges.tail, edges.relation, -edges.weight, edges.head))
            for row in order[edges.head_place[order] >= 0].tolist():
                yield self.fact(edges, row)


def closed(place: str) -> GraphError:
    """What a question to a closed store raises."""
    return GraphError(f"the graph {place} is closed", mend="open it again")


def one_line(message: object) -> str:
    """What a server or its driver says, on one line."""
    return " ".join(str(message).split())


def parsed_meta(text: str | None, place: str, layout: int) -> GraphMeta:
    """What a graph says of itself; raises GraphError for none, one of another version, or what is not a graph's."""
    if text is None:
        raise GraphError(f"there is no graph at {place}", mend=f"{LOAD}, or name it after a # in the URL")
    try:
        meta = GraphMeta.model_validate_json(text)
    except ValidationError as error:
        raise GraphError(f"{place} is not a graph or is damaged", mend=LOAD) from error
    if meta.format != layout:
        raise GraphError(f"{place} has layout {meta.format}; this version reads {layout}", mend=LOAD)
    return meta


def _make_room(memory: dict[Any, Any]) -> None:
    # Cleared before what is new comes in, so that the names of the facts just fetched are all there.
    if len(memory) > _REMEMBERED:
        memory.clear()


def key_text(text: str) -> str:
    """A text as a key that any server can index: hashed where it is long or has what a server's text cannot hold."""
    encoded = text.encode()
    if len(encoded) <= MAX_KEY and "\0" not in text:
        return text
    return "\x01" + hashlib.blake2b(encoded, digest_size=32).hexdigest()

"""Copying a graph's concepts and facts to a server: merged by the same builder as a graph file's, then in batches."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dialore.errors import GraphError
from dialore.sources.graph.build import build_graph, concept_key
from dialore.sources.graph.remote import key_text
from dialore.sources.graph.store import GraphStore
from dialore.text import normalise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from dialore.knowledge import Fact

    Step = Callable[[str, int, int], None]

BATCH = 4096


class ConceptRow(NamedTuple):
    """A concept as it is written to a server; `stems` is None for one of punctuation alone."""

    id: int
    name: str
    form: str
    stems: str | None
    degree: int


class FactRow(NamedTuple):
    """A fact as it is written to a server: its ends, relation and provenance by number."""

    head: int
    relation: int
    tail: int
    weight: float
    provenance: int
    head_name: str
    tail_name: str


class _NoVectors:
    """Stands where a graph file's embedder does: a server's graph has no vectors."""

    name = ""
    dimension = 1
    fingerprint = ""

    def sums(self, texts: Sequence[str]) -> NDArray[np.int64]:
        return np.zeros((len(texts), 1), np.int64)


@contextmanager
def merged(facts: Iterable[Fact], name: str, step: Step) -> Iterator[GraphStore]:
    """The facts as a graph file for the time of the copying, so that a server's graph is merged as a file's is.

    Raises:
        GraphError: as `build_graph` does.
    """
    with tempfile.TemporaryDirectory(prefix="dialore-") as folder:
        path = Path(folder) / "merged.graph"
        build_graph(facts, path, name=name, embedder=_NoVectors(), on_step=step)
        with GraphStore(path) as store:
            yield store


def concept_batches(store: GraphStore, step: Step) -> Iterator[list[ConceptRow]]:
    """Every concept of a graph file, by id."""
    total = store.meta.concepts
    for start in range(0, total, BATCH):
        end = min(start + BATCH, total)
        yield [_concept_row(store, number) for number in range(start, end)]
        step("copying concepts", end, total)


def _concept_row(store: GraphStore, number: int) -> ConceptRow:
    name = store.concept(number)
    if "\0" in name:
        raise GraphError(f"a concept has a NUL character: {name!r}", mend="take it out; servers' texts cannot hold it")
    key = concept_key(name)
    return ConceptRow(number, name, key_text(normalise(name)), key_text(key) if key else None, store.degree(number))


def fact_batches(store: GraphStore, step: Step) -> Iterator[list[FactRow]]:
    """Every fact of a graph file, by head, the heaviest of each first.

    Raises:
        GraphError: the file's facts are not as many as it says.
    """
    total, done = store.meta.concepts, 0
    for start in range(0, total, BATCH):
        end = min(start + BATCH, total)
        edges = store.edges_of(range(start, end))
        rows = np.flatnonzero(edges.head_place >= 0)
        heads, tails = edges.head[rows].tolist(), edges.tail[rows].tolist()
        relations, weights, provenances = (
            column[rows].tolist() for column in (edges.relation, edges.weight, edges.provenance)
        )
        names = (map(store.concept, heads), map(store.concept, tails))
        yield list(map(FactRow, heads, relations, tails, weights, provenances, *names))
        done += len(rows)
        step("copying facts", done, store.meta.facts)
    if done != store.meta.facts:
        raise GraphError(f"{store.path} has {done} facts where it says {store.meta.facts}", mend="build it again")

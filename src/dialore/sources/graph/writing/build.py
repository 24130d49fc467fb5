"""Building a graph file from facts: duplicates merged, vectors and stems computed, swapped in when it is whole."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel

from dialore.errors import GraphError
from dialore.sources.graph.store.embed import ConceptMatrix, LinearEmbedder, part_vectors, parts_of_names, relation_sums
from dialore.sources.graph.store.layout import GraphMeta, concept_key
from dialore.sources.graph.store.vectors import fact_norms
from dialore.sources.graph.writing.collect import Collector, fact_hashes, name_hashes
from dialore.sources.graph.writing.swap import replacing, writing
from dialore.sources.graph.writing.tables import write_graph
from dialore.text import is_chinese

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from dialore.knowledge import Fact

__all__ = ["BuildReport", "LinearEmbedder", "build_graph", "concept_key"]


class BuildReport(BaseModel):
    """What a build did."""

    path: str
    facts: int
    concepts: int
    relations: dict[str, int]
    merged: int
    seconds: float
    bytes: int


def build_graph(
    facts: Iterable[Fact],
    target: Path,
    *,
    name: str,
    embedder: LinearEmbedder | None,
    on_step: Callable[[str, int, int], None] | None = None,
    locked: bool = False,
) -> BuildReport:
    """Build a graph file; the old one, if any, stays in place until the new one is whole.

    Args:
        facts: the facts; duplicates are merged, keeping the heaviest weight.
        target: where the graph goes.
        name: the graph's name, carried by its facts.
        embedder: makes the vectors that facts are ranked by; None, or one without a name, leaves them out.
        on_step: called with a step's name, what is done of it and its total.
        locked: whether the caller keeps other writers from the old graph already.

    Raises:
        GraphError: no facts, a file that cannot be written, a full disk; or as the facts' reader raises.
    """
    with replacing(target, locked=locked) as temporary:
        return _build(facts, temporary, target, name, embedder, on_step or (lambda _name, _done, _total: None))


def _build(
    facts: Iterable[Fact],
    temporary: Path,
    target: Path,
    name: str,
    embedder: LinearEmbedder | None,
    step: Callable[[str, int, int], None],
) -> BuildReport:
    begun = time.monotonic()
    embedder = embedder if embedder and embedder.name else None
    collector = Collector()
    for fact in facts:
        collector.add(fact)
    if not collector.names:
        raise GraphError("no facts to build a graph from", mend="check the file and --language")
    columns, merged = collector.merged()
    relations = list(collector.relations)
    meta = GraphMeta(
        name=name,
        languages=sorted({"zh" if is_chinese(concept) else "en" for concept in collector.names}),
        concepts=len(collector.names),
        facts=len(columns["head"]),
        relations=relations,
        provenances=list(collector.provenances),
        embedder=embedder.name if embedder else "",
        embedder_fingerprint=embedder.fingerprint if embedder else "",
        dimension=embedder.dimension if embedder else 0,
        fingerprint=_fingerprint(collector.names, relations, columns),
    )
    columns["norm"] = np.ones(meta.facts, np.float32)
    arrays = _vectors(collector, columns, embedder, step) if embedder else {}
    with writing(target):
        write_graph(temporary, meta, collector, columns, arrays, step)
    counts = np.bincount(columns["relation"].astype(np.intp), minlength=len(relations))
    return BuildReport(
        path=str(target),
        facts=meta.facts,
        concepts=meta.concepts,
        relations={relations[place]: int(counts[place]) for place in np.argsort(-counts, kind="stable")},
        merged=merged,
        seconds=time.monotonic() - begun,
        bytes=temporary.stat().st_size,
    )


def _fingerprint(names: list[str], relations: list[str], columns: dict[str, NDArray[Any]]) -> str:
    concepts, kinds = name_hashes(names), name_hashes(relations)
    ends = (concepts[columns["head"]], kinds[columns["relation"]], concepts[columns["tail"]])
    return f"{fact_hashes(*ends, columns['weight']):016x}"


def _vectors(
    collector: Collector,
    columns: dict[str, NDArray[Any]],
    embedder: LinearEmbedder,
    step: Callable[[str, int, int], None],
) -> dict[str, NDArray[Any]]:
    """The arrays that the graph keeps of its vectors; the facts' lengths go to their columns."""
    vectors, numbers = part_vectors(parts_of_names(collector.names, embedder, step), embedder)
    relations = relation_sums(list(collector.relations), embedder)
    matrix = ConceptMatrix(vectors, len(collector.names))
    columns["norm"] = fact_norms(columns["head"], columns["relation"], columns["tail"], matrix.sums, relations)
    return {
        "relations": relations,
        "parts": vectors.rows,
        "scales": vectors.scales,
        "numbers": numbers,
        "ends": vectors.ends,
        "made": vectors.made,
    }

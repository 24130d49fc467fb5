"""Building a graph file from facts: duplicates merged, vectors and stems computed, swapped in when it is whole."""

from __future__ import annotations

import hashlib
import time
from array import array
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import lmdb
import numpy as np
from pydantic import BaseModel

from dialore.errors import GraphError
from dialore.sources.graph.layout import (
    EDGE,
    INTEGER_TABLES,
    MAX_PROVENANCES,
    MAX_RELATIONS,
    TABLES,
    GraphMeta,
    id_key,
    phrase_tokens,
    stem_key,
    text_key,
)
from dialore.sources.graph.relations import connecting_words
from dialore.sources.graph.swap import replacing, writing
from dialore.text import is_chinese, normalise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from dialore.knowledge import Fact
    from dialore.text import Language

_BATCH = 4096


@runtime_checkable
class LinearEmbedder(Protocol):
    """An embedder whose vector of a text is the normalised sum of its parts' sums."""

    @property
    def name(self) -> str:
        """Its spec."""
        ...

    @property
    def dimension(self) -> int:
        """Components of a vector."""
        ...

    @property
    def fingerprint(self) -> str:
        """Hash of the model."""
        ...

    def sums(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return (len(texts), dimension) unnormalised sums."""
        ...


class BuildReport(BaseModel):
    """What a build did."""

    path: str
    facts: int
    concepts: int
    relations: dict[str, int]
    merged: int
    seconds: float
    bytes: int


class _Collector:
    """Facts as they stream in, as numbers: 16 bytes a fact, and each concept's name once."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.number_of: dict[str, int] = {}
        self.relations: dict[str, int] = {}
        self.provenances: dict[str, int] = {}
        self.columns = {"head": array("I"), "relation": array("H"), "tail": array("I"), "provenance": array("H")}
        self.weights = array("f")

    def concept(self, name: str) -> int:
        number = self.number_of.get(name)  # most names are in normal form already
        if number is None:
            form = normalise(name)
            if not form:
                raise GraphError(f"a fact's concept is blank: {name!r}", mend="name the head and tail of every fact")
            number = self.number_of.get(form)
            if number is None:
                number = self.number_of[form] = len(self.names)
                self.names.append(name)
        return number

    def add(self, fact: Fact) -> None:
        columns = self.columns
        columns["head"].append(self.concept(fact.head))
        columns["relation"].append(_number(self.relations, fact.relation, "relations", MAX_RELATIONS))
        columns["tail"].append(self.concept(fact.tail))
        columns["provenance"].append(_number(self.provenances, fact.provenance, "provenances", MAX_PROVENANCES))
        self.weights.append(fact.weight)

    def merged(self) -> tuple[dict[str, NDArray[Any]], int]:
        """The columns with each fact once, its heaviest mention kept, and how many were merged away."""
        head, relation, tail, provenance = (
            np.frombuffer(self.columns[name], dtype) if len(self.columns[name]) else np.empty(0, dtype)
            for name, dtype in (("head", "u4"), ("relation", "u2"), ("tail", "u4"), ("provenance", "u2"))
        )
        weight = np.frombuffer(self.weights, "f4") if len(self.weights) else np.empty(0, "f4")
        # The heaviest first within a fact, so that the first of each run is the one to keep.
        order = np.lexsort((np.arange(len(head)), -weight, tail, relation, head))
        ordered = np.stack([head[order], relation[order].astype("u4"), tail[order]])
        new = np.ones(len(order), bool)
        new[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
        kept = order[new]
        columns = {
            "head": head[kept],
            "relation": relation[kept],
            "tail": tail[kept],
            "provenance": provenance[kept],
            "weight": weight[kept],
        }
        return columns, len(head) - len(kept)


def _number(numbers: dict[str, int], name: str, kind: str, limit: int) -> int:
    number = numbers.setdefault(name, len(numbers))
    if number >= limit:
        raise GraphError(f"the facts have more than {limit:,} {kind}", mend="is it the right file, and its columns?")
    return number


def build_graph(
    facts: Iterable[Fact],
    target: Path,
    *,
    name: str,
    embedder: LinearEmbedder,
    on_step: Callable[[str, int, int], None] | None = None,
) -> BuildReport:
    """Build a graph file; the old one, if any, stays in place until the new one is whole.

    Args:
        facts: the facts; duplicates are merged, keeping the heaviest weight.
        target: where the graph goes.
        name: the graph's name, carried by its facts.
        embedder: makes the vectors that facts are ranked by.
        on_step: called with a step's name, what is done of it and its total.

    Raises:
        GraphError: no facts, a file that cannot be written, a full disk; or as the facts' reader raises.
    """
    with replacing(target) as temporary:
        return _build(facts, temporary, target, name, embedder, on_step or (lambda _name, _done, _total: None))


def _build(
    facts: Iterable[Fact],
    temporary: Path,
    target: Path,
    name: str,
    embedder: LinearEmbedder,
    step: Callable[[str, int, int], None],
) -> BuildReport:
    begun = time.monotonic()
    collector = _Collector()
    for fact in facts:
        collector.add(fact)
    if not collector.names:
        raise GraphError("no facts to build a graph from", mend="check the file and --language")
    columns, merged = collector.merged()
    meta = GraphMeta(
        name=name,
        languages=sorted({"zh" if is_chinese(concept) else "en" for concept in collector.names}),
        concepts=len(collector.names),
        facts=len(columns["head"]),
        relations=list(collector.relations),
        provenances=list(collector.provenances),
        embedder=embedder.name,
        embedder_fingerprint=embedder.fingerprint,
        dimension=embedder.dimension,
        fingerprint=_fingerprint(collector.names, list(collector.relations), columns),
    )
    vectors, scales = _concept_vectors(collector.names, embedder, step)
    relation_vectors = _relation_vectors(meta, embedder)
    norms = _norms(columns, vectors, scales, relation_vectors)
    with writing(target):
        _write(temporary, meta, collector, columns, norms, (vectors, scales, relation_vectors), step)
    counts = np.bincount(columns["relation"].astype(np.intp), minlength=len(meta.relations))
    return BuildReport(
        path=str(target),
        facts=meta.facts,
        concepts=meta.concepts,
        relations={meta.relations[place]: int(counts[place]) for place in np.argsort(-counts, kind="stable")},
        merged=merged,
        seconds=time.monotonic() - begun,
        bytes=temporary.stat().st_size,
    )


def _fingerprint(names: list[str], relations: list[str], columns: dict[str, NDArray[Any]]) -> str:
    digest = hashlib.blake2b("\n".join([*names, "", *relations]).encode(), digest_size=8)
    for column in ("head", "relation", "tail", "weight"):
        digest.update(columns[column].tobytes())
    return digest.hexdigest()


def _concept_vectors(
    names: list[str], embedder: LinearEmbedder, step: Callable[[str, int, int], None]
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Each concept's sum as int8 with a scale."""
    vectors = np.empty((len(names), embedder.dimension), np.int8)
    scales = np.empty(len(names), np.float32)
    for start in range(0, len(names), _BATCH):
        sums = embedder.sums(names[start : start + _BATCH]).astype(np.float32)
        peaks = np.maximum(np.maximum(sums.max(axis=1), -sums.min(axis=1)), 1.0)
        scale = peaks / np.float32(127)
        sums /= scale[:, None]
        vectors[start : start + _BATCH] = np.rint(sums, out=sums)
        scales[start : start + _BATCH] = scale
        step("embedding concepts", min(start + _BATCH, len(names)), len(names))
    return vectors, scales


def _relation_vectors(meta: GraphMeta, embedder: LinearEmbedder) -> NDArray[np.float32]:
    # Both languages share a space, so the English wording serves the facts of either.
    return embedder.sums([connecting_words(relation, "en") for relation in meta.relations]).astype(np.float32)


def _norms(
    columns: dict[str, NDArray[Any]],
    vectors: NDArray[np.int8],
    scales: NDArray[np.float32],
    relation_vectors: NDArray[np.float32],
) -> NDArray[np.float32]:
    """The length of each fact's vector."""
    norms = np.empty(len(columns["head"]), np.float32)
    for start in range(0, len(norms), _BATCH):
        part = slice(start, start + _BATCH)
        head, tail = columns["head"][part], columns["tail"][part]
        total = vectors[head] * scales[head][:, None]
        total += vectors[tail] * scales[tail][:, None]
        total += relation_vectors[columns["relation"][part]]
        norms[part] = np.linalg.norm(total, axis=1)
    return np.maximum(norms, 1e-6)


def _write(
    path: Path,
    meta: GraphMeta,
    collector: _Collector,
    columns: dict[str, NDArray[Any]],
    norms: NDArray[np.float32],
    vectors: tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.float32]],
    step: Callable[[str, int, int], None],
) -> None:
    size = 2 * (vectors[0].nbytes + meta.facts * 64 + sum(map(len, collector.names)) * 4 + meta.concepts * 256) + 2**24
    env = lmdb.open(str(path), subdir=False, map_size=size, max_dbs=len(TABLES), sync=False, lock=False)
    try:
        tables = {table: env.open_db(table, integerkey=table in INTEGER_TABLES) for table in TABLES}
        _write_concepts(env, tables, collector, step)
        _write_edges(env, tables, columns, norms, meta.concepts, step)
        with env.begin(write=True) as transaction:
            arrays: dict[bytes, NDArray[Any]] = dict(zip((b"vectors", b"scales", b"relations"), vectors, strict=True))
            for name, value in arrays.items():
                transaction.put(name, value.data.cast("B"), db=tables[b"meta"])
            transaction.put(b"meta", meta.model_dump_json().encode(), db=tables[b"meta"])
        env.sync(True)
    finally:
        env.close()


def _write_concepts(
    env: lmdb.Environment,
    tables: Mapping[bytes, Any],
    collector: _Collector,
    step: Callable[[str, int, int], None],
) -> None:
    keys: dict[bytes, list[int]] = {}
    with env.begin(write=True) as transaction:
        for number, name in enumerate(collector.names):
            transaction.put(id_key(number), name.encode(), db=tables[b"names"], append=True)
            if key := concept_key(name):  # a concept of punctuation alone is found by its exact form only
                keys.setdefault(text_key(key), []).append(number)
            if number % _BATCH == 0:
                step("writing concepts", number, len(collector.names))
        ids = ((text_key(form), number) for form, number in collector.number_of.items())
        for form_key, number in sorted(ids):
            transaction.put(form_key, id_key(number), db=tables[b"ids"], append=True)
        for stems in sorted(keys):
            transaction.put(stems, np.array(keys[stems], "<u4").tobytes(), db=tables[b"keys"], append=True)


def concept_key(name: str) -> str:
    """The stem key of a concept, by its own language."""
    language: Language = "zh" if is_chinese(name) else "en"
    return stem_key(phrase_tokens(name, language), language)


def _write_edges(
    env: lmdb.Environment,
    tables: Mapping[bytes, Any],
    columns: dict[str, NDArray[Any]],
    norms: NDArray[np.float32],
    concepts: int,
    step: Callable[[str, int, int], None],
) -> None:
    for done, (table, own, other) in enumerate(((b"out", "head", "tail"), (b"in", "tail", "head"))):
        order = np.lexsort((columns[other], columns["relation"], -columns["weight"].astype("f4"), columns[own]))
        records = np.empty(len(order), EDGE)
        records["other"] = columns[other][order]
        for field in ("relation", "provenance", "weight"):
            records[field] = columns[field][order]
        records["norm"] = norms[order]
        owners, starts = np.unique(columns[own][order], return_index=True)
        ends = np.append(starts[1:], len(order))
        with env.begin(write=True) as transaction:
            for number, start, end in zip(owners.tolist(), starts.tolist(), ends.tolist(), strict=True):
                transaction.put(id_key(number), records[start:end].tobytes(), db=tables[table], append=True)
        step("writing facts", done + 1, 2)

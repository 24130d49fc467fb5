"""Building a graph file: facts are numbered, merged and sorted on disk, with dozens of bytes a concept in memory."""

from __future__ import annotations

import glob
import hashlib
import itertools
import secrets
import shutil
import stat
import time
from array import array
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

import lmdb
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from dialore.errors import GraphError
from dialore.files import PRIVATE_MODE
from dialore.retrieval.graph.lmdb_file import (
    EDGE,
    MAP_SIZE,
    folder_lock,
    open_file,
    pack_concept,
    pack_side,
    unpack_parts,
)
from dialore.retrieval.graph.relations import connecting_words
from dialore.retrieval.graph.store import GraphMeta, Table, concept_key, id_key, sum_parts, text_key
from dialore.text import is_chinese, normalise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from dialore.knowledge import Fact
    from dialore.retrieval.static import StaticEmbedder

    Step = Callable[[str, int, int], None]

_LIMITS = {"relations": 4096, "provenances": 65536}  # a record has 16 bits for the latter
_BATCH = 4096
_CHUNK = 512  # vectors that are added up at once: few enough to stay in a processor's cache
_REMEMBERED = 1_000_000
"""Names whose numbers are kept in memory, some 150 MB; the others are looked up."""
_WORDS = 500_000  # words whose parts are kept, some 100 MB
_NO_PART = bytes(4)
_COMMIT = 50_000  # new names between two commits of the table that numbers them
_SORTED = 1_000_000  # facts that are sorted at once, some 200 MB

_ROW = np.dtype(
    [("head", "<u4"), ("tail", "<u4"), ("weight", "<f4"), ("relation", "<u2"), ("provenance", "<u2"), ("norm", "<f4")]
)
"""A fact on its way; the length of its vector is 1 until it is known."""


class BuildReport(BaseModel):
    """The report of a build."""

    path: str
    facts: int
    concepts: int
    relations: dict[str, int]
    merged: int
    left_out: int
    seconds: float
    bytes: int


def build_graph(
    facts: Iterable[Fact],
    target: Path,
    *,
    name: str,
    embedder: StaticEmbedder,
    on_step: Callable[[str, int, int], None] | None = None,
) -> BuildReport:
    """Build a graph file; the old one, if any, stays in place until the new one is whole.

    Args:
        facts: the facts; duplicates are merged, keeping the heaviest weight. Those with a weight of 0 or less are false
            and left out; the report counts them.
        target: where the graph goes.
        name: the graph's name, carried by its facts.
        embedder: makes the vectors that facts are ranked by.
        on_step: called with a step's name, what is done of it and its total.

    Raises:
        GraphError: no facts, a file that cannot be written, a full disk; or as the facts' reader raises.
    """
    begun = time.monotonic()
    with replacing(target) as folder, closing(Collector(folder, target)) as collector:
        collector.collect(facts)
        if not collector.concepts:
            raise GraphError("no facts to build a graph from", hint="check the file, its weights and languages")
        with writing(target):
            build = _Build(folder, collector, name, embedder, on_step or (lambda *_: None))
            build.write()
        relations, counts = list(collector.relations), build.relation_counts
        return BuildReport(
            path=str(target),
            facts=build.meta.facts,
            concepts=build.meta.concepts,
            relations={relations[row]: int(counts[row]) for row in np.argsort(-counts, kind="stable")},
            merged=collector.rows - build.meta.facts,
            left_out=collector.left_out,
            seconds=time.monotonic() - begun,
            bytes=(folder / "graph").stat().st_size,
        )


# --- from facts to numbers


class Collector:
    """Facts as they stream in, as rows of numbers in files of a folder; each concept's name once."""

    def __init__(self, folder: Path, target: object) -> None:
        self._folder, self._target = folder, target  # the latter for messages
        self.relations, self.provenances = Numbered("relations"), Numbered("provenances")
        self.concepts = self.rows = self.left_out = 0
        with writing(target), ExitStack() as stack:
            path = str(folder / "names.lmdb")
            self.env = lmdb.open(path, subdir=False, map_size=MAP_SIZE, max_dbs=2, sync=False, lock=False)
            stack.callback(self.env.close)
            self._ids = self.env.open_db(b"ids")
            self._names: IO[bytes] = stack.enter_context((folder / "names").open("wb"))
            self._facts: IO[bytes] = stack.enter_context((folder / "facts").open("wb"))
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Close its files."""
        with suppress(OSError):  # what could not be written was told before
            self._stack.close()

    def collect(self, facts: Iterable[Fact]) -> None:
        """Take facts in; raises GraphError for a blank concept, too many relations or provenances, a full disk."""
        stream = iter(facts)
        transaction, begun = self.env.begin(write=True), 0
        known: dict[str, int] = {}
        # Reading has failures of its own, so it stands outside of `writing`.
        while batch := list(itertools.islice(stream, _BATCH)):
            positive = [fact for fact in batch if fact.weight > 0]
            self.left_out += len(batch) - len(positive)
            batch = positive
            with writing(self._target):
                if len(known) > _REMEMBERED:
                    known.clear()
                names = [name for fact in batch for name in (fact.head, fact.tail)]
                for name in names:
                    if name not in known:
                        known[name] = self._concept(name, transaction)
                rows = np.ones(len(batch), _ROW)
                rows["head"], rows["tail"] = np.array([known[name] for name in names]).reshape(-1, 2).T
                rows["weight"] = [fact.weight for fact in batch]
                rows["relation"] = [self.relations[fact.relation] for fact in batch]
                rows["provenance"] = [self.provenances[fact.provenance] for fact in batch]
                self._facts.write(rows.tobytes())
                self.rows += len(rows)
                if self.concepts - begun > _COMMIT:
                    transaction.commit()
                    transaction, begun = self.env.begin(write=True), self.concepts
        with writing(self._target):
            transaction.commit()
            self._names.flush()
            self._facts.flush()

    def _concept(self, name: str, transaction: lmdb.Transaction) -> int:
        key = text_key(form_of(name))
        if (raw := transaction.get(key, db=self._ids)) is not None:
            return int.from_bytes(raw, "big")
        transaction.put(key, id_key(self.concepts), db=self._ids)
        written = name.encode()
        self._names.write(len(written).to_bytes(4, "little") + written)
        self.concepts += 1
        return self.concepts - 1

    def names(self) -> Iterator[list[str]]:
        """Yield the concepts' names in batches, in the order of their numbers."""
        with (self._folder / "names").open("rb") as file:
            names = (file.read(int.from_bytes(size, "little")).decode() for size in iter(lambda: file.read(4), b""))
            while batch := list(itertools.islice(names, _BATCH)):
                yield batch

    def facts(self) -> NDArray[np.void]:
        """Return the rows, in the file's own memory."""
        return np.memmap(self._folder / "facts", _ROW, "r")

    def ids(self) -> Iterator[tuple[bytes, bytes]]:
        """Keys of all normal forms, in order, and the concepts' numbers."""
        with self.env.begin() as transaction, transaction.cursor(self._ids) as cursor:
            yield from cursor


def form_of(name: str) -> str:
    """Return the normal form of a concept; raise GraphError for a blank one."""
    form = normalise(name)
    if not form:
        raise GraphError(f"a fact's concept is blank: {name!r}", hint="name the head and tail of every fact")
    return form


class Numbered(dict[str, int]):
    """Numbers of names; a new name gets the next one, or raises GraphError beyond the limit."""

    def __init__(self, kind: str, names: Iterable[str] = ()) -> None:
        super().__init__((name, number) for number, name in enumerate(names))
        self._kind = kind

    def __missing__(self, name: str) -> int:
        if len(self) >= _LIMITS[self._kind]:
            hint = "is it the right file, and its columns?"
            raise GraphError(f"the facts have more than {_LIMITS[self._kind]:,} {self._kind}", hint=hint)
        return self.setdefault(name, len(self))


def merge_rows(rows: NDArray[np.void]) -> NDArray[np.void]:
    """Return each fact once, its heaviest mention kept, the first of equal ones; by head, relation and tail."""
    # The heaviest first within a fact, so that the first of each run is the one to keep.
    rows = rows[np.lexsort((-rows["weight"], rows["tail"], rows["relation"], rows["head"]))]
    new = np.ones(len(rows), np.bool_)
    new[1:] = np.any([rows[field][1:] != rows[field][:-1] for field in ("head", "relation", "tail")], axis=0)
    return rows[new]


# --- from numbers to tables


class _Build:
    """Writes the tables of a graph to the file `graph` of a folder."""

    def __init__(self, folder: Path, collector: Collector, name: str, embedder: StaticEmbedder, on_step: Step) -> None:
        self._folder, self._collector, self._step = folder, collector, on_step
        relations = list(collector.relations)
        self.relation_counts = np.zeros(len(relations), np.intp)
        self.meta = GraphMeta(
            name=name,
            concepts=collector.concepts,
            relations=relations,
            provenances=list(collector.provenances),
            embedder=embedder.name,
            embedder_fingerprint=embedder.fingerprint,
            dimension=embedder.dimension,
        )
        self._relations = relation_sums(relations, embedder)
        self._hashes = np.empty(collector.concepts, np.uint64)
        self._numbers = PartNumbers(embedder)
        self._made, self._ends = array("I"), array("Q", [0])

    def write(self) -> None:
        """Write all of it; raises lmdb.Error and OSError where the disk refuses."""
        path = str(self._folder / "graph")
        with lmdb.open(path, subdir=False, map_size=MAP_SIZE, sync=False, lock=False) as self._env:
            self._append(Table.IDS, self._collector.ids())
            self._append(Table.CONCEPTS, self._concepts())
            self._append(Table.KEYS, self._keys())
            first, block = self._numbers.block()
            self._append(Table.PARTS, [(id_key(first), block)])
            self._write_facts(self._concept_matrix(block))
            meta = self.meta.model_dump_json().encode()
            self._append(Table.META, [(b"meta", meta), (b"relations", self._relations.tobytes())])
            self._env.sync(True)

    def _append(self, table: bytes, items: Iterable[tuple[bytes, bytes]]) -> None:
        """Append to a table in order of its keys, some at a time."""
        stream = iter(items)
        while batch := list(itertools.islice(stream, 16 * _BATCH)):
            with self._env.begin(write=True) as transaction, transaction.cursor() as cursor:
                cursor.putmulti([(table + key, value) for key, value in batch], append=True)

    def _concepts(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the table of concepts; their parts and stem keys are kept for what follows."""
        languages, at = set[str](), 0
        self._keyed = self._collector.env.open_db(b"keys", dupsort=True, dupfixed=True)
        for names in self._collector.names():
            self._hashes[at : at + len(names)] = name_hashes(names)
            languages.update("zh" if is_chinese(name) else "en" for name in names)
            keys = ((text_key(concept_key(name)), text_key(normalise(name))) for name in names)
            kept = sorted((key, id_key(at + row)) for row, (key, form) in enumerate(keys) if key not in (b"", form))
            with self._collector.env.begin(write=True) as transaction, transaction.cursor(self._keyed) as cursor:
                cursor.putmulti(kept)
            parts = self._numbers(names)
            self._made.frombytes(b"".join(parts))
            for number, (name, own) in enumerate(zip(names, parts, strict=True), start=at):
                self._ends.append(self._ends[-1] + len(own) // 4)
                yield id_key(number), pack_concept(name, own)
            at += len(names)
            self._step("embedding concepts", at, self.meta.concepts)
        self.meta.languages = sorted(languages)

    def _keys(self) -> Iterator[tuple[bytes, bytes]]:
        with self._collector.env.begin() as transaction, transaction.cursor(self._keyed) as cursor:
            for key, entries in itertools.groupby(cursor, lambda item: item[0]):
                yield key, np.array([int.from_bytes(number, "big") for _, number in entries], "<u4").tobytes()

    # --- facts

    def _write_facts(self, sums: Callable[[NDArray[Any]], NDArray[np.float32]]) -> None:
        path, kinds, total = self._folder / "merged", name_hashes(self.meta.relations), 0
        with path.open("wb") as file:
            for some in self._of_ranges(self._collector.facts(), "head"):
                facts = merge_rows(some)
                total += fact_hashes(facts, self._hashes, kinds)
                facts["norm"] = fact_norms(facts["head"], facts["relation"], facts["tail"], sums, self._relations)
                self.relation_counts += np.bincount(facts["relation"], minlength=len(self.relation_counts))
                self._append(Table.OUT, self._sides(facts, "head", "tail"))
                file.write(facts.tobytes())
                self.meta.facts += len(facts)
        self.meta.fingerprint = fingerprint_of(total)
        self._step("writing facts", 1, 2)
        for rows in self._of_ranges(np.memmap(path, _ROW, "r"), "tail"):
            self._append(Table.IN, self._sides(rows, "tail", "head"))
        self._step("writing facts", 2, 2)

    def _of_ranges(self, rows: NDArray[np.void], own: str) -> Iterator[NDArray[np.void]]:
        """Yield the rows of one range of concepts after another, some `_SORTED` at a time, in their order."""
        ends = np.ascontiguousarray(rows[own])
        done = np.cumsum(np.bincount(ends, minlength=self.meta.concepts))
        firsts = np.flatnonzero(np.diff(done // _SORTED, prepend=-1)).tolist()
        for first, last in itertools.pairwise([*firsts, self.meta.concepts]):
            yield rows[(ends >= first) & (ends < last)]

    def _sides(self, facts: NDArray[np.void], own: str, other: str) -> Iterator[tuple[bytes, bytes]]:
        """One of the two tables of facts, of a range of concepts."""
        facts = facts[np.lexsort((facts[other], facts["relation"], -facts["weight"], facts[own]))]
        records = np.zeros(len(facts), EDGE)
        records["other"] = facts[other]
        for field in ("relation", "provenance", "weight", "norm"):
            records[field] = facts[field]
        ends = np.frombuffer(self._ends, np.uint64).astype(np.intp)
        made = np.frombuffer(self._made, np.uint32)
        first, last = ends[facts[other]], ends[facts[other] + np.uint32(1)]
        counts = last - first
        records["parts"] = counts
        stops = np.cumsum(counts)
        parts = made[np.repeat(first - (stops - counts), counts) + np.arange(counts.sum())]
        owners, starts = np.unique(facts[own], return_index=True)
        bounds = np.append(starts, len(facts))
        part_bounds = np.append(0, stops)[bounds]
        spans = (itertools.pairwise(edges.tolist()) for edges in (bounds, part_bounds))
        for number, of_facts, of_parts in zip(owners.tolist(), *spans, strict=True):
            yield id_key(number), pack_side(records[slice(*of_facts)], parts[slice(*of_parts)])

    def _concept_matrix(self, block: bytes) -> Callable[[NDArray[Any]], NDArray[np.float32]]:
        """Return what gives vectors of concepts, to about a half percent: one byte a component, in a file."""
        made, ends = np.frombuffer(self._made, np.uint32), np.frombuffer(self._ends, np.uint64).astype(np.intp)
        count, dimension = self.meta.concepts, self.meta.dimension
        parts, weights, _ = unpack_parts(block, dimension)
        rows = np.memmap(self._folder / "vectors", np.int8, "w+", shape=(count, dimension))
        scales = np.empty(count, np.float32)
        for start in range(0, count, _CHUNK):
            some = ends[start : start + _CHUNK + 1]
            sums = sum_parts(parts, weights, made[some[0] : some[-1]], np.diff(some))
            part = slice(start, start + _CHUNK)
            scales[part] = np.maximum(np.abs(sums).max(axis=1), 1e-6) / np.float32(127)
            sums /= scales[part][:, None]
            np.rint(sums, out=sums)
            rows[part] = sums

        def sums_of(concepts: NDArray[Any]) -> NDArray[np.float32]:
            matrix: NDArray[np.float32] = rows[concepts].astype(np.float32) * scales[concepts][:, None]
            return matrix

        return sums_of


# --- vectors of concepts and facts, from an embedder whose vectors add up


class PartNumbers:
    """The parts of one graph, numbered by first use; `known` are the embedder's numbers of those it has already."""

    def __init__(self, embedder: StaticEmbedder, known: Sequence[int] = ()) -> None:
        self._embedder = embedder
        self._first = max(1, len(known))
        self._place = {part: row for row, part in enumerate(known) if row}
        self._words: dict[str, bytes] = {}

    def __call__(self, names: Sequence[str]) -> list[bytes]:
        """Return the graph's numbers of each name's parts, four bytes each; that of nothing where there are none."""
        # Chinese is split by what stands around it; of other names each word is split once.
        split = [[name] if is_chinese(name) else name.split() for name in names]
        known, numbered = self._words, self._place
        if len(known) > _WORDS:
            known.clear()
        new = list({word: None for words in split for word in words if word not in known})
        for word, parts in zip(new, self._embedder.parts(new), strict=True):
            numbers = [numbered.setdefault(part, len(numbered) + 1) for part in parts.tolist()]
            known[word] = np.array(numbers, "<u4").tobytes()
        return [b"".join([known[word] for word in words]) or _NO_PART for words in split]

    def block(self) -> tuple[int, bytes]:
        """Return the first number of the parts that are new, and their value of the table `parts`; empty for none."""
        new = np.array([number for number, row in self._place.items() if row >= self._first], np.int64)
        sums = self._embedder.part_sums(new)
        values = sums.astype(np.float32)
        peaks = np.maximum(np.abs(values).max(axis=1, initial=0), 1e-6)
        # A token's sum is its int8 vector times an integer weight: dividing by that weight loses nothing.
        weights = np.gcd.reduce(sums, axis=1) if len(sums) else np.empty(0, np.int64)
        scales = np.where((weights > 0) & (peaks <= 127 * weights), weights, peaks / 127).astype(np.float32)
        rows = np.rint(values / scales[:, None]).astype(np.int8)
        if self._first == 1:  # a graph's first block begins with nothing
            rows = np.concatenate([np.zeros((1, rows.shape[1]), np.int8), rows])
            scales, new = np.append(np.float32(1), scales), np.append(0, new)
        value = rows.tobytes() + scales.astype("<f4").tobytes() + new.astype("<u4").tobytes()
        return (0 if self._first == 1 else self._first), value


def relation_sums(relations: Sequence[str], embedder: StaticEmbedder, *, triples: bool = False) -> NDArray[np.float32]:
    """(n, dimension): the unnormalised sum of each relation's words, or of what a triple has beside its ends."""
    # Both languages share a space, so the English wording serves the facts of either.
    between = (f"( , {relation} , )" if triples else connecting_words(relation) for relation in relations)
    return embedder.sums(list(between)).astype(np.float32)


def fact_norms(
    head: NDArray[np.integer[Any]],
    relation: NDArray[np.integer[Any]],
    tail: NDArray[np.integer[Any]],
    sums: Callable[[NDArray[Any]], NDArray[np.float32]],
    relations: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Return each fact's vector length, never 0; `sums` gives concepts' vectors, `relations` the relations'."""
    norms = np.empty(len(head), np.float32)
    for start in range(0, len(norms), _CHUNK):
        part = slice(start, start + _CHUNK)
        total = sums(head[part])
        total += sums(tail[part])
        total += relations[relation[part]]
        norms[part] = np.sqrt(np.einsum("ij,ij->i", total, total))
    return np.maximum(norms, np.float32(1e-6))


# --- fingerprints


def name_hashes(names: Iterable[str]) -> NDArray[np.uint64]:
    """(n,): a hash of each name, the same in every process."""
    return np.frombuffer(b"".join(hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names), "<u8")


def fact_hashes(facts: NDArray[np.void], concepts: NDArray[np.uint64], relations: NDArray[np.uint64]) -> int:
    """Return the sum of hashes of facts' names and weights: without order, and subtracted to take one out."""
    mixed = _mix(concepts[facts["head"]])
    weights = facts["weight"].copy().view("<u4").astype(np.uint64)
    for values in (relations[facts["relation"]], concepts[facts["tail"]], weights):
        mixed = _mix(mixed ^ (values + np.uint64(0x9E3779B97F4A7C15)))
    return int(mixed.sum(dtype=np.uint64))


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the finaliser of SplitMix64 (Steele et al., 2014): each bit of the input changes half of the output's."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def fingerprint_of(total: int) -> str:
    """Return a graph's fingerprint from the sum of its facts' hashes."""
    return f"{total & ((1 << 64) - 1):016x}"


# --- taking a file's place


@contextmanager
def writing(target: object) -> Iterator[None]:
    """Failures to write, as GraphErrors; apart from the reading of facts, which has reasons of its own."""
    try:
        yield
    except (OSError, lmdb.Error) as error:
        raise GraphError(f"cannot write {target}: {error}", hint="is the disk full or the folder read-only?") from error


@contextmanager
def replacing(target: Path, made: str = "graph") -> Iterator[Path]:
    """Yield a temporary folder beside the target whose file `made` takes its place if the body ends well.

    It is locked, so that other builds know it for one that is being written. A writer of the old graph is waited for.
    """
    with writing(target):
        if target.exists() and not target.is_file():
            what = "folder" if target.is_dir() else "device"
            raise GraphError(f"cannot write {target}: it is a {what}", hint="name a file")
        target.parent.mkdir(parents=True, exist_ok=True)
        for leftover in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):  # of builds that were killed
            with suppress(OSError), folder_lock(leftover, exclusive=True, wait=False):
                shutil.rmtree(leftover, ignore_errors=True)
        folder = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        folder.mkdir(mode=0o700)
    try:
        with folder_lock(folder, exclusive=True, wait=False):
            yield folder
        with ExitStack() as stack:
            with suppress(GraphError, lmdb.ReadonlyError):
                file = stack.enter_context(closing(open_file(target)))
                stack.enter_context(file.env.begin(write=True))
            with writing(target), folder_lock(target.parent, exclusive=True):
                # The lock file of the old graph names the old one's states: readers of the new one need another.
                target.with_name(f"{target.name}-lock").unlink(missing_ok=True)
                mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else PRIVATE_MODE
                (folder / made).chmod(mode)
                (folder / made).replace(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)

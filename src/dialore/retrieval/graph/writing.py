"""Building a graph file: facts are numbered, merged and sorted on disk, with dozens of bytes per concept in memory."""

from __future__ import annotations

import glob
import itertools
import secrets
import shutil
import sqlite3
import stat
import time
from array import array
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from dialore.errors import GraphError
from dialore.files import PRIVATE_MODE, folder_lock
from dialore.retrieval.graph.fingerprint import fact_hashes, format_fingerprint, name_hashes
from dialore.retrieval.graph.store import (
    EDGE,
    SCHEMA,
    GraphMeta,
    concept_key,
    connect,
    explain_errors,
    pack_side,
    sort_side,
)
from dialore.retrieval.graph.vectors import PartNumbers, fact_norms, relation_sums, sum_parts, unpack_parts
from dialore.text import is_chinese, normalise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from dialore.knowledge import Fact
    from dialore.retrieval.graph.store import PackedSide
    from dialore.retrieval.static import StaticEmbedder

    Step = Callable[[str, int, int], None]

_LIMITS = {"relations": 4096, "provenances": 65536}  # a record has 16 bits for the latter
_BATCH = 4096
_CACHED_NAMES = 1_000_000
"""Names whose ids are cached, about 150 MB; other names are looked up."""
_SORTED_AT_ONCE = 1_000_000
"""Facts that are sorted at once, about 200 MB."""
_BUILD_CACHE_KIB = 256 * 1024

_ROW = np.dtype(
    [("head", "<u4"), ("tail", "<u4"), ("weight", "<f4"), ("relation", "<u2"), ("provenance", "<u2"), ("norm", "<f4")]
)
"""A fact during the build; the length of its vector is 1 until it is computed."""


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
    """Build a graph file in one transaction. An existing graph stays in use until the new one is complete.

    Args:
        facts: The facts. Duplicates are merged, keeping the heaviest. Facts with a weight of 0 or less are false: they
            are left out and counted.
        target: The graph file.
        name: The name of the graph, which its facts carry.
        embedder: Makes the vectors that facts are ranked by.
        on_step: Called with the name of a step, the work done and the total.

    Raises:
        GraphError: There are no facts, the file cannot be written, or the disk is full. Errors of the iterator of facts
            are passed on.
    """
    begun = time.monotonic()
    with _scratch_folder(target) as folder:
        build = _Build(folder, target, name, embedder, on_step or (lambda *_: None))
        with closing(build.connection):
            build.collect(facts)
            with explain_writing(target):
                build.write()
        with explain_writing(target):
            size = build.path.stat().st_size
            _install(build.path, target)
    relations = build.meta.relations
    counts = build.relation_counts
    return BuildReport(
        path=str(target),
        facts=build.meta.facts,
        concepts=build.meta.concepts,
        relations={relations[row]: int(counts[row]) for row in np.argsort(-counts, kind="stable")},
        merged=build.collected - build.meta.facts,
        left_out=build.left_out,
        seconds=time.monotonic() - begun,
        bytes=size,
    )


def form_of(name: str) -> str:
    """Return the normal form of a concept; raises GraphError for a blank one."""
    form = normalise(name)
    if not form:
        raise GraphError(f"a fact's concept is blank: {name!r}", hint="name the head and tail of every fact")
    return form


class Numbered(dict[str, int]):
    """Numbers of names. A new name gets the next number; raises GraphError beyond the limit."""

    def __init__(self, kind: str, names: Iterable[str] = ()) -> None:
        super().__init__((name, number) for number, name in enumerate(names))
        self._kind = kind

    def __missing__(self, name: str) -> int:
        if len(self) >= _LIMITS[self._kind]:
            hint = "is it the right file, and its columns?"
            raise GraphError(f"the facts have more than {_LIMITS[self._kind]:,} {self._kind}", hint=hint)
        return self.setdefault(name, len(self))


def new_revision() -> int:
    """Return a revision for a commit: a random number, so that no two states of a graph ever share one."""
    return secrets.randbits(62)


class _Build:
    """Writes a graph to a file in a scratch folder: first the concepts, as facts come in, then the merged facts."""

    def __init__(self, folder: Path, target: Path, name: str, embedder: StaticEmbedder, on_step: Step) -> None:
        self.path = folder / "graph"
        self.collected = self.left_out = 0
        self._folder, self._target, self._embedder, self._step = folder, target, embedder, on_step
        self._relations, self._provenances = Numbered("relations"), Numbered("provenances")
        self._ids: dict[str, int] = {}
        self._new_concepts: dict[str, tuple[int, str]] = {}
        self._part_numbers = PartNumbers(embedder)
        self._parts, self._part_ends = array("I"), array("Q", [0])
        self._hashes: list[NDArray[np.uint64]] = []
        self.meta = GraphMeta(
            name=name,
            concepts=0,
            relations=[],
            provenances=[],
            embedder=embedder.name,
            embedder_fingerprint=embedder.fingerprint,
            dimension=embedder.dimension,
        )
        with explain_writing(target):
            self.connection = sqlite3.connect(self.path, isolation_level=None)
            # Nobody else reads the file, and a failed build is deleted: neither locks nor a journal are needed.
            self.connection.execute("PRAGMA journal_mode = OFF")
            self.connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            self.connection.execute(f"PRAGMA cache_size = -{_BUILD_CACHE_KIB}")
            self.connection.executescript(SCHEMA)
            self.connection.execute("BEGIN")

    # --- concepts

    def collect(self, facts: Iterable[Fact]) -> None:
        """Write the concepts of facts, and the facts as rows of numbers to a file."""
        stream = iter(facts)
        with (self._folder / "facts").open("wb") as file:
            # Errors of the iterator are not errors of writing.
            while batch := list(itertools.islice(stream, _BATCH)):
                with explain_writing(self._target):
                    file.write(self._collect_batch([fact for fact in batch if fact.weight > 0]))
                    self.left_out += sum(fact.weight <= 0 for fact in batch)
        if not self.meta.concepts:
            raise GraphError("no facts to build a graph from", hint="check the file, its weights and --language")

    def _collect_batch(self, facts: list[Fact]) -> bytes:
        if len(self._ids) > _CACHED_NAMES:
            self._ids.clear()
        rows = np.ones(len(facts), _ROW)
        rows["head"] = [self._id_of(fact.head) for fact in facts]
        rows["tail"] = [self._id_of(fact.tail) for fact in facts]
        rows["weight"] = [fact.weight for fact in facts]
        rows["relation"] = [self._relations[fact.relation] for fact in facts]
        rows["provenance"] = [self._provenances[fact.provenance] for fact in facts]
        self.collected += len(rows)
        self._write_new_concepts()
        return rows.tobytes()

    def _id_of(self, name: str) -> int:
        number = self._ids.get(name)
        if number is not None:
            return number
        form = form_of(name)
        if form in self._new_concepts:
            number = self._new_concepts[form][0]
        else:
            row = self.connection.execute("SELECT id FROM concepts WHERE form = ?", (form,)).fetchone()
            number = self.meta.concepts if row is None else int(row[0])
            if row is None:
                self._new_concepts[form] = number, name
                self.meta.concepts += 1
        self._ids[name] = number
        return number

    def _write_new_concepts(self) -> None:
        names = [name for _, name in self._new_concepts.values()]
        all_parts = self._part_numbers(names)
        rows = []
        for (form, (number, name)), parts in zip(self._new_concepts.items(), all_parts, strict=True):
            rows.append((number, name, form, concept_key(name) or None, parts))
            self._part_ends.append(self._part_ends[-1] + len(parts) // 4)
        self.connection.executemany("INSERT INTO concepts VALUES (?, ?, ?, ?, ?)", rows)
        self._parts.frombytes(b"".join(all_parts))
        self._hashes.append(name_hashes(names))
        self.meta.languages = sorted({*self.meta.languages, *("zh" if is_chinese(name) else "en" for name in names)})
        self._new_concepts.clear()

    # --- facts

    def write(self) -> None:
        """Write everything else and commit."""
        execute = self.connection.execute
        execute("CREATE INDEX concepts_stems ON concepts (stems)")
        self.meta.relations, self.meta.provenances = list(self._relations), list(self._provenances)
        first, block = self._part_numbers.block()
        execute("INSERT INTO parts VALUES (?, ?)", (first, block))
        relations = relation_sums(self.meta.relations, self._embedder)
        self._merge_facts(block, relations)
        self._write_facts()
        values = {
            "meta": self.meta.model_dump_json(),
            "relations": relations.astype("<f4").tobytes(),
            "revision": new_revision(),
        }
        self.connection.executemany("INSERT INTO meta VALUES (?, ?)", values.items())
        execute("COMMIT")
        execute("PRAGMA journal_mode = WAL")

    def _merge_facts(self, block: bytes, relations: NDArray[np.float32]) -> None:
        """Write each fact once to the file `merged`, by head, with the length of its vector."""
        rows, scales, _ = unpack_parts(block, self.meta.dimension)
        concept_hashes, relation_hashes = np.concatenate(self._hashes), name_hashes(self.meta.relations)
        self.relation_counts = np.zeros(len(relations), np.intp)
        total = 0

        def sums(concepts: NDArray[np.uint32]) -> NDArray[np.float32]:
            return sum_parts(rows, scales, *self._parts_of(concepts))

        with (self._folder / "merged").open("wb") as file:
            for collected in self._ranges("facts", "head"):
                facts = merge_rows(collected)
                total += fact_hashes(facts, concept_hashes, relation_hashes)
                facts["norm"] = fact_norms(facts["head"], facts["relation"], facts["tail"], sums, relations)
                self.relation_counts += np.bincount(facts["relation"], minlength=len(relations))
                file.write(facts.tobytes())
                self.meta.facts += len(facts)
                self._step("merging facts", self.meta.facts, self.collected)
        self.meta.fingerprint = format_fingerprint(total)

    def _write_facts(self) -> None:
        sides = zip(self._sides("head", "tail"), self._sides("tail", "head"), strict=True)
        rows = (
            (number, out_count + in_count, outgoing[0], incoming[0], outgoing[1], incoming[1])
            for number, ((out_count, outgoing), (in_count, incoming)) in enumerate(sides)
        )
        for start in range(0, self.meta.concepts, _BATCH):
            batch = itertools.islice(rows, _BATCH)
            self.connection.executemany("INSERT INTO facts VALUES (?, ?, ?, ?, ?, ?)", batch)
            self._step("writing facts", min(start + _BATCH, self.meta.concepts), self.meta.concepts)

    def _ranges(self, file: str, end: str) -> Iterator[NDArray[np.void]]:
        """Yield the rows of a file by ranges of the ids at one end, in the order of the file."""
        rows = np.memmap(self._folder / file, _ROW, "r")
        ids = np.ascontiguousarray(rows[end])
        totals = np.cumsum(np.bincount(ids, minlength=self.meta.concepts))
        firsts = np.flatnonzero(np.diff(totals // _SORTED_AT_ONCE, prepend=-1)).tolist()
        for first, last in itertools.pairwise([*firsts, self.meta.concepts]):
            yield np.array(rows[(ids >= first) & (ids < last)])

    def _sides(self, own: str, other: str) -> Iterator[tuple[int, PackedSide]]:
        """Yield the number of facts of each concept with the concept at one end, and the packed facts."""
        next_id = 0
        no_facts: tuple[int, PackedSide] = (0, (None, None))
        for rows in self._ranges("merged", own):
            facts = rows[sort_side(rows[own], rows, other)]
            records = np.zeros(len(facts), EDGE)
            records["other"] = facts[other]
            for field in ("relation", "provenance", "weight", "norm"):
                records[field] = facts[field]
            parts, counts = self._parts_of(facts[other])
            records["parts"] = counts
            part_ends = np.append(0, np.cumsum(counts))
            concepts, starts = np.unique(facts[own], return_index=True)
            bounds = np.append(starts, len(facts))
            part_bounds = part_ends[bounds].tolist()
            ranges = zip(
                concepts.tolist(), itertools.pairwise(bounds.tolist()), itertools.pairwise(part_bounds), strict=True
            )
            for number, fact_range, part_range in ranges:
                yield from itertools.repeat(no_facts, number - next_id)
                next_id = number + 1
                own_records = records[slice(*fact_range)]
                yield len(own_records), pack_side(own_records, parts[slice(*part_range)])
        yield from itertools.repeat(no_facts, self.meta.concepts - next_id)

    def _parts_of(self, concepts: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], NDArray[np.intp]]:
        """Return the parts of concepts, one concept after another, and the number of parts of each."""
        parts, ends = np.frombuffer(self._parts, np.uint32), np.frombuffer(self._part_ends, np.uint64).astype(np.intp)
        first, last = ends[concepts], ends[concepts + np.uint32(1)]
        counts = last - first
        stops = np.cumsum(counts)
        return parts[np.repeat(first - (stops - counts), counts) + np.arange(counts.sum())], counts


def merge_rows(rows: NDArray[np.void]) -> NDArray[np.void]:
    """Return each fact once, by head, relation and tail: its heaviest mention, the first of equally heavy ones."""
    rows = rows[np.lexsort((-rows["weight"], rows["tail"], rows["relation"], rows["head"]))]
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = np.any([rows[field][1:] != rows[field][:-1] for field in ("head", "relation", "tail")], axis=0)
    return rows[is_first]


# --- files


@contextmanager
def explain_writing(target: Path) -> Iterator[None]:
    """Convert errors of the disk and of SQLite to GraphErrors."""
    try:
        with explain_errors(target):
            yield
    except OSError as error:
        raise GraphError(f"cannot write {target}: {error}", hint="is the disk full or the folder read-only?") from error


@contextmanager
def _scratch_folder(target: Path) -> Iterator[Path]:
    """Yield a locked temporary folder next to a graph file; folders of builds that were killed are deleted."""
    with explain_writing(target):
        if target.exists() and not target.is_file():
            kind = "folder" if target.is_dir() else "device"
            raise GraphError(f"cannot write {target}: it is a {kind}", hint="name a file")
        target.parent.mkdir(parents=True, exist_ok=True)
        for leftover in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
            with suppress(OSError), folder_lock(leftover, wait=False):
                shutil.rmtree(leftover, ignore_errors=True)
        folder = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        folder.mkdir(mode=0o700)
    try:
        with folder_lock(folder, wait=False):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _install(built: Path, target: Path) -> None:
    """Move a new graph to its place, or copy it in one transaction into the graph that is there.

    An open graph cannot be replaced by renaming, because SQLite finds its write-ahead log by the name of the file.
    """
    with folder_lock(target.parent):
        if _is_graph(target):
            with closing(connect(built)) as source, closing(connect(target)) as destination:
                source.backup(destination)
                destination.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return
        built.chmod(stat.S_IMODE(target.stat().st_mode) if target.exists() else PRIVATE_MODE)
        for suffix in ("-wal", "-shm"):  # of a graph that was deleted
            target.with_name(target.name + suffix).unlink(missing_ok=True)
        built.replace(target)


def _is_graph(path: Path) -> bool:
    try:
        connect(path).close()
    except GraphError:
        return False
    return True

"""A document index as it is at one moment: its files mapped, its terms opened. It never changes."""

from __future__ import annotations

import json
import mmap
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic_core import from_json

from dialore.errors import InputError, SourceError
from dialore.retrieval.lexical_tantivy import TantivyBm25
from dialore.retrieval.ranking import Quantised
from dialore.retrieval.sketches import FEW, nearest, words_of
from dialore.sources.documents.layout import (
    ARRAYS,
    PASSAGES,
    SCALES,
    SKETCHES,
    TERMS,
    VECTORS,
    Manifest,
    read_manifest,
    stamp,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from dialore.sources.documents.layout import Stamp

_TRIES = 20


class View:
    """The files of an index, as far as a manifest counts them.

    Args:
        folder: the index.
        manifest: what counts.
        stamp: the manifest's stamp.

    Raises:
        FileNotFoundError: a writer has removed the base meanwhile; the manifest is another by then.
        InputError: a file is damaged.
        MissingExtraError: tantivy is not installed.
    """

    def __init__(self, folder: Path, manifest: Manifest, stamp: Stamp | None = None) -> None:
        self.folder, self.manifest, self.stamp = folder, manifest, stamp
        self._base = folder / manifest.base
        self._lines = _mapped(self._base / PASSAGES, manifest.length)
        self.dead = manifest.dead_rows()
        self._any_dead = bool(self.dead.any())
        self._offsets, self.ids, self.owners = (self._array(name, kind) for name, kind in ARRAYS.items())
        self.vectors = self._open_vectors()
        if not (self._base / TERMS).is_dir():
            raise FileNotFoundError(self._base / TERMS)
        try:
            self._terms = TantivyBm25(self._base / TERMS)
        except (OSError, ValueError) as error:
            if not self._base.is_dir():
                raise FileNotFoundError(self._base) from error
            raise InputError(f"the terms of {folder} are damaged", mend="build it again") from error

    @classmethod
    def open(cls, folder: Path) -> View:
        """The newest state of an index; raises InputError where it is none or damaged."""
        last: Exception | None = None
        for _ in range(_TRIES):
            before = _stamp_of(folder)
            try:
                view = cls(folder, read_manifest(folder), before)
                # Where the manifest is another by now, terms may lack rows that the one which was read counts.
                if _stamp_of(folder) == before:
                    return view
            except FileNotFoundError as error:
                last = error
            except InputError:
                if _stamp_of(folder) == before:
                    raise
        raise InputError(f"{folder} lacks some of its files, or changes all the time", mend="build it again") from last

    def _array(self, name: str, kind: str, width: int = 1) -> NDArray[Any]:
        """The rows of one file that count, in the file's own memory."""
        kept = np.frombuffer(_mapped(self._base / name, self.manifest.rows * width * np.dtype(kind).itemsize), kind)
        return kept.reshape(-1, width) if width > 1 else kept

    def _open_vectors(self) -> Quantised | None:
        width = self.manifest.dimension
        if not width:
            return None
        return Quantised(self._array(VECTORS, "i1", width).reshape(-1, width), self._array(SCALES, "<f4"))

    @cached_property
    def _columns(self) -> NDArray[np.uint64] | None:
        if self.manifest.rows <= FEW:
            return None
        width = words_of(self.manifest.dimension)
        return np.ascontiguousarray(self._array(SKETCHES, "<u8", width).reshape(-1, width).T)

    # --- passages

    def record(self, row: int) -> dict[str, Any]:
        """A passage as it was written; raises SourceError where its line is damaged now."""
        line = self._lines[int(self._offsets[row - 1]) if row else 0 : int(self._offsets[row])]
        try:
            found: dict[str, Any] = _decoded(line)
        except (ValueError, RecursionError) as error:
            raise SourceError(f"the passages of {self.folder} are damaged", mend="build it again") from error
        return found

    def live(self) -> Iterator[int]:
        """The rows that are alive, in order."""
        yield from np.flatnonzero(~self.dead).tolist()

    def counts(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Of each row whether it counts and is alive."""
        counted = rows < len(self.dead)
        if self._any_dead:
            counted[counted] = ~self.dead[rows[counted]]
        return counted

    # --- search

    def by_terms(self, terms: Iterable[str], top: int) -> list[tuple[int, float]]:
        """The rows and scores of the best by BM25."""
        return self._terms.best(terms, top, self.counts)

    def by_vectors(
        self, queries: NDArray[np.float32], top: int, *, exact: bool = False
    ) -> list[list[tuple[int, float]]]:
        """For each query (m, dimension) the rows and scores of the nearest by cosine; none without vectors."""
        if self.vectors is None:
            return [[] for _ in queries]
        columns = None if exact else self._columns
        return nearest(queries, self.vectors, columns, top, self.dead if self._any_dead else None)


def _stamp_of(folder: Path) -> Stamp | None:
    try:
        return stamp(folder)
    except OSError:
        return None  # the manifest's reader says what is wrong


def _decoded(line: bytes) -> Any:  # noqa: ANN401 - whatever JSON holds
    try:
        return from_json(line)
    except ValueError:
        # Slower, but what stands beside a text may lie deeper than the fast parser goes.
        return json.loads(line)


def _mapped(path: Path, length: int) -> mmap.mmap | bytes:
    """The first bytes of a file, mapped.

    Raises:
        InputError: the file is shorter.
    """
    with path.open("rb") as file:
        if not length:
            return b""
        try:
            return mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise InputError(f"{path} is cut short", mend="build the index again") from error

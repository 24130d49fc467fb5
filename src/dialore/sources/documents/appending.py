"""Appending passages to a base's files, a batch at a time."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import numpy as np

from dialore.knowledge import stable_id
from dialore.retrieval.ranking import Quantised, quantise
from dialore.retrieval.sketches import sketch, words_of
from dialore.sources.documents.layout import ARRAYS, PASSAGES, SCALES, SKETCHES, VECTORS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from dialore.retrieval.cutting import Cutter
    from dialore.retrieval.embedding import Embedder
    from dialore.retrieval.lexical_tantivy import TantivyChange
    from dialore.sources.documents.layout import Manifest

BATCH = 2048
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Piece:
    """A passage on its way into an index.

    Attributes:
        text: its sentences.
        title: of its document and the headings above it, joined by " > ".
        url: where it can be read.
        file: the file it was read of.
        page: its page in a PDF, from 1; 0 elsewhere.
        extra: whatever else its document says of it.
    """

    text: str
    title: str = ""
    url: str = ""
    file: str = ""
    page: int = 0
    extra: dict[str, Any] = field(default_factory=dict)

    def record(self) -> Record:
        """What is kept of it: what is not empty."""
        values = {"text": self.text, "title": self.title, "url": self.url, "file": self.file}
        values |= {"page": self.page, "extra": self.extra}  # type: ignore[dict-item]
        return {name: value for name, value in values.items() if value}

    @property
    def number(self) -> int:
        """Its stable id as a number."""
        return id_number(stable_id("passage", self.url, self.title, self.text))


def id_number(identifier: str) -> int:
    """The number of an id such as `passage:0123456789ab`; -1 for one that no passage can have."""
    digits = identifier.removeprefix("passage:")
    return int(digits, 16) if len(digits) == 12 and set(digits) <= set("0123456789abcdef") else -1


def searched(record: Record) -> str:
    """The text that a passage is found by: its title with it."""
    title = record.get("title", "")
    return f"{title}\n{record['text']}" if title else str(record["text"])


class Appender:
    """The files of a base, open for what a change adds.

    Args:
        folder: the base; made where it is not there.
        manifest: what counts so far; what lies behind it is cut off.
        change: the change of the terms.
        cutter: cuts the passages into terms.
        embedder: makes their vectors; None where the index has none.
    """

    def __init__(
        self, folder: Path, manifest: Manifest, change: TantivyChange, cutter: Cutter, embedder: Embedder | None
    ) -> None:
        self.rows, self.length = manifest.rows, manifest.length
        self._change, self._cutter, self._embedder = change, cutter, embedder
        self._dimension = manifest.dimension
        self._pending: list[tuple[Record, int, int]] = []
        self._stack = ExitStack()
        folder.mkdir(parents=True, exist_ok=True)
        sizes = {name: np.dtype(kind).itemsize for name, kind in ARRAYS.items()}
        if self._dimension:
            sizes |= {VECTORS: self._dimension, SCALES: 4, SKETCHES: 8 * words_of(self._dimension)}
        self._files = {PASSAGES: self._open(folder / PASSAGES, manifest.length)}
        self._files |= {name: self._open(folder / name, size * manifest.rows) for name, size in sizes.items()}

    def _open(self, path: Path, length: int) -> BinaryIO:
        path.touch()
        file = self._stack.enter_context(path.open("r+b"))
        file.truncate(length)
        file.seek(length)
        return file

    def __enter__(self) -> Self:
        """The appender."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        self._stack.close()

    def put(self, record: Record, number: int, owner: int) -> int:
        """A passage with its id's number and its document's; returns its row."""
        self._pending.append((record, number, owner))
        if len(self._pending) >= BATCH:
            self.flush()
        return self.rows + len(self._pending) - 1 if self._pending else self.rows - 1

    def flush(self) -> None:
        """Write what is pending."""
        pending, self._pending = self._pending, []
        if not pending:
            return
        records = [record for record, _, _ in pending]
        vectors = None
        if self._embedder is not None:
            vectors = quantise(self._embedder.encode([searched(record) for record in records]))
        self.write(records, np.array([(number, owner) for _, number, owner in pending], np.uint64), vectors)

    def write(self, records: Sequence[Record], numbers: NDArray[np.uint64], vectors: Quantised | None) -> None:
        """Write passages with their ids' and documents' numbers (n, 2) and their vectors."""
        lines = [json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records]
        ends = self.length + np.cumsum([len(line) for line in lines], dtype=np.int64)
        self._files[PASSAGES].write(b"".join(lines))
        for (name, kind), values in zip(ARRAYS.items(), (ends, numbers[:, 0], numbers[:, 1]), strict=True):
            self._files[name].write(values.astype(kind).tobytes())
        if vectors is not None:
            self._files[VECTORS].write(vectors.vectors.tobytes())
            self._files[SCALES].write(vectors.scales.astype("<f4").tobytes())
            # Of the rows as they are kept, so that a base that is written anew has the same sketches.
            self._files[SKETCHES].write(sketch(vectors.vectors.astype(np.float32)).astype("<u8").tobytes())
        for row, record in enumerate(records, start=self.rows):
            self._change.add(row, self._cutter(searched(record)))
        self.rows += len(records)
        self.length = int(ends[-1])

    def sync(self) -> None:
        """Have all of it on the disk."""
        self.flush()
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())

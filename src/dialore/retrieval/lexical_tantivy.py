"""BM25 by tantivy, in memory or in a folder: quick over a hundred thousand texts and more, with k1 = 1.2 and b = 0.75.

The texts are cut here and tantivy takes them apart at white space. It is one index with statistics of its own; who adds
rows says their numbers, and which of the rows found still count.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dialore.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

TANTIVY_K1 = 1.2
TANTIVY_B = 0.75
_HEAP = 64_000_000
_DECIMALS = 4


def _tantivy() -> Any:  # noqa: ANN401 - its stubs leave out half of it
    try:
        import tantivy
    except ImportError as error:
        raise MissingExtraError("BM25 over many texts", "documents") from error
    return tantivy


class TantivyBm25:
    """Rows of terms, ranked by BM25.

    What is read is the index of one moment: of when it was opened or last refreshed. A folder has one writer at a time;
    a commit is whole or not at all, whatever ends the process.

    Args:
        folder: where it lies; None for memory. It is made where there is none.

    Raises:
        MissingExtraError: tantivy is not installed.
        OSError, ValueError: the folder is damaged.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._library = tantivy = _tantivy()
        self._folder = folder
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("terms", stored=False, tokenizer_name="whitespace", index_option="freq")
        builder.add_unsigned_field("row", stored=False, indexed=True, fast=True)
        self._schema = builder.build()
        if folder is None:
            self._index = tantivy.Index(self._schema)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            where = folder
            if not _writable(folder):
                where = _links_to(folder)
                weakref.finalize(self, shutil.rmtree, where, ignore_errors=True)
            self._index = tantivy.Index(self._schema, path=str(where), reuse=True)
        # Only `refresh` moves a reader on; the library would look for commits by a thread of its own.
        self._index.config_reader(reload_policy="manual")
        self.refresh()

    @classmethod
    def of(cls, cut: Iterable[Sequence[str]]) -> Self:
        """An index in memory; the rows are numbered in their order."""
        index = cls()
        with index.changing() as change:
            for row, terms in enumerate(cut):
                change.add(row, terms)
        index.refresh()
        return index

    def refresh(self) -> None:
        """Read on from the last commit."""
        self._index.reload()
        self._searcher = self._index.searcher()

    def __len__(self) -> int:
        return int(self._searcher.num_docs)

    @contextmanager
    def changing(self) -> Iterator[TantivyChange]:
        """Add and delete rows; all of it is committed at the end of the body, or nothing where that fails."""
        # One thread, so that rows lie in their order and equal scores have an order that does not change.
        writer = self._index.writer(heap_size=_HEAP, num_threads=1)
        try:
            yield TantivyChange(self._library, self._schema, writer)
            writer.commit()
        except BaseException:
            writer.rollback()
            raise
        finally:
            writer.wait_merging_threads()
            if self._folder is not None:
                _share(self._folder)

    def best(
        self, terms: Iterable[str], top: int, counts: Callable[[NDArray[np.int64]], NDArray[np.bool_]] | None = None
    ) -> list[tuple[int, float]]:
        """The rows and scores of the `top` rows that have any of the terms, the best first, ties by row.

        Args:
            terms: of the query; one that is there twice counts twice.
            top: how many at most.
            counts: says of rows which are to be found; None for all.
        """
        wanted = top
        clauses = [(self._library.Occur.Should, self._clause(*pair)) for pair in Counter(terms).items()]
        if not clauses or top <= 0:
            return []
        query = clauses[0][1] if len(clauses) == 1 else self._library.Query.boolean_query(clauses)
        while True:
            hits = self._searcher.search(query, limit=wanted, count=False).hits
            rows = np.array(self._searcher.fast_field_values("row", [address for _, address in hits]), dtype=np.int64)
            scores = np.round(np.array([score for score, _ in hits], dtype=np.float64), _DECIMALS)
            if counts is not None and not (counted := counts(rows)).all():
                rows, scores = rows[counted], scores[counted]
            if len(rows) >= top or len(hits) < wanted:
                order = np.lexsort((rows, -scores))[:top]
                return list(zip(rows[order].tolist(), scores[order].tolist(), strict=True))
            wanted *= 4

    def _clause(self, term: str, times: int) -> Any:  # noqa: ANN401
        query = self._library.Query.term_query(self._schema, "terms", term, index_option="freq")
        return self._library.Query.boost_query(query, float(times)) if times > 1 else query


_LOCKS = (".tantivy-meta.lock", ".tantivy-writer.lock")
_PRIVATE = ("meta.json", ".managed.json")


def _writable(folder: Path) -> bool:
    effective = os.access in os.supports_effective_ids
    paths = (folder, *map(folder.joinpath, _LOCKS))
    return all(os.access(path, os.W_OK, effective_ids=effective) for path in paths if path.exists())


def _links_to(folder: Path) -> Path:
    """A new folder with links to an index that may only be read, for the library wants to write its locks."""
    made = Path(tempfile.mkdtemp(prefix="dialore-terms-"))
    for path in folder.iterdir():
        if path.name not in _LOCKS:
            (made / path.name).symlink_to(path.resolve())
    return made


def _share(folder: Path) -> None:
    """Let those read all files who may read the locks: the library makes two files for their owner alone."""
    with suppress(OSError):
        mode = (folder / _LOCKS[1]).stat().st_mode & 0o777
        for name in _PRIVATE:
            (folder / name).chmod(mode)


class TantivyChange:
    """What is to become of an index; see `TantivyBm25.changing`."""

    def __init__(self, library: Any, schema: Any, writer: Any) -> None:  # noqa: ANN401
        self._library, self._schema, self._writer = library, schema, writer

    def add(self, row: int, terms: Sequence[str]) -> None:
        """A row with its terms."""
        document = self._library.Document()
        document.add_text("terms", " ".join(terms))
        document.add_unsigned("row", row)
        self._writer.add_document(document)

    def delete(self, rows: Iterable[int]) -> None:
        """Rows to be gone."""
        # By a query: the library's deletion by term takes every number for a signed one, and finds none.
        found = self._library.Query.term_set_query(self._schema, "row", list(rows))
        self._writer.delete_documents_by_query(found)

    def delete_from(self, row: int) -> None:
        """This row and all with a higher number to be gone, as far as they were there before the change."""
        kind = self._library.FieldType.Unsigned
        self._writer.delete_documents_by_query(
            self._library.Query.range_query(self._schema, "row", kind, lower_bound=row, upper_bound=None)
        )

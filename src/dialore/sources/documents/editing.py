"""Changing an index: everything of a change is there at once, or nothing, whatever ends the process amid it."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from dialore.errors import InputError
from dialore.retrieval.cutting import Cutter
from dialore.retrieval.lexical_tantivy import TantivyBm25
from dialore.retrieval.ranking import Quantised
from dialore.sources.documents.appending import BATCH, Appender, id_number
from dialore.sources.documents.layout import TERMS, Document, read_manifest, write_manifest
from dialore.sources.documents.locking import BASE, alone, forget, is_ours, sweep
from dialore.sources.documents.view import View

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from dialore.retrieval.embedding import Embedder
    from dialore.sources.documents.appending import Piece
    from dialore.sources.documents.layout import Manifest

_WASTE = 0.25
"""An index with a larger share of dead rows is written anew."""
_LITTLE = 1000
"""Dead rows that are never worth it."""


class Session:
    """A change that is being made.

    Attributes:
        added: passages that were not there.
        duplicates: passages left out, for their document has them already.
        deleted: passages that are gone.
    """

    def __init__(self, manifest: Manifest, appender: Appender, view: View | None) -> None:
        self.added = self.duplicates = self.deleted = 0
        self._manifest, self._appender, self._view = manifest, appender, view
        self._documents = [document.model_copy() for document in manifest.documents]
        self._dead = view.dead.copy() if view else np.zeros(0, dtype=np.bool_)
        self._owners = view.owners if view else np.zeros(0, dtype=np.uint32)
        self._new: list[int] = []
        self._failed: set[int] = set()
        self._number_of = {document.name: at for at, document in enumerate(self._documents) if document.passages}

    def known(self, name: str) -> Document | None:
        """The document of that name, if it has passages."""
        number = self._number_of.get(name)
        return None if number is None else self._documents[number]

    def names(self) -> list[str]:
        """The names of the documents that have passages."""
        return list(self._number_of)

    def put(self, document: Document, pieces: Iterable[Piece], *, more: bool = False) -> int:
        """Take in a document; returns how many passages it brought.

        Args:
            document: what it is; its passages are counted here.
            pieces: its passages. Where they raise, nothing of them counts and a known document stays as it was.
            more: of a known document, what it has stays.
        """
        known = self._number_of.get(document.name)
        number = known if more and known is not None else len(self._documents)
        seen = self._ids_of(number) if number == known else set()
        first = len(self._new)
        try:
            for piece in pieces:
                identifier = piece.number
                if identifier in seen:
                    self.duplicates += 1
                    continue
                seen.add(identifier)
                self._appender.put(piece.record(), identifier, number)
                self._new.append(number)
        except BaseException:
            self._failed.update(range(first, len(self._new)))
            raise
        count = len(self._new) - first
        self.added += count
        if number == known:
            self._documents[number].passages += count
            return count
        if known is not None:
            self._drop(known)
        self._documents.append(document.model_copy(update={"passages": count}))
        if count:
            self._number_of[document.name] = number
        return count

    def _ids_of(self, number: int) -> set[int]:
        if self._view is None:
            return set()
        found: set[int] = set(self._view.ids[(self._owners == number) & ~self._dead].tolist())
        return found

    def _drop(self, number: int) -> None:
        rows = (self._owners == number) & ~self._dead
        self.deleted += int(np.count_nonzero(rows))
        self._dead |= rows
        # Of a document that came in with this very change the rows are not in the view yet.
        late = [at for at, owner in enumerate(self._new) if owner == number and at not in self._failed]
        self._failed.update(late)
        self.added -= len(late)
        self._documents[number].passages = 0
        self._number_of.pop(self._documents[number].name, None)

    def delete_document(self, name: str) -> bool:
        """Delete a document with its passages; whether there was one."""
        number = self._number_of.get(name)
        if number is not None:
            self._drop(number)
        return number is not None

    def delete_ids(self, ids: Collection[str]) -> list[str]:
        """Delete passages by id; returns the ids that nothing has."""
        if self._view is None:
            return list(ids)
        missing = []
        for identifier in ids:
            number = id_number(identifier)
            rows = (self._view.ids == number) & ~self._dead if number >= 0 else np.zeros(0, dtype=np.bool_)
            if not rows.any():
                missing.append(identifier)
            else:
                self._kill(rows)
        return missing

    def delete_urls(self, urls: Collection[str]) -> list[str]:
        """Delete passages by url; returns the urls that nothing has."""
        wanted, found = set(urls), set[str]()
        if self._view is not None and wanted:
            rows = np.zeros(len(self._dead), dtype=np.bool_)
            for row in np.flatnonzero(~self._dead).tolist():
                url = self._view.record(row).get("url", "")
                if url in wanted:
                    rows[row] = True
                    found.add(url)
            self._kill(rows)
        return [url for url in urls if url not in found]

    def _kill(self, rows: NDArray[np.bool_]) -> None:
        self.deleted += int(np.count_nonzero(rows))
        self._dead |= rows

    def finish(self) -> Manifest:
        """Write what is pending, and say what is there now."""
        self._appender.sync()
        manifest = self._manifest.model_copy(deep=True)
        manifest.rows, manifest.length = self._appender.rows, self._appender.length
        late = np.zeros(len(self._new), dtype=np.bool_)
        late[list(self._failed)] = True
        dead = np.concatenate([self._dead, late])
        manifest.set_dead(dead)
        owners = np.concatenate([self._owners, np.array(self._new, dtype=np.uint32)])[~dead]
        counts = np.bincount(owners, minlength=len(self._documents)).tolist()
        for document, count in zip(self._documents, counts, strict=True):
            # A document that lost passages is no longer what its file says: it is read again when it is added again.
            lost = document.passages != count
            document.passages, document.hash = count, "" if lost else document.hash
        manifest.documents = self._documents
        manifest.changes += 1
        return manifest


@contextmanager
def building(folder: Path, manifest: Manifest, embedder: Embedder | None) -> Iterator[Session]:
    """Build an index anew, in the place of an old one; the old one stays until the new one is whole.

    Raises:
        InputError: the folder holds something else, cannot be written, or another writer has it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ours = is_ours(folder)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror}", mend="name another folder") from error
    if not ours:
        raise InputError(f"{folder} holds other files and is not a document index", mend="name another folder")
    try:
        with alone(folder):
            fresh = manifest.model_copy(update={"base": f"{BASE}{secrets.token_hex(4)}"})
            try:
                with _session(folder, fresh, None, embedder) as session:
                    yield session
            finally:
                sweep(folder, _base_of(folder))
    finally:
        forget(folder)


def _base_of(folder: Path) -> str:
    try:
        return read_manifest(folder).base
    except InputError:
        return ""


@contextmanager
def changing(folder: Path, embedder: Embedder | None) -> Iterator[Session]:
    """Change an index.

    Args:
        folder: the index.
        embedder: the one that made its vectors; None loads it.

    Raises:
        InputError: no index, its embedder is another one now, or as `alone` does.
    """
    read_manifest(folder)
    with alone(folder):
        manifest = read_manifest(folder)
        sweep(folder, manifest.base)
        view = View(folder, manifest)
        with _session(folder, manifest, view, embedder_of(manifest, folder, embedder)) as session:
            yield session
        manifest = read_manifest(folder)
        if manifest.rows - manifest.live > max(_LITTLE, _WASTE * manifest.rows):
            _rewrite(folder, manifest)


@contextmanager
def _session(folder: Path, manifest: Manifest, view: View | None, embedder: Embedder | None) -> Iterator[Session]:
    base = folder / manifest.base
    terms = TantivyBm25(base / TERMS)
    with terms.changing() as change:
        change.delete_from(manifest.rows)
        with Appender(base, manifest, change, Cutter(**manifest.cutter), embedder) as appender:
            session = Session(manifest, appender, view)
            yield session
            after = session.finish()
    # Readers of the old manifest pass over the new rows until here.
    write_manifest(folder, after)
    terms.refresh()
    if len(terms) > after.live:
        with terms.changing() as change:
            change.delete(np.flatnonzero(after.dead_rows()).tolist())


def _rewrite(folder: Path, manifest: Manifest) -> None:
    """Write an index's live passages anew, under another base."""
    view = View(folder, manifest)
    kept = [number for number, document in enumerate(manifest.documents) if document.passages]
    renumbered = {number: at for at, number in enumerate(kept)}
    after = manifest.model_copy(deep=True)
    after.base, after.rows, after.length = f"{BASE}{secrets.token_hex(4)}", 0, 0
    after.documents = [manifest.documents[number] for number in kept]
    base = folder / after.base
    try:
        with (
            TantivyBm25(base / TERMS).changing() as change,
            Appender(base, after, change, Cutter(**manifest.cutter), None) as appender,
        ):
            rows = np.flatnonzero(~view.dead)
            for start in range(0, len(rows), BATCH):
                part = rows[start : start + BATCH]
                owners = [renumbered[int(owner)] for owner in view.owners[part]]
                numbers = np.column_stack([view.ids[part], np.array(owners, np.uint64)])
                vectors = view.vectors and Quantised(view.vectors.vectors[part], view.vectors.scales[part])
                appender.write([view.record(row) for row in part.tolist()], numbers, vectors)
            appender.sync()
        after.rows, after.length = appender.rows, appender.length
        after.set_dead(np.zeros(after.rows, dtype=np.bool_))
        after.changes += 1
        write_manifest(folder, after)
    finally:
        sweep(folder, _base_of(folder))


def compact(folder: Path) -> None:
    """Write an index anew without its dead rows; large deletions do so by themselves.

    Raises:
        InputError: as `changing` does.
    """
    read_manifest(folder)
    with alone(folder):
        _rewrite(folder, read_manifest(folder))


def embedder_of(manifest: Manifest, folder: Path, embedder: Embedder | None = None) -> Embedder | None:
    """The embedder of an index's vectors; None where it has none.

    Raises:
        InputError: it is another version than the one that made them.
    """
    if not manifest.embedder:
        return None
    if embedder is None:
        from dialore.retrieval.embedding import load_embedder

        embedder = load_embedder(manifest.embedder)
    if embedder.fingerprint != manifest.embedder_fingerprint:
        raise InputError(
            f"{folder} has vectors of another version of the embedder {manifest.embedder}, not of {embedder.name}",
            mend="build it again, or give the embedder that it was built with",
        )
    return embedder

"""Building a document index, adding to it and deleting from it."""

from __future__ import annotations

import functools
import hashlib
import time
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field, computed_field

from dialore.errors import InputError
from dialore.retrieval.bm25 import split_terms
from dialore.sources.documents.chunking import Chunking, Paragraph, Section, Unreadable
from dialore.sources.documents.index import embedder_of, open_store, shown
from dialore.sources.documents.reading import find_files, read_sections
from dialore.sources.documents.tables import Document, NewPassage, Piece, Settings, id_number

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from dialore.retrieval.embedding import Embedder
    from dialore.sources.documents.reading import FileFormat
    from dialore.sources.documents.tables import Transaction

    Step = Callable[[str, int, int | None], None]

_BATCH = 2048
"""Passages that are embedded and written at once."""
_EVERY = 500
"""Texts between two reports of progress."""


class DocumentReport(BaseModel):
    """What a change of an index did, in passages unless it is said otherwise, and what the index has afterwards.

    Attributes:
        deleted: passages that are gone, those of documents that were read anew included.
        duplicates: passages left out, for their document had them already.
        unchanged: documents left as they were, for their files have not changed.
        missing: ids, files or urls that were to be deleted and that nothing has.
        rejects: files and lines that could not be read, a sentence each.
        notices: parts of files that were left out, and what was assumed of others, a sentence each.
        skipped: files of folders that were passed over, for their names do not say how to read them.
    """

    path: str
    added: int = 0
    deleted: int = 0
    duplicates: int = 0
    unchanged: int = 0
    missing: list[str] = Field(default_factory=list)
    rejects: list[str] = Field(default_factory=list)
    notices: list[str] = Field(default_factory=list)
    skipped: list[str] = Field(default_factory=list)
    documents: int = 0
    passages: int = 0
    seconds: float = 0.0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def rejected(self) -> int:
        """How many files and lines could not be read."""
        return len(self.rejects)


class _Change:
    """A change of an index that is being made; `on_step` is told what is done, how much of it and of how much."""

    def __init__(
        self,
        transaction: Transaction,
        report: DocumentReport,
        embedder: Callable[[], Embedder | None],
        on_step: Step | None,
    ) -> None:
        self._transaction, self.report, self._embedder = transaction, report, embedder
        self._step: Step = on_step or (lambda _step, _done, _total: None)
        self._documents = transaction.documents()
        self._last = max(self._documents, default=0)
        self.number_of = {document.name: number for number, document in self._documents.items()}
        self._pending: dict[tuple[int, int], Piece] = {}
        self._chunking = Chunking(**transaction.settings().chunking)

    def files(self, found: Mapping[Path, FileFormat]) -> None:
        """Take in files, but those that have not changed."""
        for done, (path, file_format) in enumerate(found.items()):
            self._step(f"reading {path.name}", done, len(found))
            try:
                self._file(path, file_format)
            except Unreadable as error:
                _tell(self.report.rejects, path, error)
            except OSError as error:
                _tell(self.report.rejects, path, error.strerror or error)
        self._step("reading", len(found), len(found))

    def _file(self, path: Path, file_format: FileFormat) -> None:
        status = path.stat()
        document = Document(
            name=str(path),
            hash=_hash(path, file_format, self._chunking),
            bytes=status.st_size,
            modified=status.st_mtime_ns,
        )
        known = self.number_of.get(document.name)
        if known is not None and self._documents[known].hash == document.hash:
            self.report.unchanged += 1
            return
        reject, notice = (functools.partial(_tell, told, path) for told in (self.report.rejects, self.report.notices))
        sections = read_sections(path, file_format, reject, notice)
        number = self._add(document)
        before = self.report.added
        try:
            self._put(
                number, _checked(piece for each in sections for piece in self._chunking.split(each, document.name))
            )
        except BaseException:
            self.drop(number)
            self.report.deleted -= self.report.added - before
            self.report.added = before
            raise
        if known is not None:
            self.drop(known)
        self.number_of[document.name] = number

    def texts(self, texts: Iterable[str | Piece], name: str) -> None:
        """Take in texts beside those that are there under the same name."""
        number = self.number_of.get(name) or self._add(Document(name=name))
        self.number_of[name] = number
        self._put(number, self._pieces(texts))

    def _pieces(self, texts: Iterable[str | Piece]) -> Iterator[Piece]:
        for done, text in enumerate(texts):
            if done % _EVERY == 0:
                self._step("reading texts", done, None)
            piece = text if isinstance(text, Piece) else Piece(text)
            section = Section([Paragraph(piece.text)], piece.title, piece.url, piece.extra)
            yield from self._chunking.split(section, piece.file)

    def _add(self, document: Document) -> int:
        self._last += 1
        self._transaction.add_document(self._last, document)
        self._documents[self._last] = document
        return self._last

    def _put(self, number: int, pieces: Iterable[Piece]) -> None:
        """Take in passages of a document."""
        for piece in pieces:
            key = number, piece.id
            if key in self._pending:
                self.report.duplicates += 1
            else:
                self._pending[key] = piece
            if len(self._pending) >= _BATCH:
                self.flush()

    def flush(self) -> None:
        """Write what is pending, but what its document has already."""
        pending, self._pending = self._pending, {}
        for key in self._transaction.owners({identifier for _, identifier in pending}):
            if pending.pop(key, None) is not None:
                self.report.duplicates += 1
        if not pending:
            return
        searched = [piece.searched for piece in pending.values()]
        passages = [
            NewPassage(piece, identifier, number, split_terms(text))
            for ((number, identifier), piece), text in zip(pending.items(), searched, strict=True)
        ]
        embedder = self._embedder()
        self._transaction.insert(passages, embedder.encode(searched) if embedder else None)
        self.report.added += len(passages)

    def drop(self, number: int) -> None:
        """Remove a document with its passages."""
        self._pending = {key: piece for key, piece in self._pending.items() if key[0] != number}
        self.remove("document", [number])

    def remove(self, column: str, values: Collection[object]) -> int:
        """Remove the passages whose `document`, `id` or `url` is among the values; returns how many there were."""
        removed = self._transaction.remove(column, values)
        self.report.deleted += removed
        return removed

    def drop_files(self, named: Collection[str], folders: Sequence[Path], but: Collection[str] = ()) -> bool:
        """Remove the documents that are named, or files in the folders and below; returns whether there were any."""
        wanted = [
            name
            for name in self.number_of
            if name not in but and (name in named or any(Path(name).is_relative_to(folder) for folder in folders))
        ]
        for name in wanted:
            self.drop(self.number_of.pop(name))
        return bool(wanted)

    def nothing(self) -> InputError:
        """The error that nothing could be taken in."""
        said = f": {self.report.rejects[0]}" if self.report.rejects else ""
        return InputError(f"nothing to make passages of{said}", mend="name files with text, or --format")


def _tell(told: list[str], path: Path, *said: object) -> None:
    """Add a sentence on a file, or on a part of it."""
    *where, why = said
    told.append(f"{', '.join(map(str, filter(None, (path, *where))))}: {why}")


def _checked(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """The passages of a file; raises Unreadable where there are none."""
    first = next(pieces, None)
    if first is None:
        raise Unreadable("no text in it")
    yield first
    yield from pieces


@contextmanager
def _changing(
    path: Path | str, fresh: Settings | None, embedder: Embedder | None, on_step: Step | None
) -> Iterator[_Change]:
    """A change of an index, with its report."""
    started = time.monotonic()
    report = DocumentReport(path=shown(path))
    with closing(open_store(path)) as store:
        with store.write(fresh) as transaction:
            chosen = functools.cache(functools.partial(embedder_of, transaction.settings(), path, embedder))
            change = _Change(transaction, report, chosen, on_step)
            yield change
            change.flush()
            if fresh is not None and not report.added:
                raise change.nothing()
        with store.read() as transaction:
            report.documents, report.passages = len(transaction.documents()), transaction.state().passages
    report.seconds = round(time.monotonic() - started, 3)


def _hash(path: Path, *settings: object) -> str:
    """What tells whether a file has to be read again: its bytes, and how they are read and split."""
    key = hashlib.sha256(repr(settings).encode()).digest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16, key=key)).hexdigest()


def build_documents(
    path: Path | str,
    files: str | Path | Sequence[str | Path] = (),
    *,
    texts: Iterable[str | Piece] = (),
    texts_name: str = "texts",
    name: str | None = None,
    chunking: Chunking | None = None,
    embedder: Embedder | None = None,
    vectors: bool = True,
    file_format: FileFormat | None = None,
    on_step: Step | None = None,
) -> DocumentReport:
    """Build a document index; one that is there stays in place until the new one is whole.

    Args:
        path: its file, or a `postgresql://` address (see `DocumentIndex`).
        files: files, and folders whose files are read.
        texts: passages from elsewhere, e.g. a data set's knowledge; they are split as the files are.
        texts_name: the name that these have among the documents.
        name: the index's name; that of the file where None.
        chunking: how texts are split into passages.
        embedder: makes the vectors; None takes the shipped static one.
        vectors: without, the index is searched by BM25 alone.
        file_format: how all files are read, whatever their names.
        on_step: told what is done, how much of it and of how much.

    Raises:
        InputError: no file of a name, none that can be read, the path holds something else or cannot be written.
        MissingExtraError: PDF or HTML without the extra `documents`, PostgreSQL without the extra `postgres`.
    """
    found, skipped = find_files(files, file_format)
    if vectors and embedder is None:
        from dialore.retrieval.embedding import load_embedder

        embedder = load_embedder()
    made = embedder if vectors else None
    settings = Settings(
        name=name or (str(path).partition("#")[2] or "documents" if "://" in str(path) else Path(path).resolve().stem),
        embedder=made.name if made else "",
        embedder_fingerprint=made.fingerprint if made else "",
        dimension=made.dimension if made else 0,
        chunking=asdict(chunking or Chunking()),
    )
    with _changing(path, settings, made, on_step) as change:
        change.report.skipped = list(map(str, skipped))
        change.files(found)
        change.texts(texts, texts_name)
    return change.report


def add_documents(
    path: Path | str,
    files: Sequence[Path] = (),
    *,
    texts: Iterable[str | Piece] = (),
    texts_name: str = "texts",
    prune: bool = False,
    embedder: Embedder | None = None,
    file_format: FileFormat | None = None,
    on_step: Step | None = None,
) -> DocumentReport:
    """Add files and texts to an index; files that it has are read again only where they changed.

    What is not told here is as in `build_documents`.

    Args:
        path: the index.
        files: files, and folders whose files are read.
        texts: passages from elsewhere; they join those that are there under the same name.
        texts_name: that name.
        prune: documents go whose files have vanished from the folders.
        embedder: the one that made the index's vectors; None loads it.
        file_format: as there.
        on_step: as there.

    Raises:
        InputError: no such index, no file of a name, none that can be read, or another writer has it for 30 seconds.
    """
    found, skipped = find_files(files, file_format)
    with _changing(path, None, embedder, on_step) as change:
        change.report.skipped = list(map(str, skipped))
        change.files(found)
        change.texts(texts, texts_name)
        if prune:
            folders = [each.resolve() for each in files if each.is_dir()]
            change.drop_files((), folders, but=set(map(str, found)))
        change.flush()
        report = change.report
        taken = report.added or report.duplicates or report.unchanged or report.deleted
        if report.rejected and not taken:
            raise change.nothing()
    return report


def delete_documents(
    path: Path | str,
    *,
    ids: Collection[str] = (),
    files: Collection[Path | str] = (),
    urls: Collection[str] = (),
) -> DocumentReport:
    """Delete passages from an index; what is not there is reported, not refused.

    Args:
        path: the index.
        ids: of passages.
        files: files, folders (all files below), or names of texts.
        urls: addresses of passages.

    Raises:
        InputError: no such index, or another writer has it for 30 seconds.
    """
    with _changing(path, None, None, None) as change:
        missing = change.report.missing
        missing += [each for each in ids if not change.remove("id", [id_number(each)])]
        missing += [each for each in urls if not change.remove("url", [each])]
        for file in files:
            if not change.drop_files({str(file), str(Path(file).resolve())}, [Path(file).resolve()]):
                missing.append(str(file))
    return change.report

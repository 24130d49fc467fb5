"""Building a document index, opening it, adding to it and deleting from it."""

from __future__ import annotations

import functools
import hashlib
import time
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, computed_field

from dialore.errors import InputError, MissingExtraError
from dialore.knowledge import GROUPS, Passage
from dialore.retrieval.chunking import Chunking, Paragraph, Section
from dialore.retrieval.documents.metadata import MetadataError, check_metadata, encode_metadata
from dialore.retrieval.documents.opening import embedder_of, open_store, shown_place
from dialore.retrieval.documents.store import Document, IndexSettings, id_number
from dialore.retrieval.groups import RefusedGroups, apply_groups, narrow_groups
from dialore.retrieval.loaders.files import ReadFiles
from dialore.text import shown_path, storable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from dialore.retrieval.documents.store import Transaction
    from dialore.retrieval.embedding import Embedder
    from dialore.retrieval.loaders.files import Step
    from dialore.retrieval.loaders.formats import FileFormat
    from dialore.retrieval.loaders.reader import Reader

    MayChange = Callable[[Sequence[str]], bool]
    """A predicate of groups: True if passages that are restricted to them may be replaced or deleted."""

GROUPS_HINT = 'give groups as a list of names: {"groups": ["staff", "board"]}'
_BATCH = 2048  # passages that are embedded and written at once
_RECENT_NOTICES = 20  # among which the same notice is not repeated
_EVERY = 500  # texts between two reports of progress


# --- opening


# --- changing


class DocumentReport(BaseModel):
    """The report of a change of an index, and its state afterwards.

    Attributes:
        added: passages.
        deleted: passages, those of documents that were read anew included.
        duplicates: passages left out, for their document had them already.
        added_documents: documents that the index did not have.
        changed_documents: documents that were read anew.
        deleted_documents: documents that the index no longer has.
        unchanged: documents left as they were, for their files have not changed.
        gone: documents that are still in the index although their files vanished from the folders.
        missing: ids, files or urls that were to be deleted and that nothing has.
        rejects: files and lines that could not be read, a sentence each.
        notices: parts of files that were left out, and what was assumed of others, a sentence each.
        skipped: files of folders that were passed over, for their names do not say how to read them.
        restricted: of the passages added, how many only members of some groups may read.
        documents: documents of the index.
        passages: passages of the index.
    """

    path: str
    added: int = 0
    deleted: int = 0
    duplicates: int = 0
    added_documents: int = 0
    changed_documents: int = 0
    deleted_documents: int = 0
    unchanged: int = 0
    gone: list[str] = Field(default_factory=list)
    missing: list[str] = Field(default_factory=list)
    rejects: list[str] = Field(default_factory=list)
    notices: list[str] = Field(default_factory=list)
    skipped: list[str] = Field(default_factory=list)
    restricted: int = 0
    documents: int = 0
    passages: int = 0
    seconds: float = 0.0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def rejected(self) -> int:
        """How many files and lines could not be read."""
        return len(self.rejects)


def apply_metadata_groups(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata with its `groups` as a list of names; raise InputError if they cannot be applied."""
    try:
        return apply_groups(metadata)
    except RefusedGroups as error:
        raise InputError(f"the metadata cannot be applied: {error}", hint=GROUPS_HINT) from error


class _Change:
    """A change of an index that is being made; `on_step` is told what is done, how much of it and of how much."""

    def __init__(
        self,
        transaction: Transaction,
        report: DocumentReport,
        embedder: Callable[[], Embedder | None],
        metadata: Mapping[str, Any],
        on_step: Step | None,
    ) -> None:
        self._transaction, self.report, self._embedder = transaction, report, embedder
        self._metadata = dict(metadata)
        self._allowed: list[str] | None = self._metadata.get(GROUPS)
        self.step: Step = on_step or (lambda _step, _done, _total: None)
        self._documents = transaction.documents()
        self._last = max(self._documents, default=0)
        self.number_of = {document.name: number for number, document in self._documents.items()}
        self._pending: dict[tuple[int, str], Passage] = {}
        self._chunking = Chunking(**transaction.settings().chunking)

    def files(self, read: ReadFiles) -> None:
        """Take in files that were read, each in the place of what is there under its name."""
        for told in ("rejects", "notices", "skipped"):
            getattr(self.report, told).extend(getattr(read, told))
        for name in self.number_of.keys() & set(read.refused):
            self.drop(self.number_of.pop(name))  # what was public before may be restricted now
        self.report.unchanged = len(read.unchanged)
        for done, file in enumerate(read.files):
            self.step("writing", done, len(read.files))
            document = _split_by(file.document, self._chunking, self._metadata)
            known = self.number_of.get(document.name)
            if known is not None and self._documents[known].hash == document.hash:
                self.report.unchanged += 1
                continue
            number = self._add(document)
            try:
                is_kept = self._put_sections(number, read.sections(file))
            except RefusedGroups as error:
                self.report.rejects.append(f"{document.name}: {error}")
                self._take_back(number)
                if known is not None:  # what was public before may be restricted now
                    self.drop(self.number_of.pop(document.name))
                continue
            if not is_kept:
                continue  # the previous version stays
            if known is not None:
                self.drop(known)
                self.report.changed_documents += 1
            self.number_of[document.name] = number

    def _put_sections(self, number: int, sections: Iterable[Section]) -> bool:
        """Take in sections of a document, and return whether any was.

        Sections whose metadata cannot be kept are rejected by document and line.
        """
        name = self._documents[number].name
        has_any = False
        for section in sections:
            try:
                check_metadata({**section.metadata, **self._metadata})
            except MetadataError as error:
                location = f"{name}, line {section.line}" if section.line else name
                reject = f"{location}: {error}"
                if reject not in self.report.rejects[-1:]:  # sections of a document share what its front matter says
                    self.report.rejects.append(reject)
                continue
            has_any = True
            self._put(number, self._chunking.split(section, name))
        return has_any

    def texts(self, texts: Iterable[str | Passage], name: str) -> None:
        """Take in texts beside those that are there under the same name."""
        name = storable(name)
        number = self.number_of.get(name) or self._add(Document(name=name))
        self.number_of[name] = number
        for done, text in enumerate(texts):
            if done % _EVERY == 0:
                self.step("reading texts", done, None)
            passage = text if isinstance(text, Passage) else Passage(text)
            paragraphs = [Paragraph(passage.text, passage.page)]
            section = Section(paragraphs, passage.title, passage.url, passage.metadata)
            try:
                check_metadata({**passage.metadata, **self._metadata})
            except MetadataError as error:
                self.report.rejects.append(f"{name}, text {done + 1}: {error}")
                continue
            try:
                self._put(number, self._chunking.split(section, passage.file))
            except RefusedGroups as error:
                raise InputError(f"{name}, text {done + 1}: {error}", hint=GROUPS_HINT) from error

    def _add(self, document: Document) -> int:
        self._last += 1
        self._transaction.add_document(self._last, document)
        self._documents[self._last] = document
        return self._last

    def _put(self, number: int, passages: Iterable[Passage]) -> None:
        """Take in passages of a document; raise RefusedGroups if nobody knows who may read one, or it may not be."""
        for passage in passages:
            completed = self._with_metadata(passage, number)
            key = (number, passage.id)
            self.report.duplicates += key in self._pending
            self._pending.setdefault(key, completed)
            if len(self._pending) >= _BATCH:
                self.flush()

    def _with_metadata(self, passage: Passage, number: int) -> Passage:
        """Return a passage with the metadata of the change; its own groups are narrowed to those of the change."""
        own = apply_groups(passage.metadata)
        metadata = {**own, **self._metadata}
        own_groups = own.get(GROUPS, [])
        groups = narrow_groups(own_groups, self._allowed)
        if own_groups and groups != own_groups:
            name = self._documents[number].name
            notice = f"{name}: for {', '.join(groups)} alone, not for all of its {GROUPS} {', '.join(own_groups)}"
            if notice not in self.report.notices[-_RECENT_NOTICES:]:
                self.report.notices.append(notice)
        metadata.pop(GROUPS, None)
        if groups or GROUPS in own:
            metadata[GROUPS] = groups
        return replace(passage, metadata=metadata) if metadata != passage.metadata else passage

    def _take_back(self, number: int) -> None:
        """Remove what was taken in of a document that is refused."""
        self._discard_pending(number)
        for _, passage in self._transaction.passages([number], "document"):
            self.report.restricted -= bool(passage.metadata.get(GROUPS))
        self.report.added -= self._transaction.remove("document", [number])

    def flush(self) -> None:
        """Write what is pending, but what its document has already."""
        pending, self._pending = self._pending, {}
        for key in self._transaction.owners({identifier for _, identifier in pending}):
            if pending.pop(key, None) is not None:
                self.report.duplicates += 1
        if not pending:
            return
        passages = [(number, passage) for (number, _), passage in pending.items()]
        embedder = self._embedder()
        vectors = embedder.encode([passage.searched for _, passage in passages]) if embedder else None
        self._transaction.insert(passages, vectors)
        self.report.added += len(passages)
        self.report.restricted += sum(bool(passage.metadata.get(GROUPS)) for _, passage in passages)

    def drop(self, number: int) -> None:
        """Remove a document with its passages."""
        self._discard_pending(number)
        self.remove("document", [number])

    def _discard_pending(self, number: int) -> None:
        self._pending = {key: passage for key, passage in self._pending.items() if key[0] != number}

    def remove(self, column: str, values: Collection[object]) -> int:
        """Remove the passages whose `document`, `id` or `url` is among the values; returns how many there were."""
        removed = self._transaction.remove(column, values)
        self.report.deleted += removed
        return removed

    def drop_files(
        self,
        named: Collection[str],
        folders: Sequence[Path],
        but: Collection[str] = (),
        may_change: MayChange | None = None,
    ) -> bool:
        """Remove the documents that are named, or files in the folders and below; returns whether there were any.

        With `may_change`, only their passages go whose groups it approves of.
        """
        wanted = {name for name in self.number_of if name in named or any(map(Path(name).is_relative_to, folders))}
        for name in wanted.difference(but):
            if may_change is None:
                self.drop(self.number_of.pop(name))
            else:
                self._drop_approved(self.number_of[name], may_change)
        return bool(wanted.difference(but))

    def _drop_approved(self, number: int, may_change: MayChange) -> None:
        stored = self._transaction.passages([number], "document")
        approved = [position for position, passage in stored if may_change(passage.metadata.get(GROUPS, []))]
        self.remove("number", approved)

    def find_gone(self, folders: Sequence[Path], found: Collection[str]) -> list[str]:
        """Return the documents below the folders whose files have vanished; `found` names those that were found."""
        gone: list[str] = []
        for name in self.number_of:
            is_below = any(map(Path(name).is_relative_to, folders))
            if is_below and name not in found and _has_vanished(Path(name)):
                gone.append(name)
        return gone

    def nothing(self) -> InputError:
        """Return the error that nothing could be taken in."""
        message = ": ".join(["nothing to make passages of", *self.report.rejects[:1]])
        return InputError(message, hint="name files with text, or their format")


@contextmanager
def _changing(
    path: Path | str,
    fresh: IndexSettings | None,
    embedder: Embedder | None,
    on_step: Step | None,
    metadata: Mapping[str, Any] | None = None,
) -> Iterator[_Change]:
    """Yield a change of an index, with its report."""
    started = time.monotonic()
    report = DocumentReport(path=shown_place(path))
    with closing(open_store(path)) as store:
        with store.write(fresh) as transaction:
            before = {document.name for document in transaction.documents().values()}
            chosen = functools.cache(functools.partial(embedder_of, transaction.settings(), path, embedder))
            change = _Change(transaction, report, chosen, metadata or {}, on_step)
            yield change
            change.flush()
            if fresh is not None and not report.added:
                raise change.nothing()
            try:
                transaction.update_approximate(lambda done, total: change.step("indexing vectors", done, total))
            except MissingExtraError as error:
                report.notices.append(f"vectors are searched one by one, which is slow: {error.hint}")
            after = {document.name for document in transaction.documents().values() if document.passages}
        report.added_documents, report.deleted_documents = len(after - before), len(before - after)
        with store.read() as transaction:
            report.documents, report.passages = len(transaction.documents()), transaction.state().passages
    report.seconds = round(time.monotonic() - started, 3)


def _has_vanished(path: Path) -> bool:
    """Return whether there is no such file; False if nobody can tell, as in a folder that may not be read."""
    try:
        return not path.exists()
    except OSError:
        return False


def _split_by(document: Document, chunking: Chunking, metadata: Mapping[str, Any]) -> Document:
    """Return a document that was read, with a hash of how it is split and what is said of it, too."""
    told = f" {encode_metadata(metadata)}" if metadata else ""
    digest = hashlib.blake2b(f"{document.hash} {chunking}{told}".encode(), digest_size=16)
    return document.model_copy(update={"hash": digest.hexdigest()})


def _folder_of(path: Path | str) -> Path | None:
    """Return the folder of an index in a file, which has room for what is read before anything is locked."""
    folder = None if "://" in str(path) else Path(path).resolve().parent
    return folder if folder is not None and folder.is_dir() else None


def build_documents(
    path: Path | str,
    files: ReadFiles | str | Path | Sequence[str | Path] = (),
    *,
    texts: Iterable[str | Passage] = (),
    texts_name: str = "texts",
    name: str | None = None,
    chunking: Chunking | None = None,
    embedder: Embedder | None = None,
    vectors: bool = True,
    metadata: Mapping[str, Any] | None = None,
    file_format: FileFormat | None = None,
    reader: Reader | None = None,
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
        metadata: of every passage, in place of what its file says. `groups` names who may read them; the groups that a
            file itself names are narrowed to these, and it is refused if none is left.
        file_format: how all files are read, whatever their names.
        reader: reads them, with its limits; None: one with the usual ones.
        on_step: told what is done, how much of it and of how much.

    Raises:
        InputError: no file of a name, none that can be read, the path holds something else or cannot be written.
        MissingExtraError: PostgreSQL without the extra `postgres`.
    """
    metadata = apply_metadata_groups(metadata or {})
    if vectors and embedder is None:
        from dialore.retrieval.embedding import load_embedder

        embedder = load_embedder()
    made = embedder if vectors else None
    settings = IndexSettings(
        name=storable(name or "")
        or (str(path).partition("#")[2] or "documents" if "://" in str(path) else Path(path).resolve().stem),
        embedder=made.name if made else "",
        embedder_fingerprint=made.fingerprint if made else "",
        dimension=made.dimension if made else 0,
        chunking=asdict(chunking or Chunking()),
    )
    if not isinstance(files, ReadFiles):
        files = ReadFiles(files, file_format, reader=reader, folder=_folder_of(path), on_step=on_step)
    with files as read, _changing(path, settings, made, on_step, metadata) as change:
        change.files(read)
        change.texts(texts, texts_name)
    return change.report


def add_documents(
    path: Path | str,
    files: ReadFiles | str | Path | Sequence[str | Path] = (),
    *,
    texts: Iterable[str | Passage] = (),
    texts_name: str = "texts",
    prune: bool = False,
    replaces: Collection[str] = (),
    may_change: MayChange | None = None,
    embedder: Embedder | None = None,
    metadata: Mapping[str, Any] | None = None,
    file_format: FileFormat | None = None,
    reader: Reader | None = None,
    on_step: Step | None = None,
) -> DocumentReport:
    """Add files and texts to an index; files that it has are read again only where they changed.

    Arguments are as those of `build_documents`; texts join those that are there under the same name. Documents whose
    files have vanished from the folders are reported as `gone`, or deleted with `prune`. The new documents come in the
    place of those that `replaces` names, or of those of their passages whose groups `may_change` approves of.

    Raises:
        InputError: no such index, no file of a name, none that can be read, or another writer has it for 30 seconds.
    """
    metadata = apply_metadata_groups(metadata or {})
    with closing(open_store(path)) as store, store.read() as transaction:
        chunking = Chunking(**transaction.settings().chunking)
        hashes = {document.name: document.hash for document in transaction.documents().values()}

    def is_known(document: Document) -> bool:
        return hashes.get(document.name) == _split_by(document, chunking, metadata).hash

    if not isinstance(files, ReadFiles):
        folder = _folder_of(path)
        files = ReadFiles(files, file_format, reader=reader, folder=folder, is_known=is_known, on_step=on_step)
    with files as read, _changing(path, None, embedder, on_step, metadata) as change:
        change.files(read)
        change.texts(texts, texts_name)
        if read.files:
            change.drop_files(replaces, (), may_change=may_change)
        gone = change.find_gone(read.folders, set(map(shown_path, read.formats)))
        if prune:
            change.drop_files(gone, ())
        else:
            change.report.gone = gone
        change.flush()
        report = change.report
        if report.rejects and not (report.added or report.duplicates or report.unchanged or report.deleted):
            raise change.nothing()
    return report


def delete_documents(
    path: Path | str,
    *,
    ids: Collection[str] = (),
    files: Collection[Path | str] = (),
    urls: Collection[str] = (),
    may_change: MayChange | None = None,
) -> DocumentReport:
    """Delete passages by their ids or addresses, and those of files, folders (all files below) and names of texts.

    What is not there is reported, not refused. Of files, with `may_change`, only the passages go whose groups it
    approves of.

    Raises:
        InputError: no such index, or another writer has it for 30 seconds.
    """
    with _changing(path, None, None, None) as change:
        missing = change.report.missing
        missing += [identifier for identifier in ids if not change.remove("id", [id_number(identifier)])]
        missing += [identifier for identifier in urls if not change.remove("url", [identifier])]
        for file in files:
            named = shown_path(Path(file)), shown_path(Path(file).resolve())
            if not change.drop_files(named, [Path(named[1])], may_change=may_change):
                missing.append(named[0])
    return change.report

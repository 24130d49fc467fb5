"""Building a document index, adding to it and deleting from it."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from dialore.errors import InputError
from dialore.retrieval.cutting import Cutter
from dialore.sources.documents.appending import Piece
from dialore.sources.documents.chunking import Chunking, Paragraph, Section
from dialore.sources.documents.editing import Session, building, changing
from dialore.sources.documents.files import Found, find_files, lies_below
from dialore.sources.documents.layout import Document, Manifest, read_manifest
from dialore.sources.documents.reading import read_sections
from dialore.sources.documents.rejects import Rejects, Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from dialore.retrieval.embedding import Embedder
    from dialore.sources.documents.reading import FileFormat

    Step = Callable[[str, int, int | None], None]

_EVERY = 500
"""Texts between two words of progress."""


class DocumentReport(BaseModel):
    """What a change of an index did.

    Attributes:
        path: the index.
        added: passages that came in.
        deleted: passages that are gone, those of documents that were read anew included.
        duplicates: passages left out, for their document had them already.
        unchanged: documents left as they were, for their files have not changed.
        missing: ids, files or urls that were to be deleted and that nothing has.
        rejected: files and lines that could not be read.
        rejects: the first of these, a sentence each.
        documents: documents with passages, afterwards.
        passages: passages, afterwards.
        seconds: how long it took.
    """

    path: str
    added: int = 0
    deleted: int = 0
    duplicates: int = 0
    unchanged: int = 0
    missing: list[str] = Field(default_factory=list)
    rejected: int = 0
    rejects: list[str] = Field(default_factory=list)
    documents: int = 0
    passages: int = 0
    seconds: float = 0.0


class _Intake:
    """Takes files and texts into a session."""

    def __init__(self, session: Session, chunking: Chunking, on_step: Step | None) -> None:
        self._session, self._chunking = session, chunking
        self._step: Step = on_step or (lambda _step, _done, _total: None)
        self.rejects = Rejects()
        self.unchanged = self.taken = 0

    def files(self, found: Sequence[Found]) -> None:
        for done, each in enumerate(found):
            self._step(f"reading {each.path.name}", done, len(found))
            try:
                self._file(each)
            except Unreadable as error:
                self.rejects.file(str(each.path), error)
            except OSError as error:
                self.rejects.file(str(each.path), error.strerror or error)
        self._step("reading", len(found), len(found))

    def _file(self, found: Found) -> None:
        data = _bytes_of(found.path)
        status = found.path.stat()
        document = Document(
            name=str(found.path),
            hash=_hash(data, found.file_format or "", self._chunking),
            bytes=len(data),
            modified=status.st_mtime_ns,
        )
        known = self._session.known(document.name)
        if known is not None and known.hash == document.hash:
            self.unchanged += 1
            return
        sections = read_sections(found.path, data, found.file_format or "text", self.rejects)
        pieces = (piece for section in sections for piece in self._chunking.cut(section, document.name))
        count = self._session.put(document, pieces)
        self.taken += count
        if not count:
            raise Unreadable("no text in it")

    def texts(self, texts: Iterable[str | Piece], name: str, *, more: bool) -> None:
        self.taken += self._session.put(Document(name=name), self._pieces(texts), more=more)

    def _pieces(self, texts: Iterable[str | Piece]) -> Iterator[Piece]:
        for done, text in enumerate(texts):
            if done % _EVERY == 0:
                self._step("reading texts", done, None)
            if isinstance(text, Piece):
                paragraphs, rest = [Paragraph(text.text)], (text.title, text.url, text.extra)
                yield from self._chunking.cut(Section(paragraphs, *rest), text.file)
            else:
                yield from self._chunking.cut(Section([Paragraph(text)]))


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except MemoryError as error:
        raise Unreadable("it is larger than the memory") from error


def _hash(data: bytes, *settings: object) -> str:
    """What tells whether a file has to be read again: its bytes, and how they are read and cut."""
    return hashlib.blake2b(data, digest_size=16, key=hashlib.sha256(repr(settings).encode()).digest()).hexdigest()


def build_documents(
    path: Path,
    files: Sequence[Path] = (),
    *,
    texts: Iterable[str | Piece] = (),
    texts_name: str = "texts",
    name: str | None = None,
    chunking: Chunking | None = None,
    cutter: Cutter | None = None,
    embedder: Embedder | None = None,
    vectors: bool = True,
    file_format: FileFormat | None = None,
    on_step: Step | None = None,
) -> DocumentReport:
    """Build a document index; one that is there stays in place until the new one is whole.

    Args:
        path: its folder.
        files: files, and folders whose files are read.
        texts: passages from elsewhere, e.g. a data set's knowledge; they are cut as the files are.
        texts_name: the name that these have among the documents.
        name: the index's name; the folder's where None.
        chunking: how texts are cut into passages.
        cutter: how passages are cut into terms.
        embedder: makes the vectors; None takes the shipped static one.
        vectors: without, the index is searched by BM25 alone.
        file_format: how all files are read, whatever their names.
        on_step: told what is done, how much of it and of how much.

    Raises:
        InputError: no file of a name, none that can be read, the folder holds something else or cannot be written.
        MissingExtraError: the extra `documents` is not installed.
    """
    started = time.monotonic()
    found = list(find_files(files, file_format))
    chunking = chunking or Chunking()
    if vectors and embedder is None:
        from dialore.retrieval.embedding import load_embedder

        embedder = load_embedder()
    manifest = Manifest(
        name=name or path.resolve().name,
        base="",
        embedder=embedder.name if embedder and vectors else "",
        embedder_fingerprint=embedder.fingerprint if embedder and vectors else "",
        dimension=embedder.dimension if embedder and vectors else 0,
        cutter=_fields(cutter or Cutter()),
        chunking=_fields(chunking),
    )
    with building(path, manifest, embedder if vectors else None) as session:
        intake = _Intake(session, chunking, on_step)
        intake.files(found)
        intake.texts(texts, texts_name, more=True)
        if not intake.taken:
            raise _nothing(intake)
    return _report(path, session, intake, started)


def add_documents(
    path: Path,
    files: Sequence[Path] = (),
    *,
    texts: Iterable[str | Piece] = (),
    texts_name: str = "texts",
    prune: bool = False,
    chunking: Chunking | None = None,
    embedder: Embedder | None = None,
    file_format: FileFormat | None = None,
    on_step: Step | None = None,
) -> DocumentReport:
    """Add files and texts to an index; files that it has are read again only where they changed.

    Args:
        path: the index.
        files: files, and folders whose files are read.
        texts: passages from elsewhere; they join those that are there under the same name.
        texts_name: that name.
        prune: documents go whose files have vanished from the folders.
        chunking: another way to cut than the index's own.
        embedder: the one that made the index's vectors; None loads it.
        file_format: how all files are read, whatever their names.
        on_step: told what is done, how much of it and of how much.

    Raises:
        InputError: no such index, no file of a name, none that can be read, or another writer has it for 30 seconds.
        MissingExtraError: the extra `documents` is not installed.
    """
    started = time.monotonic()
    chunking = chunking or Chunking(**read_manifest(path).chunking)
    found = list(find_files(files, file_format))
    with changing(path, embedder) as session:
        intake = _Intake(session, chunking, on_step)
        intake.files(found)
        intake.texts(texts, texts_name, more=True)
        if prune:
            there = {str(each.path) for each in found}
            folders = [each.resolve() for each in files if each.is_dir()]
            for gone in [name for name in session.names() if name not in there and lies_below(name, folders)]:
                session.delete_document(gone)
        if intake.rejects.files and not intake.taken and not intake.unchanged and not session.deleted:
            raise _nothing(intake)
    return _report(path, session, intake, started)


def delete_documents(
    path: Path,
    *,
    ids: Collection[str] = (),
    files: Collection[Path | str] = (),
    urls: Collection[str] = (),
    on_step: Step | None = None,
) -> DocumentReport:
    """Delete passages from an index; what is not there is reported, not refused.

    Args:
        path: the index.
        ids: of passages.
        files: files, folders (all files below), or names of texts.
        urls: addresses of passages.
        on_step: told what is done.

    Raises:
        InputError: no such index, or another writer has it for 30 seconds.
    """
    started = time.monotonic()
    with changing(path, None) as session:
        intake = _Intake(session, Chunking(), on_step)
        missing = session.delete_ids(ids)
        missing += session.delete_urls(urls)
        missing += [str(file) for file in files if not _delete_file(session, file)]
    report = _report(path, session, intake, started)
    report.missing = missing
    return report


def _delete_file(session: Session, file: Path | str) -> bool:
    from pathlib import Path

    whole = Path(file).resolve()
    names = [name for name in session.names() if name in {str(file), str(whole)} or lies_below(name, [whole])]
    for name in names:
        session.delete_document(name)
    return bool(names)


def _nothing(intake: _Intake) -> InputError:
    first = intake.rejects.first
    said = f": {first[0]}" if first else ""
    return InputError(f"nothing to make passages of{said}", mend="name files with text, or --format")


def _report(path: Path, session: Session, intake: _Intake, started: float) -> DocumentReport:
    manifest = read_manifest(path)
    return DocumentReport(
        path=str(path),
        added=session.added,
        deleted=session.deleted,
        duplicates=session.duplicates,
        unchanged=intake.unchanged,
        rejected=intake.rejects.count,
        rejects=intake.rejects.first,
        documents=sum(1 for document in manifest.documents if document.passages),
        passages=manifest.live,
        seconds=round(time.monotonic() - started, 3),
    )


def _fields(settings: Any) -> dict[str, Any]:  # noqa: ANN401 - any dataclass
    from dataclasses import asdict

    return asdict(settings)

"""Knowledge that is added while a service runs: documents, facts and persona sentences, kept in one folder."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import io
import json
import logging
import os
import re
import shutil
import sqlite3
import zipfile
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from dialore.errors import InputError
from dialore.files import create_private, create_private_folder, folder_lock, write_whole
from dialore.knowledge import GROUPS, Fact, Passage
from dialore.parallel import Threads
from dialore.retrieval.documents.filters import Filter
from dialore.retrieval.documents.indexing import DocumentReport, add_documents, build_documents, delete_documents
from dialore.retrieval.documents.opening import open_store as open_index
from dialore.retrieval.embedding import load_embedder
from dialore.retrieval.graph.changes import GraphEditor
from dialore.retrieval.graph.store import GraphStore
from dialore.retrieval.graph.writing import build_graph
from dialore.retrieval.groups import RefusedGroups, narrow_groups
from dialore.retrieval.loaders.files import ReadFiles
from dialore.retrieval.loaders.formats import ENDINGS
from dialore.retrieval.loaders.reader import Reader
from dialore.retrieval.static import StaticEmbedder
from dialore.server.errors import ServiceError, full_disk

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
_UNSAFE = re.compile(r"[^\w.-]+")
_NAME = 80
_AT_ONCE = 4  # files that are read at once; others wait
ADDED = "added"
"""The name of the graph and of the index."""


def _changing(
    work: Callable[Concatenate[AddedKnowledge, P], T],
) -> Callable[Concatenate[AddedKnowledge, P], Coroutine[Any, Any, T]]:
    """Have a method run in a thread, after every other change, those of other processes too."""

    @functools.wraps(work)
    async def changed(knowledge: AddedKnowledge, /, *given: P.args, **named: P.kwargs) -> T:
        def alone() -> T:
            with folder_lock(knowledge._files):  # noqa: SLF001 - its own
                return work(knowledge, *given, **named)

        with _explain_unkept(knowledge.folder):
            async with knowledge._lock:  # noqa: SLF001 - its own
                return await asyncio.to_thread(alone)

    return changed


class Owner(Protocol):
    """The groups that a caller who changes documents may read, and may write."""

    @property
    def groups(self) -> frozenset[str] | None:
        """The groups whose passages they may read; None: all."""

    def may_write(self, groups: Sequence[str], /) -> bool:
        """Return whether they may change passages for these groups."""


class AddedKnowledge:
    """The folder and what is in it: an index, a graph, a list of sentences, and the files that were uploaded.

    A question is answered from the newest state. Without a folder it is in that of the user's data; the limits are of
    `Reader`, for files that are uploaded.
    """

    def __init__(self, folder: Path | None, **limits: Any) -> None:  # noqa: ANN401 - as there
        if folder is None:
            from platformdirs import user_data_path

            folder = user_data_path("dialore", appauthor=False) / "serve"
        self.folder = folder.resolve()
        self._index, self._graph = self.folder / "documents.idx", self.folder / "facts.graph"
        self._sentences, self._files = self.folder / "persona.json", self.folder / "files"
        create_private_folder(self.folder)
        create_private_folder(self._files)
        self._lock = asyncio.Lock()
        self._limits, self._is_closed = limits, False
        self._readers: set[Reader] = set()
        self._idle: list[Reader] = []
        self._process = os.getpid()
        self._inherited: list[object] = []
        self._threads = Threads(_AT_ONCE, "reading")
        self._sweep()

    @property
    def places(self) -> dict[str, str]:
        """The sources that there are, by their keys in settings."""
        known = {"documents": self._index, "graph": self._graph}
        return {key: str(path) for key, path in known.items() if path.exists()}

    # --- documents

    async def add_file(
        self, name: str, data: bytes, most: int, groups: Sequence[str] | None = None, owner: Owner | None = None
    ) -> dict[str, object]:
        """Read a file, in the place of an earlier one of its name; what is told of it is in `rejects` and `notices`.

        Members of `groups` may read it, as far as the file itself names none or some of these; see
        `Caller.groups_of_new`. Of an earlier file those passages go that its `owner` may read and write.
        Raises ServiceError where it cannot be read or kept, is larger than `most` when unpacked, or names groups that
        are not among `groups`.
        """
        name = _UNSAFE.sub("_", Path(name.replace("\\", "/")).name).lstrip(".")[-_NAME:]
        # Packed files are not taken: what they unpack to is not known before.
        if not name.lower().endswith(tuple(ENDINGS)):
            raise ServiceError(415, f"name a file that ends in {', '.join(ENDINGS)}", code="unsupported_file")
        _check_unpacked(data, most)
        # Threads of its own: a file that takes long keeps no search waiting for one.
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._add_file, name, data, groups, owner)

    def _add_file(self, name: str, data: bytes, groups: Sequence[str] | None, owner: Owner | None) -> dict[str, object]:
        begins = json.dumps([name, groups]).encode()
        identifier = hashlib.sha256(begins + b"\0" + data).hexdigest()[:16]
        folder = self._files / identifier
        metadata = {} if groups is None else {GROUPS: [*groups]}
        may_write = owner.may_write if owner else None
        with _explain_unkept(self.folder):
            create_private_folder(folder)
            with folder_lock(folder):  # as long as it is not in the index, it is nobody's leftover
                is_known = identifier in self._documents()
                try:
                    create_private(folder / ".new")
                    (folder / ".new").write_bytes(data)
                    (folder / ".new").replace(folder / name)
                    with (
                        self._reader() as reader,
                        ReadFiles(folder / name, reader=reader, folder=self.folder) as read,
                        folder_lock(self._files),
                    ):
                        _check_groups(read, groups)
                        before = self._documents(owner.groups if owner else None)
                        before.pop(identifier, None)
                        old = {former: path for former, (path, about) in before.items() if about["file"] == name}
                        report = self._take(
                            files=read, replaces=list(old.values()), may_change=may_write, metadata=metadata
                        )
                        left = self._documents()
                except BaseException as error:
                    if not is_known:
                        shutil.rmtree(folder, ignore_errors=True)
                    if self._is_closed:
                        raise ServiceError(503, "the service is ending", code="unavailable") from error
                    raise
            for former in old.keys() - left.keys():
                shutil.rmtree(self._files / former, ignore_errors=True)
        told = {"rejects": report.rejects, "notices": report.notices}
        short = {kind: [line.replace(f"{folder}/", "") for line in lines] for kind, lines in told.items()}
        # Of a document that the owner sees in part, only that part can be replaced.
        after = self._documents(owner.groups if owner else None)
        replaced = any(former not in after or after[former] != before[former] for former in old)
        return {**left[identifier][1], "replaced": replaced, "restricted": report.restricted, **short}

    @_changing
    def add_text(
        self, text: str, title: str, url: str, groups: Sequence[str] = (), metadata: Mapping[str, object] | None = None
    ) -> dict[str, object]:
        """Take a text as a document, for members of `groups` or for everybody; `url` is not opened."""
        told = {**(metadata or {}), **({GROUPS: [*groups]} if groups else {})}
        identifier = hashlib.sha256(json.dumps([title, url, text, *([told] if told else [])]).encode()).hexdigest()[:16]
        passage = Passage(text, title, url, metadata={**told, "document": identifier})
        self._take(texts=[passage], texts_name=identifier)
        return self._documents()[identifier][1]

    def _take(
        self,
        *,
        replaces: Sequence[str] = (),
        may_change: Callable[[Sequence[str]], bool] | None = None,
        **given: Any,  # noqa: ANN401 - of build_documents
    ) -> DocumentReport:
        if self._index.exists():
            report = add_documents(self._index, replaces=replaces, may_change=may_change, **given)
        else:
            fresh = self._index.with_suffix(".new")  # who is answered meanwhile does not open half of it
            report = build_documents(fresh, **given, name=ADDED)
            fresh.replace(self._index)
        if not (report.added or report.duplicates or report.unchanged):
            raise InputError("there is no text in it", hint="give a document with text")
        return report

    def _set_inherited_aside(self) -> None:
        """In a forked process, neither use nor end the readers of its parent."""
        if self._process != os.getpid():
            self._inherited += [self._readers, self._idle]
            self._readers, self._idle, self._process = set(), [], os.getpid()

    @contextmanager
    def _reader(self) -> Iterator[Reader]:
        """Yield what reads a file; its process is kept for the next one."""
        self._set_inherited_aside()
        reader = self._idle.pop() if self._idle else Reader(**self._limits)
        self._readers.add(reader)
        try:
            yield reader
        finally:
            self._idle.append(reader)
            if self._is_closed:
                reader.close()

    def close(self) -> None:
        """Give up files that are being read."""
        self._is_closed = True
        self._set_inherited_aside()
        for reader in tuple(self._readers):
            reader.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _sweep(self) -> None:
        """Delete what uploads left that were killed; another process's that is at work is let be."""
        with suppress(OSError, InputError), folder_lock(self._files, wait=False):
            for stale in self.folder.glob("*.new*"):
                stale.unlink()
            known = self._documents()
            for folder in self._files.iterdir():
                if folder.name not in known:
                    with suppress(OSError), folder_lock(folder, wait=False):
                        shutil.rmtree(folder, ignore_errors=True)

    def _documents(self, groups: frozenset[str] | None = None) -> dict[str, tuple[str, dict[str, object]]]:
        """Return paths of documents that a reader with these groups may read, and what is told of them, by id."""
        if not self._index.exists():
            return {}
        with closing(open_index(self._index)) as store, store.read(Filter(groups=groups)) as transaction:
            documents = transaction.documents().values()
        listed: dict[str, tuple[str, dict[str, object]]] = {}
        for document in documents:
            path = Path(document.name)
            identifier, file = (path.parent.name, path.name) if path.is_absolute() else (document.name, "")
            listed[identifier] = document.name, {"id": identifier, "file": file, "passages": document.passages}
        return listed

    def documents(self, groups: frozenset[str] | None = None) -> list[dict[str, object]]:
        """Return every document that a reader may read: its id, its file's name, and how many passages it has."""
        return [about for _, about in self._documents(groups).values()]

    @_changing
    def delete_document(self, identifier: str, owner: Owner | None = None) -> int:
        """Delete a document and its file, of its passages those that its owner may read and write.

        Returns:
            How many passages were deleted.

        Raises:
            ServiceError: There is none that the owner may read, or none that they may write.
        """
        path, _ = self._documents(owner.groups if owner else None).get(identifier, ("", {}))
        if not path:
            raise ServiceError(404, "there is no such document", code="document_not_found")
        report = delete_documents(self._index, files=[path], may_change=owner.may_write if owner else None)
        if not report.deleted:
            message = "its passages are for other groups than the key's own"
            raise ServiceError(403, message, code="groups_not_allowed")
        if identifier not in self._documents():
            shutil.rmtree(self._files / identifier, ignore_errors=True)
        return report.deleted

    # --- facts

    def facts(self) -> list[Fact]:
        """Return every fact that was added."""
        if not self._graph.exists():
            return []
        with GraphStore(self._graph) as store:
            return list(store.facts())

    @_changing
    def add_facts(self, facts: Sequence[Fact]) -> None:
        """Add facts; of one that is there already, the heavier is kept."""
        if self._graph.exists():
            with GraphEditor(self._graph) as editor:
                editor.add(facts)
            return
        build_graph(facts, self._graph, name=ADDED, embedder=cast("StaticEmbedder", load_embedder()))

    @_changing
    def delete_fact(self, identifier: str) -> None:
        """Delete an added fact; raises ServiceError where there is none."""
        wanted = [fact for fact in self.facts() if fact.id == identifier]
        if not wanted:
            raise ServiceError(404, "no such fact was added", code="fact_not_found")
        with GraphEditor(self._graph) as editor:
            editor.delete(wanted)

    # --- persona

    @property
    def persona(self) -> list[str]:
        """The sentences that were added."""
        return list(json.loads(self._sentences.read_text("utf-8"))) if self._sentences.exists() else []

    @_changing
    def set_persona(self, add: Sequence[str] = (), delete: Sequence[str] = ()) -> list[str]:
        """Add and delete sentences; returns those that there are."""
        kept = [sentence for sentence in dict.fromkeys((*self.persona, *add)) if sentence not in delete]
        write_whole(self._sentences, json.dumps(kept), private=True)
        return kept


@contextmanager
def _explain_unkept(folder: Path) -> Iterator[None]:
    """Say why something could not be kept, without where: the disk is full, or fails, or it cannot be read."""
    try:
        yield
    except (OSError, InputError) as error:
        why = error if isinstance(error, OSError) else error.__cause__
        if isinstance(why, OSError | sqlite3.Error):
            log.error("cannot change what is known: %s", why)  # noqa: TRY400 - its one line says it all
            raise full_disk(why) or ServiceError(503, "it cannot be kept now", code="storage_failed") from error
        message = re.sub(rf"{re.escape(str(folder))}/(files/\w+/)?", "", str(error))
        raise ServiceError(400, message, code="invalid_file") from error


def _check_groups(read: ReadFiles, allowed: Sequence[str] | None) -> None:
    """Refuse a file of which some passages are for groups that may not be written to."""
    for file in read.files:
        for section in read.sections(file):
            try:
                narrow_groups(section.metadata.get(GROUPS, []), allowed)
            except RefusedGroups as error:
                raise ServiceError(403, f"the file is refused: {error}", code="groups_not_allowed") from error


def _check_unpacked(data: bytes, most: int) -> None:
    """Refuse what is larger than `most` bytes when it is unpacked; Office files are archives."""
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except zipfile.BadZipFile as error:
        raise ServiceError(400, "the file is damaged", code="invalid_file") from error
    if size > 10 * most:
        raise ServiceError(413, "the file is too large when it is unpacked", code="request_too_large")

"""Knowledge that is added while a service runs: documents, facts and persona sentences, kept in one folder."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import re
import zipfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dialore.errors import InputError
from dialore.knowledge import Fact
from dialore.retrieval.embedding import load_embedder
from dialore.server.errors import ServiceError
from dialore.sources.documents.building import add_documents, build_documents, delete_documents
from dialore.sources.documents.index import open_store as open_index
from dialore.sources.documents.reading import ENDINGS
from dialore.sources.documents.tables import Piece
from dialore.sources.graph.changes import GraphEditor
from dialore.sources.graph.mapping import folder_lock
from dialore.sources.graph.several import open_store as open_graph
from dialore.sources.graph.writing import build_graph

if TYPE_CHECKING:
    from dialore.retrieval.static import StaticEmbedder
    from dialore.sources.documents.building import DocumentReport

T = TypeVar("T")
_UNSAFE = re.compile(r"[^\w.-]+")
_NAME = 80
ADDED = "added"
"""The name of the graph and of the index."""


class AddedKnowledge:
    """The folder and what is in it: an index, a graph, a list of sentences, and the files that were uploaded.

    Every change is made in a thread, one after the other, those of other processes too; a question is answered from the
    newest state.

    Args:
        folder: None for that of the user's data.
    """

    def __init__(self, folder: Path | None) -> None:
        if folder is None:
            from platformdirs import user_data_path

            folder = user_data_path("dialore", appauthor=False) / "serve"
        self.folder = folder.resolve()
        self._index, self._graph = self.folder / "documents.idx", self.folder / "facts.graph"
        self._sentences, self._files = self.folder / "persona.json", self.folder / "files"
        self._files.mkdir(parents=True, exist_ok=True)
        self._lock = asyncio.Lock()

    @property
    def places(self) -> dict[str, str]:
        """The sources that there are, by their keys in settings."""
        known = {"documents": self._index, "graph": self._graph}
        return {key: str(place) for key, place in known.items() if place.exists()}

    # --- documents

    async def add_file(self, name: str, data: bytes, most: int) -> dict[str, object]:
        """Read a file; raises ServiceError where it cannot be, or is larger than `most` when unpacked."""
        name = _UNSAFE.sub("_", Path(name.replace("\\", "/")).name).lstrip(".")[-_NAME:]
        # Packed files are not taken: what they unpack to is not known before.
        if not name.lower().endswith(tuple(ENDINGS)):
            raise ServiceError(415, f"name a file that ends in {', '.join(ENDINGS)}", code="unsupported_file")
        check_unpacked(data, most)
        folder = self._files / hashlib.sha256(name.encode() + b"\0" + data).hexdigest()[:16]
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
        try:
            await self._take(folder.name, files=[folder / name])
        except BaseException as error:
            _remove(folder)
            if isinstance(error, InputError):  # without where we keep it
                raise ServiceError(400, str(error).replace(f"{folder}/", ""), code="invalid_file") from error
            raise
        return await self._document(folder.name)

    async def add_text(self, text: str, title: str, url: str) -> dict[str, object]:
        """Take a text as a document; `url` is where it can be looked up, and is not opened."""
        identifier = hashlib.sha256(json.dumps([title, url, text]).encode()).hexdigest()[:16]
        piece = Piece(text, title, url, extra={"document": identifier})
        await self._take(identifier, texts=[piece], texts_name=identifier)
        return await self._document(identifier)

    async def _change(self, work: Callable[..., T], *given: object) -> T:
        def alone() -> T:
            with folder_lock(self._files, exclusive=True):
                return work(*given)

        async with self._lock:
            return await asyncio.to_thread(alone)

    async def _take(self, identifier: str, **given: Any) -> None:  # noqa: ANN401 - of build_documents
        await self._change(self._took, identifier, given)

    def _took(self, identifier: str, given: dict[str, Any]) -> DocumentReport:
        if not self._index.exists():
            fresh = self._index.with_suffix(".new")  # who is answered meanwhile does not open half of it
            report = build_documents(fresh, **{"files": (), **given}, name=ADDED)
            fresh.replace(self._index)
            return report
        if identifier in self._documents():
            delete_documents(self._index, files=[self._documents()[identifier]["path"]])
        report = add_documents(self._index, **given)
        if not report.added:
            raise InputError("there is no text in it", mend="give a document with text")
        return report

    def _documents(self) -> dict[str, dict[str, Any]]:
        if not self._index.exists():
            return {}
        with closing(open_index(self._index)) as store, store.read() as transaction:
            found = transaction.documents().values()
        listed: dict[str, dict[str, Any]] = {}
        for each in found:
            path = Path(each.name)
            is_file = path.is_absolute()
            identifier = path.parent.name if is_file else each.name
            listed[identifier] = {"path": each.name, "name": path.name if is_file else "", "passages": each.passages}
        return listed

    async def documents(self) -> list[dict[str, object]]:
        """Every document: its id, its file's name, and how many passages it has."""
        found = await asyncio.to_thread(self._documents)
        return [{"id": name, "file": each["name"], "passages": each["passages"]} for name, each in found.items()]

    async def _document(self, identifier: str) -> dict[str, object]:
        return next(each for each in await self.documents() if each["id"] == identifier)

    async def delete_document(self, identifier: str) -> None:
        """Delete a document and its file; raises ServiceError where there is none."""
        await self._change(self._delete_document, identifier)

    def _delete_document(self, identifier: str) -> None:
        known = self._documents()
        if identifier not in known:
            raise ServiceError(404, "there is no such document", code="document_not_found")
        delete_documents(self._index, files=[known[identifier]["path"]])
        if known[identifier]["name"]:
            _remove(self._files / identifier)

    # --- facts

    async def facts(self) -> list[Fact]:
        """Every fact that was added."""
        return await asyncio.to_thread(self._facts)

    def _facts(self) -> list[Fact]:
        if not self._graph.exists():
            return []
        with open_graph(self._graph) as store:
            return list(store.facts())

    async def add_facts(self, facts: Sequence[Fact]) -> None:
        """Add facts; of one that is there already, the heavier is kept."""
        await self._change(self._add_facts, facts)

    def _add_facts(self, facts: Sequence[Fact]) -> None:
        if self._graph.exists():
            with GraphEditor(self._graph) as editor:
                editor.add(facts)
            return
        build_graph(facts, self._graph, name=ADDED, embedder=cast("StaticEmbedder", load_embedder()))

    async def delete_fact(self, identifier: str) -> None:
        """Delete an added fact; raises ServiceError where there is none."""
        await self._change(self._delete_fact, identifier)

    def _delete_fact(self, identifier: str) -> None:
        wanted = [fact for fact in self._facts() if fact.id == identifier]
        if not wanted:
            raise ServiceError(404, "no such fact was added", code="fact_not_found")
        with GraphEditor(self._graph) as editor:
            editor.delete(wanted)

    # --- persona

    @property
    def persona(self) -> list[str]:
        """The sentences that were added."""
        return list(json.loads(self._sentences.read_text("utf-8"))) if self._sentences.exists() else []

    async def set_persona(self, add: Sequence[str] = (), delete: Sequence[str] = ()) -> list[str]:
        """Add and delete sentences; returns those that there are."""
        return await self._change(self._set_persona, add, delete)

    def _set_persona(self, add: Sequence[str], delete: Sequence[str]) -> list[str]:
        kept = [one for one in dict.fromkeys((*self.persona, *add)) if one not in delete]
        fresh = self._sentences.with_suffix(".new")
        fresh.write_text(json.dumps(kept), "utf-8")
        fresh.replace(self._sentences)
        return kept


def _remove(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def check_unpacked(data: bytes, most: int) -> None:
    """Refuse what is larger than `most` bytes when it is unpacked; Office files are archives."""
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(each.file_size for each in archive.infolist())
    except zipfile.BadZipFile as error:
        raise ServiceError(400, "the file is damaged", code="invalid_file") from error
    if size > 10 * most:
        raise ServiceError(413, "the file is too large when it is unpacked", code="request_too_large")

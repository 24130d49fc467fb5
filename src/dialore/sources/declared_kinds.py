"""From a declared source to one that is open, by its kind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dialore.errors import DialoreError, InputError
from dialore.retrieval.reranking import load_reranker
from dialore.sources.base import Findings
from dialore.sources.declaration import in_order
from dialore.sources.declared import DeclaredSource, DeclaredSources
from dialore.sources.persona import PersonaDocuments, PersonaSource, read_persona

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge, Source
    from dialore.retrieval.reranking import Reranker
    from dialore.sources.base import KnowledgeSource
    from dialore.sources.declaration import Declaration, DeclarationFile, Join

KEYS: dict[Source, str] = {"persona": "persona", "documents": "documents", "graph": "graph", "web": "web", "model": ""}
"""The name by which `open_sources` gives what a kind is asked of."""
_WIDER = 5


class Reranked:
    """A source whose pieces are put in order by a reranker: some times as many are asked for as are wanted.

    Args:
        source: what is asked.
        reranker: what puts in order.
    """

    def __init__(self, source: KnowledgeSource, reranker: Reranker) -> None:
        self.source, self.reranker = source, reranker
        self.name, self.kind = source.name, source.kind

    async def search(self, query: str, dialogue: Dialogue, top: int = 10, within: Sequence[Knowledge] = ()) -> Findings:
        """See `KnowledgeSource`; the reranker reads the query as it was sent. Raises as source and reranker do."""
        found = Findings.of(await self.source.search(query, dialogue, top * _WIDER, within))
        sent = query if found.query is None else found.query
        try:
            ranked = await asyncio.to_thread(self.reranker.rerank, sent, [piece.text for piece in found], top)
        except DialoreError as error:
            error.query = sent
            raise
        pieces = (found[at].model_copy(update={"score": round(score, 4)}) for at, score in ranked)
        return Findings(pieces, query=found.query, notes=found.notes)

    def close(self) -> None:
        """Close the source."""
        self.source.close()


def open_entries(
    file: DeclarationFile, opened: Mapping[str, object], *, folder: Path | None, place: str
) -> DeclaredSources:
    """Open what is declared; where one cannot be opened, what was opened before it is closed.

    Args:
        file: the declaration.
        opened: see `open_declared`.
        folder: what paths are relative to.
        place: names the declaration in errors.

    Raises:
        InputError: as `open_declared`.
    """
    given = {entry.name: entry for entry in file.sources}
    if len(given) < len(file.sources):
        names = [entry.name for entry in file.sources]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{place}: the source {twice!r} is declared twice", mend="give each a name of its own")
    done: dict[str, DeclaredSource] = {}
    own: list[KnowledgeSource] = []
    try:
        for name in in_order({entry.name: entry.depends_on for entry in file.sources}):
            done[name] = _open(given[name], done, opened, own, folder, place)
    except BaseException:
        for source in own:
            source.close()
        raise
    return DeclaredSources.of(done.values(), file.demonstrations, own)


def _open(
    entry: Declaration,
    before: Mapping[str, DeclaredSource],
    opened: Mapping[str, object],
    own: list[KnowledgeSource],
    folder: Path | None,
    place: str,
) -> DeclaredSource:
    personas = [before[name].source for name in entry.depends_on if isinstance(before[name].source, PersonaSource)]
    under = personas[0] if personas and entry.kind == "documents" and entry.opened_from is None else None
    filters = under is not None and entry.join != "query"
    if entry.join == "filter" and not filters:
        raise InputError(
            f"{place}: source {entry.name!r} cannot be filtered by what it depends on",
            mend="join: query; filter is for documents without `from` that depend on a persona",
        )
    join: Join = "filter" if filters else "query"
    source: KnowledgeSource | None = None
    if entry.kind == "model":
        _check_nothing_to_open(entry, place)
    elif entry.kind == "persona":
        source = _persona(entry, opened, folder)
    elif isinstance(under, PersonaSource) and (filters or opened.get("documents") is None):
        source = PersonaDocuments(under, retriever=entry.retriever, name=entry.name)
    else:
        source = _other(entry, opened, own, folder, place)
    stands_in = entry.kind == "graph" and entry.opened_from is None and opened.get("graph") is None
    of = (entry.name, entry.kind, entry.description, source, entry.depends_on, join, entry.top)
    return DeclaredSource(*of, stands_in=stands_in)


def _check_nothing_to_open(entry: Declaration, place: str) -> None:
    if entry.opened_from is not None or entry.retriever is not None:
        raise InputError(
            f"{place}: source {entry.name!r}: what the model knows is opened from nothing and ranked by nothing",
            mend="leave `from` and `retriever` out",
        )


def _persona(entry: Declaration, opened: Mapping[str, object], folder: Path | None) -> PersonaSource:
    if entry.opened_from is not None:
        persona = read_persona(_path(entry.opened_from, folder))
    else:
        given = opened.get("persona")
        persona = given.persona if isinstance(given, PersonaSource) else {}
    return PersonaSource(persona, retriever=entry.retriever or "dialogue", name=entry.name)


def _other(
    entry: Declaration, opened: Mapping[str, object], own: list[KnowledgeSource], folder: Path | None, place: str
) -> KnowledgeSource:
    if entry.retriever == "dialogue":
        message = f"{place}: source {entry.name!r}: the retriever `dialogue` ranks a persona and its documents"
        raise InputError(message, mend="take bm25, dense, fused or cross:NAME")
    if entry.opened_from is None:
        source = opened.get(KEYS[entry.kind])
        if source is None and entry.kind != "graph":
            message = f"{place}: source {entry.name!r} has no `from`, and no {entry.kind} is open"
            raise InputError(message, mend=f"add from: ..., or give one with {_OPTIONS[entry.kind]}")
    else:
        source = None
    if entry.kind == "graph":
        from dialore.sources.graph_knowledge import GraphKnowledge, open_graph_knowledge

        if source is not None:
            return GraphKnowledge(source, name=entry.name)  # type: ignore[arg-type]
        found: KnowledgeSource = open_graph_knowledge(
            None if entry.opened_from is None else _place(entry.opened_from, folder),
            ranking=entry.retriever or "default",
            name=entry.name,
        )
        own.append(found)
        return found
    if source is None:
        found = _open_kind(entry, folder)
        own.append(found)
        return found
    given = cast("KnowledgeSource", source)
    return given if entry.retriever is None else Reranked(given, load_reranker(entry.retriever))


def _open_kind(entry: Declaration, folder: Path | None) -> KnowledgeSource:
    """A web search or a document index by itself, which ranks by what its own kind has, else by a reranker."""
    opened_from, retriever = str(entry.opened_from), entry.retriever
    if entry.kind == "web":
        from dialore.sources.web import open_web

        corpus = opened_from.partition("corpus:")[2]
        spec = f"corpus:{_path(corpus, folder)}" if corpus else opened_from
        return open_web(spec) if retriever is None else open_web(spec, reranker=retriever)
    from dialore.sources.documents import RETRIEVERS, open_documents

    place = [_path(opened_from, folder)]
    for own in RETRIEVERS:
        if retriever == own:
            return open_documents(place, retriever=own)
    if retriever is None:
        return open_documents(place)
    reranker = load_reranker(retriever)
    return Reranked(open_documents(place), reranker)


_OPTIONS = {"documents": "--documents", "web": "--search"}


def _path(text: str, folder: Path | None) -> Path:
    path = Path(text).expanduser()
    return path if folder is None or path.is_absolute() else folder / path


def _place(text: str, folder: Path | None) -> str:
    """A graph's path or URL, or `starter`."""
    return text if "://" in text or text == "starter" else str(_path(text, folder))

"""Documents as a source of knowledge: passages by BM25, by vectors, or by both fused; one index or several."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import itertools
import logging
from collections import Counter
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from dialore import __version__
from dialore.errors import DialoreError, InputError, SourceError, UnknownNameError
from dialore.files import cache_folder
from dialore.knowledge import Knowledge, Passage, Source
from dialore.retrieval.bm25 import correct, split_terms
from dialore.retrieval.documents.filters import filter_of_reader
from dialore.retrieval.documents.opening import embedder_of, is_index_file, open_store, shown_place
from dialore.retrieval.documents.store import id_number
from dialore.retrieval.fusion import COSINE_WEIGHT, fuse_lists, reciprocal_ranks
from dialore.retrieval.loaders.formats import format_of
from dialore.sources.base import Countable, HeldSource, SearchResult, list_knowledge, rank_by

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dialore.dialogue import Dialogue
    from dialore.retrieval.documents.opening import Store
    from dialore.retrieval.documents.store import Document, IndexSettings, Transaction
    from dialore.retrieval.embedding import Embedder
    from dialore.sources.base import KnowledgeSource

log = logging.getLogger(__name__)

_Retriever = Literal["fused", "bm25", "dense"]
RETRIEVERS: tuple[_Retriever, ...] = get_args(_Retriever)
_SPELLED = 200_000
"""Passages up to which the terms of an index are read for a misspelt word; among more that takes too long."""
_AROUND = 200
_DEPTH = 100
"""How many of each ranking are fused, at least."""
_MCP, _POOL = "mcp:", "pool:"


class DocumentIndex(AbstractContextManager["DocumentIndex"]):
    """An index that `dialore documents build` or `build_documents` made, open for questions.

    Many threads and processes may ask while one changes it; each question is answered from the newest state.

    Args:
        path: its file, or `postgresql://user@host/database#name`.
        retriever: `bm25`, `dense` (cosine of embeddings), or `fused`, both by their scores.
        embedder: the one that made its vectors; None loads it.
        addresses: endpoints that the user's settings name: an index alone does not decide where queries are sent.

    Raises:
        InputError: no index, damaged, of another version, its embedder is another one now or at an address that no
            setting names, or `dense` without vectors.
        UnknownNameError: no retriever is called that.
        MissingExtraError: PostgreSQL without the extra `postgres`.
    """

    kind: Source = "documents"

    def __init__(
        self,
        path: Path | str,
        *,
        retriever: _Retriever = "fused",
        embedder: Embedder | None = None,
        addresses: Sequence[str | None] = (),
    ) -> None:
        self.path = path
        self.retriever = _check_retriever(retriever)
        self._given, self._addresses = embedder, addresses
        self._store: Store | None = open_store(path)
        self._owner, self._filter = True, filter_of_reader()
        with self._store.read() as transaction:
            settings = transaction.settings()
        self.name = settings.name
        self._use(settings)
        if retriever == "dense" and self._embedder is None:
            raise InputError(
                f"{shown_place(path)} has no vectors", hint="build it with an embedder, or take the retriever bm25"
            )

    def _use(self, settings: IndexSettings) -> None:
        self._settings = settings
        self._embedder = embedder_of(settings, self.path, self._given, self._addresses)

    def _opened(self) -> Store:
        if self._store is None:
            raise SourceError(f"the document index {shown_place(self.path)} is closed", hint="open it again")
        return self._store

    def _read(self) -> AbstractContextManager[Transaction]:
        """Return one state of the passages that may be read: all questions go through here."""
        return self._opened().read(self._filter)

    def close(self) -> None:
        """Let go of the files; a second time does nothing."""
        if self._store is not None and self._owner:
            self._store.close()
        self._store = None

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what is in it

    def __len__(self) -> int:
        return self.count()

    def count(self) -> int:
        """See `Countable`."""
        with self._read() as transaction:
            return transaction.count()

    def documents(self) -> list[Document]:
        """Return the documents that have passages, in the order in which they came."""
        with self._read() as transaction:
            return list(transaction.documents().values())

    def passages(self) -> Iterator[Knowledge]:
        """Yield every passage of one state of the index, in order."""
        with self._read() as transaction:
            for _, passage in transaction.passages():
                yield self._knowledge(passage)

    def titles(self, most: int) -> list[str]:
        """Return the first titles of its passages, each once."""
        with self._read() as transaction:
            return transaction.titles(most)

    def every(self, dialogue: Dialogue) -> Iterator[Knowledge]:
        """See `Listed`."""
        return self.passages()

    def page(self, piece: Knowledge) -> list[Knowledge]:
        """Return the page of a passage: those around it with its url, or without any with its file and title.

        They lie together in the index; it is looked for two hundred to each side.
        """
        with self._read() as transaction:
            at = next((number for number, _ in transaction.passages([id_number(piece.id)], "id")), None)
            near = [] if at is None else [*range(at - _AROUND, at + _AROUND + 1)]
            around = [self._knowledge(passage) for _, passage in transaction.passages(near)]
        return [passage for passage in around if passage.page_key == piece.page_key]

    @property
    def fingerprint(self) -> str:
        """A stable hash of what is in it and of how it is searched, for a run that rests on it."""
        with self._read() as transaction:
            settings = transaction.settings()
            made_by = settings.embedder_fingerprint, settings.tokeniser
            parts = (*made_by, *transaction.content(), self.retriever, COSINE_WEIGHT)
        return hashlib.sha256("\t".join(map(str, parts)).encode()).hexdigest()[:16]

    def stats(self) -> dict[str, Any]:
        """Return counts, sizes and settings."""
        with self._read() as transaction:
            settings, documents = transaction.settings(), transaction.documents()
            passages = transaction.count()
        return {
            "name": settings.name,
            "path": shown_place(self.path),
            "passages": passages,
            "documents": len(documents),
            "bytes": self._opened().size(),
            **settings.model_dump(exclude={"layout", "name", "embedder_fingerprint"}),
        }

    # --- questions

    async def search(
        self, query: str, dialogue: Dialogue, top: int = 10, scope: Sequence[Knowledge] = ()
    ) -> SearchResult:
        """See `KnowledgeSource`: passages, equal texts once; neither `scope` nor the dialogue's language counts."""
        return SearchResult(await asyncio.to_thread(self.find, query, top))

    def by(self, retriever: str) -> DocumentIndex:
        """Return this index by another retriever; see `ranked_by`. Without vectors it is always ranked by terms."""
        other = copy.copy(self)
        other.retriever, other._owner = _check_retriever(retriever), False  # noqa: SLF001 - of its own kind
        return other

    def where(self, conditions: str) -> DocumentIndex:
        """Return this index with the passages whose metadata is so: `year >= 2024 and tag in (a, b)`.

        Raises InputError where the conditions are none.
        """
        other = copy.copy(self)
        other._filter, other._owner = self._filter.narrowed(conditions), False  # noqa: SLF001 - of its own kind
        return other

    def find(self, query: str, top: int = 10) -> list[Knowledge]:
        """Return the `top` passages for a query, the best first, equal texts once.

        Raises:
            SourceError: the index is closed or damaged, or its embedder cannot be asked.
        """
        try:
            with self._read() as transaction:
                if (settings := transaction.settings()) != self._settings:
                    self._use(settings)
                depth = max(_DEPTH, 2 * top)
                while top > 0:
                    ranked = self._rank(transaction, query, depth)
                    distinct = self._distinct(transaction, ranked, top)
                    if len(distinct) == top or len(ranked) < depth:
                        return distinct
                    depth *= 4  # many of them were the same text
                return []
        except InputError as error:
            raise SourceError(error.message, hint=error.hint) from error

    def _rank(self, transaction: Transaction, query: str, depth: int) -> Sequence[tuple[int, float]]:
        """Return numbers and scores of passages, the best first; misspelt words count as the index's nearest terms."""
        # Words of passages that a reader may not read are not to be told by correcting theirs.
        if self._filter.groups is None and transaction.state().passages <= _SPELLED:
            query = correct(query, transaction.vocabulary)
        by_terms, near = [], []
        if self.retriever != "dense" or self._embedder is None:
            by_terms = transaction.by_terms(Counter(split_terms(query)), depth)
        if self.retriever == "bm25" or self._embedder is None:
            return by_terms
        try:
            [vector] = self._embedder.encode([query])
        except DialoreError as error:
            raise SourceError(f"{self.name}: {error.message}", hint=error.hint) from error
        if vector.any():
            near = transaction.by_vector(vector, depth)
        if self.retriever == "dense":
            return near
        return fuse_lists(by_terms, near, depth)

    def _distinct(self, transaction: Transaction, ranked: Sequence[tuple[int, float]], top: int) -> list[Knowledge]:
        pieces: dict[str, Knowledge] = {}
        for start in range(0, len(ranked), top):
            part = ranked[start : start + top]
            passages = dict(transaction.passages([number for number, _ in part]))
            for number, score in part:
                knowledge = self._knowledge(passages[number], round(score, 6))
                pieces.setdefault(knowledge.text, knowledge)
                if len(pieces) == top:
                    return list(pieces.values())
        return list(pieces.values())

    def _knowledge(self, passage: Passage, score: float = 0.0) -> Knowledge:
        return Knowledge.of_passage(passage, "documents", score, index=self.name)


class MultiDocuments:
    """Sources of passages asked at once, their rankings fused by reciprocal ranks; each passage keeps its index's name.

    One that cannot be asked is noted, and the others give what they have; only where none can be asked is it an error.

    Args:
        sources: at least one.
    """

    kind: Source = "documents"

    def __init__(self, sources: Sequence[KnowledgeSource]) -> None:
        self.sources = tuple(sources)
        self.name = "+".join(source.name for source in sources)

    async def search(
        self, query: str, dialogue: Dialogue, top: int = 10, scope: Sequence[Knowledge] = ()
    ) -> SearchResult:
        """See `KnowledgeSource`; a text that several have is given once, as of the first."""
        results: list[SearchResult] = []
        failed: list[SourceError] = []
        notes: list[str] = []
        failures: dict[str, str] = {}
        asked = (source.search(query, dialogue, top, scope) for source in self.sources)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for source, answer in zip(self.sources, answers, strict=True):
            if isinstance(answer, SourceError):
                failed.append(answer)
                failures[source.name] = str(answer)
                notes.append(f"{source.name} could not be asked, the others were: {answer}")
            elif isinstance(answer, BaseException):
                raise answer
            else:
                results.append(SearchResult.of(answer))
                notes += results[-1].notes
                failures |= results[-1].failures
        if not results:
            raise SourceError("; ".join(dict.fromkeys(error.message for error in failed)), hint=failed[0].hint)
        by_text = {piece.text: piece for answer in reversed(results) for piece in reversed(answer)}
        fused = reciprocal_ranks([[piece.text for piece in answer] for answer in results])[:top]
        knowledge = [by_text[text].model_copy(update={"score": round(score, 6)}) for text, score in fused]
        return SearchResult(knowledge, notes=notes, failures=failures)

    def count(self) -> int:
        """See `Countable`. Sources that cannot count their passages add nothing."""
        return sum(source.count() for source in self.sources if isinstance(source, Countable))

    def where(self, conditions: str) -> MultiDocuments:
        """Return these sources with the passages whose metadata is so; raise InputError where one has no metadata."""
        return MultiDocuments([narrow(source, conditions) for source in self.sources])

    def every(self, dialogue: Dialogue) -> Iterator[Knowledge]:
        """See `Listed`; raises InputError where one of them cannot be listed."""
        return itertools.chain.from_iterable(list_knowledge(source, dialogue) for source in self.sources)

    def by(self, retriever: str) -> MultiDocuments:
        """Return these sources, ranked by another retriever where they can be; see `ranked_by`."""
        return MultiDocuments([rank_by(source, retriever) for source in self.sources])

    def close(self) -> None:
        """Close them all."""
        for source in self.sources:
            source.close()


def _check_retriever(retriever: str) -> _Retriever:
    if retriever not in RETRIEVERS:
        raise UnknownNameError("retriever", retriever, RETRIEVERS)
    return retriever


def narrow(source: KnowledgeSource, conditions: str) -> KnowledgeSource:
    """Return a source with the passages whose metadata is so; raise InputError where it has none, or as `where`."""
    if not isinstance(source, DocumentIndex | MultiDocuments):
        raise InputError(f"{source.name} cannot be filtered by metadata", hint="filter an index of documents")
    return source.where(conditions)


class PoolSource(HeldSource):
    """A dialogue's own base: the sentences that its responder could draw on (`extra["pool"]`); without, nothing.

    Args:
        reranker: what ranks them, as `load_reranker` takes it: `dense`, `dense:st:NAME`, `bm25`, ...
    """

    name = kind = "documents"

    def __init__(self, reranker: str = "dense") -> None:
        from dialore.retrieval.reranking import load_reranker

        self.retriever = load_reranker(reranker)

    def _held(self, dialogue: Dialogue, scope: Sequence[Knowledge] = ()) -> list[Knowledge]:
        """Return the dialogue's sentences."""
        given = dialogue.extra.get("pool") or []
        pieces = [piece if isinstance(piece, dict) else {"text": str(piece)} for piece in given]
        passages = (Passage(piece["text"], piece.get("title", ""), piece.get("url", "")) for piece in pieces)
        return [Knowledge.of_passage(passage, self.kind) for passage in passages]


# --- opening


def open_documents(
    paths: Sequence[Path | str],
    *,
    retriever: _Retriever = "fused",
    embedder: str | None = None,
    indices_only: bool = False,
) -> KnowledgeSource:
    """Open documents as one source: indices (files or addresses), and plain files and folders, which are read first.

    What is named twice is opened once. `embedder` is the spec that the user's settings name: an index whose vectors an
    endpoint made asks it at that address. `mcp:FILE` is a tool or a resource of another server, `pool:` each dialogue's
    own sentences, ranked by the embedder or as `pool:RERANKER` says. With `indices_only`, plain files and folders are
    refused. Raises InputError where none is named, or as `DocumentIndex` and `build_documents` do.
    """
    if not paths:
        raise InputError("no document index is named", hint="set sources.documents")
    if str(paths[0]).startswith(_POOL):
        return PoolSource(str(paths[0]).removeprefix(_POOL) or (f"dense:{embedder}" if embedder else "dense"))
    with ExitStack() as failed:
        distinct = dict.fromkeys(path.resolve() if isinstance(path, Path) else path for path in paths)
        opened: list[KnowledgeSource] = []
        for path in distinct:
            if str(path).startswith(_MCP):
                from dialore.sources.mcp import open_mcp

                opened.append(open_mcp(Path(str(path).removeprefix(_MCP))))
            else:
                index = path if indices_only else _index_of(path)
                opened.append(DocumentIndex(index, retriever=retriever, addresses=[embedder]))
            failed.callback(opened[-1].close)
        failed.pop_all()
    return opened[0] if len(opened) == 1 else MultiDocuments(opened)


def _index_of(path: Path | str) -> Path | str:
    """Return the index of a plain file or folder, made or brought up to date; any other path is an index itself."""
    plain = Path(path)
    if "://" in str(path) or not (plain.is_dir() or (plain.is_file() and format_of(plain))):
        return path
    if is_index_file(plain):  # whatever its name ends in
        return path
    name = hashlib.sha256(f"{__version__} {plain.resolve()}".encode("utf-8", "surrogateescape")).hexdigest()[:20]
    index = cache_folder() / "documents" / f"{name}.idx"
    if index.exists():
        from dialore.retrieval.documents.indexing import add_documents

        report = add_documents(index, [plain], prune=True)
    else:
        index.parent.mkdir(parents=True, exist_ok=True)
        from dialore.retrieval.documents.indexing import build_documents

        report = build_documents(index, [plain], name=plain.resolve().stem)
    for sentence in (*report.rejects, *report.notices):
        log.warning("%s", sentence)
    return index

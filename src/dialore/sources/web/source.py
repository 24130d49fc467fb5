"""The web as a source of knowledge: search, fetch, read, split, filter, rerank (SCG-QP, Section 2.3)."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dialore.errors import DialoreError, InputError, MissingExtraError, UnknownNameError
from dialore.knowledge import Knowledge, Passage, PassageDetail
from dialore.retrieval.reranking import load_reranker
from dialore.sources.base import Findings
from dialore.sources.web.engines import BraveEngine, CorpusEngine, SearxngEngine
from dialore.sources.web.fetching import PageError, PageFetcher
from dialore.sources.web.reading import passages, read_page, without_controls
from dialore.sources.web.redaction import redact as default_redact
from dialore.sources.web.safety import is_safe as default_is_safe
from dialore.sources.web.safety import without_commands

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Source
    from dialore.retrieval.reranking import Reranker
    from dialore.sources.web.engines import SearchEngine, SearchResult
    from dialore.sources.web.reading import Page

    Redact = Callable[[str, Dialogue], tuple[str, list[str]]]
    IsSafe = Callable[[str], bool]

log = logging.getLogger(__name__)

_REMEMBERED = 256
_READING_SECONDS = 10.0


@dataclass(frozen=True)
class _Piece:
    """A passage of a page, or a snippet in its stead."""

    text: str
    title: str
    url: str
    instead: str = ""
    """Why there is a snippet instead of the page; empty for a page's own passage."""


class WebSource:
    """Web search.

    The query is redacted, the engine asked, the first pages fetched and read at once, their text split into passages,
    unsafe ones and sentences that command the model dropped, and the rest reranked by the redacted query. Where a page
    cannot be had, its snippet stands in for it. A piece's `detail` has `title`, `url`, `engine`, `snippet` (whether it
    is one) with `page_error`, and `suspicious` (whether commands were dropped from it).

    Args:
        engine: what searches.
        fetcher: what fetches pages; None: a `PageFetcher` with its defaults.
        pages: how many of the results are read; SCG-QP's is 3.
        reranker: what ranks passages, a `Reranker` or its spec.
        redact: from a query and the dialogue to the query that is sent, and notes.
        is_safe: whether a passage may be used.
        remember: seconds that a query's passages are kept in memory; 0 for not at all.
        clock: seconds that only grow.

    Raises:
        UnknownNameError: no reranker is called that.
    """

    kind: Source = "web"
    name = "web"

    def __init__(
        self,
        engine: SearchEngine,
        *,
        fetcher: PageFetcher | None = None,
        pages: int = 3,
        reranker: str | Reranker = "fused",
        redact: Redact = default_redact,
        is_safe: IsSafe = default_is_safe,
        remember: float = 900.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine = engine
        self._fetcher = fetcher or PageFetcher()
        self._pages = pages
        self._reranker = load_reranker(reranker) if isinstance(reranker, str) else reranker
        self._redact, self._is_safe = redact, is_safe
        self._remember, self._clock = remember, clock
        self._memory: dict[tuple[str, str], tuple[float, list[_Piece]]] = {}

    async def search(self, query: str, dialogue: Dialogue, top: int = 10, within: Sequence[Knowledge] = ()) -> Findings:
        """See `KnowledgeSource`; `within` is ignored. The findings have the query that was sent.

        Raises:
            SourceError: the engine is down, slow or busy, or answers nonsense.
            ModelError: the reranker's embedder is an endpoint that failed.
        """
        sent, notes = self._redact(query, dialogue)
        if not sent.strip():
            return Findings(query="", notes=[*notes, "nothing of the query was left to send"])
        try:
            pieces = await self._pieces(sent, dialogue)
            knowledge, dropped = await asyncio.to_thread(self._ranked, sent, pieces, top)
        except DialoreError as error:
            error.query = sent
            raise
        failed = dict.fromkeys(piece.url for piece in pieces if piece.instead)
        reasons = {piece.url: piece.instead for piece in pieces}
        notes += [f"{url}: {reasons[url]}; its snippet stands in for it" for url in failed]
        return Findings(knowledge, query=sent, notes=[*notes, *dropped])

    def close(self) -> None:
        """Close the engine, and forget what was found."""
        self._memory.clear()
        self.engine.close()

    async def _pieces(self, query: str, dialogue: Dialogue) -> list[_Piece]:
        key = (query, dialogue.language)
        if key in self._memory and self._clock() - self._memory[key][0] < self._remember:
            return self._memory[key][1]
        results = await self.engine.search(query, dialogue, self._pages)
        distinct: dict[tuple[str, str], SearchResult] = {}
        for result in results[: self._pages]:
            distinct.setdefault((result.url, result.text), result)
        first: dict[str, _Piece] = {}
        for read in await asyncio.gather(*map(self._read, distinct.values())):
            for piece in read:
                first.setdefault(piece.text, piece)
        pieces = list(first.values())
        self._memory.pop(key, None)
        self._memory[key] = (self._clock(), pieces)
        if len(self._memory) > _REMEMBERED:
            del self._memory[next(iter(self._memory))]
        return pieces

    async def _read(self, result: SearchResult) -> list[_Piece]:
        """The passages of a result's page, or its snippet."""
        if result.text:
            return [_Piece(without_controls(result.text), result.title, result.url)]
        try:
            page = await self._page(result.url)
        except PageError as error:
            log.info("no page from %s: %s", result.url, error.message)
            snippet = result.snippet.strip()
            return [_Piece(snippet, result.title, result.url, error.message)] if snippet else []
        title = result.title or page.title
        return [_Piece(text, title, page.url) for text in passages(page.text)]

    async def _page(self, url: str) -> Page:
        fetched = await self._fetcher.fetch(url)
        try:
            async with asyncio.timeout(_READING_SECONDS):
                return await asyncio.to_thread(read_page, fetched)
        except TimeoutError as error:
            raise PageError(f"not read within {_READING_SECONDS:g} s") from error

    def _ranked(self, query: str, pieces: Sequence[_Piece], top: int) -> tuple[list[Knowledge], list[str]]:
        kept: list[tuple[_Piece, bool]] = []
        unsafe = commands = 0
        for piece in pieces:
            text, dropped = without_commands(piece.text)
            title, in_title = without_commands(piece.title)
            dropped += in_title
            commands += dropped
            if text and not self._is_safe(f"{title}\n{text}"):
                unsafe += 1
            elif text:
                kept.append((replace(piece, text=text, title=title), dropped > 0))
        notes = [f"unsafe passages left out: {unsafe}"] if unsafe else []
        notes += [f"sentences that command the model left out: {commands}"] if commands else []
        ranked = self._reranker.rerank(query, [piece.text for piece, _ in kept], top)
        return [self._knowledge(*kept[at], score) for at, score in ranked], notes

    def _knowledge(self, piece: _Piece, suspicious: bool, score: float) -> Knowledge:
        detail = PassageDetail(
            title=piece.title,
            url=piece.url,
            engine=self.engine.name,
            snippet=bool(piece.instead),
            suspicious=suspicious,
            page_error=piece.instead,
        )
        return Knowledge(
            id=Passage(piece.text, piece.title, piece.url).id,
            kind="passage",
            text=piece.text,
            source="web",
            score=score,
            detail=detail,
        )


ENGINES = ("searxng", "brave", "corpus")
"""What a spec may begin with."""


def open_web(spec: str, *, reranker: str | Reranker = "fused") -> WebSource:
    """A web source from its spec.

    Args:
        spec: `searxng:URL` (a SearXNG instance), `brave:` (Brave's search, key in `BRAVE_API_KEY`), or `corpus:PATH`
            (a document index in place of the web).
        reranker: what ranks passages; see `load_reranker`.

    Raises:
        UnknownNameError: no engine, or no reranker, is called that.
        InputError: the spec lacks its address, the key is missing, or the index is.
        MissingExtraError: pages cannot be read without trafilatura (extra `documents`).
    """
    return WebSource(_engine(spec), reranker=reranker)


def _engine(spec: str) -> SearchEngine:
    kind, _, argument = spec.partition(":")
    if kind not in ENGINES:
        raise UnknownNameError("search engine", kind, ENGINES)
    if kind == "corpus":
        if not argument:
            raise InputError("the search engine 'corpus' needs a document index", mend="write corpus:PATH")
        return CorpusEngine.open(Path(argument))
    if importlib.util.find_spec("trafilatura") is None:
        raise MissingExtraError("reading web pages", "documents")
    if kind == "brave":
        if argument:
            raise InputError(f"the search engine 'brave' takes no argument, got {argument!r}", mend="write brave:")
        return BraveEngine()
    if not argument:
        raise InputError("the search engine 'searxng' needs an address", mend="write searxng:http://localhost:8888")
    return SearxngEngine(argument)

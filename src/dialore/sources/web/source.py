"""The web as a source of knowledge: search, fetch, read, split, filter, rerank (SCG-QP, Section 2.3)."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dialore.errors import DialoreError, InputError, MissingExtraError, UnknownNameError
from dialore.knowledge import Knowledge, Passage, Source
from dialore.retrieval.chunking import Chunking, Paragraph, Section
from dialore.retrieval.reranking import Reranker, load_reranker
from dialore.sources.base import SearchResult
from dialore.sources.documents import open_documents
from dialore.sources.web.engines import BraveEngine, CorpusEngine, DdgsEngine, SearchEngine, SearxngEngine, WebResult
from dialore.sources.web.fetching import PageError, PageFetcher, read_page
from dialore.sources.web.redaction import redact
from dialore.sources.web.safety import is_safe, without_commands, without_controls

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue

log = logging.getLogger(__name__)

_CHUNKING = Chunking(words=120, overlap=0)
_PAGES = 3
"""Results that are read, as in SCG-QP."""
_REMEMBERED, _REMEMBERED_SECONDS = 256, 900.0
"""Queries whose passages are kept in memory, and for how long."""
_READING_SECONDS = 10.0

_Piece = tuple[Passage, str]
"""A passage of a page, or a snippet and why the page could not be had; that is empty for a page's own passage."""


class WebSource:
    """Web search.

    The query is redacted, the engine asked, the first pages fetched and read at once, their text split into passages,
    unsafe ones and sentences that command the model dropped, and the rest reranked by the redacted query. Where a page
    cannot be had, its snippet stands in for it. An item has `title`, `url`, `engine`, `page_error` (if it is a
    snippet), and `suspicious` (whether commands were dropped from it). The reranker may be a spec.
    """

    kind: Source = "web"
    name = "web"

    def __init__(
        self, engine: SearchEngine, *, fetcher: PageFetcher | None = None, reranker: str | Reranker = "fused"
    ) -> None:
        self.engine = engine
        self._fetcher = fetcher or PageFetcher()
        self._reranker = load_reranker(reranker) if isinstance(reranker, str) else reranker
        self._memory: dict[tuple[str, str], tuple[float, list[_Piece]]] = {}

    async def search(
        self, query: str, dialogue: Dialogue, top: int = 10, scope: Sequence[Knowledge] = ()
    ) -> SearchResult:
        """See `KnowledgeSource`; findings and errors have the query that was sent."""
        sent, notes = redact(query, dialogue)
        if not sent.strip():
            return SearchResult(query="", notes=[*notes, "nothing of the query was left to send"])
        try:
            pieces = await self._pieces(sent, dialogue)
            knowledge, dropped = await asyncio.to_thread(self._ranked, sent, pieces, top)
        except DialoreError as error:
            error.query = sent
            raise
        failed = {passage.url: page_error for passage, page_error in pieces if page_error}
        notes += [f"{url}: {reason}; its snippet stands in for it" for url, reason in failed.items()]
        return SearchResult(knowledge, query=sent, notes=[*notes, *dropped])

    def close(self) -> None:
        """Close the engine, and forget what was found."""
        self._memory.clear()
        self.engine.close()

    async def _pieces(self, query: str, dialogue: Dialogue) -> list[_Piece]:
        key = (query, dialogue.language)
        then, known = self._memory.pop(key, (-math.inf, []))
        if time.monotonic() - then < _REMEMBERED_SECONDS:
            self._memory[key] = then, known
            return known
        distinct: dict[tuple[str, str], WebResult] = {}
        for result in (await self.engine.search(query, dialogue, _PAGES))[:_PAGES]:
            distinct.setdefault((result.url, result.text), result)
        first: dict[str, _Piece] = {}
        for read in await asyncio.gather(*map(self._read, distinct.values())):
            for piece in read:
                first.setdefault(piece[0].text, piece)
        pieces = list(first.values())
        self._memory[key] = (time.monotonic(), pieces)
        if len(self._memory) > _REMEMBERED:
            del self._memory[next(iter(self._memory))]
        return pieces

    async def _read(self, result: WebResult) -> list[_Piece]:
        """Return the passages of a result's page, or its snippet."""
        page = Passage(result.text, result.title, result.url)
        try:
            if not result.text:
                fetched = await self._fetcher.fetch(result.url)
                async with asyncio.timeout(_READING_SECONDS):
                    page = await asyncio.to_thread(read_page, fetched)
        except (PageError, TimeoutError) as error:
            reason = error.message if isinstance(error, PageError) else f"not read within {_READING_SECONDS:g} s"
            log.info("no page from %s: %s", result.url, reason)
            snippet = result.snippet.strip()
            return [(Passage(snippet, result.title, result.url), reason)] if snippet else []
        paragraphs = [Paragraph(without_controls(line)) for line in page.text.splitlines()]
        section = Section(paragraphs, result.title or page.title, page.url)
        return [(passage, "") for passage in _CHUNKING.split(section)]

    def _ranked(self, query: str, pieces: Sequence[_Piece], top: int) -> tuple[list[Knowledge], list[str]]:
        kept: list[tuple[Passage, bool, str]] = []
        unsafe = commands = 0
        for passage, page_error in pieces:
            text, in_text = without_commands(passage.text)
            title, in_title = without_commands(passage.title)
            dropped = in_text + in_title
            commands += dropped
            if text and not is_safe(f"{title}\n{text}"):
                unsafe += 1
            elif text:
                kept.append((Passage(text, title, passage.url), dropped > 0, page_error))
        notes = [f"unsafe passages left out: {unsafe}"] if unsafe else []
        notes += [f"sentences that command the model left out: {commands}"] if commands else []
        items: list[Knowledge] = []
        for position, score in self._reranker.rerank(query, [passage.text for passage, _, _ in kept], top):
            passage, is_suspicious, page_error = kept[position]
            fields = {"engine": self.engine.name, "page_error": page_error, "suspicious": is_suspicious}
            items.append(Knowledge.of_passage(passage, self.kind, score, **fields))
        return items, notes


def _corpus(place: str) -> CorpusEngine:
    path = Path(place)
    return CorpusEngine(open_documents([path]), name=f"corpus:{path.name}")


_ENGINES: dict[str, tuple[str, str, Callable[[str], SearchEngine]]] = {
    "searxng": ("an address", "searxng:http://localhost:8888", SearxngEngine),
    "brave": ("no argument", "brave:", lambda _: BraveEngine()),
    "ddgs": ("no argument", "ddgs:", lambda _: DdgsEngine()),
    "corpus": ("a document index", "corpus:PATH", _corpus),
}
"""The rest of each engine's spec, an example, and what makes the engine of that rest."""


def open_web(spec: str, *, reranker: str | Reranker = "fused") -> WebSource:
    """Return a web source from its spec; `reranker` as for `load_reranker`.

    Specs are `searxng:URL` (a SearXNG instance), `brave:` (Brave's search, key in `BRAVE_API_KEY`), `ddgs:` (public
    engines without a key), and `corpus:PATH` (a document index in place of the web). Raises InputError for any other,
    and where a key, an index or an optional library is missing.
    """
    kind, _, argument = spec.partition(":")
    if kind not in _ENGINES:
        raise UnknownNameError("search engine", kind, list(_ENGINES))
    takes, example, make = _ENGINES[kind]
    if bool(argument) != (takes != "no argument"):
        raise InputError(f"the search engine {kind!r} takes {takes}", hint=f"write {example}")
    if kind != "corpus" and importlib.util.find_spec("trafilatura") is None:
        raise MissingExtraError("reading web pages", "documents")
    return WebSource(make(argument), reranker=reranker)

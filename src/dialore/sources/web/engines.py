"""Search engines: SearXNG's and Brave's JSON interfaces, ddgs, and a document index that stands in for one."""

from __future__ import annotations

import asyncio
import html
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dialore.errors import InputError, ModelError, SourceError, import_optional
from dialore.llm.http import HttpClient, clean_key, endpoint_url
from dialore.sources.web.fetching import USER_AGENT
from dialore.sources.web.safety import without_controls
from dialore.text import split_sentences

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.sources.base import KnowledgeSource

_BRAVE = "https://api.search.brave.com/res/v1"
_MAX_BYTES, _SECONDS = 4_000_000, 10.0
"""Of an answer at most, and for it."""
_TAG = re.compile(r"<[^>]{0,200}>")
_LONGEST_WAIT = 10.0
"""Seconds of a busy server's `Retry-After` that are waited out, once."""
_PASSAGES = 100
"""Passages of an index whose pages are looked at."""
_SNIPPET = 2000
"""Characters of a snippet that are read; engines give some hundreds."""


@dataclass(frozen=True)
class WebResult:
    """One result of a search; `text` is the whole page's, where the engine has it, so that none need be fetched."""

    url: str
    title: str = ""
    snippet: str = ""
    text: str = ""


class SearchEngine(ABC):
    """Anything that finds pages for a query; its name is shown with knowledge."""

    name: str

    @abstractmethod
    async def search(self, query: str, dialogue: Dialogue, count: int) -> list[WebResult]:
        """Return the first `count` results, the best first; the dialogue tells the language, and nothing of it is sent.

        Raises SourceError where the engine is down, slow or busy, or answers nonsense.
        """

    def close(self) -> None:  # noqa: B027 - most have nothing to be closed
        """Release files and connections."""


class _HttpEngine(SearchEngine):
    """The base of the engines on the net: one question, asked again once where a busy server says when.

    `mends` say what to do about a status, where it is not what the table of faults says.
    """

    def __init__(self, http: HttpClient, path: str, mends: Mapping[int, str]) -> None:
        self._http, self._path, self._mends = http, path, mends

    async def _ask(self, query: Mapping[str, str]) -> dict[str, Any]:
        for may_wait in (True, False):
            try:
                # Searches are seconds apart: a session of its own each, in whatever event loop it is asked.
                async with self._http.once() as http:
                    answer = await http.json(self._path, query=query)
                    return answer if isinstance(answer, dict) else {}
            except ModelError as error:
                if not may_wait or error.retry_after is None or error.retry_after > _LONGEST_WAIT:
                    status = error.status or 0
                    known = error.hint if error.retryable or 300 <= status < 400 else "is it a search engine's address?"
                    raise SourceError(error.message, hint=self._mends.get(status, known)) from error
                await asyncio.sleep(error.retry_after)
        raise AssertionError

    def _results(self, entries: object, snippet: str) -> list[WebResult]:
        if not isinstance(entries, list):
            message = f"{self._http.where} answered JSON without a list of results"
            raise SourceError(message, hint="is it the search engine that was named?")
        return _results(entries, snippet)


class SearxngEngine(_HttpEngine):
    """A SearXNG instance (docs.searxng.org, Search API); its settings must allow the format `json`."""

    name = "searxng"

    def __init__(self, url: str) -> None:
        address = endpoint_url(url).removesuffix("/search")
        http = HttpClient(address, headers={"User-Agent": USER_AGENT}, timeout=_SECONDS, max_bytes=_MAX_BYTES)
        super().__init__(http, "/search", {403: "allow `json` under search.formats in SearXNG's settings.yml"})

    async def search(self, query: str, dialogue: Dialogue, count: int) -> list[WebResult]:
        """See `SearchEngine`."""
        language = "zh-CN" if dialogue.language == "zh" else "en"
        answer = await self._ask({"q": query, "format": "json", "language": language, "safesearch": "1"})
        results = self._results(answer.get("results"), "content")
        silent = answer.get("unresponsive_engines")
        if not results and isinstance(silent, list) and silent:
            names = [str(entry[0] if isinstance(entry, list) and entry else entry)[:40] for entry in silent[:5]]
            message = f"none of the engines behind {self._http.where} answered: {', '.join(names)}"
            raise SourceError(message, hint="try again later, or enable other engines there")
        return results[:count]


class BraveEngine(_HttpEngine):
    """Brave's web search (api-dashboard.search.brave.com, Web Search API); its key is that of `BRAVE_API_KEY`."""

    name = "brave"

    def __init__(self, api_key: str | None = None, *, url: str = _BRAVE) -> None:
        key = clean_key(api_key or os.environ.get("BRAVE_API_KEY"))
        if not key:
            raise InputError("Brave's search needs a key", hint="set BRAVE_API_KEY")
        headers = {"User-Agent": USER_AGENT, "X-Subscription-Token": key}
        http = HttpClient(url, key, headers=headers, timeout=_SECONDS, max_bytes=_MAX_BYTES)
        super().__init__(http, "/web/search", dict.fromkeys((401, 403, 422), "check BRAVE_API_KEY"))

    async def search(self, query: str, dialogue: Dialogue, count: int) -> list[WebResult]:
        """See `SearchEngine`; at most 400 characters and 50 words of the query are asked, and 20 results given."""
        asked = " ".join(query.split()[:50])[:400]
        language = "zh-hans" if dialogue.language == "zh" else "en"
        settings = {"count": str(max(1, min(count, 20))), "search_lang": language, "safesearch": "strict"}
        answer = await self._ask({"q": asked, **settings, "text_decorations": "false"})
        if "web" not in answer and "type" in answer:
            return []
        web = answer.get("web")
        return self._results(web.get("results") if isinstance(web, dict) else None, "description")[:count]


class DdgsEngine(SearchEngine):
    """Public search engines as the library ddgs asks them: no key is wanted, and frequent requests are refused."""

    name = "ddgs"

    def __init__(self) -> None:
        self._library = import_optional("ddgs", "the search engine ddgs:", "ddgs")

    async def search(self, query: str, dialogue: Dialogue, count: int) -> list[WebResult]:
        """See `SearchEngine`."""
        region = "cn-zh" if dialogue.language == "zh" else "us-en"
        engines = self._library.DDGS(timeout=_SECONDS)
        try:
            async with asyncio.timeout(_SECONDS):
                entries = await asyncio.to_thread(
                    engines.text, query, region=region, safesearch="on", max_results=count
                )
        except self._library.exceptions.DDGSException as error:
            if "No results found" in str(error):
                return []
            reason = type(error).__name__.removesuffix("Exception")  # its words may hold the query
            raise SourceError(f"no engine behind ddgs answered: {reason}", hint="try later, or use searxng:") from error
        except TimeoutError as error:
            raise SourceError(f"no answer by ddgs in {_SECONDS:g} s", hint="try later, or use searxng:") from error
        return _results(entries, "body", address="href")[:count]


class CorpusEngine(SearchEngine):
    """An open document index in place of the web: no page is fetched, for the text is there.

    A page is what has one url (see `Knowledge.page_key`): those of the best passages are found, each whole.
    """

    def __init__(self, documents: KnowledgeSource, *, name: str = "corpus") -> None:
        self.name = name
        self._documents = documents

    async def search(self, query: str, dialogue: Dialogue, count: int) -> list[WebResult]:
        """See `SearchEngine`."""
        pages: dict[tuple[str, ...], list[Knowledge]] = {}
        for piece in await self._documents.search(query, dialogue, _PASSAGES):
            pages.setdefault(piece.page_key, []).append(piece)
        page_of = getattr(self._documents, "page", None)
        results = []
        for pieces in list(pages.values())[:count]:
            page = await asyncio.to_thread(page_of, pieces[0]) if page_of else pieces
            text = _join_passages(piece.text for piece in page or pieces)
            results.append(WebResult(pieces[0].url, pieces[0].title, text=text))
        return results

    def close(self) -> None:
        """Close the index."""
        self._documents.close()


def _results(entries: Iterable[Any], snippet: str, address: str = "url") -> list[WebResult]:
    """Return the results among entries; what is none is passed over."""
    results = []
    for entry in entries:
        url = entry.get(address) if isinstance(entry, dict) else None
        if isinstance(url, str) and url.startswith(("http://", "https://")) and without_controls(url) == url:
            results.append(WebResult(url, _plain(entry.get("title")), _plain(entry.get(snippet))))
    return results


def _join_passages(texts: Iterable[str]) -> str:
    """Passages as one text, a sentence a line, without those that a passage begins with again (see `Chunking`)."""
    lines: list[str] = []
    for text in texts:
        sentences = split_sentences(text)
        again = next((count for count in (3, 2, 1) if lines[-count:] == sentences[:count]), 0)
        lines += sentences[again:]
    return "\n".join(lines)


def _plain(text: object) -> str:
    given = text[:_SNIPPET] if isinstance(text, str) else ""
    return " ".join(without_controls(html.unescape(_TAG.sub("", given))).split())

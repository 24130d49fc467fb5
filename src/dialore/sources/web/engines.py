"""Search engines: SearXNG's and Brave's JSON interfaces, and a document index that stands in for one."""

from __future__ import annotations

import html
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dialore.errors import InputError, SourceError
from dialore.llm.faults import clean_key, endpoint_url, join_url, shown_url
from dialore.sources.web.asking import JsonAsker
from dialore.sources.web.reading import without_controls

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dialore.dialogue import Dialogue
    from dialore.sources.base import KnowledgeSource

BRAVE = "https://api.search.brave.com/res/v1"
_TAG = re.compile(r"<[^>]{0,200}>")
_SNIPPET = 2000
"""Characters of a snippet that are read; engines give some hundreds."""


@dataclass(frozen=True)
class SearchResult:
    """One result of a search.

    Attributes:
        url: the page's address; empty where there is no page.
        title: its title.
        snippet: the engine's excerpt.
        text: the whole text, where the engine has it, so that no page need be fetched.
    """

    url: str
    title: str = ""
    snippet: str = ""
    text: str = ""


@runtime_checkable
class SearchEngine(Protocol):
    """Anything that finds pages for a query."""

    @property
    def name(self) -> str:
        """Its name, as it is shown with knowledge."""
        ...

    async def search(self, query: str, dialogue: Dialogue, count: int) -> list[SearchResult]:
        """The first `count` results, the best first; the dialogue tells the language, and nothing of it is sent.

        Raises:
            SourceError: the engine is down, slow or busy, or answers nonsense.
        """
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


class SearxngEngine:
    """A SearXNG instance (docs.searxng.org, Search API); its settings must allow the format `json`.

    Args:
        url: its address, e.g. `http://localhost:8888`.
        timeout: seconds for a search.
        wait: the most seconds of a `Retry-After` that are waited out, once.

    Raises:
        InputError: the address is not a URL.
    """

    name = "searxng"

    def __init__(self, url: str, *, timeout: float = 10.0, wait: float = 10.0) -> None:
        self._url = join_url(endpoint_url(url).removesuffix("/search"), "/search")
        mends = {403: "allow `json` under search.formats in SearXNG's settings.yml"}
        self._asker = JsonAsker(timeout=timeout, wait=wait, mends=mends)

    async def search(self, query: str, dialogue: Dialogue, count: int) -> list[SearchResult]:
        """See `SearchEngine`."""
        language = "zh-CN" if dialogue.language == "zh" else "en"
        data = await self._asker.get(self._url, {"q": query, "format": "json", "language": language, "safesearch": "1"})
        results = _results(data, ("results",), self._url, snippet="content")
        silent = data.get("unresponsive_engines") if isinstance(data, dict) else None
        if not results and isinstance(silent, list) and silent:
            names = ", ".join(
                str(entry[0] if isinstance(entry, list) and entry else entry)[:40] for entry in silent[:5]
            )
            raise SourceError(
                f"none of the engines behind {shown_url(self._url)} answered: {names}",
                mend="try again later, or enable other engines there",
            )
        return results[:count]

    def close(self) -> None:
        """Nothing is held open."""


class BraveEngine:
    """Brave's web search (api-dashboard.search.brave.com, Web Search API).

    Args:
        api_key: the subscription token; None: `BRAVE_API_KEY`.
        url: the interface's address.
        timeout: seconds for a search.
        wait: the most seconds of a `Retry-After` that are waited out, once.

    Raises:
        InputError: no key.
    """

    name = "brave"

    def __init__(
        self, api_key: str | None = None, *, url: str = BRAVE, timeout: float = 10.0, wait: float = 10.0
    ) -> None:
        key = clean_key(api_key or os.environ.get("BRAVE_API_KEY"))
        if not key:
            raise InputError("Brave's search needs a key", mend="set BRAVE_API_KEY")
        self._url = join_url(endpoint_url(url), "/web/search")
        mends = dict.fromkeys((401, 403, 422), "check BRAVE_API_KEY")
        self._asker = JsonAsker(timeout=timeout, wait=wait, mends=mends, headers={"X-Subscription-Token": key}, key=key)

    async def search(self, query: str, dialogue: Dialogue, count: int) -> list[SearchResult]:
        """See `SearchEngine`; at most 400 characters and 50 words of the query are asked, and 20 results given."""
        asked = " ".join(query.split()[:50])[:400]
        language = "zh-hans" if dialogue.language == "zh" else "en"
        query_string = {"q": asked, "count": str(max(1, min(count, 20))), "search_lang": language}
        data = await self._asker.get(self._url, {**query_string, "safesearch": "strict", "text_decorations": "false"})
        if isinstance(data, dict) and "web" not in data and "type" in data:
            return []
        return _results(data, ("web", "results"), self._url, snippet="description")[:count]

    def close(self) -> None:
        """Nothing is held open."""


class CorpusEngine:
    """Documents in place of the web: no page is fetched, for the text is there.

    Args:
        documents: an open document index.
        name: its name.
    """

    def __init__(self, documents: KnowledgeSource, *, name: str = "corpus") -> None:
        self.name = name
        self._documents = documents

    @classmethod
    def open(cls, path: Path) -> CorpusEngine:
        """Open a document index (`dialore documents build`).

        Raises:
            InputError: it is missing or damaged.
        """
        from dialore.sources.documents import open_documents

        return cls(open_documents([path]), name=f"corpus:{path.name}")

    async def search(self, query: str, dialogue: Dialogue, count: int) -> list[SearchResult]:
        """See `SearchEngine`."""
        found = await self._documents.search(query, dialogue, count)
        return [SearchResult(piece.passage.url, piece.passage.title, text=piece.text) for piece in found]

    def close(self) -> None:
        """Close the index."""
        self._documents.close()


def _results(data: object, path: tuple[str, ...], url: str, *, snippet: str) -> list[SearchResult]:
    """The results under a path of keys; what is no result among them is passed over.

    Raises:
        SourceError: there is no list there.
    """
    found = data
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    if not isinstance(found, list):
        message = f"{shown_url(url)} answered JSON without a list of results"
        raise SourceError(message, mend="is it the search engine that was named?")
    return [result for entry in found if isinstance(entry, dict) and (result := _result(entry, snippet)) is not None]


def _result(entry: Mapping[str, Any], snippet: str) -> SearchResult | None:
    url = entry.get("url")
    if not isinstance(url, str) or not url.startswith(("http://", "https://")) or without_controls(url) != url:
        return None
    return SearchResult(url, _plain(entry.get("title")), _plain(entry.get(snippet)))


def _plain(text: object) -> str:
    if not isinstance(text, str):
        return ""
    clean = without_controls(html.unescape(_TAG.sub("", text[:_SNIPPET])))
    return " ".join(clean.split())

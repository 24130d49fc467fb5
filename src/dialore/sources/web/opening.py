"""From a short spec to a web source."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from dialore.errors import InputError, MissingExtraError, UnknownNameError
from dialore.sources.web.engines import BraveEngine, CorpusEngine, SearxngEngine
from dialore.sources.web.source import WebSource

if TYPE_CHECKING:
    from dialore.retrieval.reranking import Reranker
    from dialore.sources.web.engines import SearchEngine
    from dialore.sources.web.fetching import PageFetcher

ENGINES = ("searxng", "brave", "corpus")
"""What a spec may begin with."""


def open_web(
    spec: str, *, pages: int = 3, reranker: str | Reranker = "fused", fetcher: PageFetcher | None = None
) -> WebSource:
    """A web source from its spec.

    Args:
        spec: `searxng:URL` (a SearXNG instance), `brave:` (Brave's search, key in `BRAVE_API_KEY`), or `corpus:PATH`
            (a document index in place of the web).
        pages: how many results are read.
        reranker: what ranks passages; see `load_reranker`.
        fetcher: what fetches pages; None: a `PageFetcher` with its defaults.

    Raises:
        UnknownNameError: no engine, or no reranker, is called that.
        InputError: the spec lacks its address, the key is missing, or the index is.
        MissingExtraError: pages cannot be read without trafilatura (extra `documents`).
    """
    return WebSource(_engine(spec), fetcher=fetcher, pages=pages, reranker=reranker)


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

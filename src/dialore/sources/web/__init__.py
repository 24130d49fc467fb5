"""Web search as a source of knowledge: engines, guarded page fetching, redaction of queries, safety of passages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.sources.web.engines import BraveEngine, CorpusEngine, SearchEngine, SearchResult, SearxngEngine
    from dialore.sources.web.fetching import PageFetcher
    from dialore.sources.web.source import WebSource, open_web

__all__ = [
    "BraveEngine",
    "CorpusEngine",
    "PageFetcher",
    "SearchEngine",
    "SearchResult",
    "SearxngEngine",
    "WebSource",
    "open_web",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.sources.web.engines": ["BraveEngine", "CorpusEngine", "SearchEngine", "SearchResult", "SearxngEngine"],
        "dialore.sources.web.fetching": ["PageFetcher"],
        "dialore.sources.web.source": ["WebSource", "open_web"],
    },
)

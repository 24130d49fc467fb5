"""Web search as a source of knowledge: engines, guarded page fetching, redaction of queries, safety of passages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.sources.web.addresses import AddressRules
    from dialore.sources.web.engines import BraveEngine, CorpusEngine, SearchEngine, SearchResult, SearxngEngine
    from dialore.sources.web.fetching import Fetched, PageError, PageFetcher
    from dialore.sources.web.reading import Page, read_page
    from dialore.sources.web.redaction import redact
    from dialore.sources.web.safety import is_safe, without_commands
    from dialore.sources.web.source import WebSource, open_web

__all__ = [
    "AddressRules",
    "BraveEngine",
    "CorpusEngine",
    "Fetched",
    "Page",
    "PageError",
    "PageFetcher",
    "SearchEngine",
    "SearchResult",
    "SearxngEngine",
    "WebSource",
    "is_safe",
    "open_web",
    "read_page",
    "redact",
    "without_commands",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.sources.web.addresses": ["AddressRules"],
        "dialore.sources.web.engines": [
            "BraveEngine",
            "CorpusEngine",
            "SearchEngine",
            "SearchResult",
            "SearxngEngine",
        ],
        "dialore.sources.web.fetching": ["Fetched", "PageError", "PageFetcher"],
        "dialore.sources.web.reading": ["Page", "read_page"],
        "dialore.sources.web.redaction": ["redact"],
        "dialore.sources.web.safety": ["is_safe", "without_commands"],
        "dialore.sources.web.source": ["WebSource", "open_web"],
    },
)

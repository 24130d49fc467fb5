"""From what a user names to the sources of knowledge beside the graph: the one place that knows how each is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def open_sources(
    *,
    documents: Sequence[Path] = (),
    persona: Path | None = None,
    search: str | None = None,
    samples: Path | None = None,
    declared: Path | None = None,
) -> dict[str, object]:
    """Open what is named; what is not named is not there, except the persona, which a dialogue may bring itself.

    Args:
        documents: document indices (`dialore documents build`); several are asked as one.
        persona: a persona file; without one, each dialogue's own persona.
        search: a search engine: `searxng:URL`, `brave:`, or `corpus:PATH` for a document index.
        samples: a sample database (`dialore samples build`).
        declared: a file that declares sources with descriptions and dependencies (SAFARI, Section 4.1).

    Returns:
        The sources by the names that methods have for them: `documents`, `persona`, `web`, `samples`, `sources`.

    Raises:
        InputError: a file that is missing or malformed, an engine that is not known.
    """
    opened: dict[str, object] = {}
    if documents:
        from dialore.sources.documents import open_documents

        opened["documents"] = open_documents(documents)
    if search is not None:
        from dialore.sources.web import open_web

        opened["web"] = open_web(search)
    if samples is not None:
        from dialore.sources.samples import open_samples

        opened["samples"] = open_samples(samples)

    from dialore.sources.persona import open_persona

    opened["persona"] = open_persona(persona)
    if declared is not None:
        from dialore.sources.declared import open_declared

        opened["sources"] = open_declared(declared, opened)
    return opened

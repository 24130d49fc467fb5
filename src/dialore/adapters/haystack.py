"""A Haystack component."""

from __future__ import annotations

from typing import Any

from dialore.adapters import Asked, find, likelihood, metadata
from dialore.errors import InputError, import_optional
from dialore.parallel import wait_for
from dialore.sources.documents import open_documents

import_optional("haystack", "the Haystack component", "haystack")

from haystack import Document, component, default_from_dict, default_to_dict  # noqa: E402


@component
class DialoreRetriever:
    """Retrieve at most `top` documents from an agent or a source, each with its probability of use, else its score.

    A pipeline that is to be written to a file (`Pipeline.dumps`) has the place of an index of documents here: what was
    opened in Python cannot be written.
    """

    def __init__(self, asked: Asked | str, top: int = 10) -> None:
        self.asked, self.top = open_documents(asked) if isinstance(asked, str) else asked, top
        self._place = asked if isinstance(asked, str) else ""

    def to_dict(self) -> dict[str, Any]:
        """As a pipeline writes it; raises InputError where what it asks was opened in Python."""
        if not self._place:
            hint = "give the index's place: DialoreRetriever('documents.idx')"
            raise InputError("an open agent or source cannot be written to a file", hint=hint)
        return default_to_dict(self, asked=self._place, top=self.top)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> DialoreRetriever:
        """As a pipeline reads it."""
        return default_from_dict(cls, data)

    @component.output_types(documents=list[Document])
    def run(self, query: str) -> dict[str, list[Document]]:
        """Return the documents for a query."""
        return wait_for(self.run_async(query))

    @component.output_types(documents=list[Document])
    async def run_async(self, query: str) -> dict[str, list[Document]]:
        """Return the documents for a query, as an asynchronous pipeline asks."""
        pieces = await find(self.asked, query, self.top) if query.strip() else []
        return {
            "documents": [
                Document(id=piece.id, content=piece.text, meta=metadata(piece), score=likelihood(piece))
                for piece in pieces
            ]
        }

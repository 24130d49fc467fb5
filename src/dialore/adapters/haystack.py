"""A Haystack component."""

from __future__ import annotations

from dialore.adapters import Asked, find, likelihood, metadata
from dialore.errors import import_optional
from dialore.parallel import wait_for

import_optional("haystack", "the Haystack component", "haystack")

from haystack import Document, component  # noqa: E402


@component
class DialoreRetriever:
    """What an agent or a source finds, at most `top` documents, each with its probability of use, else its score."""

    def __init__(self, asked: Asked, top: int = 10) -> None:
        self.asked, self.top = asked, top

    @component.output_types(documents=list[Document])
    def run(self, query: str) -> dict[str, list[Document]]:
        """The documents for a query."""
        return wait_for(self.run_async(query))

    @component.output_types(documents=list[Document])
    async def run_async(self, query: str) -> dict[str, list[Document]]:
        """The documents for a query, as an asynchronous pipeline asks."""
        found = await find(self.asked, query, self.top)
        return {
            "documents": [
                Document(id=each.id, content=each.text, meta=metadata(each), score=likelihood(each)) for each in found
            ]
        }

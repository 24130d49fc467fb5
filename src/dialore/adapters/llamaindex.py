"""A LlamaIndex retriever."""

from __future__ import annotations

from dialore.adapters import Asked, find, likelihood, metadata
from dialore.errors import import_optional
from dialore.parallel import wait_for

import_optional("llama_index.core", "the LlamaIndex retriever", "llamaindex")

from llama_index.core.retrievers import BaseRetriever  # noqa: E402
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode  # noqa: E402


class DialoreRetriever(BaseRetriever):
    """Retrieve at most `top` nodes from an agent or a source, each with its probability of use, else its score."""

    def __init__(self, asked: Asked, top: int = 10) -> None:
        super().__init__()
        self.asked, self.top = asked, top

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return wait_for(self._aretrieve(query_bundle))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        pieces = await find(self.asked, query_bundle.query_str, self.top)
        return [
            NodeWithScore(
                node=TextNode(id_=piece.id, text=piece.text, metadata=metadata(piece)), score=likelihood(piece)
            )
            for piece in pieces
        ]

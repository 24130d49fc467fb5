"""A LangChain retriever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore.adapters import Asked, find, metadata
from dialore.errors import import_optional
from dialore.parallel import wait_for

import_optional("langchain_core", "the LangChain retriever", "langchain")

from langchain_core.documents import Document  # noqa: E402
from langchain_core.retrievers import BaseRetriever  # noqa: E402

if TYPE_CHECKING:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun


class DialoreRetriever(BaseRetriever):
    """Retrieves what an agent or a source finds, at most `top` documents."""

    asked: Asked
    top: int = 10

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return wait_for(self._found(query))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        return await self._found(query)

    async def _found(self, query: str) -> list[Document]:
        pieces = await find(self.asked, query, self.top)
        return [Document(piece.text, id=piece.id, metadata=metadata(piece)) for piece in pieces]

"""Fixtures of the retrieval tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.retrieval.embedding_server import EmbeddingServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def embedding_server() -> Iterator[EmbeddingServer]:
    """An embeddings endpoint on this machine that misbehaves to order."""
    server = EmbeddingServer()
    yield server
    server.close()

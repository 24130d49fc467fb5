"""An /embeddings endpoint for tests: replies for the FaultyServer, with vectors that depend on the text alone."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING

from tests.llm.server import FaultyServer, status

if TYPE_CHECKING:
    from tests.llm.server import Asked, Handler, Reply


def vector(text: str, dimension: int = 8) -> list[float]:
    """A vector of a text, far from unit length."""
    return [float(zlib.crc32(f"{at}{text}".encode()) % 200) - 99.5 for at in range(dimension)]


def embeddings(dimension: int = 8) -> Reply:
    """Each input's vector, listed last first: the index, not the place, says whose it is."""

    def reply(handler: Handler) -> None:
        texts = handler.asked.body["input"]
        rows = [{"index": at, "embedding": vector(text, dimension)} for at, text in enumerate(texts)]
        handler.send(200, json.dumps({"data": rows[::-1]}).encode())

    return reply


class EmbeddingServer(FaultyServer):
    """A FaultyServer whose script answers `/v1/embeddings`."""

    def __init__(self) -> None:
        super().__init__()
        self.always = embeddings()

    def next_reply(self, asked: Asked) -> Reply:
        self.requests.append(asked)
        if asked.path != "/v1/embeddings":
            return status(404, "no such path")
        return self._script.pop(0) if self._script else self.always

"""Embeddings by an OpenAI-compatible server: OpenAI, vLLM, Ollama, llama.cpp, text-embeddings-inference, ..."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dialore.errors import InputError, ModelError
from dialore.llm.http import HttpClient, Retry, run_blocking
from dialore.retrieval.embedding import digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class EndpointEmbedder:
    """A model behind an OpenAI-compatible `/embeddings` endpoint. Calls block: in a coroutine, use a thread.

    Args:
        model: the model's name at the server.
        base_url: the endpoint, e.g. `http://localhost:11434/v1`; None: `DIALORE_BASE_URL`, then `OPENAI_BASE_URL`.
        api_key: the key; None: `DIALORE_API_KEY`, then `OPENAI_API_KEY`, then none.
        batch_size: texts a request.
        timeout: seconds for a request.
        retries: how often a failed request is repeated where that may help.

    Raises:
        InputError: no address is given anywhere, or it is not a URL.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        batch_size: int = 128,
        timeout: float = 60.0,
        retries: int = 4,
    ) -> None:
        base_url = base_url or os.environ.get("DIALORE_BASE_URL") or os.environ.get("OPENAI_BASE_URL")
        if not base_url:
            raise InputError(
                f"no endpoint for the embedding model {model!r}",
                mend="write endpoint:MODEL@URL or set DIALORE_BASE_URL",
            )
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}")
        key = api_key or os.environ.get("DIALORE_API_KEY") or os.environ.get("OPENAI_API_KEY")
        self._client = HttpClient(base_url, key, timeout=timeout, max_bytes=256_000_000)
        self.name = f"endpoint:{model}@{self._client.where}"
        self.fingerprint = digest("endpoint", model, self._client.where)
        self._model, self._batch_size, self._retry = model, batch_size, Retry(retries)

    def __repr__(self) -> str:
        return f"EndpointEmbedder({self.name!r})"

    @cached_property
    def dimension(self) -> int:
        """Components of a vector; the server is asked once, unless something was encoded before."""
        return int(run_blocking(self._request([["dimension"]]))[0].shape[1])

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (len(texts), dimension) unit rows; zero for a blank text, which is not sent.

        Raises:
            ModelError: the server failed, retries included, or answered something else than embeddings.
        """
        filled = [at for at, text in enumerate(texts) if text.strip()]
        places = [filled[start : start + self._batch_size] for start in range(0, len(filled), self._batch_size)]
        batches = run_blocking(self._request([[texts[at] for at in each] for each in places])) if places else []
        if batches:
            self.__dict__.setdefault("dimension", batches[0].shape[1])
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for each, batch in zip(places, batches, strict=True):
            if batch.shape[1] != self.dimension:
                raise self._malformed(f"vectors of {batch.shape[1]} components after {self.dimension}")
            vectors[each] = batch
        return vectors

    async def _request(self, batches: list[list[str]]) -> list[NDArray[np.float32]]:
        """The vectors of batches of texts, one request after the other."""
        async with self._client.once() as client:

            async def ask(texts: list[str]) -> NDArray[np.float32]:
                body = {"model": self._model, "input": texts, "encoding_format": "float"}
                return self._read(await client.json("/embeddings", body), len(texts))

            return [await self._retry.run(lambda _, texts=texts: ask(texts)) for texts in batches]  # type: ignore[misc]

    def _read(self, answer: object, expected: int) -> NDArray[np.float32]:
        try:
            rows = sorted(answer["data"], key=lambda row: int(row["index"]))  # type: ignore[index]
            vectors = np.array([row["embedding"] for row in rows], dtype=np.float64)
        except (ValueError, KeyError, TypeError) as error:
            raise self._malformed("something else") from error
        if len(vectors) != expected or vectors.ndim != 2 or not np.isfinite(vectors).all():
            raise self._malformed(f"{len(vectors)} embeddings for {expected} texts, or not numbers")
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit: NDArray[np.float32] = (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
        return unit

    def _malformed(self, found: str) -> ModelError:
        return ModelError(
            f"{self._client.where} did not answer with embeddings but with {found}",
            mend=f"is {self._model} an embedding model?",
            configuration=True,
        )

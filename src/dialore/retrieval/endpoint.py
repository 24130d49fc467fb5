"""Embeddings by an OpenAI-compatible server: OpenAI, vLLM, Ollama, llama.cpp, text-embeddings-inference and the like.

The standard library's HTTP client is enough for a few large batches; errors read as those of the chat endpoint.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import random
import time
import urllib.error
import urllib.request
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np

from dialore.errors import InputError, ModelError
from dialore.llm.http import clean_key, endpoint_url, join_url, shown_url, status_error
from dialore.retrieval.fingerprint import digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from email.message import Message
    from typing import IO

    from numpy.typing import NDArray

log = logging.getLogger(__name__)

_LONGEST_WAIT = 60.0


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
        base_url = endpoint_url(base_url)
        self.name = f"endpoint:{model}@{shown_url(base_url)}"
        self.fingerprint = digest("endpoint", model, shown_url(base_url))
        self._model = model
        self._url = join_url(base_url, "/embeddings")
        self._where = shown_url(self._url)
        self._key = clean_key(api_key or os.environ.get("DIALORE_API_KEY") or os.environ.get("OPENAI_API_KEY"))
        self._batch_size, self._timeout, self._retries = batch_size, timeout, retries
        self._opener = urllib.request.build_opener(_NoRedirect)

    def __repr__(self) -> str:
        return f"EndpointEmbedder({self.name!r})"

    @cached_property
    def dimension(self) -> int:
        """Components of a vector; the server is asked once, unless something was encoded before."""
        return int(self._request(["dimension"]).shape[1])

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (len(texts), dimension) unit rows; zero for a blank text, which is not sent.

        Raises:
            ModelError: the server failed, retries included, or answered something else than embeddings.
        """
        filled = [at for at, text in enumerate(texts) if text.strip()]
        starts = range(0, len(filled), self._batch_size)
        batches = [self._request([texts[at] for at in filled[start : start + self._batch_size]]) for start in starts]
        if batches:
            self.__dict__.setdefault("dimension", batches[0].shape[1])
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for start, batch in zip(starts, batches, strict=True):
            if batch.shape[1] != self.dimension:
                raise self._malformed(f"vectors of {batch.shape[1]} components after {self.dimension}")
            vectors[filled[start : start + self._batch_size]] = batch
        return vectors

    def _request(self, texts: list[str]) -> NDArray[np.float32]:
        """Encode one batch, repeating it where that may help (backoff with full jitter, as for chat)."""
        for failures in range(self._retries + 1):
            try:
                return self._read(self._post(texts), len(texts))
            except ModelError as error:
                if not error.retryable or failures == self._retries:
                    raise
                backoff = random.random() * min(20.0, 0.5 * 2.0**failures)  # noqa: S311
                seconds = backoff if error.retry_after is None else min(error.retry_after, _LONGEST_WAIT)
                log.info("try %d failed, waiting %.1f s: %s", failures + 1, seconds, error.message)
                time.sleep(seconds)
        raise AssertionError("unreachable")

    def _post(self, texts: list[str]) -> bytes:
        body = json.dumps({"model": self._model, "input": texts, "encoding_format": "float"}).encode()
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(self._url, data=body, headers=headers)  # noqa: S310 - endpoint_url checked it
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                answer: bytes = response.read()
                return answer
        except urllib.error.HTTPError as error:
            with error:
                raise status_error(
                    error.code, cast("Mapping[str, str]", error.headers), error.read(), url=self._url, key=self._key
                ) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: OSError | http.client.HTTPException) -> ModelError:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(cause, ConnectionRefusedError):
            return ModelError(
                f"nothing listens at {self._where}", mend="start the server or check its port", retryable=True
            )
        if isinstance(cause, TimeoutError):
            return ModelError(
                f"{self._where} did not answer in {self._timeout:g} s", mend="raise the time-out", retryable=True
            )
        if isinstance(cause, (ConnectionError, http.client.HTTPException)):
            return ModelError(
                f"{self._where} broke the connection before its answer was whole", mend="try again", retryable=True
            )
        return ModelError(f"cannot reach {self._where}: {cause}", mend="check the address and the network")

    def _read(self, answer: bytes, expected: int) -> NDArray[np.float32]:
        try:
            rows = sorted(json.loads(answer)["data"], key=lambda row: int(row["index"]))
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
            f"{self._where} did not answer with embeddings but with {found}",
            mend=f"is {self._model} an embedding model?",
            configuration=True,
        )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would lose its body: the redirect is reported instead."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        """Follow nothing."""

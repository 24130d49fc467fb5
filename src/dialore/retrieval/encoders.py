"""Embedders besides the shipped one: sentence-transformers, ONNX, and OpenAI-compatible servers."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from dialore.errors import InputError, ModelError, first_line, import_optional
from dialore.llm.http import HttpClient, run_blocking
from dialore.llm.pacing import Retry
from dialore.retrieval.fusion import unit

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_ONNX_HINT = "make one with scripts/export_minilm_onnx.py, or by `dialore train retriever`"
_BATCH = 32


def digest(*parts: str) -> str:
    """Return a short stable hash of the parts: the fingerprint of an embedder."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


class SentenceTransformerEmbedder:
    """A sentence-transformers model (Reimers and Gurevych, 2019) by name at the Hugging Face hub, or by local folder.

    Of kind `dot`, vectors have lengths of their own. Raises MissingExtraError without the library, or InputError.
    """

    def __init__(self, model: str, kind: str = "st") -> None:
        library = import_optional("sentence_transformers", "the embedder 'st'", "sentence-transformers")
        try:
            self._model: SentenceTransformer = library.SentenceTransformer(model)
        except (OSError, ValueError) as error:
            message = f"cannot load the sentence-transformers model {model!r}: {first_line(error)}"
            raise InputError(message, hint="check the name, or give a local folder") from error
        self.name, self._is_unit = f"{kind}:{model}", kind == "st"
        self.dimension = int(self._model.get_sentence_embedding_dimension() or self._model.encode(["a"]).shape[1])
        weights = hashlib.sha256()  # a name or a folder may come to mean other ones
        for name, tensor in sorted(self._model.state_dict().items()):
            weights.update(name.encode())
            weights.update(np.ascontiguousarray(tensor.detach().cpu().float().numpy()).data)
        self.fingerprint = digest("sentence-transformers" if kind == "st" else kind, weights.hexdigest())

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (len(texts), dimension) unit rows; zero for a blank text."""
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        if filled := [at for at, text in enumerate(texts) if text.strip()]:
            settings = {"batch_size": 64, "normalize_embeddings": self._is_unit, "show_progress_bar": False}
            vectors[filled] = self._model.encode([texts[at] for at in filled], convert_to_numpy=True, **settings)
        return vectors


class _Onnx:
    """An encoder run by ONNX Runtime on the CPU: `model.onnx` and `tokenizer.json` of a folder."""

    def __init__(self, folder: str | Path, longest: int) -> None:
        onnxruntime, tokenizers = (import_optional(name, "'onnx'", "onnx") for name in ("onnxruntime", "tokenizers"))
        path = Path(folder)
        for name in ("model.onnx", "tokenizer.json"):
            if not (path / name).is_file():
                raise InputError(f"no ONNX model in {path}: {name} is missing", hint=_ONNX_HINT)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # batches of short texts are no faster on more
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
            model = str(path / "model.onnx")
            self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            # Both libraries raise bare exceptions of their own for a file that they cannot read.
            raise InputError(f"cannot load the ONNX model in {path}: {first_line(error)}", hint=_ONNX_HINT) from error
        # Files made for training truncate and pad to a length of their own.
        self._tokenizer.enable_truncation(longest, strategy="longest_first")
        self._tokenizer.enable_padding(pad_id=self._tokenizer.token_to_id("[PAD]") or 0)
        self._inputs = {item.name for item in self._session.get_inputs()}

    def batches(
        self, texts: Sequence[str] | Sequence[tuple[str, str]]
    ) -> Iterator[tuple[list[int], NDArray[np.float32], NDArray[np.int64]]]:
        """Yield the places of a batch of texts or pairs, the model's first output for them and their tokens' mask."""
        # By length, so that little of a batch is padding.
        order = sorted(range(len(texts)), key=lambda at: len("".join(texts[at])))
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            yield (batch, *self.run([texts[at] for at in batch]))

    def run(self, texts: Sequence[str | tuple[str, str]]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the model's first output for texts or pairs, and the mask of their tokens."""
        rows = self._tokenizer.encode_batch(texts)
        mask = np.array([row.attention_mask for row in rows], np.int64)
        feed = {
            "input_ids": np.array([row.ids for row in rows], np.int64),
            "attention_mask": mask,
            "token_type_ids": np.array([row.type_ids for row in rows], np.int64),
        }
        return self._session.run(None, {name: feed[name] for name in self._inputs})[0], mask


class OnnxEmbedder:
    """Mean-pooled states of a BERT-like encoder (Reimers and Gurevych, 2019), run by ONNX Runtime on the CPU.

    The folder holds `model.onnx`, whose first output is the last layer's states, and `tokenizer.json`. Unless vectors
    are of unit length, states are summed up, for models that are compared by the dot product.
    """

    def __init__(self, folder: str | Path, *, longest: int = 256, unit: bool = True) -> None:
        self._is_unit, self._model, self.name = unit, _Onnx(folder, longest), f"onnx:{folder}"
        weights, tokenizer = (Path(folder) / name for name in ("model.onnx", "tokenizer.json"))
        self.fingerprint = digest("onnx", digest(weights.read_bytes().hex()), digest(tokenizer.read_text("utf-8")))
        self.dimension = int(self._model.run(["a"])[0].shape[2])

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (len(texts), dimension) rows; zero for a blank text."""
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        filled = [at for at, text in enumerate(texts) if text.strip()]
        for batch, states, mask in self._model.batches([texts[at] for at in filled]):
            pooled = (states * mask[:, :, None].astype(np.float32)).sum(axis=1)
            vectors[[filled[at] for at in batch]] = unit(pooled) if self._is_unit else pooled
        return vectors


class OnnxCrossEncoder(_Onnx):
    """Logits of pairs of texts that are read together, so many tokens of each, by a `model.onnx` in the folder."""

    def logits(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Return the logit of each pair."""
        outputs = np.zeros(len(pairs))
        for batch, logits, _ in self.batches(pairs):
            outputs[batch] = logits[:, 0]
        return outputs


def _key_for(url: str) -> str | None:
    """Return the key in the environment that is meant for a host, if any."""
    host = urlsplit(url).netloc.rpartition("@")[2]
    for name, default in (("DIALORE", url), ("OPENAI", "https://api.openai.com")):
        meant = urlsplit(os.environ.get(f"{name}_BASE_URL") or default).netloc.rpartition("@")[2]
        if meant == host and (key := os.environ.get(f"{name}_API_KEY")):
            return key
    return None


class EndpointEmbedder:
    """A model behind an OpenAI-compatible `/embeddings` endpoint. Calls block: in a coroutine, use a thread.

    Without a URL it is at `DIALORE_BASE_URL`, then `OPENAI_BASE_URL`; without a key, `DIALORE_API_KEY` or
    `OPENAI_API_KEY` serve, each for the host of its own URL alone. Raises InputError where there is no URL.
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
            hint = "write endpoint:MODEL@URL or set DIALORE_BASE_URL"
            raise InputError(f"no endpoint for the embedding model {model!r}", hint=hint)
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}")
        self._client = HttpClient(base_url, api_key or _key_for(base_url), timeout=timeout, max_bytes=256_000_000)
        self.name = f"endpoint:{model}@{self._client.where}"
        self.fingerprint = digest("endpoint", model, self._client.where)
        self._model, self._batch_size, self._retry = model, batch_size, Retry(retries)

    @cached_property
    def dimension(self) -> int:
        """Components of a vector; the server is asked once, unless something was encoded before."""
        return int(run_blocking(self._request([["dimension"]]))[0].shape[1])

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (len(texts), dimension) unit rows; zero for a blank text, which is not sent; raises ModelError."""
        filled = [at for at, text in enumerate(texts) if text.strip()]
        places = [filled[start : start + self._batch_size] for start in range(0, len(filled), self._batch_size)]
        batches = run_blocking(self._request([[texts[at] for at in numbers] for numbers in places])) if places else []
        if batches:
            self.__dict__.setdefault("dimension", batches[0].shape[1])
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for numbers, batch in zip(places, batches, strict=True):
            if batch.shape[1] != self.dimension:
                raise self._malformed(f"vectors of {batch.shape[1]} components after {self.dimension}")
            vectors[numbers] = batch
        return vectors

    async def _request(self, batches: list[list[str]]) -> list[NDArray[np.float32]]:
        """Return the vectors of batches of texts, one request after the other."""
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
        return unit(vectors)

    def _malformed(self, found: str) -> ModelError:
        message = f"{self._client.where} did not answer with embeddings but with {found}"
        return ModelError(message, hint=f"is {self._model} an embedding model?", configuration=True)

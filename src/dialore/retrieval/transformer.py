"""Embeddings by a sentence-transformers model: slower and better than static ones (extra `sentence-transformers`)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from dialore.errors import InputError, MissingExtraError
from dialore.retrieval.fingerprint import digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer


class SentenceTransformerEmbedder:
    """A sentence-transformers model (Reimers and Gurevych, 2019) by name or folder.

    Args:
        model: a model's name at the Hugging Face hub, or a local folder.
        batch_size: texts encoded at once.
        device: `cpu`, `cuda`, ...; None: the best there is.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
        InputError: no such model, or it cannot be loaded.
    """

    def __init__(self, model: str, *, batch_size: int = 64, device: str | None = None) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise MissingExtraError("the embedder 'st'", "sentence-transformers") from error
        try:
            self._model = SentenceTransformer(model, device=device)
        except (OSError, ValueError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise InputError(
                f"cannot load the sentence-transformers model {model!r}: {reason}",
                mend="check the name, or give a local folder",
            ) from error
        self.name = f"st:{model}"
        self._batch_size = batch_size
        self.dimension = int(self._model.get_sentence_embedding_dimension() or self._encode(["a"]).shape[1])
        self.fingerprint = digest("sentence-transformers", _weights_hash(self._model))

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (len(texts), dimension) unit rows; zero for a blank text."""
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        filled = [at for at, text in enumerate(texts) if text.strip()]
        if filled:
            vectors[filled] = self._encode([texts[at] for at in filled])
        return vectors

    def _encode(self, texts: list[str]) -> NDArray[np.float32]:
        rows = self._model.encode(
            texts,
            batch_size=self._batch_size,
            normalize_embeddings=True,
            convert_to_numpy=True,
            show_progress_bar=False,
        )
        return np.asarray(rows, dtype=np.float32)


def _weights_hash(model: SentenceTransformer) -> str:
    """Hash every parameter, because a name or a folder may come to mean other weights."""
    total = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        total.update(name.encode())
        total.update(np.ascontiguousarray(tensor.detach().cpu().float().numpy()).data)
    return total.hexdigest()

"""Embeddings by a sentence encoder in ONNX, e.g. all-MiniLM-L6-v2 in int8: no torch, 23 MB (extra `onnx`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.errors import InputError, MissingExtraError
from dialore.retrieval.fingerprint import digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_MEND = "make one with scripts/export_minilm_onnx.py"


class OnnxEmbedder:
    """Mean-pooled states of a BERT-like encoder (Reimers and Gurevych, 2019), run by ONNX Runtime on the CPU.

    Args:
        folder: holds `model.onnx` (inputs `input_ids`, `attention_mask` and perhaps `token_type_ids`; its first output
            the last layer's states) and `tokenizer.json`.
        batch_size: texts encoded at once; they are batched by length, so that little is padding.
        longest: tokens of a text that are read.
        threads: threads of one batch; batches of short texts are no faster on more.

    Raises:
        MissingExtraError: onnxruntime or tokenizers is not installed.
        InputError: the folder lacks its files, or they are something else.
    """

    def __init__(self, folder: str | Path, *, batch_size: int = 32, longest: int = 256, threads: int = 1) -> None:
        try:
            import onnxruntime
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingExtraError("the embedder 'onnx'", "onnx") from error
        path = Path(folder)
        for name in ("model.onnx", "tokenizer.json"):
            if not (path / name).is_file():
                raise InputError(f"no ONNX model in {path}: {name} is missing", mend=_MEND)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        try:
            self._tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
            self._session = onnxruntime.InferenceSession(
                str(path / "model.onnx"), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            # Both libraries raise bare exceptions of their own for a file that they cannot read.
            raise InputError(f"cannot load the ONNX model in {path}: {_first_line(error)}", mend=_MEND) from error
        # Files made for training cut and pad to a length of their own.
        self._tokenizer.enable_truncation(longest)
        self._tokenizer.enable_padding(pad_id=self._tokenizer.token_to_id("[PAD]") or 0)
        self._inputs = {item.name for item in self._session.get_inputs()}
        self._batch_size = batch_size
        self.name = f"onnx:{folder}"
        weights = (path / "model.onnx").read_bytes()
        self.fingerprint = digest("onnx", digest(weights.hex()), digest((path / "tokenizer.json").read_text("utf-8")))
        self.dimension = int(self._run(["a"]).shape[1])

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (len(texts), dimension) unit rows; zero for a blank text."""
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        filled = sorted((at for at, text in enumerate(texts) if text.strip()), key=lambda at: len(texts[at]))
        for start in range(0, len(filled), self._batch_size):
            batch = filled[start : start + self._batch_size]
            vectors[batch] = self._run([texts[at] for at in batch])
        return vectors

    def _run(self, texts: list[str]) -> NDArray[np.float32]:
        encodings = self._tokenizer.encode_batch(texts)
        ids = np.array([encoding.ids for encoding in encodings], dtype=np.int64)
        mask = np.array([encoding.attention_mask for encoding in encodings], dtype=np.int64)
        feed: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        states = self._session.run(None, {name: feed[name] for name in self._inputs})[0]
        shares = mask[:, :, None].astype(np.float32)
        pooled = (states * shares).sum(axis=1)
        lengths = np.linalg.norm(pooled, axis=1, keepdims=True)
        unit: NDArray[np.float32] = (pooled / np.where(lengths > 0, lengths, 1)).astype(np.float32)
        return unit


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]

"""Embedders: texts in, unit vectors out. The protocol, and `load_embedder`, which makes one from a short spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from dialore.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray


@runtime_checkable
class Embedder(Protocol):
    """Anything that turns texts into vectors whose dot product is their cosine."""

    @property
    def name(self) -> str:
        """The spec that loads it again."""
        ...

    @property
    def dimension(self) -> int:
        """Components of a vector."""
        ...

    @property
    def fingerprint(self) -> str:
        """A stable hash of the model and its version; an index built under another one does not fit."""
        ...

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (len(texts), dimension) L2-normalised rows; the zero vector for a text without content."""
        ...


_KINDS = {"static": "", "onnx": "onnx:FOLDER", "st": "st:NAME", "endpoint": "endpoint:MODEL@URL"}
"""The kinds of embedders, and how those are written that need a model's name."""


def load_embedder(spec: str = "static") -> Embedder:
    """Make an embedder from its spec.

    Args:
        spec: `static` (shipped, English and Chinese), `static:FOLDER` (another distilled model), `onnx:FOLDER` (a
            sentence encoder in ONNX), `st:NAME` (a sentence-transformers model or folder) or `endpoint:MODEL@URL` (an
            OpenAI-compatible server; without `@URL`, the one that `DIALORE_BASE_URL` or `OPENAI_BASE_URL` names).

    Raises:
        UnknownNameError: no embedder is called that.
        InputError: the spec lacks its model, or a needed file or setting is missing.
        MissingExtraError: `onnx:` without the `onnx` extra, `st:` without `sentence-transformers`.
    """
    kind, _, argument = spec.partition(":")
    if kind not in _KINDS:
        raise UnknownNameError("embedder", kind, _KINDS)
    if _KINDS[kind] and not argument:
        raise InputError(f"the embedder {kind!r} needs a model's name", mend=f"write {_KINDS[kind]}")
    if kind == "static":
        from dialore.retrieval.static import StaticEmbedder

        return StaticEmbedder(argument or None)
    from dialore.retrieval import encoders

    if kind == "onnx":
        return encoders.OnnxEmbedder(argument)
    if kind == "st":
        return encoders.SentenceTransformerEmbedder(argument)
    model, at, url = argument.rpartition("@http")
    return encoders.EndpointEmbedder(model, "http" + url) if at else encoders.EndpointEmbedder(argument)

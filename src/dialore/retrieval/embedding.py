"""Embedders: texts in, unit vectors out. The protocol, and `load_embedder`, which makes one from a short spec."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from dialore.errors import InputError, UnknownNameError

if TYPE_CHECKING:
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
        """Return (len(texts), dimension) L2-normalised rows (but see `dot:`); zero for a text without content."""
        ...


_KINDS = {"static": "", "onnx": "onnx:FOLDER", "st": "st:NAME", "dot": "dot:NAME", "endpoint": "endpoint:MODEL@URL"}
"""The kinds of embedders, and how those are written that need a model's name."""
CACHED_VECTORS = 4096


def load_embedder(spec: str = "static") -> Embedder:
    """Make an embedder from its spec.

    Args:
        spec: `static` (shipped, English and Chinese), `static:FOLDER` (another distilled model), `onnx:FOLDER` (a
            sentence encoder in ONNX), `st:NAME` (a sentence-transformers model or folder), `dot:NAME` (the same, its
            vectors as long as they are: samples compared by it have their dot product, as DPR's) or
            `endpoint:MODEL@URL` (an OpenAI-compatible server; without `@URL`, the one that `DIALORE_BASE_URL` or
            `OPENAI_BASE_URL` names).

    Raises:
        UnknownNameError: no embedder is called that.
        InputError: the spec lacks its model, or a needed file or setting is missing.
        MissingExtraError: `onnx:` without the `onnx` extra, `st:` or `dot:` without `sentence-transformers`.
    """
    kind, _, argument = spec.partition(":")
    if kind not in _KINDS:
        raise UnknownNameError("embedder", kind, _KINDS)
    if _KINDS[kind] and not argument:
        raise InputError(f"the embedder {kind!r} needs a model's name", hint=f"write {_KINDS[kind]}")
    if kind == "static":
        from dialore.retrieval.static import StaticEmbedder, static_embedder

        return StaticEmbedder(argument) if argument else static_embedder()
    from dialore.retrieval import encoders

    if kind == "onnx":
        return encoders.OnnxEmbedder(argument)
    if kind in {"st", "dot"}:
        return encoders.SentenceTransformerEmbedder(argument, kind)
    model, at, url = argument.rpartition("@http")
    return encoders.EndpointEmbedder(model, "http" + url) if at else encoders.EndpointEmbedder(argument)


class CachedEmbedder:
    """Keeps the vectors of the latest texts, which come again at every turn. Default: the shipped embedder."""

    def __init__(self, embedder: Embedder | None = None, most: int = CACHED_VECTORS) -> None:
        self._given, self._most = embedder, most
        self._vectors: dict[str, NDArray[np.float32]] = {}
        self._lock = threading.Lock()

    @functools.cached_property
    def _embedder(self) -> Embedder:
        return load_embedder() if self._given is None else self._given

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Embedder`."""
        with self._lock:
            known = {text: self._vectors[text] for text in texts if text in self._vectors}
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            known |= zip(new, self._embedder.encode(new), strict=True)
        with self._lock:
            for text, vector in known.items():  # what was asked last stays longest
                self._vectors.pop(text, None)
                self._vectors[text] = vector
            for text in list(self._vectors)[: -self._most]:
                del self._vectors[text]
        return np.stack([known[text] for text in texts])


def recorded_embedder(
    spec: str, fingerprint: str, where: str, addresses: Iterable[str | None] = (), given: Embedder | None = None
) -> Embedder:
    """Return the embedder that a file names, which may be anybody's: a file does not decide where text and keys go.

    `addresses` are URLs and specs of the user's settings; `given` is the embedder that the user says made the vectors.

    Raises:
        InputError: an endpoint at an address that the user's settings do not name, or another version of the embedder.
    """
    url = _address(spec) if given is None else ""
    if url and url not in map(_address, (*addresses, *map(os.environ.get, ("DIALORE_BASE_URL", "OPENAI_BASE_URL")))):
        hint = f"if you trust it, set DIALORE_BASE_URL={url}, or name another embedder; else build it again"
        raise InputError(f"{where} would send texts to {url}, which your settings do not name", hint=hint)
    embedder = given or load_embedder(spec)
    if embedder.fingerprint != fingerprint:
        hint = "build it again, or give the embedder that it was built with"
        raise InputError(f"{where} has vectors of another version of the embedder {spec}", hint=hint)
    return embedder


def _address(named: str | None) -> str:
    """Return the address of a URL or of an endpoint's spec, in one form; empty where there is none."""
    from dialore.llm.http import endpoint_url, redact_url

    head, at, tail = (named or "").strip().rpartition("@http")
    url = f"http{tail}" if at and head.startswith("endpoint:") else (named or "").strip()
    return redact_url(endpoint_url(url)) if url.startswith("http") else ""

"""Reranking: some hundred texts in memory put in order for a query; `load_reranker` makes what does it by name."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dialore.errors import InputError, UnknownNameError, first_line, import_optional
from dialore.retrieval.bm25 import Bm25, okapi_rarity
from dialore.retrieval.embedding import CachedEmbedder, Embedder, load_embedder
from dialore.retrieval.fusion import DECIMALS, best, fuse_scores
from dialore.text import segmenter

_DECIMALS = 6
_LONGEST = 256  # tokens of a query with a text that a cross-encoder in ONNX reads
_CACHED_TEXTS = 4096
"""Texts of which a BM25 reranker keeps the tokens: a dialogue's persona is ranked again at every turn."""
_INDICES = 64  # sets of texts that a BM25 reranker keeps, likewise


@runtime_checkable
class Reranker(Protocol):
    """Anything that puts texts in order for a query. Calls block: in a coroutine, use a thread."""

    @property
    def name(self) -> str:
        """The spec that loads it again."""
        ...

    def rerank(self, query: str, texts: Sequence[str], top: int) -> list[tuple[int, float]]:
        """Return indices of the `top` texts with scores, which do not compare with another query's, the best first."""
        ...


@dataclass(frozen=True, slots=True)
class ScoreReranker:
    """Texts in order of their scores (len(texts),) for the query; of equal ones the first first, or last in reverse."""

    name: str
    scores: Callable[[str, Sequence[str]], NDArray[np.float64]]
    reverse: bool = False

    def rerank(self, query: str, texts: Sequence[str], top: int) -> list[tuple[int, float]]:
        """See `Reranker`; raises ModelError where the embedder is an endpoint that failed."""
        scores = self.scores(query, texts)
        rows, chosen = best(scores[::-1] if self.reverse else scores, top, decimals=_DECIMALS)
        places = len(texts) - 1 - rows if self.reverse else rows
        return list(zip(places.tolist(), chosen.tolist(), strict=True))


def bm25_reranker() -> ScoreReranker:
    """Rank by BM25 over the candidates alone, so that a word is rare where few of them have it; see `Bm25`."""
    index = functools.lru_cache(_INDICES)(Bm25)
    return ScoreReranker("bm25", lambda query, texts: index(tuple(texts)).scores(query))


def _okapi_reranker() -> ScoreReranker:
    """BM25 as rank_bm25's `BM25Okapi` has it over jieba's tokens, punctuation and spaces included: SAFARI's BM25."""
    tokeniser = functools.lru_cache(_CACHED_TEXTS)(segmenter().lcut)
    index = functools.lru_cache(_INDICES)(functools.partial(Bm25, tokeniser=tokeniser, rarity=okapi_rarity, k1=1.5))
    return ScoreReranker("okapi", lambda query, texts: index(tuple(texts)).scores(query), reverse=True)


def dense_reranker(embedder: Embedder | None = None) -> ScoreReranker:
    """Rank by the cosine of sentence embeddings, rounded so that rankings are the same everywhere."""
    cached = CachedEmbedder(embedder)

    def cosines(query: str, texts: Sequence[str]) -> NDArray[np.float64]:
        vectors = cached.encode([query, *texts])
        rounded: NDArray[np.float64] = np.round(vectors[1:] @ vectors[0], DECIMALS).astype(np.float64)
        return rounded

    return ScoreReranker("dense" if embedder is None else f"dense:{embedder.name}", cosines)


def fused_reranker(embedder: Embedder | None = None) -> ScoreReranker:
    """Rank by BM25 and embeddings fused by their scores; see `fuse_scores`."""
    lexical, dense = bm25_reranker(), dense_reranker(embedder)
    name = "fused" + dense.name.removeprefix("dense")
    return ScoreReranker(name, lambda *asked: fuse_scores(lexical.scores(*asked), dense.scores(*asked)))


def cross_encoder_reranker(model: str) -> ScoreReranker:
    """Rank by a cross-encoder, reading both texts together (Nogueira and Cho, 2019); raises like `load_reranker`."""
    library = import_optional("sentence_transformers", "the reranker 'cross'", "sentence-transformers")
    try:
        encoder = library.CrossEncoder(model)
    except (OSError, ValueError) as error:
        message = f"cannot load the cross-encoder {model!r}: {first_line(error)}"
        raise InputError(message, hint="check the name, or give a local folder") from error
    if encoder.num_labels != 1:
        message = f"the cross-encoder {model!r} gives {encoder.num_labels} scores a pair"
        raise InputError(message, hint="take one that was trained for ranking, with one score")
    lock = threading.Lock()  # fast tokenizers cannot be used by two threads at once

    def scores(query: str, texts: Sequence[str]) -> NDArray[np.float64]:
        with lock:
            made = encoder.predict([(query, text) for text in texts], show_progress_bar=False) if texts else []
        return np.asarray(made, dtype=np.float64)

    return ScoreReranker(f"cross:{model}", scores)


def _onnx_reranker(folder: str) -> ScoreReranker:
    """Rank by a cross-encoder run by ONNX Runtime, without torch; see `OnnxCrossEncoder`."""
    from dialore.retrieval.encoders import OnnxCrossEncoder

    model = OnnxCrossEncoder(folder, _LONGEST)
    return ScoreReranker(f"onnx:{folder}", lambda query, texts: model.logits([(query, text) for text in texts]))


@functools.lru_cache(maxsize=8)
def load_reranker(spec: str = "dense") -> Reranker:
    """Return the reranker of a spec; it is loaded once, and what it has read of texts serves all who ask it.

    Args:
        spec: `bm25`; `okapi` (SAFARI's BM25); `dense` (the shipped static embedder) or `dense:EMBEDDER` (see
            `load_embedder`, e.g. `dense:st:NAME`); `fused` or `fused:EMBEDDER`; `cross:NAME` (a cross-encoder by name
            or folder); `onnx:FOLDER` (one in ONNX).

    Raises:
        UnknownNameError: no reranker, or no embedder, is called that.
        InputError: the spec lacks its model or has one too many, or the model cannot be loaded.
        MissingExtraError: `cross:` or `st:` without the `sentence-transformers` extra, `onnx:` without `onnx`.
    """
    kind, _, argument = spec.partition(":")
    if kind not in RERANKERS:
        raise UnknownNameError("reranker", kind, RERANKERS)
    if kind in {"bm25", "okapi"}:
        if argument:
            raise InputError(f"the reranker {kind!r} takes no argument, got {argument!r}", hint=f"write {kind}")
        return bm25_reranker() if kind == "bm25" else _okapi_reranker()
    if kind in {"cross", "onnx"}:
        if not argument:
            raise InputError(f"the reranker {kind!r} needs a model's name", hint=f"write {kind}:NAME")
        return cross_encoder_reranker(argument) if kind == "cross" else _onnx_reranker(argument)
    embedder = load_embedder(argument) if argument else None
    return dense_reranker(embedder) if kind == "dense" else fused_reranker(embedder)


RERANKERS = ("bm25", "okapi", "dense", "fused", "cross", "onnx")
"""The specs that `load_reranker` knows."""

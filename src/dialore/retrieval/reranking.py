"""Reranking: a handful of texts put in order for a query. The protocol, and `load_reranker`, which makes one by name.

Made for up to some hundreds of candidates that are in memory already: a persona's sentences, the passages of a few web
pages. Equal scores keep the order in which the texts came.
"""

from __future__ import annotations

import functools
import math
import threading
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from dialore.errors import InputError, MissingExtraError, UnknownNameError
from dialore.retrieval.embedding import load_embedder
from dialore.retrieval.ranking import DECIMALS
from dialore.text import is_chinese, lemmas, stem, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dialore.retrieval.embedding import Embedder

_K = 60
"""Of reciprocal-rank fusion (Cormack, Clarke and Büttcher, 2009)."""
_REMEMBERED = 4096
"""Vectors that a dense reranker keeps: a dialogue's persona is ranked again at every turn."""


@runtime_checkable
class Reranker(Protocol):
    """Anything that puts texts in order for a query. Calls block: in a coroutine, use a thread."""

    @property
    def name(self) -> str:
        """The spec that loads it again."""
        ...

    def rerank(self, query: str, texts: Sequence[str], top: int) -> list[tuple[int, float]]:
        """Indices of the `top` texts with their scores, the best first; scores of two queries do not compare.

        Raises:
            InputError: `top` is negative.
        """
        ...


class Bm25Reranker:
    """BM25 (Robertson and Zaragoza, 2009) over the candidates alone, by stems; Chinese is cut by jieba.

    Args:
        k1: how soon more of the same word stops to count.
        b: how much a text's length counts, 0 to 1.
    """

    name = "bm25"

    def __init__(self, *, k1: float = 1.2, b: float = 0.75) -> None:
        self._k1, self._b = k1, b

    def rerank(self, query: str, texts: Sequence[str], top: int) -> list[tuple[int, float]]:
        """See `Reranker`; a text without any word of the query scores 0."""
        return _best(self.scores(query, texts), top)

    def scores(self, query: str, texts: Sequence[str]) -> NDArray[np.float64]:
        """(len(texts),): the BM25 score of each."""
        wanted = Counter(terms(query))
        counts = [Counter(terms(text)) for text in texts]
        lengths = [count.total() for count in counts]
        mean = sum(lengths) / max(1, len(lengths)) or 1.0
        having = Counter(word for count in counts for word in count.keys() & wanted.keys())
        rarity = {word: math.log(1 + (len(texts) - n + 0.5) / (n + 0.5)) for word, n in having.items()}
        scores = np.zeros(len(texts))
        for at, count in enumerate(counts):
            long = self._k1 * (1 - self._b + self._b * lengths[at] / mean)
            scores[at] = sum(
                wanted[word] * rarity[word] * count[word] * (self._k1 + 1) / (count[word] + long)
                for word in sorted(count.keys() & wanted.keys())
            )
        return scores


@functools.lru_cache(maxsize=_REMEMBERED)
def terms(text: str) -> tuple[str, ...]:
    """The words of a text as BM25 compares them: English ones as stems, Chinese ones as jieba cuts them."""
    if is_chinese(text):
        return tuple(stem(word) for word in words(text, "zh"))
    return tuple(stem(word) for word in lemmas(text, "en"))


class DenseReranker:
    """The cosine of sentence embeddings.

    Args:
        embedder: what embeds; None: the shipped static embedder, loaded at the first call.
    """

    def __init__(self, embedder: Embedder | None = None) -> None:
        self._given = embedder
        self._vectors: OrderedDict[str, NDArray[np.float32]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """`dense`, or `dense:` and the embedder's spec."""
        return "dense" if self._given is None else f"dense:{self._given.name}"

    @functools.cached_property
    def _embedder(self) -> Embedder:
        return load_embedder() if self._given is None else self._given

    def rerank(self, query: str, texts: Sequence[str], top: int) -> list[tuple[int, float]]:
        """See `Reranker`.

        Raises:
            ModelError: the embedder is an endpoint that failed.
        """
        return _best(self.scores(query, texts), top)

    def scores(self, query: str, texts: Sequence[str]) -> NDArray[np.float64]:
        """(len(texts),): the cosine of each with the query, rounded so that rankings are the same everywhere."""
        if not texts:
            return np.zeros(0)
        vectors = self._encode([query, *texts])
        scores: NDArray[np.float64] = np.round(vectors[1:] @ vectors[0], DECIMALS).astype(np.float64)
        return scores

    def _encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        with self._lock:
            known = {text: self._vectors[text] for text in texts if text in self._vectors}
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            known |= zip(new, self._embedder.encode(new), strict=True)
        with self._lock:
            for text, vector in known.items():
                self._vectors[text] = vector
                self._vectors.move_to_end(text)
            while len(self._vectors) > _REMEMBERED:
                self._vectors.popitem(last=False)
        return np.stack([known[text] for text in texts])


class FusedReranker:
    """BM25 and embeddings fused by reciprocal ranks; 1 is what is first in both.

    Args:
        embedder: see `DenseReranker`.
        lexical_weight: BM25's share, 0 to 1.
    """

    def __init__(self, embedder: Embedder | None = None, *, lexical_weight: float = 0.5) -> None:
        self._lexical, self._dense = Bm25Reranker(), DenseReranker(embedder)
        self._weight = lexical_weight

    @property
    def name(self) -> str:
        """`fused`, or `fused:` and the embedder's spec."""
        return "fused" + self._dense.name.removeprefix("dense")

    def rerank(self, query: str, texts: Sequence[str], top: int) -> list[tuple[int, float]]:
        """See `Reranker`.

        Raises:
            ModelError: the embedder is an endpoint that failed.
        """
        lexical, dense = self._lexical.scores(query, texts), self._dense.scores(query, texts)
        fused = self._weight * _reciprocal(lexical) + (1 - self._weight) * _reciprocal(dense)
        return _best(fused, top)


class CrossEncoderReranker:
    """A cross-encoder that reads query and text together (Nogueira and Cho, 2019): slower, and the most exact.

    Args:
        model: a model's name at the Hugging Face hub (`cross-encoder/ms-marco-MiniLM-L-6-v2`), or a local folder.
        batch_size: pairs read at once.
        device: `cpu`, `cuda`, ...; None: the best there is.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
        InputError: no such model, it cannot be loaded, or it gives more than one score a pair.
    """

    def __init__(self, model: str, *, batch_size: int = 32, device: str | None = None) -> None:
        try:
            from sentence_transformers import CrossEncoder
        except ImportError as error:
            raise MissingExtraError("the reranker 'cross'", "sentence-transformers") from error
        try:
            self._model: Any = CrossEncoder(model, device=device)
        except (OSError, ValueError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            mend = "check the name, or give a local folder"
            raise InputError(f"cannot load the cross-encoder {model!r}: {reason}", mend=mend) from error
        if self._model.num_labels != 1:
            message = f"the cross-encoder {model!r} gives {self._model.num_labels} scores a pair"
            raise InputError(message, mend="take one that was trained for ranking, with one score")
        self.name = f"cross:{model}"
        self._batch_size = batch_size
        self._lock = threading.Lock()

    def rerank(self, query: str, texts: Sequence[str], top: int) -> list[tuple[int, float]]:
        """See `Reranker`."""
        if not texts:
            return _best(np.zeros(0), top)
        # Fast tokenizers cannot be used by two threads at once.
        with self._lock:
            scores = self._model.predict(
                [(query, text) for text in texts], batch_size=self._batch_size, show_progress_bar=False
            )
        return _best(np.asarray(scores, dtype=np.float64), top)


def load_reranker(spec: str = "dense") -> Reranker:
    """Make a reranker from its spec.

    Args:
        spec: `bm25`; `dense` (the shipped static embedder) or `dense:EMBEDDER` (see `load_embedder`, e.g.
            `dense:st:NAME`); `fused` or `fused:EMBEDDER`; `cross:NAME` (a cross-encoder by name or folder).

    Raises:
        UnknownNameError: no reranker, or no embedder, is called that.
        InputError: the spec lacks its model or has one too many, or the model cannot be loaded.
        MissingExtraError: `cross:` or `st:` without the `sentence-transformers` extra.
    """
    kind, _, argument = spec.partition(":")
    if kind not in RERANKERS:
        raise UnknownNameError("reranker", kind, RERANKERS)
    if kind == "bm25":
        if argument:
            raise InputError(f"the reranker 'bm25' takes no argument, got {argument!r}", mend="write bm25")
        return Bm25Reranker()
    if kind == "cross":
        if not argument:
            raise InputError("the reranker 'cross' needs a model's name", mend="write cross:NAME")
        return CrossEncoderReranker(argument)
    embedder = load_embedder(argument) if argument else None
    return DenseReranker(embedder) if kind == "dense" else FusedReranker(embedder)


RERANKERS = ("bm25", "dense", "fused", "cross")
"""What `load_reranker` knows."""


def _reciprocal(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 for the best, less for those behind; equal scores share the better rank."""
    rising = np.sort(scores)
    better = len(scores) - np.searchsorted(rising, scores, side="right")
    return (_K + 1) / (_K + 1 + better)


def _best(scores: NDArray[np.float64], top: int) -> list[tuple[int, float]]:
    if top < 0:
        raise InputError(f"top must not be negative, got {top}")
    order = np.argsort(-scores, kind="stable")[:top]
    return [(int(at), float(scores[at])) for at in order]

"""Retrieval: embedders, BM25, exact ranking and fusion. Names are loaded when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.retrieval.bm25 import Bm25, Tokeniser
    from dialore.retrieval.embedding import Embedder, load_embedder
    from dialore.retrieval.ranking import Quantised, quantise, rank, rank_quantised, reciprocal_ranks
    from dialore.retrieval.reranking import Reranker, load_reranker

__all__ = [
    "Bm25",
    "Embedder",
    "Quantised",
    "Reranker",
    "Tokeniser",
    "load_embedder",
    "load_reranker",
    "quantise",
    "rank",
    "rank_quantised",
    "reciprocal_ranks",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.retrieval.bm25": ["Bm25", "Tokeniser"],
        "dialore.retrieval.embedding": ["Embedder", "load_embedder"],
        "dialore.retrieval.ranking": ["Quantised", "quantise", "rank", "rank_quantised", "reciprocal_ranks"],
        "dialore.retrieval.reranking": ["Reranker", "load_reranker"],
    },
)

"""Retrieval: embedders and exact ranking. Names are loaded when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.retrieval.cutting import Cutter
    from dialore.retrieval.embedding import Embedder, load_embedder
    from dialore.retrieval.endpoint import EndpointEmbedder
    from dialore.retrieval.fusion import reciprocal_ranks
    from dialore.retrieval.hashing import HashingEmbedder
    from dialore.retrieval.lexical import Bm25, Hit
    from dialore.retrieval.onnx import OnnxEmbedder
    from dialore.retrieval.ranking import Quantised, quantise, rank, rank_quantised
    from dialore.retrieval.static import StaticEmbedder
    from dialore.retrieval.transformer import SentenceTransformerEmbedder

__all__ = [
    "Bm25",
    "Cutter",
    "Embedder",
    "EndpointEmbedder",
    "HashingEmbedder",
    "Hit",
    "OnnxEmbedder",
    "Quantised",
    "SentenceTransformerEmbedder",
    "StaticEmbedder",
    "load_embedder",
    "quantise",
    "rank",
    "rank_quantised",
    "reciprocal_ranks",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.retrieval.cutting": ["Cutter"],
        "dialore.retrieval.embedding": ["Embedder", "load_embedder"],
        "dialore.retrieval.endpoint": ["EndpointEmbedder"],
        "dialore.retrieval.fusion": ["reciprocal_ranks"],
        "dialore.retrieval.hashing": ["HashingEmbedder"],
        "dialore.retrieval.lexical": ["Bm25", "Hit"],
        "dialore.retrieval.onnx": ["OnnxEmbedder"],
        "dialore.retrieval.ranking": ["Quantised", "quantise", "rank", "rank_quantised"],
        "dialore.retrieval.static": ["StaticEmbedder"],
        "dialore.retrieval.transformer": ["SentenceTransformerEmbedder"],
    },
)

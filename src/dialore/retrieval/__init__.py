"""Retrieval: embedders, BM25, exact ranking, fusion and reranking."""

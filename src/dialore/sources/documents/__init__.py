"""Documents as a source of knowledge: an index of passages in a folder. Names are loaded when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.sources.documents.appending import Piece
    from dialore.sources.documents.building import DocumentReport, add_documents, build_documents, delete_documents
    from dialore.sources.documents.chunking import Chunking
    from dialore.sources.documents.editing import compact
    from dialore.sources.documents.index import RETRIEVERS, DocumentIndex
    from dialore.sources.documents.reading import FILE_FORMATS
    from dialore.sources.documents.several import SeveralDocuments, open_documents

__all__ = [
    "FILE_FORMATS",
    "RETRIEVERS",
    "Chunking",
    "DocumentIndex",
    "DocumentReport",
    "Piece",
    "SeveralDocuments",
    "add_documents",
    "build_documents",
    "compact",
    "delete_documents",
    "open_documents",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.sources.documents.appending": ["Piece"],
        "dialore.sources.documents.building": [
            "DocumentReport",
            "add_documents",
            "build_documents",
            "delete_documents",
        ],
        "dialore.sources.documents.chunking": ["Chunking"],
        "dialore.sources.documents.editing": ["compact"],
        "dialore.sources.documents.index": ["RETRIEVERS", "DocumentIndex"],
        "dialore.sources.documents.reading": ["FILE_FORMATS"],
        "dialore.sources.documents.several": ["SeveralDocuments", "open_documents"],
    },
)

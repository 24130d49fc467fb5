"""Documents as a source of knowledge: an index of passages in a file or a database. Names are loaded when used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.sources.documents.building import DocumentReport, add_documents, build_documents, delete_documents
    from dialore.sources.documents.chunking import Chunking
    from dialore.sources.documents.index import RETRIEVERS, DocumentIndex, SeveralDocuments, open_documents
    from dialore.sources.documents.reading import FILE_FORMATS
    from dialore.sources.documents.tables import Piece

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
    "delete_documents",
    "open_documents",
]

_BUILDING = ["DocumentReport", "add_documents", "build_documents", "delete_documents"]
__getattr__ = lazy_names(
    __name__,
    {
        "dialore.sources.documents.building": _BUILDING,
        "dialore.sources.documents.chunking": ["Chunking"],
        "dialore.sources.documents.index": ["RETRIEVERS", "DocumentIndex", "SeveralDocuments", "open_documents"],
        "dialore.sources.documents.reading": ["FILE_FORMATS"],
        "dialore.sources.documents.tables": ["Piece"],
    },
)

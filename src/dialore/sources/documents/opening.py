"""Documents as users name them, opened: indices, and plain files and folders, whose index is kept in the cache."""

from __future__ import annotations

import hashlib
import logging
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from dialore import __version__
from dialore.cache import cache_folder
from dialore.errors import InputError
from dialore.sources.documents.building import add_documents, build_documents
from dialore.sources.documents.index import DocumentIndex, SeveralDocuments
from dialore.sources.documents.reading import format_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.sources.base import KnowledgeSource
    from dialore.sources.documents.index import Retriever

log = logging.getLogger(__name__)

_POOL = "pool:"


def open_documents(
    paths: Sequence[Path | str], *, retriever: Retriever = "fused", embedder: str | None = None
) -> KnowledgeSource:
    """Open documents as one source: indices (files or addresses), and plain files and folders, which are read first.

    What is named twice is opened once. `embedder` is the spec that the user's settings name: an index whose vectors an
    endpoint made asks it at that address.

    `pool:` is each dialogue's own sentences, ranked by the embedder, or as `pool:RERANKER` says.

    Raises:
        InputError: none is named, or as `DocumentIndex` and `build_documents` do.
    """
    if not paths:
        raise InputError("no document index is named", mend="give --documents PATH")
    if str(paths[0]).startswith(_POOL):
        from dialore.sources.pool import PoolSource

        return PoolSource(str(paths[0]).removeprefix(_POOL) or (f"dense:{embedder}" if embedder else "dense"))
    with ExitStack() as failed:
        distinct = dict.fromkeys(path.resolve() if isinstance(path, Path) else path for path in paths)
        opened = [
            failed.enter_context(DocumentIndex(_index_of(path), retriever=retriever, addresses=[embedder]))
            for path in distinct
        ]
        failed.pop_all()
    return opened[0] if len(opened) == 1 else SeveralDocuments(opened)


def _index_of(path: Path | str) -> Path | str:
    """The index of a plain file or folder, made or brought up to date; any other path is an index itself."""
    plain = Path(path)
    if "://" in str(path) or not (plain.is_dir() or (plain.is_file() and format_of(plain))):
        return path
    name = hashlib.sha256(f"{__version__} {plain.resolve()}".encode("utf-8", "surrogateescape")).hexdigest()[:20]
    index = cache_folder() / "documents" / f"{name}.idx"
    if index.exists():
        report = add_documents(index, [plain], prune=True)
    else:
        index.parent.mkdir(parents=True, exist_ok=True)
        report = build_documents(index, [plain], name=plain.resolve().stem)
    for sentence in (*report.rejects, *report.notices):
        log.warning("%s", sentence)
    return index

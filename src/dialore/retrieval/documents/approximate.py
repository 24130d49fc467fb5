"""An approximate index of an index file's vectors: a graph of neighbours (HNSW, by usearch) in a file beside it.

It only proposes passages. Their scores are computed from the vectors in the index file, where deleted passages are
gone, and passages that were added since are compared exactly. So an old file costs time, and never gives a wrong score.
The index file says which file is valid: one that a killed writer left behind is not read.
"""

from __future__ import annotations

import re
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dialore.errors import MissingExtraError
from dialore.files import written_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

APPROXIMATE_FROM = 200_000
"""Passages from which on an approximate index is made; among fewer, exact search takes milliseconds."""
GROWN = 0.1
"""The share of passages that it may lack before it is brought up to date."""
_CONNECTIONS, _BREADTH_ADDING, _BREADTH = 32, 128, 512
"""HNSW's M, efConstruction and ef: recall is .99 of exact search among 164,593 sentences, .98 among three million."""
BATCH = 50_000
"""Vectors that are added at once."""


def _graph(dimension: int) -> Any:  # noqa: ANN401 - usearch is imported when first used
    """Return an empty graph; raises MissingExtraError without usearch."""
    try:
        from usearch.index import Index
    except ImportError:
        raise MissingExtraError("approximate search", "approximate") from None
    return Index(
        ndim=dimension,
        metric="cos",
        dtype="i8",
        connectivity=_CONNECTIONS,
        expansion_add=_BREADTH_ADDING,
        expansion_search=_BREADTH,
    )


def extend(
    index: Path,
    former: str,
    dimension: int,
    batches: Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]],
    on_batch: Callable[[int], None],
) -> str:
    """Write a new approximate index beside an index file, and return its file's name.

    The former one, if it has a name, is extended by the batches of numbers and vectors that it lacks; `on_batch` is
    told after each how many were added. Raises InputError where it cannot be written; MissingExtraError.
    """
    graph = _graph(dimension)
    if former:
        graph.load(str(index.with_name(former)))
    added = 0
    for numbers, vectors in batches:
        graph.add(numbers, vectors)
        added += len(numbers)
        on_batch(added)
    name = f"{index.name}.{secrets.token_hex(4)}.hnsw"
    with written_whole(index.with_name(name)) as temporary:
        graph.save(str(temporary))
    return name


def sweep(index: Path, valid: str) -> None:
    """Delete all approximate indexes of an index file but the valid one, and what killed writers left half written."""
    own = re.compile(rf"\.?{re.escape(index.name)}\.[0-9a-f]{{8}}\.hnsw(?:\.\d+\.tmp)?")  # not those of NAME.old
    for path in index.parent.iterdir():
        if own.fullmatch(path.name) and path.name != valid:
            with suppress(OSError):  # some systems do not delete what a reader has open: the next change will
                path.unlink()


def open_approximate(path: Path, dimension: int) -> Any:  # noqa: ANN401 - as above
    """Return an approximate index, its file mapped into memory; raises OSError where that cannot be read."""
    path.stat()
    graph = _graph(dimension)
    try:
        graph.view(str(path))
    except RuntimeError as error:
        raise OSError(str(error)) from error
    return graph

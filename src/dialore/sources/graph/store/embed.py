"""Vectors of a graph that is being built: each word is cut into the embedder's parts once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from dialore.retrieval.embedding import Embedder
from dialore.sources.graph.facts.relations import connecting_words
from dialore.sources.graph.store.vectors import RESERVED, PartVectors, in_a_row, quantised
from dialore.text import is_chinese

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_BATCH = 4096


@runtime_checkable
class LinearEmbedder(Embedder, Protocol):
    """An embedder whose vector of a text is the normalised sum of its parts' sums."""

    def sums(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return (len(texts), dimension) unnormalised sums."""
        ...

    def parts(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        """Each text's parts by number; those of a text are those of its words, and their sums add up to its own."""
        ...

    def part_sums(self, parts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (len(parts), dimension) unnormalised sums."""
        ...


def parts_of_names(
    names: Sequence[str], embedder: LinearEmbedder, step: Callable[[str, int, int], None]
) -> list[NDArray[np.int64]]:
    """Each concept's parts, by the embedder's numbers."""
    known: dict[str, NDArray[np.int64]] = {}
    made: list[NDArray[np.int64]] = []
    for start in range(0, len(names), _BATCH):
        cut = [_words(name) for name in names[start : start + _BATCH]]
        new = [word for word in dict.fromkeys(word for words in cut for word in words) if word not in known]
        known.update(zip(new, embedder.parts(new), strict=True))
        made.extend(known[words[0]] if len(words) == 1 else np.concatenate([known[w] for w in words]) for words in cut)
        step("embedding concepts", min(start + _BATCH, len(names)), len(names))
    return made


def _words(name: str) -> list[str]:
    # Chinese is cut by what stands around it.
    return [name] if is_chinese(name) else name.split() or [name]


def part_vectors(made: Sequence[NDArray[np.int64]], embedder: LinearEmbedder) -> tuple[PartVectors, NDArray[np.uint32]]:
    """Concepts' parts numbered anew, without those that no concept has, and their numbers in the embedder."""
    # The embedder's numbers move up by one, so that NOTHING is none of them.
    flat, ends = in_a_row([parts + RESERVED for parts in made])
    used = np.flatnonzero(np.bincount(flat, minlength=RESERVED))
    used = used[used >= RESERVED]
    new_number = np.zeros(int(flat.max(initial=0)) + 1, np.int64)
    new_number[used] = np.arange(RESERVED, len(used) + RESERVED)
    rows, scales = quantised(embedder.part_sums(used - RESERVED))
    dtype = np.uint16 if len(used) + RESERVED <= np.iinfo(np.uint16).max else np.uint32
    vectors = PartVectors(
        np.concatenate([np.zeros((RESERVED, embedder.dimension), np.int8), rows]),
        np.concatenate([np.ones(RESERVED, np.float32), scales]),
        ends,
        new_number[flat].astype(dtype),
    )
    return vectors, np.concatenate([np.zeros(RESERVED, np.uint32), (used - RESERVED).astype(np.uint32)])


def relation_sums(relations: Sequence[str], embedder: LinearEmbedder) -> NDArray[np.float32]:
    """(n, dimension): the unnormalised sum of each relation's words."""
    # Both languages share a space, so the English wording serves the facts of either.
    return embedder.sums([connecting_words(relation, "en") for relation in relations]).astype(np.float32)


class ConceptMatrix:
    """All concepts' vectors at once, one byte a component, for as long as a build needs them again and again.

    Args:
        vectors: the concepts as parts.
        concepts: how many.
    """

    def __init__(self, vectors: PartVectors, concepts: int) -> None:
        self._rows = np.empty((concepts, vectors.rows.shape[1]), np.int8)
        self._scales = np.empty(concepts, np.float32)
        for start in range(0, concepts, _BATCH):
            some = slice(start, min(start + _BATCH, concepts))
            sums = vectors.sums(np.arange(some.start, some.stop, dtype=np.uint32))
            scales = np.maximum(np.maximum(sums.max(axis=1), -sums.min(axis=1)), 1e-6) / np.float32(127)
            sums /= scales[:, None]
            self._rows[some] = np.rint(sums, out=sums)
            self._scales[some] = scales

    def sums(self, concepts: NDArray[np.uint32]) -> NDArray[np.float32]:
        """(n, dimension): each concept's unnormalised vector, to about a half percent."""
        found: NDArray[Any] = self._rows[concepts].astype(np.float32)
        found *= self._scales[concepts][:, None]
        return found

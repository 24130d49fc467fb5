"""The training responses as sparse word vectors: turns, their answers, and the pieces that the answers stand on."""

from __future__ import annotations

import functools
import hashlib
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.errors import import_optional
from dialore.text import CHINESE_RUN, close_gaps, normalise, stem

sparse = import_optional("scipy.sparse", "trained models", "learn")

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue

    Floats = NDArray[np.float32]
    Integers = NDArray[np.int64]

SIZE = 1 << 13
"""Number of buckets that words, Chinese characters and pairs of characters are hashed to."""
_WORD = re.compile(r"[a-z0-9]+")
_MATRICES = ("asked", "answered", "uses")
_ARRAYS = ("idf", "dialogues", "keys", "offered", "labels")
_ARRAY_FILE = "arrays.npz"


@functools.lru_cache(maxsize=1 << 16)
def _bucket(term: str) -> int:
    return zlib.crc32(term.encode()) % SIZE


@functools.lru_cache(maxsize=8192)
def _count_buckets(text: str) -> tuple[Integers, Integers]:
    """Return the buckets of a text in ascending order, and how often each occurs."""
    folded = normalise(close_gaps(text))
    buckets = [_bucket(stem(word)) for word in _WORD.findall(folded)]
    for run in CHINESE_RUN.findall(folded):
        buckets += [_bucket(character) for character in run]
        buckets += [_bucket(run[start : start + 2]) for start in range(len(run) - 1)]
    return np.unique(np.array(buckets, np.int64), return_counts=True)


def word_weights(text: str, idf: Floats) -> tuple[Integers, Floats]:
    """Return the buckets of a text, and their counts weighted by rarity, as a unit vector."""
    buckets, counts = _count_buckets(text)
    weights = np.log1p(counts) * idf[buckets]
    return buckets, (weights / max(float(np.sqrt(weights @ weights)), 1e-9)).astype(np.float32)


def word_vectors(texts: Sequence[str], idf: Floats) -> Any:  # noqa: ANN401 - scipy has no types
    """Return the weights of texts as a sparse matrix of shape (len(texts), SIZE)."""
    weighted = [word_weights(text, idf) for text in texts]
    ends = np.cumsum([0, *(len(buckets) for buckets, _ in weighted)])
    buckets = np.concatenate([np.zeros(0, np.int64), *(buckets for buckets, _ in weighted)])
    weights = np.concatenate([np.zeros(0, np.float32), *(weights for _, weights in weighted)])
    return sparse.csr_matrix((weights, buckets, ends), (len(texts), SIZE))


def inverse_frequencies(texts: Sequence[str]) -> Floats:
    """Return an array of shape (SIZE,): the rarity of each bucket among texts."""
    occurrences = np.concatenate([np.zeros(0, np.int64), *(_count_buckets(text)[0] for text in texts)])
    frequencies = np.bincount(occurrences, None, SIZE)
    return np.maximum(np.log((len(texts) + 1) / (frequencies + 0.5)), 0).astype(np.float32)


def key_of(text: str) -> int:
    """Return the key of a piece in `TrainingIndex`: a hash of the text without spaces between Chinese words."""
    return int.from_bytes(hashlib.blake2b(close_gaps(text).encode(), digest_size=8).digest(), "big")


@dataclass
class TrainingIndex:
    """The training responses, and which pieces (persona sentences and documents) each of them stands on.

    Attributes:
        idf: Rarity of each bucket.
        asked: Vectors of the turns that were answered, a row per response.
        answered: Vectors of the responses.
        dialogues: Number of each response's dialogue.
        uses: Responses that stand on each piece: a Boolean matrix of shape (pieces, responses).
        keys: Key of each piece.
        offered: Number of dialogues that have each piece.
        labels: Class of each response, for classifiers; otherwise empty.
    """

    idf: Floats
    asked: Any
    answered: Any
    dialogues: Integers
    uses: Any
    keys: NDArray[np.uint64]
    offered: Integers
    labels: Integers

    @classmethod
    def build(
        cls, dialogues: Sequence[Dialogue], numbers: Integers, gold: Sequence[Sequence[str]], labels: Integers
    ) -> TrainingIndex:
        """Return the index of responses.

        Args:
            dialogues: The history before each response.
            numbers: Number of the whole dialogue that each history belongs to.
            gold: The pieces that each response stands on.
            labels: Class of each response, or nothing.
        """
        texts = dict.fromkeys(text for dialogue in dialogues for text in (*pieces_of(dialogue), *dialogue.texts))
        idf = inverse_frequencies(list(texts))
        offered: dict[int, set[int]] = {}
        for dialogue, number in zip(dialogues, numbers.tolist(), strict=True):
            for text in pieces_of(dialogue):
                offered.setdefault(key_of(text), set()).add(number)
        keys = np.array(sorted(offered), np.uint64)
        rows = {key: row for row, key in enumerate(keys.tolist())}
        pairs = [
            (rows[key_of(text)], response)
            for response, texts_of_gold in enumerate(gold)
            for text in texts_of_gold
            if key_of(text) in rows
        ]
        pieces, responses = np.array(pairs, np.int64).reshape(-1, 2).T
        shape = (len(keys), len(dialogues))
        return cls(
            idf=idf,
            asked=word_vectors([dialogue.turns[-1].text for dialogue in dialogues], idf),
            answered=word_vectors([dialogue.reference or "" for dialogue in dialogues], idf),
            dialogues=numbers,
            uses=sparse.csr_matrix((np.ones(len(pieces), bool), (pieces, responses)), shape),
            keys=keys,
            offered=np.array([len(offered[key]) for key in keys.tolist()], np.int64),
            labels=labels,
        )

    @functools.cached_property
    def classes(self) -> list[Integers]:
        """The responses of each class."""
        return [np.flatnonzero(self.labels == label) for label in range(int(self.labels.max()) + 1)]

    @functools.cached_property
    def _rows(self) -> dict[int, int]:
        return {key: row for row, key in enumerate(self.keys.tolist())}

    def find(self, text: str) -> tuple[Integers, int]:
        """Return the responses that stand on a piece, and the number of dialogues that have it."""
        row = self._rows.get(key_of(text))
        if row is None:
            return np.zeros(0, np.int64), 0
        return self.uses.indices[slice(*self.uses.indptr[row : row + 2])], int(self.offered[row])

    @functools.lru_cache(maxsize=256)  # noqa: B019 - an index lives as long as its model
    def similarities(self, text: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the cosines of a text with every answered turn, and with every response."""
        buckets, weights = word_weights(text, self.idf)
        table = self._by_bucket
        responses, products = [np.zeros(0, np.int64)], [np.zeros(0)]
        for bucket, weight in zip(buckets.tolist(), weights.tolist(), strict=True):
            span = slice(table.indptr[bucket], table.indptr[bucket + 1])
            responses.append(table.indices[span])
            products.append(table.data[span] * weight)
        sums = np.zeros(table.shape[1])
        sums += np.bincount(np.concatenate(responses), np.concatenate(products), len(sums))
        return sums[: len(sums) // 2], sums[len(sums) // 2 :]

    @functools.cached_property
    def _by_bucket(self) -> Any:  # noqa: ANN401
        """A row per bucket with the answered turns, then the responses: only the buckets of a text are read."""
        return sparse.vstack([self.asked, self.answered]).T.tocsr()

    def __hash__(self) -> int:
        return id(self)

    def save(self, folder: Path) -> None:
        """Write the index into a model's folder."""
        for name in _MATRICES:
            sparse.save_npz(folder / f"{name}.npz", getattr(self, name))
        np.savez_compressed(folder / _ARRAY_FILE, **{name: getattr(self, name) for name in _ARRAYS})

    @classmethod
    def load(cls, folder: Path) -> TrainingIndex:
        """Return the index in a model's folder."""
        matrices = {name: sparse.load_npz(folder / f"{name}.npz") for name in _MATRICES}
        with np.load(folder / _ARRAY_FILE, allow_pickle=False) as arrays:
            return cls(**matrices, **arrays)


def pieces_of(dialogue: Dialogue) -> list[str]:
    """Return the persona sentences and documents of a data set's dialogue."""
    return [*dialogue.persona, *chain.from_iterable(dialogue.extra.get("documents", {}).values())]

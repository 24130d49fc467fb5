"""The training data as rarity-weighted counts: turns, their answers, and the pieces that they stand on."""

from __future__ import annotations

import functools
import hashlib
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.learned.dialogue_ranking import close_gaps
from dialore.text import CHINESE_RUN, normalise, stem

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue

    Matrix = NDArray[np.float32]
    Numbers = NDArray[np.int64]

SIZE = 1 << 13
"""Buckets that characters, pairs of characters and words are hashed to."""
_WORD = re.compile(r"[a-z0-9]+")


@functools.lru_cache(maxsize=1 << 16)
def _bucket(piece: str) -> int:
    return zlib.crc32(piece.encode()) % SIZE


@functools.lru_cache(maxsize=8192)
def count_buckets(text: str) -> tuple[Numbers, NDArray[np.float64]]:
    """Return the buckets of a text, and how often each comes."""
    folded = normalise(close_gaps(text))
    hashes = [_bucket(stem(word)) for word in _WORD.findall(folded)]
    for run in CHINESE_RUN.findall(folded):
        hashes += map(_bucket, run)
        hashes += [_bucket(run[at : at + 2]) for at in range(len(run) - 1)]
    buckets, counts = np.unique(np.array(hashes, np.int64), return_counts=True)
    return buckets, counts.astype(np.float64)


def weigh_buckets(text: str, idf: Matrix) -> tuple[Numbers, NDArray[np.float32]]:
    """Return a text's buckets and their rarity-weighted counts, of length 1 together."""
    buckets, counts = count_buckets(text)
    weights = np.log1p(counts) * idf[buckets]
    return buckets, (weights / max(np.sqrt((weights**2).sum()), 1e-9)).astype(np.float32)


def key_of(text: str) -> int:
    """Return a text's key in `TrainingIndex`: a hash of it without the spaces between Chinese words."""
    return int.from_bytes(hashlib.blake2b(close_gaps(text).encode(), digest_size=8).digest(), "big")


class Rows:
    """Texts as rows of a sparse matrix: rarity-weighted counts, of length 1."""

    def __init__(self, buckets: Numbers, counts: NDArray[np.float64], lengths: Numbers, idf: Matrix) -> None:
        self.buckets, self.counts, self.lengths = buckets, counts, lengths
        self.starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        weights = np.log1p(counts) * idf[buckets]
        norms = np.sqrt(np.bincount(np.repeat(np.arange(len(lengths)), lengths), weights**2, len(lengths)))
        self.weights = (weights / np.repeat(np.maximum(norms, 1e-9), lengths)).astype(np.float32)

    @classmethod
    def of(cls, texts: Sequence[str], idf: Matrix) -> Rows:
        """Return the rows of texts."""
        counted_texts = [count_buckets(text) for text in texts]
        buckets, counts = ([np.zeros(0, np.int64), *(counts_of[at] for counts_of in counted_texts)] for at in (0, 1))
        lengths = np.array([len(counts_of[0]) for counts_of in counted_texts], np.int64)
        return cls(np.concatenate(buckets).astype(np.int64), np.concatenate(counts), lengths, idf)

    @classmethod
    def read(cls, saved: Mapping[str, NDArray[Any]], name: str) -> Rows:
        """Return the rows of saved arrays."""
        buckets, counts, lengths = (saved[f"{name}-{part}"] for part in ("buckets", "counts", "lengths"))
        return cls(buckets.astype(np.int64), counts.astype(np.float64), lengths.astype(np.int64), saved["idf"])

    @functools.cached_property
    def postings(self) -> tuple[Numbers, NDArray[np.float32], Numbers]:
        """Rows and weights by bucket, and where each bucket's begin."""
        order = np.argsort(self.buckets, kind="stable")
        rows = np.repeat(np.arange(len(self.lengths)), self.lengths)[order]
        return rows, self.weights[order], np.searchsorted(self.buckets[order], np.arange(SIZE + 1))

    def cosines(self, text: str, idf: Matrix) -> NDArray[np.float64]:
        """Return the cosine of each row with a text."""
        buckets, own = weigh_buckets(text, idf)
        rows, weights, starts = self.postings
        spans = [slice(starts[bucket], starts[bucket + 1]) for bucket in buckets.tolist()]
        at = np.concatenate([np.zeros(0, np.int64), *(rows[span] for span in spans)])
        shares = np.concatenate([np.zeros(0), *(weights[span] * own[row] for row, span in enumerate(spans))])
        return np.asarray(np.bincount(at, shares, len(self.lengths)), float)


@dataclass
class TrainingIndex:
    """The training data: the answered turns, their answers, and which pieces they stand on.

    Attributes:
        idf: (SIZE,) the rarity of each bucket.
        asked, answered: the turns and their answers, a row a response.
        dialogues: the number of each response's dialogue.
        uses: the responses that stand on a piece, by its key.
        offered: how many dialogues have the piece, by its key.
    """

    idf: Matrix
    asked: Rows
    answered: Rows
    dialogues: Numbers
    uses: dict[int, Numbers]
    offered: dict[int, int]

    @classmethod
    def of(cls, dialogues: Sequence[Dialogue], numbers: Numbers, gold: Sequence[Sequence[str]]) -> TrainingIndex:
        """Return the past of training dialogues, each of a whole dialogue by number, with the pieces it stands on."""
        idf = rarities(list(dict.fromkeys(text for talk in dialogues for text in (*texts_of(talk), *talk.texts))))
        uses: dict[int, list[int]] = {}
        offered: dict[int, int] = {}
        for at, pieces in enumerate(gold):
            for piece in pieces:
                uses.setdefault(key_of(piece), []).append(at)
        for talk in {int(number): dialogue for number, dialogue in zip(numbers, dialogues, strict=True)}.values():
            for key in set(map(key_of, texts_of(talk))):
                offered[key] = offered.get(key, 0) + 1
        asked = Rows.of([talk.turns[-1].text for talk in dialogues], idf)
        answered = Rows.of([talk.reference or "" for talk in dialogues], idf)
        return cls(idf, asked, answered, numbers, {key: np.array(at) for key, at in uses.items()}, offered)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that it is saved as."""
        saved: dict[str, NDArray[Any]] = {"idf": self.idf, "dialogues": self.dialogues.astype(np.int32)}
        for name, rows in (("asked", self.asked), ("answered", self.answered)):
            saved[f"{name}-buckets"] = rows.buckets.astype(np.uint16)
            saved[f"{name}-counts"] = rows.counts.astype(np.uint8)
            saved[f"{name}-lengths"] = rows.lengths.astype(np.uint16)
        keys = sorted(self.offered)
        saved["keys"] = np.array(keys, np.uint64)
        saved["offered"] = np.array([self.offered[key] for key in keys], np.int32)
        saved["used"] = np.array([len(self.uses.get(key, ())) for key in keys], np.int32)
        saved["uses"] = np.concatenate([np.zeros(0), *(self.uses.get(key, ()) for key in keys)]).astype(np.int32)
        return saved

    @classmethod
    def read(cls, saved: Mapping[str, NDArray[Any]]) -> TrainingIndex:
        """Return the past of the arrays of `arrays`."""
        asked, answered = (Rows.read(saved, name) for name in ("asked", "answered"))
        keys = saved["keys"].tolist()
        uses = np.split(saved["uses"].astype(np.int64), np.cumsum(saved["used"])[:-1]) if keys else []
        offered = dict(zip(keys, saved["offered"].tolist(), strict=True))
        kept = {key: at for key, at in zip(keys, uses, strict=True) if len(at)}
        return cls(saved["idf"], asked, answered, saved["dialogues"].astype(np.int64), kept, offered)


def rarities(texts: Sequence[str]) -> Matrix:
    """(SIZE,): how rare each bucket is among texts."""
    frequency = np.bincount(
        np.concatenate([np.zeros(0, np.int64), *(count_buckets(text)[0] for text in texts)]), None, SIZE
    )
    return np.maximum(np.log((len(texts) + 1) / (frequency + 0.5)), 0).astype(np.float32)


def texts_of(dialogue: Dialogue) -> list[str]:
    """Return the persona sentences and documents that a dialogue of a data set brings along."""
    return [*dialogue.persona, *chain.from_iterable(dialogue.extra.get("documents", {}).values())]

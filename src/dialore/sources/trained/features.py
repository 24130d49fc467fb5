"""What trained parts look at: how a dialogue's turns stand to each persona sentence and document.

A piece is compared with the turns by itself and by its past: the turns that were answered with it in the training data,
and their answers. A piece that training has not seen has no past, and counts by its words and its place alone.
"""

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

from dialore.retrieval.reranking import Remembered
from dialore.sources.dialogue_ranking import joined
from dialore.text import CHINESE_RUN, normalise, stem

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue

    Matrix = NDArray[np.float32]
    Numbers = NDArray[np.int64]

SIZE = 1 << 13
"""Buckets that characters, pairs of characters and words are hashed to."""
_WORD = re.compile(r"[a-z0-9]+")
_REMEMBERED = 256
_TOLD = 0.6
"""The share of a piece's words, by rarity, in a turn of the responder from which the piece counts as told."""


@functools.lru_cache(maxsize=1 << 16)
def _bucket(piece: str) -> int:
    return zlib.crc32(piece.encode()) % SIZE


@functools.lru_cache(maxsize=8192)
def counted(text: str) -> tuple[Numbers, NDArray[np.float64]]:
    """The buckets of a text, and how often each comes."""
    folded = normalise(joined(text))
    found = [_bucket(stem(word)) for word in _WORD.findall(folded)]
    for run in CHINESE_RUN.findall(folded):
        found += map(_bucket, run)
        found += [_bucket(run[at : at + 2]) for at in range(len(run) - 1)]
    buckets, counts = np.unique(np.array(found, np.int64), return_counts=True)
    return buckets, counts.astype(np.float64)


def key_of(text: str) -> int:
    """A text's key in `Past`; a persona sentence's is that of its text without spaces between Chinese words."""
    return int.from_bytes(hashlib.blake2b(joined(text).encode(), digest_size=8).digest(), "big")


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
        """The rows of texts."""
        found = [counted(text) for text in texts]
        buckets, counts = ([np.zeros(0, np.int64), *(each[at] for each in found)] for at in (0, 1))
        lengths = np.array([len(each[0]) for each in found], np.int64)
        return cls(np.concatenate(buckets).astype(np.int64), np.concatenate(counts), lengths, idf)

    @classmethod
    def read(cls, saved: Mapping[str, NDArray[Any]], name: str) -> Rows:
        """The rows of saved arrays."""
        buckets, counts, lengths = (saved[f"{name}-{part}"] for part in ("buckets", "counts", "lengths"))
        return cls(buckets.astype(np.int64), counts.astype(np.float64), lengths.astype(np.int64), saved["idf"])

    @functools.cached_property
    def postings(self) -> tuple[Numbers, NDArray[np.float32], Numbers]:
        """Rows and weights by bucket, and where each bucket's begin."""
        order = np.argsort(self.buckets, kind="stable")
        rows = np.repeat(np.arange(len(self.lengths)), self.lengths)[order]
        return rows, self.weights[order], np.searchsorted(self.buckets[order], np.arange(SIZE + 1))

    def cosines(self, text: str, idf: Matrix) -> NDArray[np.float64]:
        """The cosine of each row with a text."""
        own = Rows.of([text], idf)
        rows, weights, starts = self.postings
        spans = [slice(starts[bucket], starts[bucket + 1]) for bucket in own.buckets]
        at = np.concatenate([np.zeros(0, np.int64), *(rows[span] for span in spans)])
        shares = np.concatenate(
            [np.zeros(0), *(weights[span] * own.weights[place] for place, span in enumerate(spans))]
        )
        return np.asarray(np.bincount(at, shares, len(self.lengths)), float)


@dataclass
class Past:
    """What training has seen: the answered turns, their answers, and which pieces they stand on.

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
    def of(cls, dialogues: Sequence[Dialogue], numbers: Numbers, gold: Sequence[Sequence[str]]) -> Past:
        """The past of training dialogues, each of a whole dialogue by number, with the pieces it stands on."""
        idf = rarities(list(dict.fromkeys(text for one in dialogues for text in (*texts_of(one), *one.texts))))
        uses: dict[int, list[int]] = {}
        offered: dict[int, int] = {}
        for at, pieces in enumerate(gold):
            for piece in pieces:
                uses.setdefault(key_of(piece), []).append(at)
        for one in {int(number): dialogue for number, dialogue in zip(numbers, dialogues, strict=True)}.values():
            for key in set(map(key_of, texts_of(one))):
                offered[key] = offered.get(key, 0) + 1
        asked = Rows.of([one.turns[-1].text for one in dialogues], idf)
        answered = Rows.of([one.reference or "" for one in dialogues], idf)
        return cls(idf, asked, answered, numbers, {key: np.array(at) for key, at in uses.items()}, offered)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that it is saved as."""
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
    def read(cls, saved: Mapping[str, NDArray[Any]]) -> Past:
        """The past of the arrays of `arrays`."""
        asked, answered = (Rows.read(saved, name) for name in ("asked", "answered"))
        keys = saved["keys"].tolist()
        uses = np.split(saved["uses"].astype(np.int64), np.cumsum(saved["used"])[:-1]) if keys else []
        offered = dict(zip(keys, saved["offered"].tolist(), strict=True))
        kept = {key: at for key, at in zip(keys, uses, strict=True) if len(at)}
        return cls(saved["idf"], asked, answered, saved["dialogues"].astype(np.int64), kept, offered)


def rarities(texts: Sequence[str]) -> Matrix:
    """(SIZE,): how rare each bucket is among texts."""
    frequency = np.bincount(np.concatenate([np.zeros(0, np.int64), *(counted(text)[0] for text in texts)]), None, SIZE)
    return np.maximum(np.log((len(texts) + 1) / (frequency + 0.5)), 0).astype(np.float32)


def texts_of(dialogue: Dialogue) -> list[str]:
    """The persona sentences and documents that a dialogue of a data set brings along."""
    return [*dialogue.persona, *chain.from_iterable(dialogue.extra.get("documents", {}).values())]


class Pool:
    """A dialogue's persona sentences, each with its documents, ready to be compared with turns.

    Args:
        past: what training has seen.
        persona: the documents under each sentence, in order.
        sentences: off: the pool has the documents alone.
        leave: the number of a training dialogue whose responses are left out of the past: its own.
    """

    def __init__(
        self, past: Past, persona: Mapping[str, Sequence[str]], *, sentences: bool = True, leave: int = -1
    ) -> None:
        self.past = past
        self.count = len(persona) if sentences else 0
        own = list(persona)[: self.count]
        self.texts = [*own, *chain.from_iterable(persona.values())]
        """The sentences, then the documents."""
        self.sizes = [len(under) for under in persona.values()]
        rows = Rows.of(self.texts, past.idf)
        at = np.repeat(np.arange(len(self.texts)), rows.lengths)
        self._weights = np.zeros((len(self.texts), SIZE), np.float32)
        self._weights[at, rows.buckets] = rows.weights
        self._has = self._weights > 0
        self._mass = np.maximum(self._has @ past.idf, 1e-9)
        self.lengths = np.array([len(joined(text)) for text in self.texts], np.float32)
        self._vectors = VECTORS.encode([joined(text) for text in self.texts])
        self._remember(leave)
        self._turns: dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]] = {}

    def _remember(self, leave: int) -> None:
        past, keys = self.past, [key_of(text) for text in self.texts]
        uses = [past.uses.get(key, np.zeros(0, np.int64)) for key in keys]
        if leave >= 0:
            uses = [at[past.dialogues[at] != leave] for at in uses]
        counts = np.array([len(at) for at in uses], np.float32)
        offered = np.array([past.offered.get(key, 0) - (leave >= 0) for key in keys], np.float32)
        self.prior = np.stack([np.log1p(counts), (counts + 1) / (np.maximum(offered, 0) + 3)], 1)
        every = np.concatenate([np.zeros(0, np.int64), *uses])
        groups = np.cumsum([0, *(len(at) + 1 for at in uses)])
        self._group_starts = groups[:-1]
        self._group_sizes = np.maximum(counts, 1)
        # Each group begins with an empty row, so that none is without rows.
        place = np.arange(len(every)) + np.repeat(np.arange(len(uses)), counts.astype(np.int64)) + 1
        self._rows = []
        for rows in (past.asked, past.answered):
            lengths = np.ones(groups[-1], np.int64)
            lengths[place] = np.maximum(rows.lengths[every], 1)
            starts = np.concatenate([[0], np.cumsum(lengths)])
            buckets, weights = np.zeros(starts[-1], np.int64), np.zeros(starts[-1], np.float32)
            taken = _spans(rows.starts[every], rows.lengths[every])
            put = _spans(starts[place], rows.lengths[every])
            buckets[put], weights[put] = rows.buckets[taken], rows.weights[taken]
            self._rows.append((buckets, weights, starts[:-1]))

    def turn(self, text: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(texts, 8): how a turn stands to each text; and (texts, buckets of the turn): which of its words each has."""
        found = self._turns.get(text)
        if found is None:
            rows = Rows.of([text], self.past.idf)
            dense = np.zeros(SIZE, np.float32)
            dense[rows.buckets] = rows.weights
            has = self._has[:, rows.buckets].astype(np.float32)
            idf = self.past.idf[rows.buckets]
            shared = has @ idf
            columns = [
                self._weights[:, rows.buckets] @ rows.weights,
                shared / self._mass,
                shared / max(float(idf.sum()), 1e-9),
                self._vectors @ VECTORS.encode([joined(text)])[0],
            ]
            for buckets, weights, starts in self._rows:
                each = np.add.reduceat(dense[buckets] * weights, starts)
                columns.append(np.maximum.reduceat(each, self._group_starts))
                columns.append(np.add.reduceat(each, self._group_starts) / self._group_sizes)
            found = self._turns[text] = np.stack(columns, 1).astype(np.float32), has
        return found

    def compare(self, dialogue: Dialogue) -> NDArray[np.float32]:
        """(texts, BASE): how the dialogue so far stands to each text, whatever the others are."""
        last, _ = self.turn(dialogue.turns[-1].text)
        nothing = np.zeros((1, *last.shape), np.float32)
        earlier = dialogue.turns[:-1]
        told = [self.turn(turn.text)[0] for turn in earlier if turn.speaker == dialogue.responder]
        asked = [self.turn(turn.text)[0] for turn in earlier if turn.speaker != dialogue.responder]
        told_, asked_ = np.stack([*nothing, *told]), np.stack([*nothing, *asked])
        older = told_[:-1].max(0) if told else nothing[0]
        return np.concatenate(
            [
                last,
                told_[-1][:, [0, 1, 3, 6]],
                asked_[-1][:, [0, 3, 4]],
                told_.max(0)[:, [0, 1, 6]],
                older[:, [1, 6]],
                asked_.max(0)[:, [0]],
                self.prior,
                self.lengths[:, None],
            ],
            1,
        )

    def rarity(self, dialogue: Dialogue, starts: Sequence[int], end: int) -> NDArray[np.float32]:
        """(end - starts[0], 1): the words shared with the last turn, by how few of a group's texts have them."""
        has = self.turn(dialogue.turns[-1].text)[1]
        found = []
        for start, stop in zip(starts, [*starts[1:], end], strict=True):
            frequency = has[start:stop].sum(0)
            weights = np.log(1 + (stop - start - frequency + 0.5) / (frequency + 0.5))
            found.append(has[start:stop] @ weights)
        return np.concatenate(found)[:, None].astype(np.float32)


def softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares of 1 along the last axis."""
    shares: NDArray[np.float64] = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    return shares


VECTORS = Remembered()
"""The embeddings of texts that come again at every turn."""


def _spans(starts: Numbers, lengths: Numbers) -> Numbers:
    """The places of spans, one after the other."""
    ends = np.cumsum(lengths)
    places: Numbers = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
    return places


def above_others(features: NDArray[np.float32], starts: Sequence[int]) -> NDArray[np.float32]:
    """How far each row of a group is above the best of the others; a lone one is 0 above."""
    sizes = np.diff([*starts, len(features)])
    best = np.repeat(np.maximum.reduceat(features, starts), sizes, 0)
    is_best = features == best
    second = np.maximum.reduceat(np.where(is_best, -np.inf, features), starts)
    several = np.add.reduceat(is_best.astype(np.int8), starts) > 1
    other = np.where(is_best & ~np.repeat(several, sizes, 0), np.repeat(second, sizes, 0), best)
    return np.where(np.isinf(other), 0, features - other).astype(np.float32)


def document_features(
    pool: Pool, dialogue: Dialogue, compared: NDArray[np.float32], *, beside: str = "", whole: bool = False
) -> NDArray[np.float32]:
    """(documents, ...): each document against the others under its sentence, or with `whole` against all.

    `beside` is what a query has besides the last turn: the sentence found before, where all documents are looked at.
    """
    sizes = [len(compared) - pool.count] if whole else [size for size in pool.sizes if size]
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    mine = np.concatenate(
        [compared[pool.count :], pool.rarity(dialogue, [pool.count + at for at in starts], len(compared))], 1
    )
    if whole:
        mine = np.concatenate([mine, pool.turn(beside)[0][pool.count :, :4]], 1)
    place = np.concatenate([np.arange(size) for size in sizes])
    latest = [at + int(np.argmax(mine[at : at + size, 9])) for at, size in zip(starts, sizes, strict=True)]
    told = np.add.reduceat(mine[:, 16] > _TOLD, starts, dtype=np.float32)
    means = np.add.reduceat(mine, starts) / np.array(sizes)[:, None]
    sides = [place, place - np.repeat(place[latest], sizes), np.repeat(told, sizes)]
    sides.append(np.full(len(mine), len(dialogue.turns) // 2))
    return np.concatenate(
        [mine, mine - np.repeat(means, sizes, 0), above_others(mine, starts), np.stack(sides, 1)], 1
    ).astype(np.float32)


def sentence_features(pool: Pool, dialogue: Dialogue, compared: NDArray[np.float32]) -> NDArray[np.float32]:
    """(sentences, ...): each sentence with what is under it, against the others."""
    under = np.concatenate([compared, pool.rarity(dialogue, [0], len(compared))], 1)
    own = np.concatenate([compared[: pool.count], pool.rarity(dialogue, [0], pool.count)], 1)
    best, mean = np.zeros_like(own), np.zeros_like(own)
    told = np.zeros((pool.count, 1), np.float32)
    at = pool.count
    for row, size in enumerate(pool.sizes):
        if size:
            documents = under[at : at + size]
            best[row], mean[row] = documents.max(0), documents.mean(0)
            told[row] = (documents[:, 16] > _TOLD).sum()
        at += size
    turn = np.full((pool.count, 1), len(dialogue.turns) // 2)
    all_ = np.concatenate([own, best, mean, told, np.arange(pool.count)[:, None], turn], 1).astype(np.float32)
    return np.concatenate([all_, above_others(all_, [0])], 1)

"""Features of trained parts: how a dialogue's turns stand to each persona sentence and document.

A piece is compared with the turns by itself and by its past: the turns that were answered with it in the training data,
and their answers. A piece that training has not seen has no past, and counts by its words and its place alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from dialore.learned.dialogue_ranking import close_gaps
from dialore.learned.training_index import SIZE, Rows, TrainingIndex, key_of, weigh_buckets
from dialore.retrieval.reranking import CachedEmbedder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue

    Numbers = NDArray[np.int64]

_TOLD = 0.6
"""The share of a piece's words, by rarity, in a turn of the responder from which the piece counts as told."""


class Pool:
    """A dialogue's persona sentences, each with its documents, ready to be compared with turns.

    Args:
        past: what training has seen.
        persona: the documents under each sentence, in order.
        sentences: off: the pool has the documents alone.
        leave: the number of a training dialogue whose responses are left out of the past: its own.
    """

    def __init__(
        self, past: TrainingIndex, persona: Mapping[str, Sequence[str]], *, sentences: bool = True, leave: int = -1
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
        self.lengths = np.array([len(close_gaps(text)) for text in self.texts], np.float32)
        self._vectors = VECTORS.encode([close_gaps(text) for text in self.texts])
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
        position = np.arange(len(every)) + np.repeat(np.arange(len(uses)), counts.astype(np.int64)) + 1
        self._rows = []
        for rows in (past.asked, past.answered):
            lengths = np.ones(groups[-1], np.int64)
            lengths[position] = np.maximum(rows.lengths[every], 1)
            starts = np.concatenate([[0], np.cumsum(lengths)])
            buckets, weights = np.zeros(starts[-1], np.int64), np.zeros(starts[-1], np.float32)
            taken = _spans(rows.starts[every], rows.lengths[every])
            put = _spans(starts[position], rows.lengths[every])
            buckets[put], weights[put] = rows.buckets[taken], rows.weights[taken]
            self._rows.append((buckets, weights, starts[:-1]))

    def turn(self, text: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(texts, 8): how a turn stands to each text; and (texts, buckets of the turn): which of its words each has."""
        compared = self._turns.get(text)
        if compared is None:
            own, weights_of_own = weigh_buckets(text, self.past.idf)
            dense = np.zeros(SIZE, np.float32)
            dense[own] = weights_of_own
            has = self._has[:, own].astype(np.float32)
            idf = self.past.idf[own]
            columns = np.empty((len(self.texts), 8), np.float32)
            columns[:, 0] = self._weights[:, own] @ weights_of_own
            shared = has @ idf
            columns[:, 1], columns[:, 2] = shared / self._mass, shared / max(float(idf.sum()), 1e-9)
            columns[:, 3] = self._vectors @ VECTORS.encode([close_gaps(text)])[0]
            for group, (buckets, weights, starts) in enumerate(self._rows):
                products = np.add.reduceat(dense[buckets] * weights, starts)
                columns[:, 4 + 2 * group] = np.maximum.reduceat(products, self._group_starts)
                columns[:, 5 + 2 * group] = np.add.reduceat(products, self._group_starts) / self._group_sizes
            compared = self._turns[text] = columns, has
        return compared

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
        columns = []
        for start, stop in zip(starts, [*starts[1:], end], strict=True):
            frequency = has[start:stop].sum(0)
            weights = np.log(1 + (stop - start - frequency + 0.5) / (frequency + 0.5))
            columns.append(has[start:stop] @ weights)
        return np.concatenate(columns)[:, None].astype(np.float32)


def softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares of 1 along the last axis."""
    shares: NDArray[np.float64] = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    return shares


VECTORS = CachedEmbedder()
"""The embeddings of texts that come again at every turn."""


def _spans(starts: Numbers, lengths: Numbers) -> Numbers:
    """Return the places of spans, one after the other."""
    ends = np.cumsum(lengths)
    places: Numbers = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
    return places


def above_others(features: NDArray[np.float32], starts: Sequence[int]) -> NDArray[np.float32]:
    """Return how far each row of a group is above the best of the others; a lone one is 0 above."""
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
    rank = np.concatenate([np.arange(size) for size in sizes])
    latest = [at + int(np.argmax(mine[at : at + size, 9])) for at, size in zip(starts, sizes, strict=True)]
    told = np.add.reduceat(mine[:, 16] > _TOLD, starts, dtype=np.float32)
    means = np.add.reduceat(mine, starts) / np.array(sizes)[:, None]
    sides = [rank, rank - np.repeat(rank[latest], sizes), np.repeat(told, sizes)]
    sides.append(np.full(len(mine), len(dialogue.turns) // 2))
    return np.concatenate(
        [mine, mine - np.repeat(means, sizes, 0), above_others(mine, starts), np.stack(sides, 1)], 1
    ).astype(np.float32)


def sentence_features(pool: Pool, dialogue: Dialogue, compared: NDArray[np.float32]) -> NDArray[np.float32]:
    """(sentences, ...): each sentence with what is under it, against the others."""
    width = compared.shape[1] + 1
    under = np.concatenate([compared, pool.rarity(dialogue, [0], len(compared))], 1)[pool.count :]
    features = np.zeros((pool.count, 3 * width + 3), np.float32)
    features[:, : width - 1] = compared[: pool.count]
    features[:, width - 1 : width] = pool.rarity(dialogue, [0], pool.count)
    sizes = np.array(pool.sizes)
    owners, starts = np.flatnonzero(sizes), (np.cumsum(sizes) - sizes)[sizes > 0]
    features[owners, width : 2 * width] = np.maximum.reduceat(under, starts)
    features[owners, 2 * width : 3 * width] = np.add.reduceat(under, starts) / sizes[owners, None]
    features[owners, -3] = np.add.reduceat(under[:, 16] > _TOLD, starts, dtype=int)
    features[:, -2], features[:, -1] = np.arange(pool.count), len(dialogue.turns) // 2
    return np.concatenate([features, above_others(features, [0])], 1)

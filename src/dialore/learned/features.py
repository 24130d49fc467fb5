"""Features of persona sentences and documents (pieces) for a dialogue's next response.

A piece is compared with the turns by its words and embedding, and by its past: the turns that were answered with it in
the training data, and their answers. A piece that training has not seen has no past.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from dialore.learned.index import SIZE, TrainingIndex, word_vectors, word_weights
from dialore.retrieval.embedding import CachedEmbedder
from dialore.text import close_gaps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue, Utterance

    Floats = NDArray[np.float32]

TOLD_COLUMN = 17
"""The column of `Pool.compare` with the largest share of a piece's words that one turn of the responder has."""
TOLD_SHARE = 0.6
"""Share of a piece's words, weighted by rarity, from which it counts as told."""
_TURN_COLUMNS = 8
VECTORS = CachedEmbedder()


class Pool:
    """A dialogue's persona sentences and the documents under them, ready to be compared with turns.

    Args:
        index: The training data.
        persona: The documents under each sentence.
        exclude: Number of the training dialogue whose responses are left out of the past: the dialogue itself.

    Attributes:
        texts: The sentences, then the documents.
        count: Number of sentences.
        sizes: Number of documents under each sentence.
    """

    def __init__(self, index: TrainingIndex, persona: Mapping[str, Sequence[str]], *, exclude: int = -1) -> None:
        self._index = index
        self.count = len(persona)
        self.texts = [*persona, *chain.from_iterable(persona.values())]
        self.sizes = [len(documents) for documents in persona.values()]
        self._words = word_vectors(self.texts, index.idf)
        self._rarities = (self._words > 0).multiply(index.idf).tocsr()
        self._mass = np.maximum(np.asarray(self._rarities.sum(1)).ravel(), 1e-9)
        self._vectors = VECTORS.encode([close_gaps(text) for text in self.texts])
        self._read_past(exclude)
        self._turns: dict[str, Floats] = {}

    def _read_past(self, exclude: int) -> None:
        """Collect the responses that stand on each piece, and the columns that depend on the piece alone."""
        rows, rates = [], []
        for text in self.texts:
            responses, offered = self._index.find(text)
            if exclude >= 0:
                responses = responses[self._index.dialogues[responses] != exclude]
                offered -= 1
            rates.append([np.log1p(len(responses)), (len(responses) + 1) / (max(offered, 0) + 3), len(text)])
            rows.append(responses)
        self._constants = np.array(rates, np.float32).reshape(-1, 3)
        # Each group begins with the number after the last response, whose similarity is 0: no group is empty.
        empty = len(self._index.dialogues)
        self._past = np.concatenate([np.zeros(0, np.int64), *([empty, *responses] for responses in rows)]).astype(int)
        self._past_sizes = np.array([len(responses) for responses in rows])
        self._past_starts = np.cumsum([0, *(self._past_sizes + 1)])[:-1]

    def turn(self, text: str) -> Floats:
        """Return how a turn relates to each piece: an array of shape (texts, 8)."""
        if text not in self._turns:
            buckets, weights = word_weights(text, self._index.idf)
            words = np.zeros(SIZE, np.float32)
            words[buckets] = weights
            shared = self._rarities @ (words > 0)
            columns = [
                self._words @ words,
                shared / self._mass,
                shared / max(float(self._index.idf[buckets].sum()), 1e-9),
                self._vectors @ VECTORS.encode([close_gaps(text)])[0],
            ]
            for similarities in self._index.similarities(text):
                past = np.append(similarities, 0)[self._past]
                columns.append(np.maximum.reduceat(past, self._past_starts))
                columns.append(np.add.reduceat(past, self._past_starts) / np.maximum(self._past_sizes, 1))
            self._turns[text] = np.stack(columns, 1).astype(np.float32)
        return self._turns[text]

    def compare(self, dialogue: Dialogue) -> Floats:
        """Return how the dialogue so far relates to each piece: a row per piece."""
        last = self.turn(dialogue.turns[-1].text)
        earlier = dialogue.turns[:-1]
        told = self._stack([turn for turn in earlier if turn.speaker == dialogue.responder])
        asked = self._stack([turn for turn in earlier if turn.speaker != dialogue.responder])
        return np.concatenate([last, told[-1], told.max(0), asked.max(0), self._constants], 1)

    def _stack(self, turns: Sequence[Utterance]) -> Floats:
        """Return the columns of turns, after a row of zeros that stands for no turn."""
        return np.stack(
            [np.zeros((len(self.texts), _TURN_COLUMNS), np.float32), *(self.turn(turn.text) for turn in turns)]
        )


def sentence_features(pool: Pool, dialogue: Dialogue, compared: Floats) -> Floats:
    """Return a row per persona sentence: itself and the best of the documents under it, against the other sentences."""
    best = np.zeros((pool.count, compared.shape[1]), np.float32)
    start = pool.count
    for row, size in enumerate(pool.sizes):
        if size:
            best[row] = compared[start : start + size].max(0)
        start += size
    return _against_others(np.concatenate([compared[: pool.count], best], 1), [pool.count], dialogue)


def document_features(pool: Pool, dialogue: Dialogue, compared: Floats, sentence: str | None = None) -> Floats:
    """Return a row per document, against the others under the same sentence.

    With `sentence`, documents are compared with all others, and also with this sentence.
    """
    documents = compared[pool.count :]
    beside = np.zeros((len(documents), 4), np.float32)
    if sentence is not None:
        beside = pool.turn(sentence)[pool.count :, :4]
    sizes = [len(documents)] if sentence is not None else pool.sizes
    return _against_others(np.concatenate([documents, beside], 1), sizes, dialogue)


def _against_others(columns: Floats, sizes: Sequence[int], dialogue: Dialogue) -> Floats:
    """Add to each row its lead over the other rows of its group, its position, and how much of the group was told."""
    groups = []
    start = 0
    for size in sizes:
        if not size:
            continue
        group = columns[start : start + size]
        told = np.count_nonzero(group[:, TOLD_COLUMN] > TOLD_SHARE)
        place = np.tile([0, told, len(dialogue.turns) // 2], (size, 1))
        place[:, 0] = np.arange(size)
        groups.append(np.concatenate([group, group - group.mean(0), lead(group), place], 1))
        start += size
    return np.concatenate(groups).astype(np.float32)


def lead(group: Floats) -> Floats:
    """Return how far each value is above the largest of the other rows; 0 for a single row."""
    if len(group) < 2:
        return np.zeros_like(group)
    ordered = np.sort(group, 0)
    best, second = ordered[-1], ordered[-2]
    leads: Floats = group - np.where(group == best, second, best)
    return leads


def softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return shares that add up to 1 along the last axis."""
    shares: NDArray[np.float64] = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    return shares

"""Ranking by a dialogue's turns: which persona sentence, and which document under it, the next turn stands on.

SAFARI ranks by the whole context at once, and there lexical ranking is little better than chance (its Table 5): the
context is full of knowledge that has been told already. Here each turn counts for what it is. The last turn asks, and
a response seldom tells the same thing twice; but the sentence that a dialogue is about stays the same for some turns,
and a question about it is often one about its documents. The numbers were chosen on KBP's training split, by
`scripts/measure_persona_retrieval.py`. On its development split this finds, untrained, 80.8% and 91.0% of persona
sentences (alone, and with documents) and 62.5% of documents; the paper's trained DPR, on the test split, 83.2%, 93.1%
and 51.7%.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dialore.retrieval.bm25 import rarity, saturation
from dialore.retrieval.embedding import CachedEmbedder
from dialore.retrieval.fusion import DECIMALS
from dialore.text import CHINESE_RUN, close_gaps, content_lemmas, is_chinese, normalise, stem, stop_words, words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue

_FADING = 0.5


class DialogueRanker:
    """Scores a handful of texts for a dialogue's next turn.

    A text's likeness to a turn is BM25 over single characters and pairs for Chinese (jieba's words miss too many), over
    stems for English, and the cosine of static embeddings.

    Args:
        cosine: what a cosine of 1 counts, in units of BM25.
        past: what the turn before the last counts for a persona sentence, beside 1 for the last; every earlier turn
            counts half as much as the one after it.
        under: what the best document under a persona sentence counts for it.
        told: what a document loses for its likeness to the earlier turn of the responder that is most like it.
    """

    name = "dialogue"

    def __init__(self, *, cosine: float = 5.0, past: float = 0.1, under: float = 1.0, told: float = 0.2) -> None:
        self.cosine, self.past, self.under, self.told = cosine, past, under, told
        self._vectors = CachedEmbedder()

    def sentences(self, query: str, dialogue: Dialogue, persona: Mapping[str, Sequence[str]]) -> NDArray[np.float64]:
        """Return the score of each persona sentence, in order, with the documents under it."""
        turns = [query, *(turn.text for turn in reversed(dialogue.turns[:-1]))]
        weights = np.array([1.0, *(self.past * _FADING**back for back in range(len(turns) - 1))])
        scores: NDArray[np.float64] = weights @ self.likeness(turns, list(persona))
        documents = [document for under in persona.values() for document in under]
        if not documents or not self.under:
            return scores
        of_documents = weights @ self.likeness(turns, documents)
        start = 0
        for row, under in enumerate(persona.values()):
            if under:
                scores[row] += self.under * of_documents[start : start + len(under)].max()
            start += len(under)
        return scores

    def documents(self, query: str, dialogue: Dialogue, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return the score of each document: what the last turn asks and the responder has not told."""
        told = [turn.text for turn in dialogue.turns[:-1] if turn.speaker == dialogue.responder] if self.told else []
        likeness = self.likeness([query, *told], texts)
        asked: NDArray[np.float64] = likeness[0] - self.told * likeness[1:].max(axis=0) if told else likeness[0]
        return asked

    def likeness(self, queries: Sequence[str], texts: Sequence[str]) -> NDArray[np.float64]:
        """(len(queries), len(texts)): how much alike they are."""
        if not texts:
            return np.zeros((len(queries), 0))
        scores = _bm25([frozenset(grams(query)) for query in queries], [Counter(grams(text)) for text in texts])
        if self.cosine:
            vectors = self._vectors.encode([close_gaps(text) for text in (*queries, *texts)])
            cosines = vectors[: len(queries)] @ vectors[len(queries) :].T
            scores += self.cosine * np.round(cosines, DECIMALS)
        return scores


@functools.lru_cache(maxsize=8192)
def grams(text: str) -> tuple[str, ...]:
    """Return what texts are compared by: Chinese characters and pairs, stems of English words, no stop words."""
    if not is_chinese(text):
        return tuple(stem(word) for word in content_lemmas(text, "en"))
    stop, folded = stop_words("zh"), normalise(close_gaps(text))
    units = [stem(word) for word in words(CHINESE_RUN.sub(" ", folded), "en")]
    for run in CHINESE_RUN.findall(folded):
        units += [character for character in run if character not in stop]
        units += [run[at : at + 2] for at in range(len(run) - 1)]
    return tuple(units)


def _bm25(queries: Sequence[frozenset[str]], texts: Sequence[Counter[str]]) -> NDArray[np.float64]:
    """(len(queries), len(texts)): BM25 of queries whose terms count once."""
    terms = sorted(frozenset[str]().union(*queries) & frozenset[str]().union(*texts))
    counts = np.array([[text[term] for term in terms] for text in texts], np.float64)
    asked = np.array([[term in query for term in terms] for query in queries], np.float64)
    lengths = np.array([text.total() for text in texts], np.float64)
    worth = saturation(counts, lengths[:, None], float(lengths.mean()))
    weights = rarity(len(texts), np.count_nonzero(counts, axis=0)) * worth
    scores: NDArray[np.float64] = np.round(asked @ weights.T, DECIMALS)
    return scores

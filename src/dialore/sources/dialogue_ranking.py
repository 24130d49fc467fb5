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

import asyncio
import functools
import math
import re
import threading
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from dialore.knowledge import Knowledge, PersonaDetail, stable_id
from dialore.retrieval.embedding import load_embedder
from dialore.retrieval.ranking import DECIMALS
from dialore.sources.base import Findings
from dialore.sources.persona import PersonaDocuments, PersonaSource
from dialore.text import CHINESE_RUN, WIDE, content_lemmas, is_chinese, normalise, stem, stop_words, words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.retrieval.embedding import Embedder

_K1, _B = 1.2, 0.75
_FADING = 0.5
_REMEMBERED = 4096
_GAP = re.compile(rf"(?<=[{WIDE}])\s+|\s+(?=[{WIDE}])")


class DialogueRanker:
    """Scores a handful of texts for a dialogue's next turn.

    A text's likeness to a turn is BM25 over single characters and pairs for Chinese (jieba's words miss too many), over
    stems for English, and the cosine of embeddings.

    Args:
        embedder: makes the embeddings; None: the shipped static embedder.
        cosine: what a cosine of 1 counts, in units of BM25.
        past: what the turn before the last counts for a persona sentence, beside 1 for the last; every earlier turn
            counts half as much as the one after it.
        under: what the best document under a persona sentence counts for it.
        told: what a document loses for its likeness to the earlier turn of the responder that is most like it.
    """

    name = "dialogue"

    def __init__(
        self,
        embedder: Embedder | None = None,
        *,
        cosine: float = 5.0,
        past: float = 0.1,
        under: float = 1.0,
        told: float = 0.2,
    ) -> None:
        self._given = embedder
        self.cosine, self.past, self.under, self.told = cosine, past, under, told
        self._vectors: dict[str, NDArray[np.float32]] = {}
        self._lock = threading.Lock()

    @functools.cached_property
    def _embedder(self) -> Embedder:
        return load_embedder() if self._given is None else self._given

    def sentences(self, query: str, dialogue: Dialogue, persona: Mapping[str, Sequence[str]]) -> NDArray[np.float64]:
        """The score of each persona sentence, in order, with the documents under it."""
        turns = [query, *(turn.text for turn in reversed(dialogue.turns[:-1]))]
        weights = np.array([1.0, *(self.past * _FADING**back for back in range(len(turns) - 1))])
        scores: NDArray[np.float64] = weights @ self.likeness(turns, list(persona))
        documents = [document for under in persona.values() for document in under]
        if not documents or not self.under:
            return scores
        each = weights @ self.likeness(turns, documents)
        place = 0
        for row, under in enumerate(persona.values()):
            if under:
                scores[row] += self.under * each[place : place + len(under)].max()
            place += len(under)
        return scores

    def documents(self, query: str, dialogue: Dialogue, texts: Sequence[str]) -> NDArray[np.float64]:
        """The score of each document: what the last turn asks and the responder has not told."""
        told = [turn.text for turn in dialogue.turns[:-1] if turn.speaker == dialogue.responder]
        if not self.told:
            told = []
        found = self.likeness([query, *told], texts)
        asked: NDArray[np.float64] = found[0] - self.told * found[1:].max(axis=0) if told else found[0]
        return asked

    def likeness(self, queries: Sequence[str], texts: Sequence[str]) -> NDArray[np.float64]:
        """(len(queries), len(texts)): how much alike they are."""
        if not texts:
            return np.zeros((len(queries), 0))
        scores = _bm25([_set_of(query) for query in queries], [_counted(text) for text in texts])
        if self.cosine:
            vectors = np.stack(self._encode([joined(text) for text in (*queries, *texts)]))
            cosines = vectors[: len(queries)] @ vectors[len(queries) :].T
            scores += self.cosine * np.round(cosines, DECIMALS)
        return scores

    def _encode(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """The vectors of texts. They are remembered: a dialogue's persona and turns come again at every turn."""
        with self._lock:
            if len(self._vectors) > _REMEMBERED:
                self._vectors.clear()
            new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
            if new:
                self._vectors.update(zip(new, self._embedder.encode(new), strict=True))
            return [self._vectors[text] for text in texts]


class DialoguePersona(PersonaSource):
    """A persona whose sentences are ranked by the dialogue's turns.

    Args:
        persona: see `PersonaSource`.
        ranker: ranks; None: with the settings that did best.
        name: the source's name.
    """

    def __init__(
        self,
        persona: Mapping[str, Sequence[str]] | None = None,
        *,
        ranker: DialogueRanker | None = None,
        name: str = "persona",
    ) -> None:
        super().__init__(persona, retriever="bm25", name=name)
        self.ranker = ranker or DialogueRanker()

    async def search(self, query: str, dialogue: Dialogue, top: int = 10, within: Sequence[Knowledge] = ()) -> Findings:
        """See `KnowledgeSource`; `query` is what stands in for the last turn. Raises as `PersonaSource.search`."""
        persona = self.of(dialogue)
        scores = await asyncio.to_thread(self.ranker.sentences, query, dialogue, persona)
        sentences = list(persona)
        return Findings(
            Knowledge(
                id=stable_id("persona", sentences[at]),
                kind="persona",
                text=sentences[at],
                source="persona",
                score=round(float(scores[at]), DECIMALS),
                detail=PersonaDetail(documents=list(persona[sentences[at]])),
            )
            for at in _best(scores, top)
        )

    def documents(self, *, name: str = "documents") -> DialogueDocuments:
        """The source of the documents under these sentences, ranked as the sentences are."""
        return DialogueDocuments(self, ranker=self.ranker, name=name)


class DialogueDocuments(PersonaDocuments):
    """The documents under persona sentences, ranked by the dialogue's turns.

    Args:
        persona: the persona that owns them.
        ranker: ranks; None: with the settings that did best.
        name: the source's name.
    """

    def __init__(
        self, persona: PersonaSource | None = None, *, ranker: DialogueRanker | None = None, name: str = "documents"
    ) -> None:
        super().__init__(persona, name=name)
        self.ranker = ranker or DialogueRanker()

    async def search(self, query: str, dialogue: Dialogue, top: int = 10, within: Sequence[Knowledge] = ()) -> Findings:
        """See `PersonaDocuments.search`."""
        # Which documents there are is the parent's business: it gives all of them, in its own order.
        pieces = await super().search(query, dialogue, _ALL, within)
        scores = await asyncio.to_thread(self.ranker.documents, query, dialogue, [piece.text for piece in pieces])
        ranked = sorted(range(len(pieces)), key=lambda at: (-scores[at], pieces[at].id))[: max(0, top)]
        return Findings(pieces[at].model_copy(update={"score": round(float(scores[at]), DECIMALS)}) for at in ranked)


_ALL = 1 << 30


@functools.lru_cache(maxsize=8192)
def grams(text: str) -> tuple[str, ...]:
    """What texts are compared by: Chinese characters and pairs of them, stems of English words; no stop words."""
    if not is_chinese(text):
        return tuple(stem(word) for word in content_lemmas(text, "en"))
    stop, folded = stop_words("zh"), normalise(joined(text))
    found = [stem(word) for word in words(CHINESE_RUN.sub(" ", folded), "en")]
    for run in CHINESE_RUN.findall(folded):
        found += [character for character in run if character not in stop]
        found += [run[at : at + 2] for at in range(len(run) - 1)]
    return tuple(found)


@functools.lru_cache(maxsize=8192)
def _set_of(text: str) -> frozenset[str]:
    return frozenset(grams(text))


@functools.lru_cache(maxsize=8192)
def _counted(text: str) -> Counter[str]:
    return Counter(grams(text))


@functools.lru_cache(maxsize=8192)
def joined(text: str) -> str:
    """Chinese without the spaces between its words, with which some data sets write it."""
    return _GAP.sub("", text)


def _bm25(queries: Sequence[frozenset[str]], texts: Sequence[Counter[str]]) -> NDArray[np.float64]:
    lengths = [text.total() for text in texts]
    mean = sum(lengths) / len(lengths) or 1.0
    asked = frozenset[str]().union(*queries)
    shared = [[gram for gram in text if gram in asked] for text in texts]
    having = Counter(gram for grams_of_text in shared for gram in grams_of_text)
    rarity = {gram: math.log(1 + (len(texts) - n + 0.5) / (n + 0.5)) for gram, n in having.items()}
    scores = np.zeros((len(queries), len(texts)))
    for column, (text, found) in enumerate(zip(texts, shared, strict=True)):
        if not found:
            continue
        damping = _K1 * (1 - _B + _B * lengths[column] / mean)
        worth = {gram: rarity[gram] * text[gram] * (_K1 + 1) / (text[gram] + damping) for gram in found}
        for row, query in enumerate(queries):
            # In a fixed order, so that sums do not differ in their last digit from run to run.
            scores[row, column] = sum(worth[gram] for gram in found if gram in query)
    return scores


def _best(scores: NDArray[np.float64], top: int) -> list[int]:
    return [int(at) for at in np.argsort(-scores, kind="stable")[: max(0, top)]]

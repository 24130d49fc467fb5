"""The trained ranker of a persona and its documents: `retriever: trained:FOLDER`."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.learned.features import Pool, document_features, sentence_features, softmax
from dialore.learned.index import TrainingIndex
from dialore.learned.pieces import ALL_DOCUMENTS, DOCUMENTS, SENTENCES, USEFULNESS, compare_pieces, grow_usefulness
from dialore.learned.trees import TrainedPart, read_trees
from dialore.retrieval.dialogue_ranking import DialogueRanker
from dialore.trained import PREFIX

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.learned.examples import Examples, OnStep
    from dialore.learned.pieces import PieceRows

_POOLS = 64


class TrainedRanker(DialogueRanker):
    """Scores persona sentences and documents by the trees that `dialore train retriever` grew.

    A score is the share of a text in the odds that the next response stands on one of the texts.

    Args:
        folder: The model's folder.
        card: The model's card.
    """

    def __init__(self, folder: Path, card: Mapping[str, Any]) -> None:
        super().__init__()
        self.name = f"{PREFIX}{folder}"
        index = TrainingIndex.load(folder)
        self._trees = read_trees(folder)
        self._pool = functools.lru_cache(_POOLS)(lambda persona: Pool(index, dict(persona)))

    def sentences(self, query: str, dialogue: Dialogue, persona: Mapping[str, Sequence[str]]) -> NDArray[np.float64]:
        """Return the score of each persona sentence. The dialogue is read as it is, and not the query."""
        if not persona:
            return np.zeros(0)
        pool = self._pool(tuple((sentence, tuple(documents)) for sentence, documents in persona.items()))
        return self._score(SENTENCES, sentence_features(pool, dialogue, pool.compare(dialogue)))

    def documents(self, query: str, dialogue: Dialogue, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return the score of each document.

        If the query is the last turn, `texts` are the documents of one sentence. If a sentence follows the last turn
        in the query, they are all documents.
        """
        if not texts:
            return np.zeros(0)
        pool = self._pool((("", tuple(texts)),))
        last = dialogue.turns[-1].text
        sentence = query.removeprefix(last).strip() if query.startswith(last) else ""
        compared = pool.compare(dialogue)
        if sentence:
            return self._score(ALL_DOCUMENTS, document_features(pool, dialogue, compared, sentence))
        return self._score(DOCUMENTS, document_features(pool, dialogue, compared))

    def _score(self, name: str, features: NDArray[np.float32]) -> NDArray[np.float64]:
        return softmax(self._trees[name].scores(features))


# --- training


def train_ranker(examples: Examples, on_step: OnStep) -> TrainedPart:
    """Train a ranker. The number of trees is chosen by cross-validation.

    Raises:
        InputError: No response stands on a document, or none on a persona sentence.
    """
    sources = np.array([len(dialogue.sources) for dialogue in examples.dialogues])
    rows = compare_pieces(examples, on_step)
    rows[ALL_DOCUMENTS] = rows[ALL_DOCUMENTS].select(sources[rows[ALL_DOCUMENTS].responses] > 1)
    grown = {name: grow_usefulness(part, examples, on_step) for name, part in rows.items()}
    sentences, documents = rows[SENTENCES], rows[DOCUMENTS]
    count = len(sources)
    gold_owners = np.full(count, -1)
    gold_owners[sentences.responses[sentences.is_gold]] = sentences.owners[sentences.is_gold]
    under_gold = documents.owners == gold_owners[documents.responses]
    found_sentences = _find_first(sentences, grown[SENTENCES].scores, count)
    found_documents = _find_first(documents.select(under_gold), grown[DOCUMENTS].scores[under_gold], count)
    found_any = _find_first(rows[ALL_DOCUMENTS], grown[ALL_DOCUMENTS].scores, count)
    needs_sentence, needs_document = sources == 1, sources == 2
    measured = {
        "persona": (found_sentences, needs_sentence),
        "both: persona": (found_sentences, needs_document),
        "documents": (found_documents & found_sentences, needs_document),
        "documents, the gold sentence given": (found_documents, needs_document),
        "all documents, the gold sentence given": (found_any, needs_document),
    }
    card = {
        "kind": "ranker",
        "use": "Ranks persona sentences and their documents: `-o retriever=trained:FOLDER` of `safari`.",
        "settings": USEFULNESS,
        "measured": {name: _measure(examples, *figure) for name, figure in measured.items()},
    }
    return TrainedPart(card, {name: part.trees for name, part in grown.items()}, examples.index)


def _find_first(rows: PieceRows, scores: NDArray[np.float64], count: int) -> NDArray[np.bool_]:
    """Return whether the best row of each of `count` responses is gold; False for responses without rows."""
    is_first = np.zeros(count, bool)
    order = np.lexsort((scores, rows.responses))
    is_last = np.append(np.diff(rows.responses[order]) > 0, True)
    best = order[is_last]
    is_first[rows.responses[best]] = rows.is_gold[best]
    return is_first


def _measure(examples: Examples, found: NDArray[np.bool_], asked: NDArray[np.bool_]) -> dict[str, float]:
    """Return Recall@1 of the responses that need the pieces, over the folds."""

    def recall(rows: NDArray[np.bool_]) -> float:
        needed = np.flatnonzero(rows & asked)
        return float(found[needed].mean()) if len(needed) else np.nan

    return examples.fold_spread(recall)

"""Persona sentences and documents of all training responses, with features and with whether a response uses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.errors import InputError
from dialore.learned.features import Pool, document_features, sentence_features
from dialore.learned.trees import Grown, grow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.learned.examples import Examples, Integers, OnStep

USEFULNESS: dict[str, Any] = {
    "objective": "binary",
    "learning_rate": 0.1,
    "num_leaves": 15,
    "min_child_samples": 60,
    "lambda_l2": 10.0,
    "feature_fraction": 0.4,
    "bagging_fraction": 0.5,
    "bagging_freq": 1,
    "rounds": 200,
    "patience": 20,
}
SENTENCES, DOCUMENTS, ALL_DOCUMENTS = "sentences", "documents", "all-documents"


@dataclass
class PieceRows:
    """A row per piece and response.

    Attributes:
        features: The features of the row.
        is_gold: Whether the response stands on the piece.
        responses: The response.
        owners: Position of the persona sentence that the piece is, or belongs to.
    """

    features: NDArray[np.float32]
    is_gold: NDArray[np.bool_]
    responses: Integers
    owners: Integers

    def select(self, rows: NDArray[np.bool_]) -> PieceRows:
        """Return the chosen rows."""
        return PieceRows(self.features[rows], self.is_gold[rows], self.responses[rows], self.owners[rows])


def compare_pieces(examples: Examples, on_step: OnStep) -> dict[str, PieceRows]:
    """Return the rows of sentences, of documents under each sentence, and of all documents beside the gold sentence.

    The past of a response's own dialogue is left out.
    """
    collected: dict[str, list[tuple[Any, ...]]] = {SENTENCES: [], DOCUMENTS: [], ALL_DOCUMENTS: []}
    number, pool = -1, None
    for response, dialogue in enumerate(examples.dialogues):
        if pool is None or number != examples.numbers[response]:
            number = int(examples.numbers[response])
            under = dialogue.extra["documents"]
            persona = {sentence: under.get(sentence, ()) for sentence in dialogue.persona}
            pool = Pool(examples.index, persona, exclude=number)
            on_step("comparing turns with pieces", number, int(examples.numbers[-1]) + 1)
        gold = set(examples.gold[response])
        sentences, documents = pool.texts[: pool.count], pool.texts[pool.count :]
        gold_sentence = " ".join(sentence for sentence in sentences if sentence in gold)
        compared = pool.compare(dialogue)
        numbers = np.arange(pool.count)
        owners = np.repeat(numbers, pool.sizes)
        for name, features, texts, owners_of_texts in (
            (SENTENCES, sentence_features(pool, dialogue, compared), sentences, numbers),
            (DOCUMENTS, document_features(pool, dialogue, compared), documents, owners),
            (ALL_DOCUMENTS, document_features(pool, dialogue, compared, gold_sentence), documents, owners),
        ):
            is_gold = np.array([text in gold for text in texts])
            collected[name].append((features, is_gold, np.full(len(texts), response), owners_of_texts))
    return {name: PieceRows(*map(np.concatenate, zip(*rows, strict=True))) for name, rows in collected.items()}


def grow_usefulness(rows: PieceRows, examples: Examples, on_step: OnStep) -> Grown:
    """Grow trees that tell how likely a response is to stand on a piece.

    Raises:
        InputError: All pieces are used, or none.
    """
    if rows.is_gold.all() or not rows.is_gold.any():
        raise InputError("nothing to learn: all pieces are used, or none", hint="train on more dialogues")
    return grow(USEFULNESS, rows.features, rows.is_gold, rows.responses, examples, on_step)

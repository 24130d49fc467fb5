"""The trained ranker of a persona and its documents: `retriever: trained:PATH` wherever `dialogue` goes."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dialore.learned.dialogue_ranking import DialogueRanker
from dialore.learned.encoders import TrainedEncoder
from dialore.learned.features import Pool, document_features, sentence_features, softmax
from dialore.learned.model import PREFIX, Trees, describe, read_model
from dialore.learned.training_index import Past

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue

_POOLS = 64


class TrainedRanker(DialogueRanker):
    """Scores persona sentences and documents by boosted trees that `dialore train retriever` grew.

    A score is the calibrated probability that the text is the one which the next turn stands on, given that it stands
    on one of them.

    Args:
        path: the model's folder.

    Raises:
        InputError: it is no trained ranker, or damaged.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.name = f"{PREFIX}{path}"
        card, arrays = read_model(path, "ranker")
        self._sharpness = card["sharpness"]
        self._trees = {name: Trees.read(arrays, name) for name in self._sharpness}
        past = Past.read(arrays)
        self._pool = functools.lru_cache(_POOLS)(
            lambda persona, sentences: Pool(past, dict(persona), sentences=sentences)
        )

    def sentences(self, query: str, dialogue: Dialogue, persona: Mapping[str, Sequence[str]]) -> NDArray[np.float64]:
        """Return the probability of each persona sentence; the dialogue is read as it stands, not by the query."""
        if not persona:
            return np.zeros(0)
        pool = self._pool(tuple((line, tuple(under)) for line, under in persona.items()), True)
        return self._shares("sentences", sentence_features(pool, dialogue, pool.compare(dialogue)))

    def documents(self, query: str, dialogue: Dialogue, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return the probability of each document among those of one sentence, or of all where the query names it."""
        if not texts:
            return np.zeros(0)
        pool = self._pool((("", tuple(texts)),), False)
        last = dialogue.turns[-1].text
        beside = query.removeprefix(last).strip() if query.startswith(last) else ""
        features = document_features(pool, dialogue, pool.compare(dialogue), beside=beside, whole=bool(beside))
        return self._shares("all-documents" if beside else "documents", features)

    def _shares(self, name: str, features: NDArray[np.float32]) -> NDArray[np.float64]:
        return softmax(self._trees[name].scores(features)[:, 0] * self._sharpness[name])


def open_ranker(path: Path) -> DialogueRanker:
    """Return the ranker in a folder, of trees or a fine-tuned encoder; raise InputError where there is none."""
    return TrainedEncoder(path) if describe(path)["kind"] in {"dual", "cross"} else TrainedRanker(path)

"""Trained decisions about the next response, by a linear model: is anything searched for, does the topic change."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dialore.learned.dialogue_ranking import joined
from dialore.learned.features import VECTORS
from dialore.learned.model import read_model
from dialore.learned.planner import likely, word_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue

_LONG = 20


class TrainedDecision:
    """Decides yes or no by what `dialore train decision` fitted.

    Args:
        path: the model's folder.

    Raises:
        InputError: it is no trained decision, or damaged.
    """

    def __init__(self, path: Path) -> None:
        card, arrays = read_model(path, "decision")
        self.label: str = card["label"]
        """The decision: `search`, or `shift`."""
        self._threshold: float = card["threshold"]
        self._idf, self._words, self._dense, self._bias = (arrays[name] for name in ("idf", "words", "dense", "bias"))

    def decide(self, dialogue: Dialogue) -> tuple[bool, float]:
        """Yes or no for the response to the last turn, by the threshold chosen in training; the probability of yes."""
        row = word_rows([dialogue], self._idf)[0]
        score = self._words[list(row)] @ np.array([*row.values()]) + dense_rows([dialogue])[0] @ self._dense
        chance = float(likely(score + self._bias))
        return chance >= self._threshold, chance


def open_decision(spec: str) -> TrainedDecision:
    """Return the decision of a spec, `trained:PATH`; raise InputError where there is none."""
    return _opened(Path(spec.partition(":")[2]))


_opened = functools.lru_cache(4)(TrainedDecision)


def dense_rows(dialogues: list[Dialogue]) -> NDArray[np.float64]:
    """Return what is read beside the words: the embeddings of the last two turns, and how they are built."""
    rows = []
    for dialogue in dialogues:
        last, before = (joined(dialogue.turns[-back].text) if len(dialogue.turns) >= back else "" for back in (1, 2))
        shape = [text.count("?") + text.count("？") for text in (last, before)]
        sizes = [min(len(text) / (5 * _LONG), 5) for text in (last, before)]
        vectors = VECTORS.encode([last, before])
        rows.append(np.concatenate([vectors[0], vectors[1], [vectors[0] @ vectors[1], *shape, *sizes]]))
    return np.array(rows, float)

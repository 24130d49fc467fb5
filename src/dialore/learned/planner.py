"""The trained planner: which sources a response needs, and how probable each plan is, without a model call."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.learned.classifier import Classifier, check_classes, context_rows, train_classifier
from dialore.learned.features import Pool, document_features, sentence_features
from dialore.learned.pieces import DOCUMENTS, SENTENCES, compare_pieces, grow_usefulness

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.learned.examples import Examples, OnStep
    from dialore.learned.trees import TrainedPart

Plan = tuple[str, ...]
_POOLS = 64


class TrainedPlanner(Classifier):
    """Plans by trees that `dialore train planner` grew. The kinds of source are those of the plans in its data.

    Args:
        folder: The model's folder.
        card: The model's card.
    """

    def __init__(self, folder: Path, card: Mapping[str, Any]) -> None:
        super().__init__(folder, card)
        self.plans: list[Plan] = [tuple(plan) for plan in card["plans"]]
        self._reads_pieces = not card["context"]
        self._pool = functools.lru_cache(_POOLS)(lambda persona: Pool(self._index, dict(persona)))

    def probabilities(self, dialogue: Dialogue, persona: Mapping[str, Sequence[str]]) -> dict[Plan, float]:
        """Return the calibrated probability of each plan.

        Without a persona nothing is needed, unless the planner was trained on the context alone.

        Args:
            dialogue: The dialogue up to the last turn.
            persona: The documents under each persona sentence.
        """
        if not self._reads_pieces:
            return dict(zip(self.plans, self._classify(dialogue).tolist(), strict=True))
        if not any(persona.values()):
            return {plan: float(not plan) for plan in self.plans}
        pool = self._pool(tuple((sentence, tuple(documents)) for sentence, documents in persona.items()))
        compared = pool.compare(dialogue)
        sentences = sentence_features(pool, dialogue, compared)
        documents = document_features(pool, dialogue, compared)
        summaries = (
            _summarise(sentences, self._trees[SENTENCES].scores(sentences)),
            _summarise(documents, self._trees[DOCUMENTS].scores(documents)),
        )
        return dict(zip(self.plans, self._classify(dialogue, *summaries).tolist(), strict=True))

    def choose(self, probabilities: Mapping[Plan, float]) -> Plan:
        """Return the best plan by the thresholds that were chosen in training."""
        return self.plans[self._decide([probabilities[plan] for plan in self.plans])]


def _summarise(features: NDArray[np.float32], scores: NDArray[np.float64]) -> NDArray[np.float32]:
    """Summarise the pieces of one kind: the likeliest ones' usefulness, and the largest value of each feature."""
    usefulness = np.sort(1 / (1 + np.exp(-scores)))[::-1]
    second = usefulness[min(1, len(usefulness) - 1)]
    summary = [usefulness[0], second, usefulness.sum(), usefulness[:3].sum(), len(usefulness)]
    compared = features[:, : features.shape[1] // 3]
    return np.concatenate([summary, compared.max(0), compared.mean(0)]).astype(np.float32)


def plan_name(plan: Plan) -> str:
    """Return the name of a plan as in the paper."""
    return ", ".join(name.upper() for name in plan) or "NULL"


# --- training


def train_planner(examples: Examples, on_step: OnStep, *, context: bool = False) -> TrainedPart:
    """Train a planner. The number of trees and the thresholds are chosen by cross-validation.

    Args:
        examples: The training data.
        on_step: Called with the progress.
        context: Read the dialogue alone, as the paper's planner does, and no persona or document.

    Raises:
        InputError: There are fewer than two plans, or one is too rare.
    """
    chosen = [tuple(dialogue.sources) for dialogue in examples.dialogues]
    plans = sorted(set(chosen), key=lambda plan: (len(plan), plan))
    names = [plan_name(plan) for plan in plans]
    labels = np.array([plans.index(plan) for plan in chosen])
    check_classes(labels, names)
    examples = replace(examples, labels=labels)
    features, trees = [context_rows(examples)], {}
    if not context:
        rows = compare_pieces(examples, on_step)
        for name in (SENTENCES, DOCUMENTS):
            grown = grow_usefulness(rows[name], examples, on_step)
            trees[name] = grown.trees
            starts = np.searchsorted(rows[name].responses, np.arange(1, len(labels)))
            pairs = zip(np.split(rows[name].features, starts), np.split(grown.scores, starts), strict=True)
            features.append(np.stack([_summarise(*pair) for pair in pairs]))
    card = {
        "kind": "planner",
        "use": "Chooses the sources of each response: `-o planning=trained:FOLDER` of `safari`.",
        "plans": [list(plan) for plan in plans],
        "context": context,
    }
    return train_classifier(examples, np.concatenate(features, 1), names, card, trees, on_step)

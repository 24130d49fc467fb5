"""What the planner and decisions share: features of the dialogue alone, trees, and thresholds chosen by F1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.errors import InputError
from dialore.learned.examples import FOLDS, Examples
from dialore.learned.features import VECTORS, softmax
from dialore.learned.index import TrainingIndex
from dialore.learned.trees import TrainedPart, Trees, grow, read_trees
from dialore.text import close_gaps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.learned.examples import Integers, OnStep

SETTINGS: dict[str, Any] = {
    "objective": "multiclass",
    "learning_rate": 0.05,
    "num_leaves": 10,
    "min_child_samples": 40,
    "lambda_l2": 10.0,
    "feature_fraction": 0.4,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "rounds": 400,
    "patience": 30,
}
_CLASSES = "classes"
_NEAREST = (1, 3, 10, 50)
_OFFSETS = np.round(np.arange(-1.0, 1.81, 0.05), 2)


class Classifier:
    """Tells the class of a response by the trees of `train_classifier`.

    Args:
        folder: The model's folder.
        card: The model's card.
    """

    def __init__(self, folder: Path, card: Mapping[str, Any]) -> None:
        self._offsets = np.array(card["offsets"])
        self._index = TrainingIndex.load(folder)
        self._trees = read_trees(folder)

    def _classify(self, dialogue: Dialogue, *pieces: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the probability of each class, by the dialogue and by features of pieces."""
        features = np.concatenate([context_features(dialogue, self._index), *pieces])
        return softmax(self._trees[_CLASSES].scores(features[None])[0])

    def _decide(self, probabilities: Sequence[float]) -> int:
        return int(_decide(np.log(np.maximum(probabilities, 1e-12)), self._offsets))


def context_features(dialogue: Dialogue, index: TrainingIndex, exclude: int = -1) -> NDArray[np.float32]:
    """Return the features of a dialogue without its persona.

    Args:
        dialogue: The dialogue up to the last turn.
        index: The training data with the class of each response.
        exclude: Number of the training dialogue whose responses are left out: the dialogue itself.
    """
    last = dialogue.turns[-1].text
    before = dialogue.turns[-2].text if len(dialogue.turns) > 1 else ""
    similarities = index.similarities(last)[0]
    if exclude >= 0:
        similarities = np.where(index.dialogues == exclude, 0, similarities)
    features: list[float] = []
    for responses in index.classes:
        of_class = similarities[responses]
        limit = min(_NEAREST[-1], len(of_class))
        nearest = np.sort(np.partition(of_class, -limit)[-limit:])[::-1]
        features += [float(nearest[:count].mean()) for count in _NEAREST]
    vectors = VECTORS.encode([close_gaps(last), close_gaps(before)])
    for text in (last, before):
        features += [len(text), text.count("？") + text.count("?")]
    features += ["你" in last, len(dialogue.turns) // 2, float(vectors[0] @ vectors[1])]
    return np.concatenate([features, *vectors]).astype(np.float32)


def context_rows(examples: Examples) -> NDArray[np.float32]:
    """Return the context features of all training responses."""
    numbers = examples.numbers.tolist()
    pairs = zip(examples.dialogues, numbers, strict=True)
    return np.stack([context_features(dialogue, examples.index, number) for dialogue, number in pairs])


def train_classifier(
    examples: Examples,
    features: NDArray[np.float32],
    names: Sequence[str],
    card: Mapping[str, Any],
    trees: Mapping[str, Trees],
    on_step: OnStep,
) -> TrainedPart:
    """Grow trees that tell the classes of responses apart, and choose the offsets of classes by cross-validation.

    Args:
        examples: The training data, with the class of each response.
        features: A row per response.
        names: Names of the classes.
        card: The card's `kind`, `use`, and what the class of the model needs besides.
        trees: Further trees of the model.
        on_step: Called with the progress.
    """
    labels = examples.labels
    settings = {**SETTINGS, "num_class": len(names)}
    grown = grow(settings, features, labels, np.arange(len(labels)), examples, on_step)
    scores = np.log(softmax(grown.scores))
    offsets = choose_offsets(scores, labels)
    decided = _decide(scores, offsets)
    measured = {}
    for label, name in enumerate(names):

        def f1_of_rows(rows: NDArray[np.bool_], label: int = label) -> float:
            return f1(decided[rows], labels[rows], label)

        measured[f"F1 of {name}"] = examples.fold_spread(f1_of_rows)
    complete = {"offsets": offsets.tolist(), "settings": settings, "measured": measured, **card}
    return TrainedPart(complete, {**trees, _CLASSES: grown.trees}, examples.index)


def check_classes(labels: Integers, names: Sequence[str]) -> None:
    """Raise InputError if there are fewer than two classes, or one is rarer than there are folds."""
    counts = np.bincount(labels, None, len(names))
    if len(names) < 2 or counts.min() < FOLDS:
        counted = ", ".join(f"{name} {count} times" for name, count in zip(names, counts, strict=True))
        raise InputError(f"nothing to learn: {counted}", hint=f"two classes at least, {FOLDS} times each")


def _decide(scores: NDArray[np.float64], offsets: NDArray[np.float64]) -> Integers:
    return np.asarray(np.argmax(scores + offsets, -1))


def choose_offsets(scores: NDArray[np.float64], labels: Integers) -> NDArray[np.float64]:
    """Return the offsets of the classes' log probabilities with which the sum of their F1 is largest."""
    offsets = np.zeros(scores.shape[1])
    for _ in range(4):
        for label in range(len(offsets) - 1):
            sums = []
            for value in _OFFSETS:
                offsets[label] = value
                decided = _decide(scores, offsets)
                sums.append(sum(f1(decided, labels, label) for label in range(len(offsets))))
            offsets[label] = _OFFSETS[int(np.argmax(sums))]
    return offsets


def f1(decided: Integers, labels: Integers, label: int) -> float:
    """Return the F1 of one class."""
    both = int(((decided == label) & (labels == label)).sum())
    return 2 * both / max(1, int((decided == label).sum()) + int((labels == label).sum()))

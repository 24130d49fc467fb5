"""What the planner and decisions share: features of the dialogue alone, and decision thresholds chosen by F1."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.errors import InputError
from dialore.learned.examples import FOLDS, Examples
from dialore.learned.features import VECTORS
from dialore.learned.trees import Grown, grow
from dialore.text import close_gaps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.learned.examples import Integers, OnStep
    from dialore.learned.index import TrainingIndex

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
_NEAREST = (1, 3, 10, 50)
_OFFSETS = np.round(np.arange(-1.0, 1.81, 0.05), 2)


def context_features(
    dialogue: Dialogue, index: TrainingIndex, labels: Integers, *, exclude: int = -1
) -> NDArray[np.float32]:
    """Return the features of a dialogue without its persona.

    Args:
        dialogue: The dialogue up to the last turn.
        index: The training data.
        labels: The class of each training response.
        exclude: Number of the training dialogue whose responses are left out: the dialogue itself.
    """
    last = dialogue.turns[-1].text
    before = dialogue.turns[-2].text if len(dialogue.turns) > 1 else ""
    similarities = index.similarities(last)[0]
    similarities = np.where(index.dialogues == exclude, 0, similarities)
    features: list[float] = []
    for label in range(int(labels.max()) + 1):
        nearest = similarities[labels == label]
        nearest = (
            np.sort(np.partition(nearest, -_NEAREST[-1])[-_NEAREST[-1] :])[::-1]
            if len(nearest) > _NEAREST[-1]
            else np.sort(nearest)[::-1]
        )
        features += [float(nearest[:count].mean()) for count in _NEAREST]
    vectors = VECTORS.encode([close_gaps(last), close_gaps(before)])
    questions = last.count("？") + last.count("?")
    features += [float(vectors[0] @ vectors[1]), questions, before.count("？") + before.count("?"), "你" in last]
    features += [len(dialogue.turns) // 2, len(last), len(before)]
    return np.concatenate([features, *vectors]).astype(np.float32)


def context_rows(examples: Examples, labels: Integers) -> NDArray[np.float32]:
    """Return the context features of all training responses."""
    rows = []
    for dialogue, number in zip(examples.dialogues, examples.numbers.tolist(), strict=True):
        rows.append(context_features(dialogue, examples.index, labels, exclude=number))
    return np.stack(rows)


def grow_classifier(examples: Examples, features: NDArray[np.float32], labels: Integers, on_step: OnStep) -> Grown:
    """Grow trees that tell the classes of responses apart."""
    settings = {**SETTINGS, "num_class": int(labels.max()) + 1}
    return grow(settings, features, labels, np.arange(len(labels)), examples, on_step)


def check_classes(labels: Integers, names: Sequence[str]) -> None:
    """Raise InputError if there are fewer than two classes, or one is rarer than there are folds."""
    counts = np.bincount(labels, None, len(names))
    if len(names) < 2 or counts.min() < FOLDS:
        found = ", ".join(f"{name} {count} times" for name, count in zip(names, counts, strict=True))
        raise InputError(f"nothing to learn: {found}", hint=f"two classes at least, {FOLDS} times each")


def decide(scores: NDArray[np.float64], offsets: NDArray[np.float64]) -> Integers:
    """Return the class of each row of raw scores, after offsets are added."""
    return np.asarray(np.argmax(scores + offsets, -1))


def choose_offsets(scores: NDArray[np.float64], labels: Integers) -> NDArray[np.float64]:
    """Return the offsets of the classes' scores with which the sum of their F1 is largest."""
    offsets = np.zeros(scores.shape[1])
    for _ in range(4):
        for label in range(len(offsets) - 1):
            sums = []
            for value in _OFFSETS:
                offsets[label] = value
                decided = decide(scores, offsets)
                sums.append(sum(f1(decided, labels, each) for each in range(len(offsets))))
            offsets[label] = _OFFSETS[int(np.argmax(sums))]
    return offsets


def f1(decided: Integers, labels: Integers, label: int) -> float:
    """Return the F1 of one class."""
    both = np.count_nonzero((decided == label) & (labels == label))
    return 2 * both / max(1, np.count_nonzero(decided == label) + np.count_nonzero(labels == label))


def measure_f1(
    examples: Examples, decided: Integers, labels: Integers, names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return the F1 of each class over the folds, for a model card."""
    measured = {}
    for label, name in enumerate(names):
        figure = functools.partial(_f1_of_rows, decided, labels, label)
        measured[f"F1 of {name}"] = examples.fold_spread(figure)
    return measured


def _f1_of_rows(decided: Integers, labels: Integers, label: int, rows: NDArray[np.bool_]) -> float:
    return f1(decided[rows], labels[rows], label)

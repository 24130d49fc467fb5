"""Trained decisions about the next response: is anything searched for, does the topic change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dialore.errors import UnknownNameError
from dialore.learned.classifier import Classifier, check_classes, context_rows, train_classifier
from dialore.learned.examples import read_examples

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.learned.examples import Examples, OnStep
    from dialore.learned.trees import TrainedPart

_NAMES = ("no", "yes")
_NEEDS = {"search": "query", "shift": "knowledge"}
"""The decisions, and what a data set must have to learn them from."""


class TrainedDecision(Classifier):
    """Decides yes or no by the trees that `dialore train decision` grew."""

    def decide(self, dialogue: Dialogue) -> tuple[bool, float]:
        """Return the decision on the response to the last turn, and the probability of yes."""
        probabilities = self._classify(dialogue)
        return bool(self._decide(probabilities.tolist())), float(probabilities[1])


# --- training


def read_decisions(name: str, path: Path, *, label: str = "search", seed: int = 0) -> Examples:
    """Return the responses of a data set's file for which a decision is known, with the decisions.

    Args:
        name: The data set.
        path: The file.
        label: `search`: whether a person typed a query for the response. `shift`: whether the response stands on
            knowledge about another thing than the last response before it that stands on any.
        seed: Seed of the folds and of training.

    Raises:
        InputError: The file cannot be read, has no such decisions, too few of one kind, or too few dialogues.
    """
    if label not in _NEEDS:
        raise UnknownNameError("label", label, _NEEDS)
    examples = read_examples(name, path, needs=(_NEEDS[label],), seed=seed)
    if label == "search":
        labels = np.array([int(bool(dialogue.extra.get("query"))) for dialogue in examples.dialogues])
    else:
        labels = np.array(_find_shifts(examples.dialogues, examples.numbers.tolist()))
    rows = np.flatnonzero(labels >= 0)
    check_classes(labels[rows], _NAMES)
    dialogues = [examples.dialogues[row] for row in rows]
    return replace(examples, dialogues=dialogues, numbers=examples.numbers[rows], labels=labels[rows])


def _find_shifts(dialogues: Sequence[Dialogue], numbers: Sequence[int]) -> list[int]:
    """Return whether each response is about another thing than the one before it; -1 if either is not known."""
    shifts = []
    previous: set[str] = set()
    previous_number = -1
    for dialogue, number in zip(dialogues, numbers, strict=True):
        if number != previous_number:
            previous, previous_number = set(), number
        titles = set()
        for item in dialogue.knowledge:
            title = isinstance(item, dict) and (item.get("head") or item.get("title"))
            if title:
                titles.add(str(title))
        if titles and previous:
            shifts.append(int(not titles & previous))
        else:
            shifts.append(-1)
        previous = titles or previous
    return shifts


def train_decision(examples: Examples, on_step: OnStep, *, label: str = "search") -> TrainedPart:
    """Train a decision. The number of trees and the threshold are chosen by cross-validation."""
    features = context_rows(examples)
    use = f"Decides on `{label}` for each response: `-o decision=trained:FOLDER` of `scg-qp`."
    return train_classifier(examples, features, _NAMES, {"kind": "decision", "use": use}, {}, on_step)

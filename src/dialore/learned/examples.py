"""Training examples: the responses of a data set with their plans and pieces, in folds of whole dialogues."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dialore.datasets import data_set, gold_text, split_dialogues
from dialore.dialogue import conversation_of
from dialore.errors import InputError
from dialore.learned.index import TrainingIndex

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue

    Integers = NDArray[np.int64]
    OnStep = Callable[[str, int, int | None], None]

FOLDS = 5
_MIN_DIALOGUES = 2 * FOLDS


@dataclass
class Examples:
    """The responses of a file.

    Attributes:
        name: Name of the data set.
        sha256: SHA-256 of the file.
        dialogues: The history before each response, with its plan and gold knowledge.
        numbers: Number of the whole dialogue that each history belongs to, from 0.
        seed: Seed of the folds and of all random choices in training.
        labels: Class of each response, for classifiers; otherwise empty.
    """

    name: str
    sha256: str
    dialogues: list[Dialogue]
    numbers: Integers
    seed: int
    labels: Integers = field(default_factory=lambda: np.zeros(0, np.int64))

    @functools.cached_property
    def folds(self) -> Integers:
        """The fold of each response. All responses of a dialogue are in one fold."""
        order = np.random.default_rng(self.seed).permutation(int(self.numbers.max()) + 1)
        return (order % FOLDS)[self.numbers]

    @functools.cached_property
    def gold(self) -> list[list[str]]:
        """The texts that each response stands on."""
        return [[gold_text(item) for item in dialogue.knowledge] for dialogue in self.dialogues]

    @functools.cached_property
    def index(self) -> TrainingIndex:
        """The index of these responses."""
        return TrainingIndex.build(self.dialogues, self.numbers, self.gold, self.labels)

    def summary(self) -> dict[str, object]:
        """Return the description of the data for a model card."""
        return {
            "dataset": self.name,
            "sha256": self.sha256,
            "dialogues": len(np.unique(self.numbers)),
            "responses": len(self.dialogues),
        }

    def fold_spread(self, figure: Callable[[NDArray[np.bool_]], float]) -> dict[str, float]:
        """Return mean, lowest and highest fold in percent of a figure that is calculated on the responses of a fold."""
        figures = [100 * figure(self.folds == fold) for fold in range(FOLDS)]
        return {
            "mean": round(float(np.nanmean(figures)), 2),
            "low": round(float(np.nanmin(figures)), 2),
            "high": round(float(np.nanmax(figures)), 2),
        }


def read_examples(
    name: str, path: Path, *, needs: Sequence[str] = ("persona", "plan", "knowledge"), seed: int = 0
) -> Examples:
    """Return the responses of a data set's file.

    Raises:
        InputError: The file cannot be read, lacks a required field, or has too few dialogues.
    """
    reader = data_set(name)
    missing = [need for need in needs if need not in reader.has]
    if missing:
        raise InputError(f"{name} has no {' and no '.join(missing)} to learn from", hint="kbp has all that is needed")
    dialogues = split_dialogues(reader.read(path), cut="all")
    if "persona" in needs:
        for dialogue in dialogues:
            if not dialogue.persona or not any(dialogue.extra.get("documents", {}).values()):
                message = f"{path}: dialogue {dialogue.id} has no persona with documents"
                raise InputError(message, hint="leave it out")
    numbers: dict[str, int] = {}
    for dialogue in dialogues:
        numbers.setdefault(conversation_of(dialogue.id), len(numbers))
    if len(numbers) < _MIN_DIALOGUES:
        message = f"{path}: {len(numbers)} dialogues cannot be divided for cross-validation"
        raise InputError(message, hint=f"give at least {_MIN_DIALOGUES}")
    of_responses = np.array([numbers[conversation_of(dialogue.id)] for dialogue in dialogues])
    return Examples(name, hashlib.sha256(path.read_bytes()).hexdigest(), dialogues, of_responses, seed)


def refuse_leaks(train: Examples, held_out: Path) -> None:
    """Raise InputError if a dialogue of the training examples is in a held-out file as well."""
    last_histories = {conversation_of(dialogue.id): dialogue for dialogue in train.dialogues}
    seen = {(*dialogue.texts, dialogue.reference) for dialogue in last_histories.values()}
    for dialogue in split_dialogues(data_set(train.name).read(held_out), cut="all"):
        if (*dialogue.texts, dialogue.reference) in seen:
            message = f"dialogue {conversation_of(dialogue.id)} of the held-out file is in the training file, too"
            raise InputError(message, hint="train on a file without it, or figures will be too good")

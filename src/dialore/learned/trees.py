"""Boosted trees by LightGBM: growing them with cross-validation, and their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.errors import import_optional
from dialore.learned.examples import FOLDS
from dialore.trained import write_trained

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.learned.examples import Examples, OnStep
    from dialore.learned.index import TrainingIndex

lightgbm = import_optional("lightgbm", "trained models", "learn")
_FIXED = {"verbose": -1, "deterministic": True, "force_row_wise": True}


class Trees:
    """Boosted trees that score rows of features."""

    def __init__(self, booster: Any) -> None:  # noqa: ANN401 - LightGBM has no types
        self.booster = booster

    def scores(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the raw scores: an array of shape (rows,), or (rows, classes)."""
        # One thread: several cost more than they save on so few rows.
        scores: NDArray[np.float64] = self.booster.predict(features, raw_score=True, num_threads=1)
        return scores


@dataclass
class Grown:
    """The result of `grow`.

    Attributes:
        trees: Grown on all rows.
        rounds: Number of boosting rounds: the median of the best numbers of the folds.
        scores: Score of each row by trees grown without its fold.
    """

    trees: Trees
    rounds: int
    scores: NDArray[np.float64]


def grow(
    settings: Mapping[str, Any],
    features: NDArray[np.float32],
    labels: NDArray[Any],
    responses: NDArray[np.int64],
    examples: Examples,
    on_step: OnStep,
) -> Grown:
    """Grow trees without each fold, then on all rows.

    Args:
        settings: Parameters of LightGBM, with `rounds` (the maximum) and `patience`: rounds without a gain on the
            held-out fold after which growing stops.
        features: A row per piece or response.
        labels: Class of each row.
        responses: The response that each row belongs to.
        examples: The responses, which are in folds.
        on_step: Called with the progress.
    """
    parameters = {**_FIXED, "seed": examples.seed, **settings}
    rounds, patience = parameters.pop("rounds"), parameters.pop("patience")
    folds = examples.folds[responses]
    scores: list[NDArray[np.float64]] = []
    best_rounds = []

    def data_set(rows: NDArray[np.bool_]) -> Any:  # noqa: ANN401
        return lightgbm.Dataset(features[rows], labels[rows].astype(int))

    for fold in range(FOLDS):
        on_step("growing trees, a fold held out", fold, FOLDS)
        held_out = folds == fold
        booster = lightgbm.train(
            parameters,
            data_set(~held_out),
            rounds,
            valid_sets=[data_set(held_out)],
            callbacks=[lightgbm.early_stopping(patience, verbose=False)],
        )
        best_rounds.append(max(1, booster.best_iteration))
        scores.append(Trees(booster).scores(features[held_out]))
    median = int(np.median(best_rounds))
    trees = Trees(lightgbm.train(parameters, data_set(np.ones(len(labels), bool)), median))
    ordered = np.zeros((len(labels), *scores[0].shape[1:]))
    for fold, scores_of_fold in enumerate(scores):
        ordered[folds == fold] = scores_of_fold
    return Grown(trees, median, ordered)


@dataclass
class TrainedPart:
    """A model made of trees and of the index of its training data.

    Attributes:
        card: See `write_trained`; `data` and `seed` are added when it is saved.
        trees: The trees by name.
        index: The training data.
    """

    card: dict[str, Any]
    trees: Mapping[str, Trees]
    index: TrainingIndex

    def save(self, folder: Path, examples: Examples) -> dict[str, Any]:
        """Write the model to a folder and return its card; raises as `write_trained`."""

        def write(staging: Path) -> None:
            for name, trees in self.trees.items():
                trees.booster.save_model(staging / f"{name}.txt")
            self.index.save(staging)

        return write_trained(folder, {**self.card, "data": examples.summary(), "seed": examples.seed}, write)


def read_trees(folder: Path) -> dict[str, Trees]:
    """Return the trees in a folder by name."""
    return {path.stem: Trees(lightgbm.Booster(model_file=path)) for path in folder.glob("*.txt")}

"""Growing boosted trees with LightGBM, and taking them over as arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore._version import __version__
from dialore.errors import import_optional
from dialore.learned.examples import FOLDS
from dialore.learned.model import Trees, write_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.learned.examples import Examples
    from dialore.learned.model import Arrays

    Numbers = NDArray[np.int64]


PATIENCE = 30


@dataclass
class GrownTrees:
    """Trees, and how they did by cross-validation.

    Attributes:
        trees: grown on everything.
        rounds: of boosting: the median of what served each held-out fold best.
        scores: (rows, outputs) of each row, by trees that have not seen its dialogue.
    """

    trees: Trees
    rounds: int
    scores: NDArray[np.float64]


def grow(
    settings: Mapping[str, Any],
    features: NDArray[np.float32],
    labels: NDArray[Any],
    of: Numbers,
    examples: Examples,
    *,
    most: int,
    patience: int = PATIENCE,
    step: Callable[[int], None],
) -> GrownTrees:
    """Grow trees with each fold held out, then on everything, as many as served the folds.

    Args:
        settings: LightGBM's.
        features: a row a piece, or a response.
        labels: of each row.
        of: the response that each row is of; rows of one follow each other.
        examples: whose folds they are.
        most: trees that are grown at most.
        patience: trees without a gain on the held-out fold after which it stops.
        step: called with how many folds are done.
    """
    lightgbm = import_optional("lightgbm", "training", "train")
    fixed = {"verbose": -1, "seed": examples.seed, "deterministic": True, "force_row_wise": True, **settings}
    outputs = int(settings.get("num_class", 1))

    def data(at: NDArray[np.bool_]) -> Any:  # noqa: ANN401 - LightGBM has no types
        groups = np.unique(of[at], return_counts=True)[1] if settings["objective"] == "lambdarank" else None
        return lightgbm.Dataset(features[at], labels[at].astype(int), group=groups)

    folds, scores, rounds = examples.folds[of], np.zeros((len(labels), outputs)), []
    for fold in range(FOLDS):
        step(fold)
        held = folds == fold
        stopping = [lightgbm.early_stopping(patience, verbose=False)]
        booster = lightgbm.train(fixed, data(~held), most, valid_sets=[data(held)], callbacks=stopping)
        rounds.append(max(1, int(booster.best_iteration)))
        scores[held] = _to_arrays(booster, rounds[-1], outputs).scores(features[held])
    step(FOLDS)
    chosen = int(np.median(rounds))
    whole = lightgbm.train(fixed, data(np.ones(len(labels), bool)), chosen)
    return GrownTrees(_to_arrays(whole, chosen, outputs), chosen, scores)


def _to_arrays(booster: Any, rounds: int, outputs: int) -> Trees:  # noqa: ANN401
    """LightGBM's trees as arrays."""
    nodes: list[tuple[int, float, int, int, float]] = []

    def take(node: Mapping[str, Any]) -> int:
        at = len(nodes)
        nodes.append((0, np.inf, at, at, float(node.get("leaf_value", 0.0))))
        if "split_feature" in node:
            left, right = take(node["left_child"]), take(node["right_child"])
            nodes[at] = (int(node["split_feature"]), float(node["threshold"]), left, right, 0.0)
        return at

    trees = booster.dump_model(num_iteration=rounds)["tree_info"]
    roots = np.array([take(tree["tree_structure"]) for tree in trees], np.int64)
    feature, threshold, left, right, value = (np.array(column) for column in zip(*nodes, strict=True))
    return Trees(roots, outputs, feature, threshold, left, right, value)


def save_trained(folder: Path, examples: Examples, card: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    """Write a trained model with its card; returns its description."""
    whole = {**card, "data": examples.described(), "seed": examples.seed, "dialore": __version__}
    write_model(folder, whole, arrays, _readme(whole))
    return whole


_TREES = (
    "Boosted trees over lexical, positional and embedding features of a dialogue, its persona and the documents under"
    " it.",
    "A piece that the training data has is compared with the turns that it answered there; one that it has not counts"
    " by its words and place alone, and is ranked less well.",
)
_ABOUT = {
    "planner": ("planning: trained:FOLDER` of `safari", *_TREES),
    "ranker": ("retriever: trained:FOLDER` of `safari", *_TREES),
    "nli": (
        "--set nli=trained:FOLDER` of `score",
        "Boosted trees over what a piece and a response share, by words, numbers, places and embeddings, and over the"
        " answers that the piece was given for in the training data.",
        "Trained on the language and the kinds of text of its data; less exact on pieces that it lacks: see the"
        " figures `as if new`.",
    ),
    "decision": (
        "decision: trained:FOLDER` of `scg-qp",
        "A linear model over the words and static embeddings of the last two turns.",
        "What people do in such a place is only partly to be told from the dialogue: see the figures.",
    ),
}
"""The use, parts and limits of each kind."""


def _readme(card: Mapping[str, Any]) -> str:
    """Return the model card."""
    data, (use, about, limits) = card["data"], _ABOUT[card["kind"]]
    rows = [
        f"| {name} | {{mean}} | {{low}} to {{high}} |".format(**figures) for name, figures in card["measured"].items()
    ]
    settings = [f"- {name}: `{value}`" for name, value in sorted(card["settings"].items())]
    return "\n".join(
        [
            f"# A trained {card['kind']} of Dialore",
            "",
            f"{about} Used with numpy alone: `{use}`.",
            "",
            f"**Data.** `{data['dataset']}`: {data['responses']:,} responses of {data['dialogues']:,} dialogues;"
            f" SHA-256 of the file `{data['sha256']}`. Texts are kept as hashed counts alone.",
            "",
            f"**Limits.** {limits}",
            "",
            "**Cross-validation**, by whole dialogues, in percent:",
            "",
            "| measure | mean | folds |",
            "|---|---|---|",
            *rows,
            "",
            f"**Settings**, seed {card['seed']}:",
            "",
            *settings,
            "",
        ]
    )

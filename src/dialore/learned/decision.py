"""Trained decisions about the next response, by a linear model: is anything searched for, does the topic change."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.datasets import data_set, split_dialogues
from dialore.errors import InputError, UnknownNameError, import_optional
from dialore.learned.examples import FOLDS, Examples, number_dialogues
from dialore.learned.features import VECTORS
from dialore.learned.model import read_model
from dialore.learned.planner import WORDS, sigmoid, word_matrix, word_rows
from dialore.learned.training_index import rarities
from dialore.text import close_gaps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.learned.examples import Numbers, Step
    from dialore.learned.model import Arrays

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
        score = self._words[list(row)] @ np.array([*row.values()]) + _dense_rows([dialogue])[0] @ self._dense
        chance = float(sigmoid(score + self._bias))
        return chance >= self._threshold, chance


def open_decision(spec: str) -> TrainedDecision:
    """Return the decision of a spec, `trained:PATH`; raise InputError where there is none."""
    return _opened(Path(spec.partition(":")[2]))


_opened = functools.lru_cache(4)(TrainedDecision)


def _dense_rows(dialogues: list[Dialogue]) -> NDArray[np.float64]:
    """Return what is read beside the words: the embeddings of the last two turns, and how they are built."""
    rows = []
    for dialogue in dialogues:
        last, before = (
            close_gaps(dialogue.turns[-back].text) if len(dialogue.turns) >= back else "" for back in (1, 2)
        )
        shape = [text.count("?") + text.count("？") for text in (last, before)]
        sizes = [min(len(text) / (5 * _LONG), 5) for text in (last, before)]
        vectors = VECTORS.encode([last, before])
        rows.append(np.concatenate([vectors[0], vectors[1], [vectors[0] @ vectors[1], *shape, *sizes]]))
    return np.array(rows, float)


# --- training: `dialore train decision`

_LABELS = ("search", "shift")
_PENALTIES = (0.03, 0.1, 0.3, 1.0)
_GRID = np.round(np.arange(0.02, 0.99, 0.01), 2)


@dataclass
class Labelled(Examples):
    """Responses with what was decided for each.

    Attributes:
        label: what is decided: `search`, whether a person typed a query for the response; `shift`, whether it stands
            on knowledge about another thing than the response before that stands on any.
        labels: yes (1) or no (0), of each response.
    """

    label: str
    labels: Numbers


def read_labelled(name: str, path: Path, *, label: str = "search", seed: int = 0) -> Labelled:
    """Return the labelled responses of a data set's file.

    Raises:
        InputError: it cannot be read, has no such labels, one class only, or too few dialogues.
    """
    if label not in _LABELS:
        raise UnknownNameError("label", label, _LABELS)
    reader = data_set(name)
    needs = {"search": "query", "shift": "knowledge"}[label]
    if needs not in reader.has:
        hint = "wizard-of-internet has what is needed for search, kdconv for shift"
        raise InputError(f"{name} has no {needs} to learn {label} from", hint=hint)
    dialogues = split_dialogues(reader.read(path), cut="all")
    numbers = number_dialogues(dialogues, path)
    if label == "search":
        values = [int(bool(dialogue.extra.get("query"))) for dialogue in dialogues]
    else:
        values = _shifts(dialogues, numbers)
    kept = [at for at, value in enumerate(values) if value >= 0]
    labels = np.array([values[at] for at in kept], np.int64)
    for value, label_name in enumerate(("no", "yes")):
        if (count := int((labels == value).sum())) < FOLDS:
            hint = f"each must come {FOLDS} times at least"
            raise InputError(f"{path}: nothing to learn for {label}: {label_name} comes {count} times", hint=hint)
    of = hashlib.sha256(path.read_bytes()).hexdigest()
    return Labelled(name, of, [dialogues[at] for at in kept], numbers[kept], seed, label, labels)


def _shifts(dialogues: list[Dialogue], numbers: Numbers) -> list[int]:
    """Return whether each response is about another thing than the one before; -1 where either is not said."""
    shifts, before, of = [], set[str](), -1
    for dialogue, number in zip(dialogues, numbers, strict=True):
        before, of = (before if of == number else set()), int(number)
        titles = (item.get("head") or item.get("title") for item in dialogue.knowledge if isinstance(item, dict))
        about = {str(title) for title in titles if title}
        shifts.append(int(not about & before) if about and before else -1)
        before = about or before
    return shifts


def train_decision(examples: Labelled, step: Step) -> tuple[dict[str, Any], Arrays]:
    """Return a decision's card and arrays; penalty and threshold by cross-validation."""
    labels, folds = examples.labels, examples.folds
    shares, penalty, whole, idf = cross_validated(examples, step)
    weights = whole.coef_[0].astype(np.float32)
    arrays = {"idf": idf, "words": weights[:WORDS], "dense": weights[WORDS:], "bias": whole.intercept_[0]}
    card = {
        "kind": "decision",
        "label": examples.label,
        "threshold": choose_threshold(shares, labels),
        "settings": {"C": penalty},
        "measured": _cross_validation(held_out(shares, labels, folds), shares, labels, folds),
    }
    return card, arrays


def cross_validated(examples: Labelled, step: Step) -> tuple[NDArray[np.float64], float, Any, NDArray[np.float32]]:
    """Return the held-out probability of yes by the best penalty, that, the model on everything, and rarities."""
    linear = import_optional("sklearn.linear_model", "training", "train")
    labels = examples.labels
    idf = rarities(list(dict.fromkeys(text for dialogue in examples.dialogues for text in dialogue.texts)))
    matrix = _matrix(examples.dialogues, idf)

    def fitted(at: NDArray[np.bool_], penalty: float) -> Any:  # noqa: ANN401 - scikit-learn has no types
        return linear.LogisticRegression(C=penalty, tol=1e-3, max_iter=500).fit(matrix[at], labels[at])

    scores: dict[float, NDArray[np.float64]] = {}
    for done, penalty in enumerate(_PENALTIES):
        scores[penalty] = np.zeros(len(labels))
        for fold in range(FOLDS):
            step("training, a fold held out", done * FOLDS + fold, len(_PENALTIES) * FOLDS)
            held = examples.folds == fold
            scores[penalty][held] = fitted(~held, penalty).decision_function(matrix[held])
    losses = {penalty: float(np.logaddexp(0, -scores[penalty] * (2 * labels - 1)).mean()) for penalty in _PENALTIES}
    penalty = min(_PENALTIES, key=lambda strength: losses[strength])
    return sigmoid(scores[penalty]), penalty, fitted(np.ones(len(labels), bool), penalty), idf


def _matrix(dialogues: list[Dialogue], idf: NDArray[np.float32]) -> Any:  # noqa: ANN401 - scipy's
    """Return a row a response: its words, and what else is read."""
    sparse = import_optional("scipy.sparse", "training", "train")
    words = word_matrix(word_rows(dialogues, idf))
    return sparse.hstack([words, sparse.csr_matrix(_dense_rows(dialogues))], format="csr")


def choose_threshold(shares: NDArray[np.float64], labels: Numbers) -> float:
    """Return the probability from which yes is decided: where the mean of both F1 is greatest."""
    return float(max(_GRID, key=lambda least: sum(f1s(shares >= least, labels))))


def held_out(shares: NDArray[np.float64], labels: Numbers, folds: Numbers) -> NDArray[np.bool_]:
    """Return the decision on each response, by the threshold that serves the other folds best."""
    decided = np.zeros(len(labels), bool)
    for fold in range(FOLDS):
        at = folds == fold
        decided[at] = shares[at] >= choose_threshold(shares[~at], labels[~at])
    return decided


def f1s(decided: NDArray[np.bool_], labels: Numbers) -> tuple[float, float]:
    """Return the F1 of no and of yes."""
    both = []
    for value in (False, True):
        right = int(((decided == value) & (labels == value)).sum())
        both.append(2 * right / max(1, int((decided == value).sum() + (labels == value).sum())))
    return both[0], both[1]


def _cross_validation(
    decided: NDArray[np.bool_], shares: NDArray[np.float64], labels: Numbers, folds: Numbers
) -> dict[str, dict[str, float]]:
    """F1 of both, and the area under the curve, of held-out folds."""
    area = import_optional("sklearn.metrics", "training", "train").roc_auc_score
    at = [folds == fold for fold in range(FOLDS)]
    figures: dict[str, list[float]] = {
        "F1 of no": [f1s(decided[held], labels[held])[0] for held in at],
        "F1 of yes": [f1s(decided[held], labels[held])[1] for held in at],
        "area under the ROC curve": [area(labels[held], shares[held]) for held in at if np.ptp(labels[held])],
    }
    return {
        name: {key: round(100 * float(of(held)), 2) for key, of in (("mean", np.mean), ("low", min), ("high", max))}
        for name, held in figures.items()
    }

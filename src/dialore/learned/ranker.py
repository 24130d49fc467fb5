"""The trained ranker of a persona and its documents: `retriever: trained:PATH` wherever `dialogue` goes."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.errors import InputError
from dialore.learned.encoders import TrainedEncoder
from dialore.learned.examples import FOLDS, Compared, Examples, compare
from dialore.learned.features import Pool, document_features, sentence_features, softmax
from dialore.learned.model import PREFIX, Trees, describe, read_model
from dialore.learned.training_index import TrainingIndex
from dialore.learned.trees import grow
from dialore.retrieval.dialogue_ranking import DialogueRanker

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.learned.examples import Numbers, Step
    from dialore.learned.model import Arrays

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
        past = TrainingIndex.read(arrays)
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


# --- training: `dialore train retriever`

SETTINGS: dict[str, Any] = {
    "objective": "lambdarank",
    "metric": "ndcg",
    "eval_at": [3],
    "learning_rate": 0.05,
    "num_leaves": 15,
    "min_child_samples": 40,
    "lambda_l2": 5.0,
    "feature_fraction": 0.5,
}
_MOST = 300
_PATIENCE = 100
_SHARPNESS = np.round(np.arange(0.2, 3.01, 0.05), 2)


def train_ranker(examples: Examples, step: Step) -> tuple[dict[str, Any], Arrays]:
    """Return a ranker's card and arrays; how many trees, and how sharp its probabilities, by cross-validation.

    Raises:
        InputError: no response stands on a document, or none on a persona sentence.
    """
    compared = compare(examples, step)
    asked = np.array([len(dialogue.sources) for dialogue in examples.dialogues])
    parts = _parts(compared, asked)
    for name, (_, labels, _) in parts.items():
        if not labels.any() or labels.all():
            raise InputError(f"nothing to learn for {name}: one class only", hint="train on more dialogues")
    arrays = examples.past.arrays()
    sharpness: dict[str, float] = {}
    rounds: dict[str, int] = {}
    scores: dict[str, NDArray[np.float64]] = {}
    for done, (name, (features, labels, of)) in enumerate(parts.items()):

        def fold_done(fold: int, name: str = name, done: int = done) -> None:
            step(f"training on {name}", done * (FOLDS + 1) + fold, len(parts) * (FOLDS + 1))

        grown = grow(SETTINGS, features, labels, of, examples, most=_MOST, patience=_PATIENCE, step=fold_done)
        scores[name], rounds[name] = grown.scores[:, 0], grown.rounds
        arrays |= grown.trees.arrays(name)
        losses = [_loss(scores[name] * sharp, labels, of) for sharp in _SHARPNESS]
        sharpness[name] = float(_SHARPNESS[int(np.argmin(losses))])
    settings = {**SETTINGS, "trees": rounds, "most trees": _MOST, "patience": _PATIENCE}
    card = {"kind": "ranker", "settings": settings, "sharpness": sharpness}
    return {**card, "measured": _cross_validation(examples, parts, scores, compared, asked)}, arrays


_Part = tuple["NDArray[np.float32]", "NDArray[np.bool_]", "Numbers"]


def _parts(compared: Compared, asked: Numbers) -> dict[str, _Part]:
    """Features, labels and responses of the rows that each of the three learns from: where one of a group is gold."""
    first = np.full(len(asked), -1)
    places = np.arange(len(compared.of_sentence)) - np.searchsorted(compared.of_sentence, compared.of_sentence)
    first[compared.of_sentence[compared.is_gold][::-1]] = places[compared.is_gold][::-1]
    sentences = asked[compared.of_sentence] > 0
    documents = asked[compared.of_document] > 1
    under = documents & (first[compared.of_document] == compared.owner)
    chosen = {
        "sentences": (compared.sentences, compared.is_gold, compared.of_sentence, sentences),
        "documents": (compared.documents, compared.is_gold_document, compared.of_document, under),
        "all-documents": (compared.all_documents, compared.is_gold_document, compared.of_document, documents),
    }
    return {name: (features[at], labels[at], of[at]) for name, (features, labels, of, at) in chosen.items()}


def _loss(scores: NDArray[np.float64], labels: NDArray[np.bool_], of: Numbers) -> float:
    """Return the mean negative log of the probability that goes to gold pieces."""
    starts = np.flatnonzero(np.diff(of, prepend=-1))
    sizes = np.diff([*starts, len(of)])
    shares = np.exp(scores - np.repeat(np.maximum.reduceat(scores, starts), sizes))
    gold = np.add.reduceat(shares * labels, starts) / np.add.reduceat(shares, starts)
    return float(-np.log(np.maximum(gold, 1e-9)).mean())


def _first_found(scores: NDArray[np.float64], labels: NDArray[np.bool_], of: Numbers) -> dict[int, bool]:
    """Return whether the best row of each response is gold."""
    starts = np.flatnonzero(np.diff(of, prepend=-1))
    stops: Sequence[int] = [*starts[1:], len(of)]
    return {
        int(of[start]): bool(labels[start + int(np.argmax(scores[start:stop]))])
        for start, stop in zip(starts, stops, strict=True)
    }


def _cross_validation(
    examples: Examples,
    parts: dict[str, _Part],
    scores: dict[str, NDArray[np.float64]],
    compared: Compared,
    asked: Numbers,
) -> dict[str, dict[str, float]]:
    """Recall@1 of held-out folds: of the documents under the gold sentence, those under another count as not found."""
    hits = {name: _first_found(scores[name], labels, of) for name, (_, labels, of) in parts.items()}
    rows = {
        "persona": {at: hit for at, hit in hits["sentences"].items() if asked[at] == 1},
        "both: persona": {at: hit for at, hit in hits["sentences"].items() if asked[at] == 2},
        "documents": {at: hit and hits["sentences"][at] for at, hit in hits["documents"].items()},
        "documents, the gold sentence given": hits["documents"],
        "all documents, the gold sentence given": hits["all-documents"],
    }
    return {
        name: spread({at: float(hit) for at, hit in row.items()}, examples.folds) for name, row in rows.items() if row
    }


def spread(values: dict[int, float], folds: Numbers) -> dict[str, float]:
    """Return the mean over folds in percent, and the least and the greatest fold."""
    of = folds[list(values)]
    numbers = np.array(list(values.values()))
    means = [100 * float(numbers[of == fold].mean()) for fold in range(FOLDS) if (of == fold).any()]
    return {"mean": round(float(np.mean(means)), 2), "low": round(min(means), 2), "high": round(max(means), 2)}

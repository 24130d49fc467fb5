"""The trained planner: which sources a response needs, and how probable each plan is, in about a millisecond."""

from __future__ import annotations

import functools
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.errors import InputError, import_optional
from dialore.learned.examples import FOLDS, Compared, Examples, compare, labels_of
from dialore.learned.features import Pool, document_features, sentence_features, softmax
from dialore.learned.model import Networks, Trees, read_model
from dialore.learned.training_index import SIZE, TrainingIndex, weigh_buckets
from dialore.learned.trees import PATIENCE, grow

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.learned.examples import Numbers, Step
    from dialore.learned.model import Arrays
    from dialore.learned.trees import GrownTrees

    Pieces = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float64], NDArray[np.float64]]
    """Features of sentences and of documents, and how likely each is of use."""

_POOLS = 64
_TURNS = 5
_NEAREST = (1, 3, 10)

Plan = tuple[str, ...]


class TrainedPlanner:
    """Plans by trees that `dialore train planner` grew; the kinds of source are those of its data's plans.

    Args:
        path: the model's folder.

    Raises:
        InputError: it is no trained planner, or damaged.
    """

    def __init__(self, path: Path) -> None:
        card, arrays = read_model(path, "planner")
        self.plans: list[Plan] = [tuple(plan) for plan in card["plans"]]
        self._offsets = np.array(card["offsets"])
        self._is_of_context = card["settings"].get("context", False)
        self._past = TrainingIndex.read(arrays)
        self._labels = arrays["labels"].astype(np.int64)
        self._words, self._bias = arrays["words"], arrays["bias"]
        self._trees = {name: Trees.read(arrays, name) for name in card["settings"]["trees"]}
        self._networks = Networks.read(arrays)
        self._pool = functools.lru_cache(_POOLS)(lambda persona: Pool(self._past, dict(persona)))

    def probabilities(self, dialogue: Dialogue, persona: Mapping[str, Sequence[str]]) -> dict[Plan, float]:
        """Return the calibrated probability of each plan.

        Of a dialogue without a persona it is sure that nothing is needed, but for a planner that reads the context
        alone.
        """
        if not self._is_of_context and not any(persona.values()):
            return {plan: float(not plan) for plan in self.plans}
        pieces = None if self._is_of_context else self._compare(dialogue, persona)
        near = _votes(self._past.asked.cosines(dialogue.turns[-1].text, self._past.idf), self._labels, len(self.plans))
        logits = _logits_of(word_rows([dialogue], self._past.idf)[0], self._words, self._bias)
        features = _plan_features(dialogue, near, logits, pieces)
        scores, shares = self._trees["plans"].scores(features[None]), self._networks.shares(features[None])
        return dict(zip(self.plans, _mean_probabilities(scores, shares)[0].tolist(), strict=True))

    def _compare(self, dialogue: Dialogue, persona: Mapping[str, Sequence[str]]) -> Pieces:
        pool = self._pool(tuple((line, tuple(under)) for line, under in persona.items()))
        compared = pool.compare(dialogue)
        sentences, documents = sentence_features(pool, dialogue, compared), document_features(pool, dialogue, compared)
        of_sentences = sigmoid(self._trees["sentences"].scores(sentences)[:, 0])
        of_documents = sigmoid(self._trees["documents"].scores(_with_owner(documents, of_sentences, pool.sizes))[:, 0])
        return sentences, documents, of_sentences, of_documents

    def choose(self, probabilities: Mapping[Plan, float]) -> Plan:
        """Return the plan that is the best by the thresholds chosen in training."""
        logs = np.log(np.maximum([probabilities[plan] for plan in self.plans], 1e-12))
        return self.plans[int(np.argmax(logs + self._offsets))]


def open_planner(spec: str) -> TrainedPlanner:
    """Return the planner of a spec, `trained:PATH`; raise InputError where there is none."""
    return _opened(Path(spec.partition(":")[2]))


_opened = functools.lru_cache(4)(TrainedPlanner)


def sigmoid(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities of log odds."""
    shares: NDArray[np.float64] = 1 / (1 + np.exp(-scores))
    return shares


def _mean_probabilities(scores: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """(rows, plans): the probability of each plan: the mean of the trees' and the networks'."""
    return (softmax(scores) + shares) / 2


def _with_owner(
    documents: NDArray[np.float32], of_sentences: NDArray[np.float64], sizes: Sequence[int]
) -> NDArray[np.float32]:
    """Documents' features with how likely the owning sentence is of use, and the best one."""
    own = np.repeat(of_sentences, sizes)
    return np.column_stack([documents, own, np.full(len(own), of_sentences.max())]).astype(np.float32)


def _votes(cosines: NDArray[np.float64], labels: NDArray[np.int64], plans: int) -> NDArray[np.float64]:
    """Return how near the nearest answered turns of each plan are to the last turn."""
    sums: list[float] = []
    for plan in range(plans):
        likeness = cosines[labels == plan]
        best = (
            np.sort(np.partition(likeness, -most)[-most:])[::-1]
            if (most := min(max(_NEAREST), len(likeness)))
            else likeness
        )
        sums += [float(best[:count].sum()) / max(1, len(best[:count])) for count in _NEAREST]
    return np.array(sums)


def word_rows(dialogues: Sequence[Dialogue], idf: NDArray[np.float32]) -> list[dict[int, float]]:
    """Return what the linear part reads: the last turn's words, those of the turn before, the number of turns."""
    rows = []
    for dialogue in dialogues:
        row = {2 * SIZE + min(len(dialogue.turns) // 2, _TURNS): 1.0}
        for back, turn in enumerate(dialogue.turns[:-3:-1]):
            buckets, weights = weigh_buckets(turn.text, idf)
            row.update(zip((buckets + back * SIZE).tolist(), weights.tolist(), strict=True))
        rows.append(row)
    return rows


WORDS = 2 * SIZE + _TURNS + 1
"""Columns of `word_rows`."""


def word_matrix(rows: Sequence[Mapping[int, float]]) -> Any:  # noqa: ANN401 - scipy's
    """(rows, WORDS): the rows of `word_rows` as a sparse matrix."""
    sparse = import_optional("scipy.sparse", "training", "train")
    ends = np.cumsum([0, *map(len, rows)])
    values = np.concatenate([np.fromiter(row.values(), float) for row in rows])
    return sparse.csr_matrix((values, np.concatenate([[*row] for row in rows]), ends), (len(rows), WORDS))


def _logits_of(row: Mapping[int, float], words: NDArray[np.float32], bias: NDArray[np.float32]) -> NDArray[np.float64]:
    """(plans,): the linear part's log probabilities."""
    return np.log(softmax((words[:, list(row)] @ np.array([*row.values()]) + bias).astype(np.float64)))


def _plan_features(
    dialogue: Dialogue, near: NDArray[np.float64], said: NDArray[np.float64], pieces: Pieces | None
) -> NDArray[np.float32]:
    """Return what the plan is decided by: earlier plans, the turn, and how well the best pieces fit."""
    last = dialogue.turns[-1].text
    before = dialogue.turns[-2].text if len(dialogue.turns) > 1 else ""
    parts, count = [near, said], 0
    if pieces is not None:
        sentences, documents, *shares_of = pieces
        count = len(documents)
        for features in (sentences[:, : sentences.shape[1] // 2], documents[:, : (documents.shape[1] - 4) // 3]):
            best = np.sort(features, 0)[::-1]
            parts += [best[0], best[0] - best[min(1, len(best) - 1)], features.mean(0)]
        for shares in shares_of:
            order = np.sort(shares)[::-1]
            parts.append(np.array([order[0], order[min(1, len(order) - 1)], shares.sum(), order[:3].sum()]))
    asks = last.count("？") + last.count("?")
    parts.append(np.array([len(dialogue.turns) // 2, len(last), len(before), asks, "你" in last, count]))
    return np.concatenate(parts).astype(np.float32)


# --- training: `dialore train planner`

_USE: dict[str, Any] = {
    "objective": "binary",
    "learning_rate": 0.2,
    "num_leaves": 15,
    "min_child_samples": 60,
    "lambda_l2": 10.0,
    "feature_fraction": 0.4,
    "bagging_fraction": 0.5,
    "bagging_freq": 1,
}
PLANS: dict[str, Any] = {
    "objective": "multiclass",
    "learning_rate": 0.1,
    "num_leaves": 10,
    "min_child_samples": 40,
    "lambda_l2": 10.0,
    "feature_fraction": 0.4,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
}
_NETWORK: dict[str, Any] = {"hidden_layer_sizes": (64,), "alpha": 3.0, "early_stopping": True, "n_iter_no_change": 5}
_NETWORKS, _EPOCHS = 3, 40
_PENALTY = 1.0
_MOST = 250
_MOST_OF_USE = 100
_GRID = np.round(np.arange(-1.0, 1.81, 0.05), 2)


def train_planner(examples: Examples, step: Step, *, context: bool = False) -> tuple[dict[str, Any], Arrays]:
    """Return a planner's card and arrays; how many trees, and the thresholds, by cross-validation.

    With `context` it reads the context alone, as the paper's does, and no persona or document.

    Raises:
        InputError: every response has the same plan.
    """
    counts = Counter(tuple(dialogue.sources) for dialogue in examples.dialogues)
    plans = sorted((plan for plan in counts), key=lambda plan: (len(plan), plan))
    if len(plans) < 2 or min(counts.values()) < FOLDS:
        message = f"nothing to learn: {', '.join(f'{plan_name(plan)} {counts[plan]} times' for plan in plans)}"
        raise InputError(message, hint=f"every plan has to come at least {FOLDS} times, and two at least")
    labels = labels_of(examples, plans)
    arrays = {**examples.past.arrays(), "labels": labels.astype(np.int8)}
    stages = iter(range(3 * (FOLDS + 1)))

    def done(_: int) -> None:
        step("training, a fold held out", next(stages), 3 * (FOLDS + 1))

    grown, pieces = ({}, [None] * len(labels)) if context else _grow_usefulness(examples, compare(examples, step), done)
    word_logits, linear = _linear(examples, labels, len(plans))
    features = _training_features(examples, pieces, word_logits, labels, len(plans))
    settings = {**PLANS, "num_class": len(plans)}
    decided_by = grow(settings, features, labels, np.arange(len(labels)), examples, most=_MOST, step=done)
    grown["plans"] = decided_by
    networks, by_networks = _networks(examples, features, labels)
    arrays |= {**linear, **networks.arrays()}
    for name, forest in grown.items():
        arrays |= forest.trees.arrays(name)
    shares = _mean_probabilities(decided_by.scores, by_networks)
    offsets = _choose_offsets(shares, labels)
    chosen = np.argmax(np.log(shares + 1e-12) + offsets, 1)
    measured = {}
    for label, plan in enumerate(plans):
        of_fold = [100 * f1(chosen[at], labels[at], label) for at in (examples.folds == fold for fold in range(FOLDS))]
        measured[f"F1 of {plan_name(plan)}"] = {
            "mean": round(100 * f1(chosen, labels, label), 2),
            "low": round(min(of_fold), 2),
            "high": round(max(of_fold), 2),
        }
    trees_of = {name: forest.rounds for name, forest in grown.items()}
    card = {
        "kind": "planner",
        "plans": [list(plan) for plan in plans],
        "offsets": offsets.tolist(),
        "settings": {
            "of use": {**_USE, "most trees": _MOST_OF_USE, "patience": PATIENCE},
            "plans": {**PLANS, "most trees": _MOST, "patience": PATIENCE},
            "networks": {**_NETWORK, "max_iter": _EPOCHS, "networks": _NETWORKS},
            "linear C": _PENALTY,
            "context": context,
            "trees": trees_of,
        },
        "measured": measured,
    }
    return card, arrays


def plan_name(plan: tuple[str, ...]) -> str:
    """Return a plan in words, as the paper has it."""
    return ", ".join(name.upper() for name in plan) or "NULL"


def f1(decided: Numbers, labels: Numbers, plan: int) -> float:
    """Return the F1 of one plan."""
    both = int(((decided == plan) & (labels == plan)).sum())
    return 2 * both / max(1, int((decided == plan).sum() + (labels == plan).sum()))


def _choose_offsets(shares: NDArray[np.float64], labels: Numbers) -> NDArray[np.float64]:
    """Return what is added to each plan's log probability so that the sum of the plans' F1 is greatest."""
    logs, plans = np.log(shares + 1e-12), range(shares.shape[1])
    offsets = np.zeros(shares.shape[1])
    for _ in range(4):
        for label in plans[:-1]:
            scored = []
            for value in _GRID:
                offsets[label] = value
                decided = np.argmax(logs + offsets, 1)
                scored.append(sum(f1(decided, labels, plan) for plan in plans))
            offsets[label] = _GRID[int(np.argmax(scored))]
    return offsets


def _grow_usefulness(
    examples: Examples, compared: Compared, done: Callable[[int], None]
) -> tuple[dict[str, GrownTrees], list[Pieces | None]]:
    """Trees that say how likely each piece is of use, and each response's pieces by trees that have not seen it."""
    pieces = (compared.sentences, compared.is_gold, compared.of_sentence)
    sentences = grow(_USE, *pieces, examples, most=_MOST_OF_USE, step=done)
    of_sentences = sigmoid(sentences.scores[:, 0])
    pieces = (_with_owners(compared, of_sentences), compared.is_gold_document, compared.of_document)
    documents = grow(_USE, *pieces, examples, most=_MOST_OF_USE, step=done)
    of_documents = sigmoid(documents.scores[:, 0])
    places = range(len(examples.dialogues) + 1)
    ends = [np.searchsorted(of, np.array(places)) for of in (compared.of_sentence, compared.of_document)]
    of_pieces: list[Pieces | None] = []
    for at in places[:-1]:
        mine, under = (slice(of[at], of[at + 1]) for of in ends)
        of_pieces.append((compared.sentences[mine], compared.documents[under], of_sentences[mine], of_documents[under]))
    return {"sentences": sentences, "documents": documents}, of_pieces


def _with_owners(compared: Compared, of_sentences: NDArray[np.float64]) -> NDArray[np.float32]:
    owned, sentence, document = [], 0, 0
    for sizes in compared.sizes:
        documents = compared.documents[document : document + sum(sizes)]
        owned.append(_with_owner(documents, of_sentences[sentence : sentence + len(sizes)], sizes))
        sentence, document = sentence + len(sizes), document + sum(sizes)
    return np.concatenate(owned)


def _linear(examples: Examples, labels: Numbers, plans: int) -> tuple[NDArray[np.float64], Arrays]:
    """Held-out log probabilities by the words of the last turns, and the weights on everything."""
    linear = import_optional("sklearn.linear_model", "training", "train")
    rows = word_rows(examples.dialogues, examples.past.idf)
    matrix = word_matrix(rows)

    def fitted(at: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        model = linear.LogisticRegression(C=_PENALTY, tol=1e-3, max_iter=300).fit(matrix[at], labels[at])
        words, bias = model.coef_, model.intercept_
        if plans == 2:
            words, bias = np.stack([0 * words[0], words[0]]), np.array([0, bias[0]])
        return words.astype(np.float32), bias.astype(np.float32)

    logits = np.zeros((len(rows), plans))
    for fold in range(FOLDS):
        words, bias = fitted(examples.folds != fold)
        for at in np.flatnonzero(examples.folds == fold):
            logits[at] = _logits_of(rows[at], words, bias)
    words, bias = fitted(np.ones(len(rows), bool))
    return logits, {"words": words, "bias": bias}


def _networks(
    examples: Examples, features: NDArray[np.float32], labels: Numbers
) -> tuple[Networks, NDArray[np.float64]]:
    """Networks on everything, and what those say that have not seen a response's fold."""
    neural = import_optional("sklearn.neural_network", "training", "train")

    def fitted(at: NDArray[np.bool_]) -> Networks:
        nothing = np.zeros(0, np.float32)
        scale = features[at].std(0, dtype=np.float64)
        networks = Networks(features[at].mean(0), np.where(scale > 0, scale, 1).astype(np.float32), *[nothing] * 4)
        inputs, layers = networks.standardised(features[at]), []
        for seed in range(examples.seed, examples.seed + _NETWORKS):
            model = neural.MLPClassifier(**_NETWORK, max_iter=_EPOCHS, random_state=seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that there could be more epochs
                model.fit(inputs, labels[at])
            layers.append([model.coefs_[0], model.intercepts_[0], model.coefs_[1], model.intercepts_[1]])
        weights = [np.stack(layer).astype(np.float32) for layer in zip(*layers, strict=True)]
        if weights[2].shape[2] == 1:  # of two plans, the score of the second
            weights[2:] = [np.concatenate([0 * layer, layer], -1) for layer in weights[2:]]
        return Networks(networks.mean, networks.scale, *weights)

    shares = np.zeros((len(labels), int(labels.max()) + 1))
    for fold in range(FOLDS):
        held = examples.folds == fold
        shares[held] = fitted(~held).shares(features[held])
    return fitted(np.ones(len(labels), bool)), shares


def _training_features(
    examples: Examples,
    pieces: Sequence[Pieces | None],
    said: NDArray[np.float64],
    labels: Numbers,
    plans: int,
) -> NDArray[np.float32]:
    """Return the features that the plan of each response is decided by, its own dialogue left out of the past."""
    rows = []
    for at, dialogue in enumerate(examples.dialogues):
        cosines = examples.past.asked.cosines(dialogue.turns[-1].text, examples.past.idf)
        cosines[slice(*np.searchsorted(examples.numbers, [examples.numbers[at], examples.numbers[at] + 1]))] = 0
        rows.append(_plan_features(dialogue, _votes(cosines, labels, plans), said[at], pieces[at]))
    return np.stack(rows)

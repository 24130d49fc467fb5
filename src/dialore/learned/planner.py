"""The trained planner: which sources a response needs, and how probable each plan is, in about a millisecond."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dialore.learned.features import Pool, document_features, sentence_features, softmax
from dialore.learned.model import Networks, Trees, read_model
from dialore.learned.training_index import SIZE, Past, weighed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue

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
        self._past = Past.read(arrays)
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
        pieces = None if self._is_of_context else self._compared(dialogue, persona)
        near = votes(self._past.asked.cosines(dialogue.turns[-1].text, self._past.idf), self._labels, len(self.plans))
        logits = logits_of(word_rows([dialogue], self._past.idf)[0], self._words, self._bias)
        features = plan_features(dialogue, near, logits, pieces)
        shares = decided(self._trees["plans"].scores(features[None]), self._networks.shares(features[None]))[0]
        return dict(zip(self.plans, shares.tolist(), strict=True))

    def _compared(self, dialogue: Dialogue, persona: Mapping[str, Sequence[str]]) -> Pieces:
        pool = self._pool(tuple((line, tuple(under)) for line, under in persona.items()))
        compared = pool.compare(dialogue)
        sentences, documents = sentence_features(pool, dialogue, compared), document_features(pool, dialogue, compared)
        of_sentences = likely(self._trees["sentences"].scores(sentences)[:, 0])
        of_documents = likely(self._trees["documents"].scores(with_owner(documents, of_sentences, pool.sizes))[:, 0])
        return sentences, documents, of_sentences, of_documents

    def choose(self, probabilities: Mapping[Plan, float]) -> Plan:
        """Return the plan that is the best by the thresholds chosen in training."""
        logs = np.log(np.maximum([probabilities[plan] for plan in self.plans], 1e-12))
        return self.plans[int(np.argmax(logs + self._offsets))]


def open_planner(spec: str) -> TrainedPlanner:
    """Return the planner of a spec, `trained:PATH`; raise InputError where there is none."""
    return _opened(Path(spec.partition(":")[2]))


_opened = functools.lru_cache(4)(TrainedPlanner)


def likely(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities of log odds."""
    shares: NDArray[np.float64] = 1 / (1 + np.exp(-scores))
    return shares


def decided(scores: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """(rows, plans): the probability of each plan: the mean of the trees' and the networks'."""
    return (softmax(scores) + shares) / 2


def with_owner(
    documents: NDArray[np.float32], of_sentences: NDArray[np.float64], sizes: Sequence[int]
) -> NDArray[np.float32]:
    """Documents' features with how likely the owning sentence is of use, and the best one."""
    own = np.repeat(of_sentences, sizes)
    return np.column_stack([documents, own, np.full(len(own), of_sentences.max())]).astype(np.float32)


def votes(cosines: NDArray[np.float64], labels: NDArray[np.int64], plans: int) -> NDArray[np.float64]:
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
            buckets, weights = weighed(turn.text, idf)
            row.update(zip((buckets + back * SIZE).tolist(), weights.tolist(), strict=True))
        rows.append(row)
    return rows


WORDS = 2 * SIZE + _TURNS + 1
"""Columns of `word_rows`."""


def logits_of(row: Mapping[int, float], words: NDArray[np.float32], bias: NDArray[np.float32]) -> NDArray[np.float64]:
    """(plans,): the linear part's log probabilities."""
    return np.log(softmax((words[:, list(row)] @ np.array([*row.values()]) + bias).astype(np.float64)))


def plan_features(
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

"""Trained entailment: does a response say what a persona sentence or a document says, by boosted trees."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dialore.learned.dialogue_ranking import joined
from dialore.learned.encoders import CrossEntailment, open_cross
from dialore.learned.features import VECTORS
from dialore.learned.model import Trees, describe, read_model
from dialore.learned.planner import likely
from dialore.learned.training_index import Past, Rows, key_of
from dialore.text import normalise

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_NEAREST = (1, 3, 10)


class TrainedEntailment:
    """Entailment of responses by knowledge, by trees that `dialore train nli` grew (SAFARI, Appendix C).

    Args:
        path: the model's folder.

    Raises:
        InputError: it is no such model, or damaged.
    """

    def __init__(self, path: Path) -> None:
        card, arrays = read_model(path, "nli")
        self._threshold: float = card["threshold"]
        self._past, self._trees = Past.read(arrays), Trees.read(arrays, "pairs")

    def chances(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Return the calibrated probability that each pair's second text, a response, is entailed by the first."""
        return likely(self._trees.scores(pair_features(self._past, pairs))[:, 0]) if pairs else np.zeros(0)

    def entails(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """Return whether each second text is entailed by its first, by the threshold chosen in training."""
        return [bool(chance >= self._threshold) for chance in self.chances(pairs)]


def pair_features(
    past: Past, pairs: Sequence[tuple[str, str]], leave: Sequence[int] = (), forget: Sequence[bool] = ()
) -> NDArray[np.float32]:
    """(pairs, ...): how a response stands to a piece, and to the answers that the piece was given for in training.

    Args:
        past: what training has seen.
        pairs: a piece and a response each; those of one response follow each other.
        leave: the number of the training dialogue that each pair is of, whose answers are left out.
        forget: pairs whose piece is taken for one that training has not seen.
    """
    rows, last, near = [], None, np.zeros(0)
    vectors = VECTORS.encode([joined(text) for pair in pairs for text in pair])
    for at, (piece, response) in enumerate(pairs):
        own = leave[at] if leave else -1
        if (response, own) != last:
            last, near = (response, own), past.answered.cosines(response, past.idf)
            near[past.dialogues == own] = 0
        uses = past.uses.get(key_of(piece), np.zeros(0, np.int64))
        uses = uses[past.dialogues[uses] != own]
        if forget and forget[at]:
            uses = uses[:0]
        lexical = _lexical(piece, response, past)
        rows.append([*lexical, float(vectors[2 * at] @ vectors[2 * at + 1]), *_answers(near, uses)])
    return np.array(rows, np.float32)


def _answers(near: NDArray[np.float64], uses: NDArray[np.int64]) -> list[float]:
    """Return how near the piece's answers are to the response, beside the nearest of others."""
    best = np.sort(near[uses])[::-1]
    others = near.copy()
    others[uses] = 0
    other = float(others.max(initial=0))
    means = [float(best[:count].mean()) if len(best) else 0.0 for count in _NEAREST]
    return [*means, other, means[0] - other, float(np.log1p(len(uses)))]


def _lexical(piece: str, response: str, past: Past) -> list[float]:
    """Return what two texts share."""
    first, second = normalise(joined(piece)), normalise(joined(response))
    rows = Rows.of([piece, response], past.idf)
    split = rows.starts[1]
    buckets, other = rows.buckets[:split], rows.buckets[split:]
    has, is_had = np.isin(buckets, other), np.isin(other, buckets)
    idf = past.idf
    shared = float(idf[buckets[has]].sum())
    aligned = SequenceMatcher(None, first, second, autojunk=False)
    blocks = [block.size for block in aligned.get_matching_blocks()]
    # Where one has something else than the other between what they share: another number or name.
    other_there = [(first[a:b], second[c:d]) for how, a, b, c, d in aligned.get_opcodes() if how == "replace"]
    numbers, others = set(_NUMBER.findall(first)), set(_NUMBER.findall(second))
    return [
        float(rows.weights[:split][has] @ rows.weights[split:][is_had]),
        shared / max(float(idf[buckets].sum()), 1e-9),
        shared / max(float(idf[other].sum()), 1e-9),
        shared,
        float(idf[buckets[has]].max(initial=0)),
        float(idf[other[~is_had]].max(initial=0)),
        sum(blocks) / max(len(first), 1),
        sum(blocks) / max(len(second), 1),
        max(blocks),
        max(blocks) / max(len(first), 1),
        len(numbers & others),
        len(numbers - others),
        len(others - numbers),
        sum(any(map(str.isdigit, own)) and any(map(str.isdigit, counterpart)) for own, counterpart in other_there),
        max((min(len(own), len(counterpart)) for own, counterpart in other_there), default=0),
        sum(len(own) for own, _ in other_there),
        len(first),
        len(second),
    ]


def open_entailment(spec: str) -> TrainedEntailment | CrossEntailment:
    """Return the entailment model of a spec, `trained:PATH`; raise InputError where there is none."""
    path = Path(spec.partition(":")[2])
    return open_cross(path) if describe(path)["kind"] == "nli-cross" else _opened(path)


_opened = functools.lru_cache(4)(TrainedEntailment)

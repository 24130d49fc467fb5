"""Trained entailment: does a response say what a persona sentence or a document says, by boosted trees."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.errors import InputError
from dialore.learned.encoders import CrossEntailment, open_cross
from dialore.learned.examples import FOLDS
from dialore.learned.features import VECTORS
from dialore.learned.model import Trees, describe, read_model
from dialore.learned.planner import sigmoid
from dialore.learned.training_index import Rows, TrainingIndex, key_of
from dialore.learned.trees import grow
from dialore.text import close_gaps, normalise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.learned.examples import Examples, Numbers, Step
    from dialore.learned.model import Arrays

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
        self._past, self._trees = TrainingIndex.read(arrays), Trees.read(arrays, "pairs")

    def chances(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Return the calibrated probability that each pair's second text, a response, is entailed by the first."""
        return sigmoid(self._trees.scores(_pair_features(self._past, pairs))[:, 0]) if pairs else np.zeros(0)

    def entails(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """Return whether each second text is entailed by its first, by the threshold chosen in training."""
        return [bool(chance >= self._threshold) for chance in self.chances(pairs)]


def _pair_features(
    past: TrainingIndex, pairs: Sequence[tuple[str, str]], leave: Sequence[int] = (), forget: Sequence[bool] = ()
) -> NDArray[np.float32]:
    """(pairs, ...): how a response stands to a piece, and to the answers that the piece was given for in training.

    Args:
        past: what training has seen.
        pairs: a piece and a response each; those of one response follow each other.
        leave: the number of the training dialogue that each pair is of, whose answers are left out.
        forget: pairs whose piece is taken for one that training has not seen.
    """
    rows, last, near = [], None, np.zeros(0)
    vectors = VECTORS.encode([close_gaps(text) for pair in pairs for text in pair])
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


def _lexical(piece: str, response: str, past: TrainingIndex) -> list[float]:
    """Return what two texts share."""
    first, second = normalise(close_gaps(piece)), normalise(close_gaps(response))
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


# --- training: `dialore train nli` (SAFARI, Appendix C)

PROTOCOLS = ("random", "same persona", "other document", "swapped")
"""How negatives come about: a piece of the same kind from anywhere (the paper's), another sentence of the persona,
another document of the dialogue, the gold document with a number or name of the response exchanged."""
SETTINGS: dict[str, Any] = {
    "objective": "binary",
    "learning_rate": 0.1,
    "num_leaves": 31,
    "min_child_samples": 30,
    "lambda_l2": 5.0,
    "feature_fraction": 0.6,
}
_MOST = 400
_FORGOTTEN = 0.3
_CHUNK = 2000
_TRIPLE = re.compile(r"^(?P<head>.+?)的(?P<attribute>[^的]{1,8}?)(?P<is>是|为)(?P<tail>[^，。]{1,20})$")
_DIGITS = re.compile(r"\d+")


@dataclass
class Pairs:
    """Pieces and responses, those of one response together.

    Attributes:
        texts: a piece and a response each.
        labels: 1 where the response stands on the piece.
        of: the response that each is of.
        protocol: how a negative came about, a number of `PROTOCOLS`; -1: a positive.
        kinds: `persona` or `documents`, of each.
    """

    texts: list[tuple[str, str]]
    labels: Numbers
    of: Numbers
    protocol: Numbers
    kinds: NDArray[np.str_]


def make_pairs(examples: Examples, *, hard: bool = True) -> Pairs:
    """Return every gold piece with its response, and of each kind of negative one where there is any.

    Without `hard` negatives are the paper's alone: any other piece of the kind.

    Raises:
        InputError: no response stands on anything.
    """
    draw = np.random.default_rng(examples.seed)
    every, tails = _pieces(examples)
    rows: list[tuple[str, str, int, int, int, str]] = []
    for at, dialogue in enumerate(examples.dialogues):
        gold, response = set(examples.gold[at]), dialogue.reference or ""
        under = [text for texts in dialogue.extra["documents"].values() for text in texts]
        for text in examples.gold[at]:
            kind = _kind(text, dialogue)
            near = [other for other in (dialogue.persona if kind == "persona" else under) if other not in gold]
            unrelated = text
            while unrelated in gold and len(every[kind]) > len(gold):
                unrelated = every[kind][draw.integers(len(every[kind]))]
            negatives = [(0, unrelated)]
            if hard and near:
                negatives.append((1 if kind == "persona" else 2, near[draw.integers(len(near))]))
            if hard and kind == "documents" and (swapped := _swap_detail(text, response, tails, draw)):
                negatives.append((3, swapped))
            rows.append((text, response, 1, at, -1, kind))
            rows += [(piece, response, 0, at, protocol, kind) for protocol, piece in negatives]
    if not rows:
        raise InputError(
            "no response stands on a persona sentence or document", hint="nothing can be learned from that"
        )
    pieces, responses, labels, of, protocols, kinds = zip(*rows, strict=True)
    texts = list(zip(pieces, responses, strict=True))
    return Pairs(texts, np.array(labels), np.array(of), np.array(protocols), np.array(kinds))


def _pieces(examples: Examples) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return every gold piece by kind, and what documents say a thing's attribute is, by attribute."""
    every: dict[str, list[str]] = {"persona": [], "documents": []}
    for dialogue, golds in zip(examples.dialogues, examples.gold, strict=True):
        for text in golds:
            every[_kind(text, dialogue)].append(text)
    every = {kind: list(dict.fromkeys(texts)) for kind, texts in every.items()}
    tails: dict[str, list[str]] = {}
    for text in every["documents"]:
        if triple := _TRIPLE.match(text):
            tails.setdefault(triple["attribute"], []).append(triple["tail"])
    return every, tails


def _kind(text: str, dialogue: Dialogue) -> str:
    return "persona" if text in dialogue.persona else "documents"


def _swap_detail(text: str, response: str, tails: dict[str, list[str]], draw: np.random.Generator) -> str:
    """Return the text with a number that the response has exchanged, or what follows `is`; else empty."""
    if numbers := [number for number in _DIGITS.finditer(text) if number[0] in response]:
        number = numbers[draw.integers(len(numbers))]
        first = (int(number[0][0]) + int(draw.integers(1, 9))) % 9 + 1
        digits = str(first) + "".join(str(digit) for digit in draw.integers(10, size=len(number[0]) - 1))
        return "" if digits in text or digits in response else text[: number.start()] + digits + text[number.end() :]
    if (triple := _TRIPLE.match(text)) and triple["tail"] in response:
        others = [tail for tail in tails[triple["attribute"]] if tail not in response and triple["tail"] not in tail]
        if others:
            return text[: triple.start("tail")] + others[draw.integers(len(others))]
    return ""


def train_nli(examples: Examples, step: Step, *, hard: bool = True) -> tuple[dict[str, Any], Arrays]:
    """Return a consistency model's card and arrays; how many trees, and the threshold, by cross-validation.

    A share of pairs is compared as if the piece were new, so that the model does not lean on what it was used for
    before; so are exchanged pieces, which otherwise were known by that.

    Raises:
        InputError: as `make_pairs`.
    """
    pairs = make_pairs(examples, hard=hard)
    numbers = examples.numbers[pairs.of]
    forget = np.random.default_rng(examples.seed).random(len(examples.dialogues))[pairs.of] < _FORGOTTEN
    features = []
    for start in range(0, len(numbers), _CHUNK):
        step("comparing pairs", start, len(numbers))
        chunk = slice(start, start + _CHUNK)
        forgotten = (forget | (pairs.protocol == PROTOCOLS.index("swapped")))[chunk]
        features.append(_pair_features(examples.past, pairs.texts[chunk], numbers[chunk].tolist(), forgotten.tolist()))
    grown = grow(
        SETTINGS,
        np.concatenate(features),
        pairs.labels,
        pairs.of,
        examples,
        most=_MOST,
        step=lambda fold: step("training, a fold held out", fold, FOLDS + 1),
    )
    shares, folds = sigmoid(grown.scores[:, 0]), examples.folds[pairs.of]
    parts = protocols(pairs)
    known = {name: at & ~forget for name, at in parts.items()}
    threshold = choose_threshold(shares, pairs.labels, known)
    measured = {}
    for name, at in {**known, **{f"{name}, as if new": at & forget for name, at in parts.items()}}.items():
        held = [at & (folds == fold) for fold in range(FOLDS)]
        figures = [100 * _balanced_accuracy(shares[part], pairs.labels[part], threshold) for part in held if part.any()]
        if figures:
            mean, low, high = float(np.mean(figures)), min(figures), max(figures)
            measured[name] = {"mean": round(mean, 2), "low": round(low, 2), "high": round(high, 2)}
    card = {
        "kind": "nli",
        "threshold": threshold,
        "settings": {**SETTINGS, "trees": grown.rounds, "hard": hard},
        "measured": measured,
    }
    return card, {**examples.past.arrays(), **grown.trees.arrays("pairs")}


def protocols(pairs: Pairs) -> dict[str, NDArray[np.bool_]]:
    """Return which pairs each figure is of: positives of a kind of piece, negatives made in one way."""
    figures = {}
    for kind in ("persona", "documents"):
        for number, name in enumerate(PROTOCOLS):
            negative = (pairs.kinds == kind) & (pairs.protocol == number)
            if negative.any():
                with_one = np.isin(pairs.of, pairs.of[negative]) & (pairs.kinds == kind) & (pairs.labels == 1)
                figures[f"{kind}, {name}"] = negative | with_one
    return figures


def _balanced_accuracy(shares: NDArray[np.float64], labels: Numbers, threshold: float) -> float:
    """Accuracy where positives and negatives are as many, as in the paper."""
    decided = shares >= threshold
    return float(np.mean([(decided[labels == value] == value).mean() for value in (0, 1) if (labels == value).any()]))


def choose_threshold(shares: NDArray[np.float64], labels: Numbers, parts: dict[str, NDArray[np.bool_]]) -> float:
    """Return the threshold that serves all protocols best; the paper's counts as much as the hard ones together."""
    hard = 2 / max(1, len(parts) - 2)
    weights = {name: 1.0 if name.endswith(PROTOCOLS[0]) else hard for name in parts}

    def worth(least: float) -> float:
        return sum(
            weights[name] * _balanced_accuracy(shares[at], labels[at], least) for name, at in parts.items() if at.any()
        )

    return float(max(np.round(np.arange(0.1, 0.91, 0.02), 2), key=worth))

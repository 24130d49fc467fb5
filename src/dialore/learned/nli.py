"""Trained entailment: does a response say what a persona sentence or a document says (SAFARI, Appendix C)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.errors import InputError
from dialore.learned.features import VECTORS
from dialore.learned.index import TrainingIndex, word_vectors
from dialore.learned.trees import TrainedPart, grow, read_trees
from dialore.text import close_gaps, normalise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.learned.examples import Examples, OnStep

    Rows = NDArray[np.bool_]

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_NEAREST = (1, 3, 10)
_PAIRS = "pairs"


class TrainedEntailment:
    """Entailment of responses by knowledge, by the trees that `dialore train nli` grew.

    Args:
        folder: The model's folder.
        card: The model's card.
    """

    def __init__(self, folder: Path, card: Mapping[str, Any]) -> None:
        self._threshold: float = card["threshold"]
        self._index = TrainingIndex.load(folder)
        self._trees = read_trees(folder)[_PAIRS]

    def entails(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """Return whether each pair's second text, a response, is entailed by the first."""
        if not pairs:
            return []
        features = np.stack([_pair_features(self._index, piece, response) for piece, response in pairs])
        return [bool(chance >= self._threshold) for chance in _sigmoid(self._trees.scores(features))]


def _sigmoid(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    chances: NDArray[np.float64] = 1 / (1 + np.exp(-scores))
    return chances


def _pair_features(
    index: TrainingIndex, piece: str, response: str, exclude: int = -1, *, is_new: bool = False
) -> NDArray[np.float32]:
    """Return how a response relates to a piece, and to the answers that the piece was given for in training.

    Args:
        index: The training data.
        piece: A persona sentence or a document.
        response: The response.
        exclude: Number of the training dialogue whose answers are left out.
        is_new: Treat the piece as one that is not in the training data.
    """
    similarities = np.where(index.dialogues == exclude, 0, index.similarities(response)[1])
    uses = index.find(piece)[0]
    uses = uses[:0] if is_new else uses[index.dialogues[uses] != exclude]
    best = np.sort(similarities[uses])[::-1]
    others = similarities.copy()
    others[uses] = 0
    near = [float(best[:count].mean()) if len(best) else 0.0 for count in _NEAREST]
    vectors = VECTORS.encode([close_gaps(piece), close_gaps(response)])
    past = [*near, others.max(initial=0), near[0] - others.max(initial=0), np.log1p(len(uses))]
    shared = _shared_words(piece, response, index) + _aligned_characters(piece, response)
    return np.array([*shared, vectors[0] @ vectors[1], *past], np.float32)


def _shared_words(piece: str, response: str, index: TrainingIndex) -> list[float]:
    vectors = word_vectors([piece, response], index.idf).toarray()
    in_piece, in_response = vectors > 0
    both = in_piece & in_response
    idf = index.idf
    shared = float(idf[both].sum())
    return [
        float(vectors[0] @ vectors[1]),
        shared,
        shared / max(float(idf[in_piece].sum()), 1e-9),
        shared / max(float(idf[in_response].sum()), 1e-9),
        float(idf[both].max(initial=0)),
        float(idf[in_response & ~in_piece].max(initial=0)),
    ]


def _aligned_characters(piece: str, response: str) -> list[float]:
    """Return how far the texts agree character by character, and whether numbers or names differ."""
    first, second = normalise(close_gaps(piece)), normalise(close_gaps(response))
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    sizes = [block.size for block in matcher.get_matching_blocks()]
    numbers, other_numbers = set(_NUMBER.findall(first)), set(_NUMBER.findall(second))
    replaced = changed_numbers = longest = 0
    for action, start, end, other_start, other_end in matcher.get_opcodes():
        if action != "replace":
            continue
        old, new = first[start:end], second[other_start:other_end]
        replaced += len(old)
        longest = max(longest, min(len(old), len(new)))
        changed_numbers += any(map(str.isdigit, old)) and any(map(str.isdigit, new))
    return [
        sum(sizes) / max(len(first), 1),
        sum(sizes) / max(len(second), 1),
        max(sizes),
        max(sizes) / max(len(first), 1),
        len(numbers & other_numbers),
        len(numbers - other_numbers),
        len(other_numbers - numbers),
        changed_numbers,
        replaced,
        longest,
        len(first),
        len(second),
    ]


# --- training

POSITIVE, RANDOM, SAME_PERSONA, OTHER_DOCUMENT, SWAPPED = PROTOCOLS = (
    "positive",
    "random",
    "same persona",
    "other document",
    "swapped",
)
"""How a pair comes about: a response with what it stands on, or with any other piece of the kind (the paper's
negatives), another sentence of the persona, another document of the dialogue, or the gold document with a number or
name of the response exchanged."""
SETTINGS: dict[str, Any] = {
    "objective": "binary",
    "learning_rate": 0.1,
    "num_leaves": 31,
    "min_child_samples": 30,
    "lambda_l2": 5.0,
    "feature_fraction": 0.6,
    "rounds": 400,
    "patience": 30,
}
_NEW_SHARE = 0.3
"""Share of responses whose pieces are treated as new, so that the model does not rely on the past alone."""
_PROGRESS_INTERVAL = 500
_THRESHOLDS = np.round(np.arange(0.1, 0.91, 0.02), 2)
_STATEMENT = re.compile(r"^.+?的(?P<attribute>[^的]{1,8}?)(?:是|为)(?P<value>[^，。]{1,20})$")
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Pair:
    """A piece and a response.

    Attributes:
        piece: The persona sentence or document.
        text: The response.
        response: Index of the response in the examples.
        protocol: One of `PROTOCOLS`.
        kind: `persona` or `documents`.
    """

    piece: str
    text: str
    response: int
    protocol: str
    kind: str

    @property
    def is_positive(self) -> bool:
        """Whether the response stands on the piece."""
        return self.protocol == POSITIVE


def make_pairs(examples: Examples, *, hard: bool = True) -> list[Pair]:
    """Return every gold piece with its response, each followed by one negative of each kind that there is.

    Args:
        examples: The responses.
        hard: Make all kinds of negatives, and not only the paper's random ones.

    Raises:
        InputError: No response stands on anything.
    """
    random = np.random.default_rng(examples.seed)
    pieces: dict[str, dict[str, None]] = {"persona": {}, "documents": {}}
    for dialogue, gold in zip(examples.dialogues, examples.gold, strict=True):
        for text in gold:
            pieces[_kind(text, dialogue)][text] = None
    pools = {kind: list(texts) for kind, texts in pieces.items()}
    values = _values_of_attributes(pools["documents"])
    pairs = []
    for index, (dialogue, gold) in enumerate(zip(examples.dialogues, examples.gold, strict=True)):
        documents = [text for texts in dialogue.extra["documents"].values() for text in texts]
        for text in gold:
            kind = _kind(text, dialogue)
            negatives = {RANDOM: _draw(random, pools[kind], gold)}
            if hard and kind == "persona":
                negatives[SAME_PERSONA] = _draw(random, dialogue.persona, gold)
            if hard and kind == "documents":
                negatives[OTHER_DOCUMENT] = _draw(random, documents, gold)
                negatives[SWAPPED] = swap_detail(text, dialogue.reference or "", values, random)
            for protocol, piece in {POSITIVE: text, **negatives}.items():
                if piece:
                    pairs.append(Pair(piece, dialogue.reference or "", index, protocol, kind))
    if not pairs:
        message = "no response stands on a persona sentence or document"
        raise InputError(message, hint="nothing can be learned from that")
    return pairs


def _kind(text: str, dialogue: Dialogue) -> str:
    return "persona" if text in dialogue.persona else "documents"


def _draw(random: np.random.Generator, texts: Sequence[str], excluded: Sequence[str]) -> str:
    """Return a random text that is not excluded, or "" if there is none."""
    start = int(random.integers(max(1, len(texts))))
    for offset in range(len(texts)):
        text = texts[(start + offset) % len(texts)]
        if text not in excluded:
            return text
    return ""


def _values_of_attributes(documents: Sequence[str]) -> dict[str, list[str]]:
    """Return the values that documents state for each attribute: "X's ATTRIBUTE is VALUE"."""
    values: dict[str, list[str]] = {}
    for text in documents:
        statement = _STATEMENT.match(text)
        if statement:
            values.setdefault(statement["attribute"], []).append(statement["value"])
    return values


def swap_detail(text: str, response: str, values: Mapping[str, Sequence[str]], random: np.random.Generator) -> str:
    """Exchange a number or a value of a document that the response repeats; return "" if there is none."""
    numbers = [number for number in _DIGITS.finditer(text) if number[0] in response]
    if numbers:
        number = numbers[random.integers(len(numbers))]
        first = (int(number[0][0]) + int(random.integers(1, 9))) % 9 + 1
        digits = f"{first}{''.join(map(str, random.integers(10, size=len(number[0]) - 1)))}"
        if digits in text or digits in response:
            return ""
        return text[: number.start()] + digits + text[number.end() :]
    statement = _STATEMENT.match(text)
    if statement is None or statement["value"] not in response:
        return ""
    value = statement["value"]
    others = [other for other in values[statement["attribute"]] if other not in response and value not in other]
    other = _draw(random, others, ())
    return text.removesuffix(value) + other if other else ""


def train_nli(examples: Examples, on_step: OnStep, *, hard: bool = True) -> TrainedPart:
    """Train a consistency model. The number of trees and the threshold are chosen by cross-validation.

    Raises:
        InputError: See `make_pairs`.
    """
    pairs = make_pairs(examples, hard=hard)
    draws = np.random.default_rng(examples.seed).random(len(examples.dialogues))
    features = []
    for done, pair in enumerate(pairs):
        if done % _PROGRESS_INTERVAL == 0:
            on_step("comparing pairs", done, len(pairs))
        # Training data never has exchanged pieces: by its past alone, such a piece would be known as a negative.
        is_new = draws[pair.response] < _NEW_SHARE or pair.protocol == SWAPPED
        exclude = int(examples.numbers[pair.response])
        features.append(_pair_features(examples.index, pair.piece, pair.text, exclude, is_new=is_new))
    labels = np.array([pair.is_positive for pair in pairs])
    responses = np.array([pair.response for pair in pairs])
    grown = grow(SETTINGS, np.stack(features), labels, responses, examples, on_step)
    chances = _sigmoid(grown.scores)
    treated_as_new = draws[responses] < _NEW_SHARE
    known, new = {}, {}
    for name, rows in protocol_rows(pairs).items():
        known[name], new[f"{name}, as if new"] = rows & ~treated_as_new, rows & treated_as_new
    threshold = _choose_threshold(chances, labels, known)
    measured = {}
    for name, rows in {**known, **new}.items():

        def accuracy(in_fold: Rows, rows: Rows = rows) -> float:
            chosen = rows & in_fold[responses]
            return _balanced_accuracy(chances[chosen] >= threshold, labels[chosen])

        measured[name] = examples.fold_spread(accuracy)
    card = {
        "kind": "nli",
        "use": "Tells whether a response follows from knowledge: `--set nli=trained:FOLDER` of `score`, `-o"
        " check=trained:FOLDER` of `weave`. Less exact for pieces that are not in its data: see `as if new`.",
        "threshold": threshold,
        "settings": {**SETTINGS, "hard": hard},
        "measured": measured,
    }
    return TrainedPart(card, {_PAIRS: grown.trees}, examples.index)


def protocol_rows(pairs: Sequence[Pair]) -> dict[str, Rows]:
    """Return the rows of each figure: negatives of one kind, and the positives of the same responses."""
    chosen = {}
    for kind in ("persona", "documents"):
        for protocol in PROTOCOLS[1:]:
            responses = {pair.response for pair in pairs if (pair.kind, pair.protocol) == (kind, protocol)}
            rows = [pair.kind == kind and pair.protocol in {protocol, POSITIVE} for pair in pairs]
            if responses:
                chosen[f"{kind}, {protocol}"] = np.array(rows) & np.isin(
                    [pair.response for pair in pairs], list(responses)
                )
    return chosen


def _balanced_accuracy(decided: Rows, labels: Rows) -> float:
    """Return the accuracy if positives and negatives are equally frequent, as in the paper."""
    if labels.all() or not labels.any():
        return float("nan")
    return float((decided[labels].mean() + (~decided[~labels]).mean()) / 2)


def _choose_threshold(chances: NDArray[np.float64], labels: Rows, parts: Mapping[str, Rows]) -> float:
    """Return the best threshold. The paper's protocol counts as much as all hard ones together."""
    best = (0.0, 0.5)
    for threshold in _THRESHOLDS.tolist():
        worth = 0.0
        for name, rows in parts.items():
            weight = 1.0 if name.endswith(RANDOM) else 2 / max(1, len(parts) - 2)
            worth += weight * np.nan_to_num(_balanced_accuracy(chances[rows] >= threshold, labels[rows]))
        best = max(best, (worth, threshold))
    return best[1]

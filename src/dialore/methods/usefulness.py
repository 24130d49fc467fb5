"""When is a piece of knowledge of use, for whatever retriever found it, and when does a response draw on it?

Scores of retrievers do not compare, so a small logistic model for each kind of source looks at the texts themselves.
`scripts/calibrate_usefulness.py` fits the models; docs/weave-figures.md says on what, and how well they do.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from dialore.retrieval.bm25 import correct, split_terms
from dialore.retrieval.static import static_embedder
from dialore.text import Language, close_gaps, is_stop_word, normalise, split_sentences, words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge

    Vector = NDArray[np.float64]

_NUMBER = re.compile(r"\d+")
_REMEMBERED = 4096
_SAID = 0.6  # the share of a piece's words and meaning from which one utterance has said it
_SAME = 0.99
_LEAST = 1e-9
_NO_WORD = -1
_UNLIKE, _ALIKE = 0.5, 0.8  # the cosines of two words from which one says something of the other, and all of it
_RUN: dict[Language, int] = {"en": 4, "zh": 5}  # words, or Chinese characters, in a row that are a quotation


def probabilities_of_use(pieces: Sequence[Knowledge], query: str, dialogue: Dialogue, also: str = "") -> list[float]:
    """Return for each piece found for a query the probability that it is of use in the response to the dialogue.

    The pieces of one kind of source are one search: how a piece stands among them counts, their order does not. The
    higher of the probabilities by the query and by `also` counts, as either may miss what is meant.
    """
    if also and also != query:
        by_both = (probabilities_of_use(pieces, asked, dialogue) for asked in (query, also))
        return [max(pair) for pair in zip(*by_both, strict=True)]
    query = correct(query, lambda letter: _terms_of(pieces, letter))
    chances = np.zeros(len(pieces))
    kinds = [piece.source if piece.kind == "passage" else piece.kind for piece in pieces]
    names = [_MODEL_OF.get(kind, "passages") for kind in kinds]
    for name in dict.fromkeys(names):
        rows = [row for row, kind in enumerate(names) if kind == name]
        features = features_of([pieces[row] for row in rows], query, dialogue)
        model = _models()[name]
        chances[rows] = 1 / (1 + np.exp(-(features @ np.array(model["weights"]) + model["intercept"])))
    return [round(float(probability), 4) for probability in chances]


def _terms_of(pieces: Sequence[Knowledge], letter: str) -> list[str]:
    return [term for piece in pieces for term in split_terms(_text_of(piece)) if term.startswith(letter)]


def already_said(pieces: Sequence[Knowledge], dialogue: Dialogue) -> list[bool]:
    """For each piece, whether one utterance has said it: its numbers, and most of its words and meaning.

    What it asks it does not say: "Which food am I allergic to?" Nor does it say until when a piece held.
    """
    if not pieces:
        return []
    compared = _pieces_of(tuple(map(_text_of, pieces)))
    told = np.zeros(len(pieces), bool)
    for turn in dialogue.texts:
        sentences = [sentence for sentence in split_sentences(turn) if not sentence.endswith(("?", "？"))]
        if stated := " ".join(sentences):
            told |= compared.told(_read(stated)) >= _SAID
    ended = ["holds_until" in piece.statement for piece in pieces]
    return [bool(is_told) and not closed for is_told, closed in zip(told, ended, strict=True)]


@functools.lru_cache(maxsize=1)
def _models() -> dict[str, Any]:
    text = (files("dialore") / "data" / "usefulness.json").read_text(encoding="utf-8")
    models: dict[str, Any] = json.loads(text)["models"]
    return models


_MODEL_OF = {"persona": "persona", "memory": "persona", "documents": "passages", "web": "passages", "graph": "graph"}
_MODEL_OF["fact"] = "graph"  # facts and persona sentences are told by what they are, whatever their source is called
THRESHOLD: dict[str, float] = {kind: _models()[model]["threshold"] for kind, model in _MODEL_OF.items()}
"""By kind of source, the probability with the best F-beta on held-out labels: of 2, of .5 for facts."""


# --- what is looked at


FEATURES = (
    "cosine with the query",
    "cosine with the last turn",
    "cosine with the earlier turns, the highest",
    "share of the query's words in the piece",
    "share of the piece's words in the query",
    "share of the query's meaning in the piece",
    "share of the piece's meaning in the query",
    "share of the last turn's meaning in the piece",
    "the rarest word that query and piece share",
    "numbers of the query in the piece",
    "length",
    "share of the piece that an earlier turn has said",
    "the best likeness of what belongs to the piece",
    "likeness, below the best of the search",
    "likeness, above the next of the search",
    "likeness, reciprocal rank in the search",
    "likeness, the best of the search",
)
"""The features that the models weigh, in order."""


def features_of(pieces: Sequence[Knowledge], query: str, dialogue: Dialogue) -> Vector:
    """(len(pieces), len(FEATURES)): what the models weigh, of the pieces of one search."""
    if not pieces:
        return np.zeros((0, len(FEATURES)))
    asked, last = _read(query), _read(dialogue.last.text)
    earlier = [_read(turn) for turn in dialogue.texts[:-1]]
    compared = _pieces_of(tuple(map(_text_of, pieces)))
    of_query, by_query, share, share_of, rarest = compared.compare(asked)
    zeros = np.zeros(len(pieces))
    under = np.array([_best_under(piece, asked) for piece in pieces])
    numbers = [len(asked.numbers & reading.numbers) / max(1, len(asked.numbers)) for reading in compared.readings]
    cosine = compared.vectors @ asked.vector
    likeness = cosine + share + of_query + 0.5 * under
    order = np.argsort(np.argsort(-likeness, kind="stable"), kind="stable")
    best, second = np.append(np.sort(likeness)[::-1], 0.0)[:2]
    above = np.maximum(likeness - np.where(order == 0, second, best), 0)
    columns = (
        cosine,
        compared.vectors @ last.vector,
        np.max([compared.vectors @ turn.vector for turn in earlier], axis=0, initial=0.0) if earlier else zeros,
        share,
        share_of,
        of_query,
        by_query,
        compared.compare(last)[0],
        rarest,
        numbers,
        np.log1p([len(reading.weights) for reading in compared.readings]),
        np.max([compared.told(turn) for turn in earlier], axis=0) if earlier else zeros,
        under,
        best - likeness,
        above,
        1 / (1 + order),
        np.full(len(pieces), best),
    )
    return np.column_stack(columns).astype(np.float64)


_ALONE = 1 << 18  # products that OpenBLAS does in one thread: for more it wakes others, at eight times the time


@dataclass(frozen=True, slots=True, eq=False)
class _Reading:
    """A text as it is compared: its vector, those of its words with what each weighs, and its numbers."""

    vector: NDArray[np.float32]
    words: NDArray[np.float32]
    weights: NDArray[np.float32]
    numbers: frozenset[str]


_Compared: TypeAlias = "tuple[Vector, Vector, Vector, Vector, Vector]"


class _Pieces:
    """The readings of some pieces, compared with another text all at once, and once only."""

    def __init__(self, readings: Sequence[_Reading]) -> None:
        self.readings = readings
        self._compared: dict[int, tuple[_Reading, _Compared]] = {}
        self.vectors = np.stack([reading.vector for reading in readings])
        self._words = np.concatenate([reading.words for reading in readings])
        self._weights = np.concatenate([reading.weights for reading in readings])
        self._starts = np.cumsum([0, *(len(reading.weights) for reading in readings[:-1])])
        self._sums = np.add.reduceat(self._weights, self._starts)

    def compare(self, text: _Reading) -> _Compared:
        """For each piece: the share of the text's meaning in it and of its in the text, the same of words; the rarest.

        Meaning: how near each word comes to the nearest of the other side; words: those that the other side has. Each
        counts by its weight. Last, the weight of the rarest word that both have.
        """
        if (known := self._compared.get(id(text))) is not None:
            return known[1]
        step = max(1, _ALONE // text.words.size)
        places = range(0, len(self._words), step)
        cosines = np.hstack([text.words @ self._words[start : start + step].T for start in places])
        nearest = np.maximum.reduceat(cosines, self._starts, axis=1)
        back = cosines.max(axis=0)
        share = text.weights / text.weights.sum()
        same = nearest > _SAME
        shares = (
            share @ nearest,
            np.add.reduceat(back * self._weights, self._starts) / self._sums,
            share @ same,
            np.add.reduceat((back > _SAME) * self._weights, self._starts) / self._sums,
            (same * text.weights[:, None]).max(axis=0),
        )
        self._compared[id(text)] = text, shares
        return shares

    def told(self, turn: _Reading) -> Vector:
        """Return how much of each piece an utterance has said, in words and meaning; nothing without a number of it."""
        _, meaning, _, words, _ = self.compare(turn)
        return (meaning + words) / 2 * [not reading.numbers - turn.numbers for reading in self.readings]


@functools.lru_cache(maxsize=16)  # some two megabytes each: those of the requests under way
def _pieces_of(texts: tuple[str, ...]) -> _Pieces:
    return _Pieces([_read(text) for text in texts])


@functools.lru_cache(maxsize=_REMEMBERED)
def _read(text: str) -> _Reading:
    text = close_gaps(text)
    parts = static_embedder().parts([text])[0].tolist() or [_NO_WORD]
    rows = np.array([_word(part) for part in parts])
    whole = rows.sum(axis=0)
    rows = rows[list({part: at for at, part in enumerate(parts)}.values())]
    # A rare word's vector is long, a function word's short: its length is what the word weighs.
    weights = np.maximum(np.sqrt(np.einsum("ij,ij->i", rows, rows)), _LEAST)
    vector = whole / max(float(np.sqrt(whole @ whole)), _LEAST)
    return _Reading(vector, rows / weights[:, None], weights, frozenset(_NUMBER.findall(normalise(text))))


@functools.lru_cache(maxsize=16 * _REMEMBERED)
def _word(part: int) -> NDArray[np.float32]:
    """Return a part's vector in a text's sum; its length, of the order of 1, is larger the rarer the part."""
    if part == _NO_WORD:
        return np.zeros(static_embedder().dimension, np.float32)
    vector: NDArray[np.float32] = (static_embedder().part_sums(np.array([part]))[0] * 1e-6).astype(np.float32)
    return vector


def _text_of(piece: Knowledge) -> str:
    if piece.fact:
        return f"{piece.fact.head} {piece.fact.tail}"
    return piece.searched


def _best_under(piece: Knowledge, asked: _Reading) -> float:
    if not piece.documents:
        return 0.0
    under = _Pieces([_read(text) for text in piece.documents])
    return float((under.vectors @ asked.vector + under.compare(asked)[2]).max())


# --- what a response draws on


def is_drawn_on(piece: Knowledge, text: str, before: Sequence[str], language: Language) -> bool:
    """Return whether a response says what is specific to a piece of knowledge and was not said before.

    A fact is drawn on where its tail is news and told, or where its head is and the tail is said as well; anything else
    where much of what is news is told, by words alike, or where it is quoted. What states other numbers than the
    response, and none of its own, is about something else, however alike the words are.
    """
    earlier = "\n".join(before)
    numbers, stated = ({*_NUMBER.findall(sentence)} - {*_NUMBER.findall(earlier)} for sentence in (piece.text, text))
    if numbers and stated and not numbers & stated:
        return False
    if piece.fact:
        head, tail = (_compare_texts(end, text, earlier) for end in (piece.fact.head, piece.fact.tail))
        told = tail.told >= 0.2 and tail.share >= 0.44 and head.new - head.told < 0.67 * tail.told
        return told or (head.told >= 0.3 and head.share >= 0.8 and tail.said >= 0.5)
    whole = _compare_texts(piece.text, text, earlier)
    if whole.told * whole.share**0.5 >= 0.5:
        return True
    return bool((_runs(piece.text, language) & _runs(text, language)) - _runs(earlier, language))


class _Told(NamedTuple):
    """The fate of a text's words in a response, each weighed by how rare it is."""

    new: float
    told: float  # of what is new
    share: float  # of what is new that is told
    said: float  # the share that is said, new or not


def _compare_texts(piece: str, text: str, earlier: str) -> _Told:
    reading = _read(piece)
    nearest = ((reading.words @ _read(other).words.T).max(axis=1) for other in (text, earlier))
    likeness, old = (np.clip((cosines - _UNLIKE) / (_ALIKE - _UNLIKE), 0, 1) for cosines in nearest)
    whole = float(reading.weights.sum())
    new, told = whole - float(reading.weights @ old), float(reading.weights @ np.maximum(likeness - old, 0))
    return _Told(new, told, told / new if new > 0 else 0.0, float(reading.weights @ likeness) / whole)


@functools.lru_cache(maxsize=1024)
def _runs(text: str, language: Language) -> frozenset[tuple[str, ...]]:
    """Return every run of so many words that has two of content; of characters where it is Chinese."""
    tokens = words(text, language) if language == "en" else [*"".join(words(text, language))]
    runs = zip(*(tokens[start:] for start in range(_RUN[language])), strict=False)
    return frozenset(run for run in runs if sum(not is_stop_word(word, language) for word in run) > 1)

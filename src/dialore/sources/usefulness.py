"""When is a piece of knowledge of use? The calibrated probability, for whatever retriever found it.

Scores of retrievers do not compare: BM25 has no upper end, a cosine of .4 may be much or little, and reciprocal ranks
call the best of six useless passages a 1. Here a small logistic model for each kind of source and language looks at
the texts themselves: how much of the query, the last turn and the history a piece shares, by words and by static
embeddings, and how it stands among the pieces of the same search. `scripts/calibrate_usefulness.py` fits the models and
writes `data/usefulness.json`; docs/weave.md says on what, and how well they are calibrated.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.knowledge import Fact, PersonaDetail
from dialore.retrieval.static import StaticEmbedder
from dialore.sources.dialogue_ranking import grams, joined
from dialore.text import normalise as folded

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge

    Vector = NDArray[np.float64]

_NUMBER = re.compile(r"\d+")
_REMEMBERED = 4096
_SAID = 0.6
"""The share of a piece's words and meaning from which one utterance has said it."""


def probabilities_of_use(pieces: Sequence[Knowledge], query: str, dialogue: Dialogue) -> list[float]:
    """For each piece found for a query, the probability that it is of use in the response to the dialogue.

    The pieces of one kind of source are one search: how a piece stands among them counts, their order does not.

    Args:
        pieces: what a search found.
        query: what was looked for, standing alone.
        dialogue: the history; the response is to its last turn.
    """
    found = np.zeros(len(pieces))
    names = [_model_of(piece) for piece in pieces]
    for name in dict.fromkeys(names):
        rows = [row for row, one in enumerate(names) if one == name]
        features = features_of([pieces[row] for row in rows], query, dialogue)
        model = _models()[name]
        found[rows] = 1 / (1 + np.exp(-(features @ np.array(model["weights"]) + model["intercept"])))
    return [round(float(probability), 4) for probability in found]


def already_said(piece: Knowledge, dialogue: Dialogue) -> bool:
    """Whether the history has said a piece: one utterance holds nearly all of its words and numbers."""
    piece_read = _read(_text_of(piece))
    return any(_told(piece_read, _read(turn)) >= _SAID for turn in dialogue.texts)


@functools.lru_cache(maxsize=1)
def _models() -> dict[str, Any]:
    text = (files("dialore") / "data" / "usefulness.json").read_text(encoding="utf-8")
    models: dict[str, Any] = json.loads(text)["models"]
    return models


_MODEL_OF = {"persona": "persona", "memory": "persona", "documents": "passages", "web": "passages", "graph": "graph"}
THRESHOLD: dict[str, float] = {kind: _models()[model]["threshold"] for kind, model in _MODEL_OF.items()}
"""By kind of source, the probability from which a piece is kept by default: the best F1 on held-out labels."""


def _model_of(piece: Knowledge) -> str:
    """Facts and persona sentences are told by what they are, whatever their source is called."""
    if piece.kind != "passage":
        return "graph" if piece.kind == "fact" else "persona"
    return _MODEL_OF.get(piece.source, "passages")


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
"""What the models weigh, in order."""


def features_of(pieces: Sequence[Knowledge], query: str, dialogue: Dialogue) -> Vector:
    """(len(pieces), len(FEATURES)): what the models weigh, of the pieces of one search."""
    asked, last = _read(query), _read(dialogue.last.text)
    earlier = [_read(turn) for turn in dialogue.texts[:-1]]
    rows = [_features(piece, asked, last, earlier) for piece in pieces]
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(FEATURES) - 4)
    likeness = table[:, 0] + table[:, 3] + table[:, 5] + 0.5 * table[:, 12]
    order = np.argsort(np.argsort(-likeness, kind="stable"), kind="stable")
    ranked = np.sort(likeness)[::-1]
    best = ranked[0] if len(ranked) else 0.0
    others = np.where(order == 0, ranked[1] if len(ranked) > 1 else 0.0, best)
    above = np.maximum(likeness - others, 0)
    return np.column_stack([table, best - likeness, above, 1 / (1 + order), np.full(len(rows), best)])


@dataclass(frozen=True, slots=True, eq=False)
class _Reading:
    """A text as it is compared: its vector, those of its words with what each weighs, its grams and numbers."""

    vector: NDArray[np.float32]
    words: NDArray[np.float32]
    weights: NDArray[np.float32]
    grams: frozenset[str]
    numbers: frozenset[str]


@functools.lru_cache(maxsize=1)
def _embedder() -> StaticEmbedder:
    return StaticEmbedder()


@functools.lru_cache(maxsize=_REMEMBERED)
def _read(text: str) -> _Reading:
    text = joined(text)
    parts = _embedder().parts([text])[0].tolist()
    rows = np.array([_word(part) for part in parts], np.float32).reshape(len(parts), _embedder().dimension)
    whole = rows.sum(axis=0)
    rows = rows[list({part: at for at, part in enumerate(parts)}.values())]
    # A rare word's vector is long, a function word's short: its length is what the word weighs.
    weights = np.linalg.norm(rows, axis=1)
    words = rows / np.maximum(weights, 1e-9)[:, None]
    vector = whole / max(float(np.linalg.norm(whole)), 1e-9)
    return _Reading(vector, words, weights, frozenset(grams(text)), frozenset(_NUMBER.findall(folded(text))))


@functools.lru_cache(maxsize=16 * _REMEMBERED)
def _word(part: int) -> NDArray[np.float32]:
    """A part's vector in a text's sum; its length, of the order of 1, is larger the rarer the part."""
    vector: NDArray[np.float32] = (_embedder().part_sums(np.array([part]))[0] * 1e-6).astype(np.float32)
    return vector


def _text_of(piece: Knowledge) -> str:
    if isinstance(piece.detail, Fact):
        return f"{piece.detail.head} {piece.detail.tail}"
    title = piece.passage.title
    return f"{title}\n{piece.text}" if title else piece.text


def _features(piece: Knowledge, asked: _Reading, last: _Reading, earlier: Sequence[_Reading]) -> list[float]:
    read = _read(_text_of(piece))
    under = piece.detail.documents if isinstance(piece.detail, PersonaDetail) else []
    return [
        float(read.vector @ asked.vector),
        float(read.vector @ last.vector),
        max((float(read.vector @ turn.vector) for turn in earlier), default=0.0),
        _share(asked, read),
        _share(read, asked),
        _meaning(asked, read),
        _meaning(read, asked),
        _meaning(last, read),
        _rarest(asked, read),
        len(asked.numbers & read.numbers) / max(1, len(asked.numbers)),
        float(np.log1p(len(read.weights))),
        max((_told(read, turn) for turn in earlier), default=0.0),
        max((_likeness(asked, _read(text)) for text in under), default=0.0),
    ]


def _likeness(asked: _Reading, read: _Reading) -> float:
    return float(read.vector @ asked.vector) + _share(asked, read)


def _share(of: _Reading, within: _Reading) -> float:
    """How many of a text's words, Chinese characters and pairs of them stand in the other."""
    return len(of.grams & within.grams) / max(1, len(of.grams))


def _meaning(of: _Reading, within: _Reading) -> float:
    """How well each of a text's words is matched by the nearest word of the other, weighed."""
    if not len(of.words) or not len(within.words):
        return 0.0
    return float((of.words @ within.words.T).max(axis=1) @ of.weights / of.weights.sum())


def _rarest(asked: _Reading, read: _Reading) -> float:
    """What the rarest word weighs that both texts have."""
    if not len(asked.words) or not len(read.words):
        return 0.0
    same = (asked.words @ read.words.T).max(axis=1) > 0.99
    return float((asked.weights * same).max())


def _told(read: _Reading, turn: _Reading) -> float:
    """How much of a piece an utterance has said: words and meaning, nothing where one of its numbers is not said."""
    if read.numbers - turn.numbers:
        return 0.0
    return (_share(read, turn) + _meaning(read, turn)) / 2

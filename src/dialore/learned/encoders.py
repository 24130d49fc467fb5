"""Fine-tuned encoders, run by ONNX Runtime without torch: rankers, and a model of entailment.

A model's folder has `model.onnx` (int8) and `tokenizer.json`, which are used here, beside what sentence-transformers
loads, and `model.json`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.errors import InputError
from dialore.learned.model import PREFIX, describe
from dialore.retrieval.dialogue_ranking import DialogueRanker
from dialore.retrieval.encoders import OnnxCrossEncoder, OnnxEmbedder
from dialore.retrieval.reranking import CachedEmbedder
from dialore.text import close_gaps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue

_EARLIER = 2


def query_with_context(query: str, dialogue: Dialogue) -> str:
    """Return what a piece is compared with: the query and the turns before it, the latest first."""
    earlier = [turn.text for turn in dialogue.turns[-1 - _EARLIER : -1]]
    return close_gaps(" | ".join([query, *reversed(earlier)]))


class TrainedEncoder(DialogueRanker):
    """Scores persona sentences and documents by what `dialore train retriever --kind dual|cross` fine-tuned.

    Args:
        path: the model's folder.

    Raises:
        InputError: it is no such model, or damaged.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.name = f"{PREFIX}{path}"
        card = _check_card(path, ("dual", "cross"))
        length, self._is_whole = card["settings"]["length"], card["settings"].get("whole", False)
        dual = (
            OnnxEmbedder(path, longest=length, unit=not card["settings"].get("dot")) if card["kind"] == "dual" else None
        )
        self._encoder = None if dual is None else CachedEmbedder(dual)
        self._cross = OnnxCrossEncoder(path, length) if card["kind"] == "cross" else None

    def sentences(self, query: str, dialogue: Dialogue, persona: Mapping[str, Sequence[str]]) -> NDArray[np.float64]:
        """Return the score of each persona sentence."""
        return self.documents(query, dialogue, list(persona))

    def documents(self, query: str, dialogue: Dialogue, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return the score of each text."""
        if not texts:
            return np.zeros(0)
        # A model of the whole context gets that as the query.
        about = close_gaps(query) if self._is_whole else query_with_context(query, dialogue)
        read = [close_gaps(text) for text in texts]
        if self._cross is not None:
            return self._cross.logits([(about, text) for text in read])
        assert self._encoder is not None
        vectors = self._encoder.encode([about, *read])
        return np.asarray(vectors[1:] @ vectors[0], np.float64)


class CrossEntailment:
    """Entailment of responses by knowledge, by a cross-encoder of `dialore train nli --kind cross`.

    Args:
        path: the model's folder.

    Raises:
        InputError: it is no such model, or damaged.
    """

    def __init__(self, path: Path) -> None:
        self._cross = OnnxCrossEncoder(path, _check_card(path, ("nli-cross",))["settings"]["length"])

    def entails(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """Return whether each second text is entailed by its first."""
        read = [(close_gaps(first), close_gaps(second)) for first, second in pairs]
        return [bool(logit >= 0) for logit in self._cross.logits(read)]


def _check_card(path: Path, kinds: Sequence[str]) -> dict[str, Any]:
    """Return a model's description; raise InputError where it is of none of the kinds, or its weights are others."""
    card = describe(path)
    if card["kind"] not in kinds:
        raise InputError(f"{path} is a trained {card['kind']}, not a {' or '.join(kinds)}", hint="name another folder")
    onnx = path / "model.onnx"
    if not onnx.is_file() or hashlib.sha256(onnx.read_bytes()).hexdigest() != card["onnx"]:
        raise InputError(f"{path}: model.onnx is not what it was saved with", hint="train it again")
    return card


open_cross = functools.lru_cache(4)(CrossEntailment)

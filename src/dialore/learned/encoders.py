"""Fine-tuned encoders that run by ONNX Runtime, without torch: rankers, and models of entailment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.retrieval.dialogue_ranking import DialogueRanker
from dialore.retrieval.embedding import CachedEmbedder
from dialore.retrieval.encoders import OnnxCrossEncoder, OnnxEmbedder
from dialore.text import close_gaps
from dialore.trained import PREFIX

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue

_EARLIER_TURNS = 2


def query_with_context(query: str, dialogue: Dialogue) -> str:
    """Return the text that pieces are compared with: the query and the turns before it, the latest first."""
    earlier = [turn.text for turn in dialogue.turns[-1 - _EARLIER_TURNS : -1]]
    return close_gaps(" | ".join([query, *reversed(earlier)]))


class TrainedEncoder(DialogueRanker):
    """Scores persona sentences and documents by an encoder of `dialore train retriever --set kind=dual`.

    Args:
        folder: The model's folder.
        card: The model's card.
    """

    def __init__(self, folder: Path, card: Mapping[str, Any]) -> None:
        super().__init__()
        self.name = f"{PREFIX}{folder}"
        settings = card["settings"]
        self._reads_context = not settings["whole"]
        embedder = OnnxEmbedder(folder, longest=settings["length"], unit=not settings["dot"])
        self._embedder = CachedEmbedder(embedder)

    def sentences(self, query: str, dialogue: Dialogue, persona: Mapping[str, Sequence[str]]) -> NDArray[np.float64]:
        """Return the score of each persona sentence."""
        return self.documents(query, dialogue, list(persona))

    def documents(self, query: str, dialogue: Dialogue, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return the score of each text."""
        # The query of a model trained on the whole context has the context already.
        query = query_with_context(query, dialogue) if self._reads_context else close_gaps(query)
        vectors = self._embedder.encode([query, *(close_gaps(text) for text in texts)])
        return np.asarray(vectors[1:] @ vectors[0], np.float64)


class CrossEntailment:
    """Entailment of responses by knowledge, by a cross-encoder of `dialore train nli --set kind=cross`.

    Args:
        folder: The model's folder.
        card: The model's card.
    """

    def __init__(self, folder: Path, card: Mapping[str, Any]) -> None:
        self._cross = OnnxCrossEncoder(folder, card["settings"]["length"])

    def entails(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """Return whether each second text is entailed by its first."""
        texts = [(close_gaps(first), close_gaps(second)) for first, second in pairs]
        return [bool(logit >= 0) for logit in self._cross.logits(texts)]

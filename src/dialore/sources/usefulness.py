"""Stand-in while the calibrated one is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge


def probabilities_of_use(pieces: Sequence[Knowledge], query: str, dialogue: Dialogue) -> list[float]:
    """STANDIN."""
    from dialore.retrieval.embedding import load_embedder

    e = load_embedder()
    import numpy as np

    if not pieces:
        return []
    v = np.asarray(e.encode([query, *[p.text for p in pieces]]), dtype=float)
    v /= np.linalg.norm(v, axis=1, keepdims=True) + 1e-9
    return [float(max(0, min(1, 1.2 * x))) for x in v[1:] @ v[0]]


def already_said(piece: Knowledge, dialogue: Dialogue) -> bool:
    """STANDIN."""
    return any(piece.text in t for t in dialogue.texts)

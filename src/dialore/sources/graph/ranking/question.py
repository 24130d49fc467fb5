"""What facts are ranked by: the history and the demands, as one vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.retrieval.embedding import Embedder
    from dialore.sources.graph.ranking.settings import Ranking


@dataclass(frozen=True, slots=True)
class Question:
    """A question in words.

    Attributes:
        history: the turns that it holds, one a line.
        phrases: the demands, each once.
    """

    history: str
    phrases: tuple[str, ...]

    @classmethod
    def of(cls, dialogue: Dialogue, phrases: Iterable[str], ranking: Ranking) -> Question:
        """The question of a dialogue and its demands; with `ranking.history` 0 the whole history."""
        turns = dialogue.texts[-ranking.history :] if ranking.history else dialogue.texts
        return cls("\n".join(turns), tuple(dict.fromkeys(phrases)))

    def vectors(self, embedder: Embedder, ranking: Ranking) -> QuestionVectors:
        """Its vectors by an embedder, encoded at once; phrases only where the ranking asks for them."""
        asked = self.phrases if ranking.demands else ()
        near = self.phrases if ranking.nearest else ()
        found = embedder.encode([self.history, *(["\n".join(asked)] if asked else []), *near])
        whole = found[0]
        if asked:
            whole = _unit(found[0] + np.float32(ranking.demands) * found[1])
        return QuestionVectors(whole, found[len(found) - len(near) :])


@dataclass(frozen=True, slots=True)
class QuestionVectors:
    """A question's vectors.

    Attributes:
        whole: float32 (dimension,), of unit length, or zero.
        phrases: float32 (phrases, dimension), of unit length each; empty where no ranking asks for them.
    """

    whole: NDArray[np.float32]
    phrases: NDArray[np.float32]


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    length = float(np.linalg.norm(vector))
    return vector / np.float32(length) if length > 0 else vector

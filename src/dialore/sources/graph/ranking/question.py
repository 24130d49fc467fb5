"""What facts are ranked by: the history and the demands, as one vector."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from dialore.retrieval.static import normalise

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.retrieval.embedding import Embedder
    from dialore.sources.graph.ranking.settings import Ranking
    from dialore.sources.graph.store.embed import LinearEmbedder


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
        if asked and near and _is_linear(type(embedder)) and all(map(str.isprintable, asked)):
            found = _added(cast("LinearEmbedder", embedder), self.history, asked)
        else:
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


@functools.lru_cache(maxsize=64)
def _is_linear(kind: type) -> bool:
    """Whether embedders of a class are linear: what they have is looked at once, not with each question."""
    return all(hasattr(kind, name) for name in ("sums", "parts", "part_sums"))


def _added(embedder: LinearEmbedder, history: str, phrases: Sequence[str]) -> NDArray[np.float32]:
    """The history, the phrases a line each, and each phrase encoded: the second is what the others add up to.

    White space parts phrases as it parts words; what some texts drop, control characters, printable ones lack.
    """
    sums = embedder.sums([history, *phrases])
    return normalise(np.concatenate([sums[:1], sums[1:].sum(axis=0, keepdims=True), sums[1:]]))


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    length = float(np.linalg.norm(vector))
    return vector / np.float32(length) if length > 0 else vector

"""BM25 over texts in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from dialore.errors import InputError, UnknownNameError
from dialore.retrieval.cutting import Cutter

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from dialore.retrieval.lexical_exact import ExactBm25
    from dialore.retrieval.lexical_tantivy import TantivyBm25

Engine = Literal["auto", "exact", "tantivy"]
ENGINES: tuple[Engine, ...] = get_args(Engine)
MANY = 20_000
"""From so many texts on `auto` has tantivy search them; fewer are searched as quickly here, and need no library."""


class Hit(NamedTuple):
    """A text that was found: its place among the texts, and its score."""

    row: int
    score: float


class Bm25:
    """Texts ranked by BM25 (Robertson and Zaragoza, 2009).

    Args:
        texts: what is searched.
        k1: how slowly a term's count saturates.
        b: how much a text's length counts; 0 not at all, 1 fully.
        cutter: how texts and queries are cut into terms.
        engine: `exact` here, by any k1 and b; `tantivy`, by its own k1 = 1.2 and b = 0.75, lengths in 256 steps; `auto`
            the first for few texts or other constants.

    Raises:
        InputError: constants out of range, or others than tantivy's for tantivy.
        UnknownNameError: no engine is called that.
        MissingExtraError: tantivy is asked for and not installed.
    """

    def __init__(
        self,
        texts: Iterable[str],
        *,
        k1: float = 1.2,
        b: float = 0.75,
        cutter: Cutter | None = None,
        engine: Engine = "auto",
    ) -> None:
        from dialore.retrieval.lexical_tantivy import TANTIVY_B, TANTIVY_K1

        if k1 < 0 or not 0 <= b <= 1:
            raise InputError(f"k1 = {k1}, b = {b} are out of range", mend="k1 is at least 0, b from 0 to 1")
        if engine not in ENGINES:
            raise UnknownNameError("engine", engine, ENGINES)
        self.k1, self.b, self.cutter = k1, b, cutter or Cutter()
        cut = [self.cutter(text) for text in texts]
        self._size = len(cut)
        usual = (k1, b) == (TANTIVY_K1, TANTIVY_B)
        if engine == "tantivy" and not usual:
            raise InputError(f"tantivy has k1 = {TANTIVY_K1}, b = {TANTIVY_B} only", mend="take the engine exact")
        if engine == "tantivy" or (engine == "auto" and usual and len(cut) >= MANY):
            from dialore.retrieval.lexical_tantivy import TantivyBm25

            self.engine: Engine = "tantivy"
            self._ranking: TantivyBm25 | ExactBm25 = TantivyBm25.of(cut)
        else:
            from dialore.retrieval.lexical_exact import ExactBm25

            self.engine = "exact"
            self._ranking = ExactBm25(cut, k1, b)

    def __len__(self) -> int:
        return self._size

    def search(self, query: str, top: int = 10) -> list[Hit]:
        """The `top` texts that share a term with the query, the best first; of equal ones the first."""
        return [Hit(row, score) for row, score in self._ranking.best(self.cutter(query), top)]

    def scores(self, query: str) -> NDArray[np.float64]:
        """(n,): each text's score, zero where it shares no term with the query; at four decimals."""
        import numpy as np

        from dialore.retrieval.lexical_exact import DECIMALS, ExactBm25

        if isinstance(self._ranking, ExactBm25):
            return np.round(self._ranking.scores(self.cutter(query)), DECIMALS)
        scores = np.zeros(len(self))
        for row, score in self.search(query, len(self)):
            scores[row] = score
        return scores

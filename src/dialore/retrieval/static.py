"""Static embeddings: a text's vector is the weighted sum of its tokens' vectors, no network and no neural network.

The English token vectors are distilled from all-MiniLM-L6-v2 in the way of model2vec
(https://github.com/MinishLab/model2vec); `scripts/distill_static_embedding.py` makes them. model2vec itself is not
needed: reading two arrays and adding rows is less code than adapting to it, and its float sums are not exact.

Chinese lives in the same space: a word's vector is the mean of the English vectors of its glosses in CC-CEDICT
(`scripts/build_chinese_words.py`), so that a Chinese history also ranks English facts. The script of each piece of a
text decides how the piece is read; a text may mix both.

**Exactness.** Token vectors are int8 and token weights integers, so a text's sum is an integer sum: it has no rounding
and no order. Only the last step is in floating point, an integer's square root and one division a component, both of
which IEEE 754 fixes to the bit. A text's vector is therefore the same on every machine and in every batch.
"""

from __future__ import annotations

import json
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dialore.errors import InputError
from dialore.retrieval.exact import normalise
from dialore.retrieval.tokens import ChineseWords, EnglishTokens
from dialore.text import CHINESE_RUN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


_BLOCK = 256
"""Tokens from which on what was read so far is added up: their vectors as integers stay in a processor's cache."""


class StaticEmbedder:
    """The default embedder: shipped with the package, English and Chinese in one space, tens of microseconds a text.

    Args:
        folder: a folder written by the distilling script; None for the one in the package.

    Raises:
        InputError: the folder lacks its files.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = Path(str(files("dialore") / "data" / "embedding")) if folder is None else Path(folder)
        self.name = "static" if folder is None else f"static:{folder}"
        try:
            manifest = json.loads((self._folder / "manifest.json").read_text(encoding="utf-8"))
            self.dimension = int(manifest["dimension"])
            self.fingerprint = str(manifest["fingerprint"])
        except (OSError, ValueError, KeyError) as error:
            raise InputError(
                f"no static embedding in {self._folder}", mend="reinstall dialore, or give a distilled folder"
            ) from error

    @cached_property
    def _english(self) -> EnglishTokens:
        return EnglishTokens.load(self._folder)

    @cached_property
    def _chinese(self) -> ChineseWords | None:
        return ChineseWords.load(self._folder) if (self._folder / "chinese.npz").exists() else None

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (len(texts), dimension) unit rows; zero for a text in which nothing is known."""
        return normalise(self.sums(texts))

    def sums(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return (len(texts), dimension) unnormalised sums: those of a text's parts add up to the text's.

        A graph's facts are ranked by such parts, so keep this beside `encode`.
        """
        sums = np.zeros((len(texts), self.dimension), dtype=np.int64)
        english, pieces = self._english, self._english.pieces
        ids: list[int] = []
        ends: list[tuple[int, int]] = []
        for row, text in enumerate(texts):
            runs = () if text.isascii() else CHINESE_RUN.findall(text)
            ids += pieces.ids(CHINESE_RUN.sub(" ", text) if runs else text)
            ends.append((row, len(ids)))
            if runs and self._chinese:
                for tokens, weights in self._chinese.terms(runs):
                    sums[row] += weights @ english.vectors[tokens].astype(np.int64)
            if len(ids) >= _BLOCK or row == len(texts) - 1:
                self._add(sums, ids, ends)
                ids, ends = [], []
        return sums

    def _add(self, sums: NDArray[np.int64], ids: list[int], ends: list[tuple[int, int]]) -> None:
        """Add English tokens to the rows of sums whose tokens end there: several texts' are looked up at once."""
        tokens = np.array(ids, dtype=np.int64)
        vectors, weights = self._english.vectors.take(tokens, axis=0).astype(np.int64), self._english.weights[tokens]
        start = 0
        for row, end in ends:
            if end > start:
                # numpy multiplies integer matrices itself, without BLAS: exact, and quick at these sizes.
                sums[row] += weights[start:end] @ vectors[start:end]
            start = end

    def parts(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        """Each text's parts by number: its English tokens, then its Chinese words.

        The rows that `part_sums` has for them add up to the text's row of `sums`. White space parts nothing that
        belongs together: the parts of a text are those of its words.
        """
        runs = [CHINESE_RUN.findall(text) for text in texts]
        latin = [CHINESE_RUN.sub(" ", text) if found else text for text, found in zip(texts, runs, strict=True)]
        first = len(self._english.vectors)
        found: list[NDArray[np.int64]] = []
        for row, (tokens, _) in enumerate(self._english.terms(latin)):
            ids = tokens.astype(np.int64)
            if runs[row] and self._chinese:
                places = np.fromiter(self._chinese.places(runs[row]), np.int64)
                ids = np.concatenate([ids, places + first])
            found.append(ids)
        return found

    def part_sums(self, parts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (len(parts), dimension): the unnormalised sum that each part brings."""
        english = self._english
        sums = np.zeros((len(parts), self.dimension), dtype=np.int64)
        for row, part in enumerate(parts.tolist()):
            if part < len(english.vectors):
                sums[row] = english.weights[part] * english.vectors[part].astype(np.int64)
            elif self._chinese:
                tokens, weights = self._chinese.word(part - len(english.vectors))
                sums[row] = weights @ english.vectors[tokens].astype(np.int64)
        return sums

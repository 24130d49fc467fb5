"""Token tables of the static embedding: how a text is cut, and each token's int8 vector and integer weight."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from dialore.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from tokenizers import Tokenizer

HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")
"""A run of Chinese characters."""


class TokenTable(Protocol):
    """A vocabulary: `vectors[rows[token]] * weights[token]` is a token's share of a text's integer sum."""

    vectors: NDArray[np.int8]
    weights: NDArray[np.int32]
    rows: NDArray[np.integer]

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Return each text's token ids."""
        ...


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read a data file of the static embedding.

    Raises:
        InputError: it is missing or damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            return dict(archive.items())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a data file of the static embedding", mend="reinstall dialore") from error


@dataclass
class WordPieceTable:
    """English (and any Latin script): WordPiece tokens; Chinese characters and unknown pieces are left out."""

    tokenizer: Tokenizer
    unknown: int
    vectors: NDArray[np.int8]
    weights: NDArray[np.int32]
    rows: NDArray[np.integer]

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read `english.npz` and `english.tokenizer.json`."""
        from tokenizers import Tokenizer

        arrays = read_arrays(folder / "english.npz")
        tokenizer = Tokenizer.from_file(str(folder / "english.tokenizer.json"))
        rows = arrays.get("rows", np.arange(len(arrays["weights"])))
        return cls(tokenizer, tokenizer.token_to_id("[UNK]") or 0, arrays["vectors"], arrays["weights"], rows)

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Return each text's known WordPiece ids."""
        latin = [HAN.sub(" ", text) for text in texts]
        encodings = self.tokenizer.encode_batch_fast(latin, add_special_tokens=False)
        return [[token for token in encoding.ids if token != self.unknown] for encoding in encodings]

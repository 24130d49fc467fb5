"""Hashed character n-grams: no model, any language; it sees spelling and nothing of meaning."""

from __future__ import annotations

import unicodedata
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dialore.retrieval.exact import normalise
from dialore.retrieval.fingerprint import digest
from dialore.text import CHINESE_RUN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_VERSION = "1"


class HashingEmbedder:
    """Counts of hashed character n-grams (feature hashing with signs: Weinberger et al., 2009).

    Words of alphabetic scripts give their n-grams of 3 to 5 characters, with the word's edges marked; runs of Chinese
    give single characters and pairs. A frequent n-gram is damped by nothing: there is no corpus to count it in.

    Args:
        dimension: components of a vector; a power of two.
    """

    name = "hashing"

    def __init__(self, dimension: int = 1024) -> None:
        self.dimension = dimension
        self.fingerprint = digest("hashing", _VERSION, str(dimension))

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (len(texts), dimension) unit rows; zero for a text without letters or digits."""
        counts = np.zeros((len(texts), self.dimension), dtype=np.int64)
        for row, text in zip(counts, texts, strict=True):
            for gram in _grams(unicodedata.normalize("NFKC", text).casefold()):
                code = _code(gram)
                row[code % self.dimension] += 1 if code >> 31 else -1
        return normalise(counts)


@lru_cache(maxsize=1 << 16)
def _code(gram: str) -> int:
    # CRC-32 rather than hash(): the same in every process and on every machine.
    return zlib.crc32(gram.encode("utf-8", "surrogatepass"))


def _grams(text: str) -> Iterator[str]:
    for run in CHINESE_RUN.findall(text):
        yield from run
        yield from (run[at : at + 2] for at in range(len(run) - 1))
    latin = CHINESE_RUN.sub(" ", text)
    for word in "".join(character if character.isalnum() else " " for character in latin).split():
        marked = f"<{word}>"
        yield marked
        for size in (3, 4, 5):
            yield from (marked[at : at + size] for at in range(len(marked) - size + 1))

"""An embedder without a model, for tests that need another one than the package's: hashed character trigrams."""

from __future__ import annotations

import zlib

import numpy as np


class HashingEmbedder:
    """Counts of hashed trigrams, with signs, as unit vectors."""

    name = "hashing"
    dimension = 1024
    fingerprint = "hashing-1024"

    def encode(self, texts):
        rows = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.casefold().split():
                for at in range(len(word)):
                    code = zlib.crc32(f"<{word}>"[at : at + 3].encode())
                    row[code % self.dimension] += 1 if code >> 31 else -1
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows / np.where(norms > 0, norms, 1)

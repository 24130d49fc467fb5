"""Static embeddings: a text's vector is the weighted sum of its tokens' vectors, without a neural network.

English token vectors are distilled from all-MiniLM-L6-v2 (`scripts/distill_static_embedding.py`), and a Chinese word's
is the mean of its English glosses' (`scripts/build_chinese_words.py`). Vectors are int8 and weights integers, so a sum
has no rounding and no order: a text's vector is the same on every machine and in every batch.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Self
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from dialore.errors import InputError
from dialore.text import CHINESE_RUN, is_chinese

_BITS = 26
_ASCII_PIECE = re.compile(r"[a-z0-9]+|[!-/:-@\[-`{-~]")
_LONGEST = 100
"""Characters of the longest word that is split into pieces; BERT gives up on longer ones."""
_REMEMBERED = 1 << 18


class StaticEmbedder:
    """The shipped embedder, English and Chinese in one space, or one of a folder that the distilling script wrote."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = Path(str(files("dialore") / "data" / "embedding")) if folder is None else Path(folder)
        self.name = "static" if folder is None else f"static:{folder}"
        try:
            manifest = json.loads((self._folder / "manifest.json").read_text(encoding="utf-8"))
            self.dimension = int(manifest["dimension"])
            self.fingerprint = str(manifest["fingerprint"])
        except (OSError, ValueError, KeyError) as error:
            hint = "reinstall dialore, or give a distilled folder"
            raise InputError(f"no static embedding in {self._folder}", hint=hint) from error

    @cached_property
    def _english(self) -> EnglishTokens:
        return EnglishTokens(self._folder)

    @cached_property
    def _chinese(self) -> ChineseWords | None:
        return ChineseWords(self._folder) if (self._folder / "chinese.npz").exists() else None

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (len(texts), dimension) unit rows; zero for a text in which nothing is known."""
        return normalise(self.sums(texts))

    def sums(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return (len(texts), dimension) unnormalised sums: those of a text's parts add up to the text's."""
        sums = np.zeros((len(texts), self.dimension), dtype=np.int64)
        vectors, weights = self._english.vectors, self._english.weights
        for row, (tokens, words) in enumerate(map(self._split, texts)):
            if tokens:
                # numpy multiplies integer matrices itself, without BLAS: exact, and quick at these sizes.
                sums[row] = weights.take(tokens) @ vectors.take(tokens, axis=0).astype(np.int64)
            for word in words:
                sums[row] += self._word_sum(word)
        return sums

    def parts(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        """Return each text's parts by number, English tokens, then Chinese words; their `part_sums` make `sums`."""
        first, split = len(self._english.vectors), map(self._split, texts)
        return [np.array([*tokens, *(first + word for word in words)], dtype=np.int64) for tokens, words in split]

    def part_sums(self, parts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (len(parts), dimension): the unnormalised sum that each part brings."""
        english, first = self._english, len(self._english.vectors)
        tokens = np.minimum(parts, first - 1)
        sums = english.weights.take(tokens)[:, None] * english.vectors.take(tokens, axis=0).astype(np.int64)
        for row in np.flatnonzero(parts >= first).tolist():
            sums[row] = self._word_sum(int(parts[row]) - first)
        return sums

    def _split(self, text: str) -> tuple[list[int], list[int]]:
        """Return the numbers of a text's English tokens, and of its Chinese words."""
        if text.isascii() or not (runs := CHINESE_RUN.findall(text)):
            return self._english.pieces.ids(text), []
        words = self._chinese.places(runs) if self._chinese else []
        return self._english.pieces.ids(CHINESE_RUN.sub(" ", text)), words

    def _word_sum(self, word: int) -> NDArray[np.int64]:
        """Return the sum of a Chinese word's English tokens."""
        assert self._chinese is not None, "only its own words have numbers"
        tokens, weights = self._chinese.word(word)
        return weights @ self._english.vectors[tokens].astype(np.int64)


@functools.cache
def static_embedder() -> StaticEmbedder:
    """Return the embedder that the package carries, opened once for whatever compares texts of its own accord."""
    return StaticEmbedder()


def normalise(sums: NDArray[np.int64]) -> NDArray[np.float32]:
    """Divide each integer row (n, d) by its Euclidean length; a zero row stays zero."""
    # Rows of a very long text are first scaled down by a power of two: their squares fit 63 bits (d up to 2,048).
    peaks = np.abs(sums).max(axis=1, initial=0)
    shifts = np.zeros(len(sums), dtype=np.int64)
    while (excess := (peaks >> shifts) >> _BITS != 0).any():
        shifts[excess] += 1
    small = sums >> shifts[:, None]
    squares = np.einsum("ij,ij->i", small, small)
    lengths = np.sqrt(np.maximum(squares, 1).astype(np.float64))
    unit: NDArray[np.float32] = (small / lengths[:, None]).astype(np.float32)
    return unit


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read a data file of the static embedding; raises InputError where it is missing or damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return dict(archive.items())
    except (OSError, ValueError, BadZipFile) as error:
        raise InputError(f"{path} is not a data file of the static embedding", hint="reinstall dialore") from error


class EnglishTokens:
    """English (and any Latin script): WordPiece tokens, each with an int8 vector (row) and an integer weight."""

    def __init__(self, folder: Path) -> None:
        arrays = _read_arrays(folder / "english.npz")
        self.vectors: NDArray[np.int8] = arrays["vectors"][arrays["rows"]] if "rows" in arrays else arrays["vectors"]
        self.weights: NDArray[np.int64] = arrays["weights"].astype(np.int64)
        self.pieces = WordPiece.load(folder / "english.tokenizer.json")


class ChineseWords:
    """Chinese: the words of `chinese.npz` with English tokens and weights; words added to jieba change no vector."""

    def __init__(self, folder: Path) -> None:
        import jieba

        arrays = _read_arrays(folder / "chinese.npz")
        words = arrays["words"].tobytes().decode().split("\n")
        self._places = {word: row for row, word in enumerate(words)}
        self._tokens, self._weights = arrays["tokens"].astype(np.int64), arrays["weights"].astype(np.int64)
        self._bounds = [0, *arrays["ends"].tolist()]
        traditional, simplified = (arrays[name].tobytes().decode() for name in ("traditional", "simplified"))
        self._simplify = str.maketrans(traditional, simplified)
        counts = arrays["counts"].tolist()
        frequencies: dict[str, int] = {}
        for word, count in zip(words, counts, strict=True):
            frequencies[word] = count
            for end in range(1, len(word)):
                frequencies.setdefault(word[:end], 0)
        self._jieba = jieba.Tokenizer()
        self._jieba.FREQ, self._jieba.total, self._jieba.initialized = frequencies, sum(counts), True

    def split(self, run: str) -> list[str]:
        """Split a run of Chinese characters into the words that are most likely together."""
        return list(self._jieba.cut(run.translate(self._simplify), HMM=False))

    def places(self, runs: Iterable[str]) -> list[int]:
        """Return the number of each word of the runs that is known."""
        return [self._places[word] for run in runs for word in self.split(run) if word in self._places]

    def word(self, place: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the English tokens and weights of the word of that number."""
        part = slice(self._bounds[place], self._bounds[place + 1])
        return self._tokens[part], self._weights[part]


class WordPiece:
    """Split text into the tokens of a vocabulary (each token's number); what the vocabulary lacks is left out."""

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self._vocabulary = vocabulary
        self._known = functools.lru_cache(_REMEMBERED)(self._split_word)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the vocabulary of a `tokenizer.json`; raises InputError where it is none of WordPiece."""
        try:
            model = json.loads(path.read_text(encoding="utf-8"))["model"]
            if model["type"] != "WordPiece":
                message = f"{path} is a {model['type']} tokenizer, not WordPiece"
                raise InputError(message, hint="distil from a BERT model")
            unknown = model["unk_token"]
            return cls({token: number for token, number in model["vocab"].items() if token != unknown})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is not a tokenizer", hint="reinstall dialore") from error

    def ids(self, text: str) -> list[int]:
        """Return the tokens of a text, in order."""
        plain = text.isascii() and text.replace("\n", " ").isprintable()
        if plain:
            words = _ASCII_PIECE.findall(text.lower())
        else:  # words at white space, and each punctuation mark by itself
            words = "".join(f" {sign} " if _is_punctuation(sign) else sign for sign in _fold(text)).split()
        return list(itertools.chain.from_iterable(map(self._known, words)))

    def _split_word(self, word: str) -> list[int]:
        """Return the longest tokens from left to right; none where a rest is not in the vocabulary."""
        if len(word) > _LONGEST:
            return []
        tokens: list[int] = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                token = self._vocabulary.get(word[start:end] if start == 0 else f"##{word[start:end]}")
                if token is not None:
                    tokens.append(token)
                    start = end
                    break
            else:
                return []
        return tokens


def _fold(text: str) -> str:
    """Without control characters, CJK spaced out, accents stripped, lower case: BERT's normaliser."""
    cleaned = ""
    for character in text:
        if character in "\t\n\r" or unicodedata.category(character).startswith("Z"):
            cleaned += " "
        elif character != "�" and not unicodedata.category(character).startswith("C"):
            cleaned += f" {character} " if is_chinese(character) else character
    decomposed = unicodedata.normalize("NFD", cleaned)
    return "".join(c for c in decomposed if unicodedata.category(c) != "Mn").lower()


def _is_punctuation(character: str) -> bool:
    if character.isascii():
        return character.isprintable() and not character.isalnum() and character != " "
    return unicodedata.category(character).startswith("P")

"""How the static embedding takes a text apart: English WordPiece tokens, Chinese words as lists of English tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from zipfile import BadZipFile

import numpy as np

from dialore.errors import InputError
from dialore.retrieval.wordpiece import WordPiece

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from jieba import Tokenizer as Jieba
    from numpy.typing import NDArray

    Terms = tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]]]


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read a data file of the static embedding.

    Raises:
        InputError: it is missing or damaged.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return dict(archive.items())
    except (OSError, ValueError, BadZipFile) as error:
        raise InputError(f"{path} is not a data file of the static embedding", mend="reinstall dialore") from error


@dataclass
class EnglishTokens:
    """English (and any Latin script): WordPiece tokens, each with an int8 vector and an integer weight.

    Attributes:
        pieces: cuts text into tokens; what the vocabulary lacks has no share in a text.
        vectors: int8, (tokens, d).
        weights: integer, (tokens,).
    """

    pieces: WordPiece
    vectors: NDArray[np.int8]
    weights: NDArray[np.int64]

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read `english.npz` and `english.tokenizer.json`.

        Raises:
            InputError: a file is missing or damaged.
        """
        arrays = read_arrays(folder / "english.npz")
        vectors = arrays["vectors"][arrays["rows"]] if "rows" in arrays else arrays["vectors"]
        pieces = WordPiece.load(folder / "english.tokenizer.json")
        return cls(pieces, vectors, arrays["weights"].astype(np.int64))

    def terms(self, texts: Sequence[str]) -> Iterator[Terms]:
        """Yield each text's tokens and their weights."""
        for text in texts:
            ids = np.array(self.pieces.ids(text), dtype=np.int64)
            yield ids, self.weights[ids]


@dataclass
class ChineseWords:
    """Chinese: dictionary words, each a list of English tokens with weights of its own.

    Attributes:
        words: each word's place in `ends`; single characters stand in for longer words that are not there.
        counts: each word's frequency, by which text is cut.
        ends: where each word's tokens end; they begin where the word before ends.
        tokens: English tokens of all words, one word after the other.
        weights: their integer weights.
        simplify: for `str.translate`, from traditional to simplified characters.
    """

    words: dict[str, int]
    counts: NDArray[np.integer[Any]]
    ends: NDArray[np.integer[Any]]
    tokens: NDArray[np.int64]
    weights: NDArray[np.int64]
    simplify: dict[int, int]
    _jieba: Jieba = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._jieba = _cutter(self.words, self.counts.tolist())

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read `chinese.npz`.

        Raises:
            InputError: the file is missing or damaged.
        """
        arrays = read_arrays(folder / "chinese.npz")
        words = arrays["words"].tobytes().decode().split("\n")
        traditional, simplified = (arrays[name].tobytes().decode() for name in ("traditional", "simplified"))
        return cls(
            {word: place for place, word in enumerate(words)},
            arrays["counts"],
            arrays["ends"],
            arrays["tokens"].astype(np.int64),
            arrays["weights"].astype(np.int64),
            str.maketrans(traditional, simplified),
        )

    def cut(self, run: str) -> list[str]:
        """Cut a run of Chinese characters into the words that are most likely together."""
        return list(self._jieba.cut(run.translate(self.simplify), HMM=False))

    def places(self, runs: Iterable[str]) -> Iterator[int]:
        """Yield the number of each word of the runs that is known."""
        for run in runs:
            for word in self.cut(run):
                place = self.words.get(word)
                if place is not None:
                    yield place

    def word(self, place: int) -> Terms:
        """The English tokens and weights of the word of that number."""
        begin, end = int(self.ends[place - 1]) if place else 0, int(self.ends[place])
        return self.tokens[begin:end], self.weights[begin:end]

    def terms(self, runs: Iterable[str]) -> Iterator[Terms]:
        """Yield, for each word of the runs that is known, its English tokens and their weights."""
        return (self.word(place) for place in self.places(runs))


def _cutter(words: Iterable[str], counts: Sequence[int]) -> Jieba:
    """Return jieba over our own words.

    Given its dictionary here, it reads and caches none: nothing is written to the temporary folder, loading is quick,
    and words that a user adds to jieba change no vector.
    """
    import jieba

    frequencies: dict[str, int] = {}
    for word, count in zip(words, counts, strict=True):
        frequencies[word] = count
        for end in range(1, len(word)):
            frequencies.setdefault(word[:end], 0)
    cutter = jieba.Tokenizer()
    cutter.FREQ, cutter.total, cutter.initialized = frequencies, sum(counts), True
    return cutter

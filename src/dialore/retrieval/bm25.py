"""Lexical search: texts as terms by script, BM25 over texts in memory, exact, and its formula for document stores.

It is Lucene's (Robertson and Zaragoza, 2009, Section 3.4, and a 1 inside the logarithm):
`ln(1 + (n - n_t + .5) / (n_t + .5)) * f (k1 + 1) / (f + k1 (1 - b + b |d| / mean))`.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dialore.retrieval.fusion import DECIMALS
from dialore.text import (
    CHINESE_RUN,
    UNSPACED,
    is_known,
    is_stop_word,
    marks,
    normalise,
    segmenter,
    stem,
    stem_by,
    stop_words,
    words,
)

_LONGEST = 64
"""Characters of a term; a longer run of letters is no word (a key, an encoded picture) and is left out."""


def split_terms(text: str) -> list[str]:
    """Return the terms of a text or a query, repeated as often as they stand there; function words are left out.

    English words give their Snowball stems, Chinese those of jieba with the shorter ones inside (大学 of 大学城);
    others
    stems where Snowball has them, else pairs of syllables or letters.
    """
    folded = normalise(text)
    if folded.isascii():
        return [term for word in words(folded, "en") for term in _terms(word)]
    rest = CHINESE_RUN.sub(" ", folded)
    terms: list[str] = []
    for run in _without_spaces().findall(rest):
        letters = _letters().findall(run)
        terms += _pairs(letters) if len(letters) > 1 or not _KANA.fullmatch(run) else ()
    rest = _without_spaces().sub(" ", rest)
    terms += [term for word in words(rest, "en") for term in _terms(word)]
    stop, runs = stop_words("zh"), CHINESE_RUN.findall(folded)
    japanese = sum(map(len, _KANA.findall(folded))) * _FEW_KANA > sum(map(len, runs))
    for run in runs:
        cut = [word for word in segmenter().lcut_for_search(run) if word not in stop]
        terms += dict.fromkeys([*cut, *_pairs(run)]) if japanese else cut
    return terms


_KANA = re.compile("[\u3041-\u30ff]+")
_FEW_KANA = 10
"""Chinese may hold a Japanese name: one kana in so many of its characters makes no Japanese."""
_KATAKANA = "\u30a1-\u30fa\u30fc-\u30ff"
_HANGUL = re.compile("[\uac00-\ud7a3]+")
_PARTICLE = re.compile(
    "(?<=^.)(?:은|는|이|가|을|를|의|에|에서|에게|로|으로|와|과|도|만|까지|부터|처럼|보다|이다|입니다)$"
)
_STEMMED = {"Ͱ-Ͽ": "greek", "Ѐ-ӿ": "russian", "԰-֏": "armenian", "؀-ۿ": "arabic", "ऀ-ॿ": "hindi", "஀-௿": "tamil"}


@functools.lru_cache(maxsize=1)
def _without_spaces() -> re.Pattern[str]:
    return re.compile(f"[{UNSPACED}{_KATAKANA}][{UNSPACED}{_KATAKANA}{marks()}]*")


@functools.lru_cache(maxsize=1)
def _letters() -> re.Pattern[str]:
    """Return a letter with the vowel written before it, and the marks, vowels and stacked letters that follow."""
    return re.compile(f"[เ-ไເ-ໄ]?.(?:[{marks()}ะาๅະາຽ]|(?<=[္្]).)*")


def _pairs(letters: Sequence[str]) -> list[str]:
    return [letters[at] + letters[at + 1] for at in range(len(letters) - 1)] or list(letters)


@functools.lru_cache(maxsize=1 << 18)
def _terms(word: str) -> tuple[str, ...]:
    """Return what a word is compared by; nothing where it is left out."""
    if len(word) > _LONGEST or (is_stop_word(word, "en") and not word.isdigit()):
        return ()
    if word.isascii():
        return (stem(word),)
    if _HANGUL.fullmatch(word):
        return tuple(dict.fromkeys([_PARTICLE.sub("", word), *_pairs(word)] if len(word) < 4 else _pairs(word)))
    for script, algorithm in _STEMMED.items():
        if script[0] <= word[0] <= script[-1]:
            return (stem_by(algorithm, word),)
    return ("".join(sign for sign in word if not "֑" <= sign <= "ׇ"),)  # Hebrew is asked for without its points


K1, B = 1.2, 0.75
"""How slowly a term's count saturates, and how much a text's length counts."""


def rarity(size: int, having: NDArray[Any]) -> NDArray[np.float64]:
    """Return the inverse document frequencies of terms that so many of `size` texts have."""
    weights: NDArray[np.float64] = np.log1p((size - having + 0.5) / (having + 0.5))
    return weights


def okapi_rarity(size: int, having: NDArray[Any]) -> NDArray[np.float64]:
    """Return the same as the package rank_bm25 does: without the 1; common terms get a quarter of the mean."""
    weights: NDArray[np.float64] = np.log((size - having + 0.5) / (having + 0.5))
    return np.where(weights < 0, weights.mean() / 4, weights) if len(weights) else weights


def saturation(counts: NDArray[Any], lengths: NDArray[Any], mean: float, k1: float = K1) -> NDArray[np.float64]:
    """Return what counts of terms in texts of those lengths are worth beside the terms' rarity."""
    saturated: NDArray[np.float64] = counts * (k1 + 1) / (counts + k1 * (1 - B + B * lengths / max(mean, 1e-9)))
    return saturated


def scores_of(
    query: Mapping[str, int], texts: Sequence[Mapping[str, int]], frequencies: Mapping[str, int], size: int, mean: float
) -> list[float]:
    """Score some texts of a collection of so many with so many terms on average; `frequencies` counts texts by term."""
    terms = [term for term in query if frequencies.get(term)]
    weights = rarity(size, np.array([frequencies[term] for term in terms])) * [query[term] for term in terms]
    counts = np.array([[text.get(term, 0) for term in terms] for text in texts], np.float64)
    lengths = np.array([sum(text.values()) for text in texts], np.float64)
    scores: list[float] = np.round(saturation(counts, lengths[:, None], mean) @ weights, DECIMALS).tolist()
    return scores


class Bm25:
    """Texts ranked by BM25. The weights are worked out beforehand, so that a query only adds them up."""

    def __init__(
        self,
        texts: Iterable[str],
        *,
        tokeniser: Callable[[str], Iterable[str]] = split_terms,
        rarity: Callable[[int, NDArray[Any]], NDArray[np.float64]] = rarity,
        k1: float = K1,
    ) -> None:
        self.tokeniser = tokeniser
        tallies = [Counter(tokeniser(text)) for text in texts]
        self._size = len(tallies)
        self._number_of = number_of = dict[str, int]()
        kinds = np.array([number_of.setdefault(t, len(number_of)) for tally in tallies for t in tally], dtype=np.int64)
        counts = np.array([count for tally in tallies for count in tally.values()], dtype=np.float64)
        lengths = np.array([tally.total() for tally in tallies], dtype=np.float64)
        rows = np.repeat(np.arange(self._size, dtype=np.int32), [len(tally) for tally in tallies])
        order = np.argsort(kinds, kind="stable")
        having = np.bincount(kinds, minlength=len(number_of))
        self._ends = np.concatenate([[0], np.cumsum(having)])
        self._rows = rows[order]
        mean = float(lengths.mean()) if self._size else 0.0
        worth = saturation(counts[order], lengths[self._rows], mean, k1)
        self._weights = rarity(self._size, having)[kinds[order]] * worth

    def scores(self, query: str) -> NDArray[np.float64]:
        """(n,): each text's score, zero where it shares no term with the query; a term asked twice counts twice."""
        scores = np.zeros(self._size)
        for term, times in Counter(self.tokeniser(query)).items():
            if (number := self._number_of.get(term)) is not None:
                part = slice(self._ends[number], self._ends[number + 1])
                scores[self._rows[part]] += times * self._weights[part]
        return np.round(scores, DECIMALS)


# --- misspelt words

_WORD = re.compile(r"[^\W\d_]+")
_SHORTEST = 4
_RATIO = 0.8
"""The least ratio of two words (`difflib`): one letter of five may differ. Swapped letters are allowed in any word."""


def correct(query: str, vocabulary: Callable[[str], Iterable[str]]) -> str:
    """Return a query with each misspelt English word replaced by the nearest of the terms that begin with its letter.

    Words that English or the vocabulary knows and names stay, and a query of which English knows less than half.
    """
    words = _WORD.findall(query)
    unknown = {word for word in words if not is_known(word)}
    if not unknown or 2 * len([word for word in words if word not in unknown]) < len(words):
        return query

    def replace(match: re.Match[str]) -> str:
        word = match.group()
        if word not in unknown or not word.islower() or not word.isascii() or len(word) < _SHORTEST:
            return word
        terms = sorted(set(vocabulary(word[0])))
        [stemmed, *_] = [*split_terms(word), word]
        if stemmed in terms:
            return word
        swapped = [term for term in terms if len(term) == len(stemmed) and sorted(term) == sorted(stemmed)]
        return next(iter(swapped or difflib.get_close_matches(stemmed, terms, n=1, cutoff=_RATIO)), word)

    return _WORD.sub(replace, query)

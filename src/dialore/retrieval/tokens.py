"""The tokeniser of lexical search: texts and queries as terms, by script, so that one text may mix languages."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from dialore.errors import UnknownNameError
from dialore.text import CHINESE_RUN, is_stop_word, normalise, segmenter, stem, stop_words, words

if TYPE_CHECKING:
    from collections.abc import Iterator

ChineseTerms = Literal["search", "words", "characters", "bigrams"]
CHINESE_TERMS: tuple[ChineseTerms, ...] = get_args(ChineseTerms)
LONGEST = 64
"""Characters of a term; a longer run of letters is no word (a key, an encoded picture) and is left out."""


@dataclass(frozen=True, slots=True)
class Tokeniser:
    """Split texts and queries into terms; both must be split alike.

    Attributes:
        stems: English words give their Snowball stems.
        stop_words: function words are kept; they are left out by default.
        chinese: `words` as jieba splits them; `search` with the shorter words inside longer ones besides, so that 大学
            finds 北京大学; `characters` one by one; `bigrams`, overlapping pairs.

    Raises:
        UnknownNameError: no such unit of Chinese.
    """

    stems: bool = True
    stop_words: bool = False
    chinese: ChineseTerms = "search"

    def __post_init__(self) -> None:
        if self.chinese not in CHINESE_TERMS:
            raise UnknownNameError("unit of Chinese", self.chinese, CHINESE_TERMS)

    def __call__(self, text: str) -> list[str]:
        """The terms of a text, repeated as often as they stand there."""
        folded = normalise(text)
        if folded.isascii():
            return list(self._english(folded))
        terms = list(self._english(CHINESE_RUN.sub(" ", folded)))
        for run in CHINESE_RUN.findall(folded):
            terms.extend(self._chinese(run))
        return terms

    def _english(self, text: str) -> Iterator[str]:
        for word in words(text, "en"):
            term = _term(word, self.stems, self.stop_words)
            if term:
                yield term

    def _chinese(self, run: str) -> list[str]:
        if self.chinese == "characters":
            split = list(run)
        elif self.chinese == "bigrams":
            split = [run[at : at + 2] for at in range(max(1, len(run) - 1))]
        else:
            jieba = segmenter()
            split = jieba.lcut(run) if self.chinese == "words" else jieba.lcut_for_search(run)
        if self.stop_words:
            return split
        stop = stop_words("zh")
        return [word for word in split if word not in stop]


@functools.lru_cache(maxsize=1 << 18)
def _term(word: str, stems: bool, keep: bool) -> str:
    """What a word is compared by; empty where it is left out."""
    if len(word) > LONGEST or (not keep and is_stop_word(word, "en") and not word.isdigit()):
        return ""
    return stem(word) if stems else word

"""How texts are cut into tokens for metrics: English as ParlAI normalises it, Chinese by character or by word."""

from __future__ import annotations

import re
import string
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from dialore.errors import InputError
from dialore.text import words

if TYPE_CHECKING:
    from dialore.text import Language

ChineseTokens = Literal["character", "word"]
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = re.compile(f"[{re.escape(string.punctuation)}]")
_RUN = re.compile(r"[a-z0-9]+|[^\s]")


def check_chinese_tokens(name: str) -> ChineseTokens:
    """The way of cutting of that name; raises InputError where there is none."""
    if name == "character":
        return "character"
    if name == "word":
        return "word"
    raise InputError(f"Chinese cannot be counted by {name!r}", mend="by character or by word")


@lru_cache(maxsize=65536)
def tokens_of(text: str, language: Language, chinese: ChineseTokens = "character") -> tuple[str, ...]:
    """The tokens that overlap metrics count.

    English: lower case, without punctuation and articles, cut at white space, exactly as ParlAI's `normalize_answer`
    does. Chinese: without punctuation, a token a character (Latin letters and digits in runs), or a token a word of
    jieba's.
    """
    lowered = text.lower()
    if language == "en":
        return tuple(_ARTICLES.sub(" ", _PUNCTUATION.sub(" ", lowered)).split())
    if chinese == "character":
        return tuple(token for token in _RUN.findall(lowered) if not is_punctuation(token))
    return tuple(words(lowered, "zh"))


def is_punctuation(token: str) -> bool:
    """Whether a token is nothing but punctuation and symbols."""
    return all(unicodedata.category(character)[0] in "PS" for character in token)

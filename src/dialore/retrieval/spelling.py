"""Misspelt words of an English query, replaced by the nearest terms of what is searched."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable

from dialore.retrieval.bm25 import split_terms
from dialore.text import is_known

_WORD = re.compile(r"[^\W\d_]+")
_SHORTEST = 4
_RATIO = 0.8
"""How alike two words must be (`difflib`): one letter of five may differ. Swapped letters are allowed in any word."""


def correct(query: str, vocabulary: Callable[[str], Iterable[str]]) -> str:
    """Return a query with each misspelt English word replaced by the nearest term of a vocabulary.

    A word is misspelt that neither English nor the vocabulary knows. Words with a capital letter are names and stay. A
    query of which English knows less than half is of another language and is returned as it is.
    The vocabulary returns the terms (`split_terms`) that begin with a letter.
    """
    words = _WORD.findall(query)
    unknown = {word for word in words if not is_known(word)}
    if not unknown or 2 * len([word for word in words if word not in unknown]) < len(words):
        return query

    def replace(match: re.Match[str]) -> str:
        word = match.group()
        if word not in unknown or not word.islower() or not word.isascii() or len(word) < _SHORTEST:
            return word
        return _nearest(word, set(vocabulary(word[0]))) or word

    return _WORD.sub(replace, query)


def _nearest(word: str, terms: set[str]) -> str:
    """Return the term that is most like a word; nothing where the word is a term, or no term is near."""
    [stem, *_] = [*split_terms(word), word]
    if stem in terms:
        return ""
    swapped = sorted(term for term in terms if len(term) == len(stem) and sorted(term) == sorted(stem))
    return next(iter(swapped or difflib.get_close_matches(stem, sorted(terms), n=1, cutoff=_RATIO)), "")

"""Every n-gram of a text that is a concept of the graph: the linking of DCRAG's baseline T-RAG."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from dialore.text import HAN, lemma, normalise, segments

MAX_NGRAM = 10
"""Maximum length of an n-gram: words of other scripts, characters of Chinese."""
_TOKEN = re.compile(rf"[{HAN}]|(?:(?![{HAN}])[^\W_])+(?:['-](?:(?![{HAN}])[^\W_])+)*")
_HAN = re.compile(rf"[{HAN}]")


def find_ngrams(texts: Iterable[str], find: Callable[[str], int | None]) -> Iterator[tuple[str, int, bool]]:
    """Yield the n-gram, its concept and whether it is the concept's exact form, in order of mention.

    N-grams overlap, contain stop words and end with their sentence or clause. Each is looked up as it
    is written and with its words as lemmas. `find` returns the concept of a form, or None.
    """
    for sentence in (segment for text in texts for segment in segments(text)):
        tokens = _TOKEN.findall(normalise(sentence))
        for start in range(len(tokens)):
            for end in range(start + 1, min(start + MAX_NGRAM, len(tokens)) + 1):
                phrase, *lemmas = _forms(tokens[start:end])
                for form in (phrase, *lemmas):
                    concept = find(form)
                    if concept is not None:
                        yield phrase, concept, form == phrase


def _forms(tokens: list[str]) -> list[str]:
    """Return the n-gram as it is written, without hyphens, and as lemmas; each form once."""
    written = _join(tokens)
    lemmas = _join([lemma(token, "en") for token in tokens])
    return list(dict.fromkeys((written, written.replace("-", " "), lemmas)))


def _join(tokens: list[str]) -> str:
    """Join tokens by spaces, except beside a Chinese character."""
    joined = ""
    for token in tokens:
        chinese = _HAN.match(token) or _HAN.match(joined[-1:])
        joined += token if not joined or chinese else f" {token}"
    return joined

"""A page's text cut into passages that keep their sentences whole."""

from __future__ import annotations

import re

from dialore.text import is_chinese

_SENTENCE = re.compile(
    r"(?<=[。！？!?…])(?=[^\s。！？!?…”’」』）)])|(?<=[。！？!?…][”’」』）)])|(?<=[.!?…])[\"'”’)]*\s+(?=[\"'“‘(]*[A-Z0-9\u3400-\u9fff])"
)
_ABBREVIATED = re.compile(r"(?:\b(?:mr|mrs|ms|dr|st|vs|jr|sr|prof|e\.g|i\.e|no|vol|fig|approx)|\b[A-Za-z])\.$", re.I)


def split_sentences(text: str) -> list[str]:
    """The sentences of a paragraph with their punctuation; "Dr. Who" is not cut, nor is "3.5"."""
    sentences: list[str] = []
    start = 0
    for match in _SENTENCE.finditer(text):
        end = match.end()
        if not _ABBREVIATED.search(text[start : match.start()]):
            sentences.append(text[start:end].strip())
            start = end
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence]


def passages(text: str, *, size: int = 600) -> list[str]:
    """Cut a text into passages of whole sentences and at most `size` characters; Chinese ones have half as many.

    A sentence that is longer stands alone, and is cut only at twice the size. Paragraphs are joined while they fit, so
    that a heading stays with what follows it.
    """
    size = size // 2 if is_chinese(text) else size
    made: list[str] = []
    current = ""
    for paragraph in text.split("\n"):
        joint = "\n"
        for sentence in split_sentences(paragraph):
            for part in _parts(sentence, 2 * size):
                if current and len(current) + len(joint) + len(part) > size:
                    made.append(current)
                    current = ""
                current = f"{current}{joint}{part}" if current else part
                joint = "" if is_chinese(part[:1]) else " "
    return [*made, current] if current else made


def _parts(sentence: str, longest: int) -> list[str]:
    return [sentence[at : at + longest] for at in range(0, len(sentence), longest)]

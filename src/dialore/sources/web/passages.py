"""A page's text cut into passages that keep their sentences whole."""

from __future__ import annotations

from dialore.text import is_chinese, split_sentences


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

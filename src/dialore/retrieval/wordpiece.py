"""WordPiece as BERT cuts English, uncased: the tokens that the static embedding has vectors for.

The `tokenizers` library does the same, but brings 40 MB of packages that nothing else here needs; a test holds this
to it. Words recur, so each is cut once and remembered.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import TYPE_CHECKING, Self

from dialore.errors import InputError
from dialore.text import is_chinese

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_ASCII_PIECE = re.compile(r"[a-z0-9]+|[!-/:-@\[-`{-~]")
_LONGEST = 100
"""Characters of the longest word that is cut; BERT gives up on longer ones."""
_REMEMBERED = 1 << 18


class WordPiece:
    """Cuts text into the tokens of a vocabulary; what the vocabulary lacks is left out.

    Args:
        vocabulary: each token's number; a token inside a word begins with `##`.
    """

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self._vocabulary = vocabulary
        self._known: dict[str, list[int]] = {}

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the vocabulary of a `tokenizer.json`.

        Raises:
            InputError: the file is missing, damaged, or holds another kind of tokenizer.
        """
        try:
            model = json.loads(path.read_text(encoding="utf-8"))["model"]
            if model["type"] != "WordPiece":
                raise InputError(
                    f"{path} is a {model['type']} tokenizer, not WordPiece", mend="distil from a BERT model"
                )
            unknown = model["unk_token"]
            return cls({token: number for token, number in model["vocab"].items() if token != unknown})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is not a tokenizer", mend="reinstall dialore") from error

    def ids(self, text: str) -> list[int]:
        """The tokens of a text, in order."""
        if text.isascii():
            # Control characters vanish and join what they part; only white space parts words.
            lowered = text.lower()
            words = _ASCII_PIECE.findall(lowered if lowered.isprintable() else _without_controls(lowered))
        else:
            words = _split(_fold(text))
        found: list[int] = []
        for word in words:
            known = self._known.get(word)
            if known is None:
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                known = self._known[word] = self._cut(word)
            found += known
        return found

    def _cut(self, word: str) -> list[int]:
        """The longest tokens from left to right; none where a rest is not in the vocabulary."""
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


def _without_controls(text: str) -> str:
    kept = (" " if character.isspace() and character not in "\x1c\x1d\x1e\x1f" else character for character in text)
    return "".join(character for character in kept if character == " " or character.isprintable())


def _fold(text: str) -> str:
    """Without control characters, CJK spaced out, accents stripped, lower case: BERT's normaliser."""
    cleaned: list[str] = []
    for character in text:
        if character in "\t\n\r" or unicodedata.category(character).startswith("Z"):
            cleaned.append(" ")
        elif character == "�" or unicodedata.category(character).startswith("C"):
            continue
        elif is_chinese(character):
            cleaned.append(f" {character} ")
        else:
            cleaned.append(character)
    decomposed = unicodedata.normalize("NFD", "".join(cleaned))
    return "".join(c for c in decomposed if unicodedata.category(c) != "Mn").lower()


def _split(text: str) -> list[str]:
    """Words at white space, and each punctuation mark by itself."""
    spaced = "".join(f" {c} " if _is_punctuation(c) else c for c in text)
    return spaced.split()


def _is_punctuation(character: str) -> bool:
    if character.isascii():
        return character.isprintable() and not character.isalnum() and character != " "
    return unicodedata.category(character).startswith("P")

"""Other spellings of the same word: British and American English, simplified and traditional Chinese."""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import Any, Literal

Script = Literal["t2s", "s2t"]
_OUR = re.compile(r"(?<=[a-z]{3})our(?=$|s$|ed$|ing$|ful$|ite$|able$)")
_ISE = re.compile(r"(?<=[a-z]{2})is(?=e$|es$|ed$|ing$|er$|ation$)")
_IZE = re.compile(r"(?<=[a-z]{2})iz(?=e$|es$|ed$|ing$|er$|ation$)")
_OR = re.compile(r"(?<=[a-z]{3})or(?=$|s$|ed$|ing$|ful$|ite$|able$)")


@functools.lru_cache(maxsize=1)
def _pairs() -> dict[str, str]:
    """British and American lemmas, each to the other."""
    file = resources.files("dialore") / "data" / "spelling.en.txt"
    lines = (line.split() for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    pairs = [(line[0], line[1]) for line in lines if line]
    return {**dict(pairs), **{american: british for british, american in pairs}}


@functools.lru_cache(maxsize=65536)
def respelt(word: str) -> str | None:
    """A lower-case English word as it is spelt across the Atlantic; None where no rule or pair knows it.

    Rules make words that nobody writes ("actour"), so the result is only to be looked up.
    """
    known = _pairs().get(word)
    if known is not None or not word.isascii():
        return known
    for pattern, other in ((_OUR, "or"), (_ISE, "iz"), (_IZE, "is"), (_OR, "our")):
        changed = pattern.sub(other, word)
        if changed != word:
            return changed
    return None


@functools.lru_cache(maxsize=2)
def _converter(script: Script) -> Any:  # noqa: ANN401 - the library is untyped
    """OpenCC's conversion, its dictionaries loaded."""
    from opencc import OpenCC

    return OpenCC(script)


@functools.lru_cache(maxsize=65536)
def _changes(character: str, script: Script) -> bool:
    return bool(_converter(script).convert(character) != character)


@functools.lru_cache(maxsize=16384)
def _converted(text: str, script: Script) -> str:
    # A phrase costs twenty times what a look at its characters does, and most are in the wanted script already.
    if not any(_changes(character, script) for character in text):
        return text
    return str(_converter(script).convert(text))


def simplified(text: str) -> str:
    """Chinese in simplified characters: 不同種類 becomes 不同种类."""
    return _converted(text, "t2s")


def traditional(text: str) -> str:
    """Chinese in traditional characters, words taken whole: 头发 becomes 頭髮 and 发现 發現."""
    return _converted(text, "s2t")

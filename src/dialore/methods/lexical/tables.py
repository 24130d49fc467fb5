"""The data files of the lexical responder: word classes, cues, wordings and replies."""

from __future__ import annotations

import functools
import hashlib
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.text import Language

Item = TypeVar("Item")
# The C loader is ten times as quick, where PyYAML was built with it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@functools.lru_cache(maxsize=16)
def table(name: str, language: Language) -> dict[str, Any]:
    """A data file of the package, `data/lexical/<name>.<language>.yaml`."""
    file = resources.files("dialore") / "data" / "lexical" / f"{name}.{language}.yaml"
    loaded: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506 - a safe loader
    return loaded


@functools.lru_cache(maxsize=32)
def word_class(name: str, language: Language = "en") -> frozenset[str]:
    """A list of words: `vague` and `unkind` of `cues.<language>.yaml`, a word class of `words.en.yaml`."""
    home = "cues" if name in {"vague", "unkind"} else "words"
    return frozenset(str(table(home, language)[name]).split())


def turned(items: Sequence[Item], *seed: object) -> list[Item]:
    """The items in order, begun at a place that the seed decides: the first is the choice, the rest stand in for it."""
    if not items:
        return []
    digest = hashlib.blake2b("\t".join(map(str, seed)).encode(), digest_size=4).digest()
    start = int.from_bytes(digest, "big") % len(items)
    return [*items[start:], *items[:start]]

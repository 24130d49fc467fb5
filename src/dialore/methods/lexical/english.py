"""English concepts as parts of a sentence: articles set, verbs in the form that is wanted, or nothing at all.

Concepts of a graph are telegrams: "take baby for walk", "rainy day trip", "sheared in spring". Each is given the form
that a sentence needs, by word classes alone. What they do not settle gives None, and its fact is then not worded.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Literal

from dialore.methods.lexical.articles import (
    ADVERBS,
    LINKS,
    articled,
    gerund,
    head_of,
    is_adjectival,
    is_ambiguous,
    is_gerund,
    is_participle,
    is_plural_word,
    is_verb,
    with_objects,
    word_set,
)
from dialore.methods.lexical.tables import word_class

if TYPE_CHECKING:
    from collections.abc import Callable

Form = Literal["noun", "thing", "doing", "do", "act", "adj", "done"]
"""noun: a noun phrase; doing: a verb in -ing; thing: either of them; do: a bare verb, said of you; act: one said of
others; adj: an adjective; done: a past participle."""

_TOKEN = re.compile(r"^[A-Za-zÀ-ÿ0-9][A-Za-zÀ-ÿ0-9'’.&-]*$")
_LONGEST = 7
# Words of clauses and of persons: a concept with one of them is a sentence of its own.
_OUT = word_set(
    "i you he she it we they me him us them someone somebody something anyone anybody anything everyone everybody "
    "everything one one's who whom whose which what when while if because is are was were am been being do does did "
    "has had can could will would should may might must not n't cannot don't this that etc yourself myself himself "
    "herself oneself my our his her just until then thing things person persons"
)
_KIND_OF = re.compile(r"\b(?:kind|sort|type)s? of\b")
_DEGREES = frozenset(("very", "quite", "rather", "too", "really", "fairly"))


@functools.lru_cache(maxsize=16384)
def phrase(concept: str, form: Form) -> str | None:
    """A concept in a form, or None where it has none that is sure to be grammatical."""
    tokens = concept.replace("’", "'").split()
    if not 0 < len(tokens) <= _LONGEST or not all(_TOKEN.match(token) for token in tokens):
        return None
    if any(token.lower() in _OUT for token in tokens) or _KIND_OF.search(concept):
        return None
    return _FORMS[form](tokens)


def is_plural(concept: str) -> bool:
    """Whether a concept is a noun phrase in the plural."""
    tokens = concept.split()
    head = head_of(tokens)
    return "and" in tokens or (bool(head) and is_plural_word(head[-1]))


def _noun(tokens: list[str]) -> str | None:
    """A noun phrase. One of several words that begins like a verb is refused: "lack of sleep" may pass."""
    if len(tokens) > 1 and tokens[1] != "of":
        first, second = tokens[0], tokens[1].lower()
        if is_verb(first) or is_gerund(first) or (is_participle(first) and second in LINKS | ADVERBS):
            return None
    return articled(tokens)


def _thing(tokens: list[str]) -> str | None:
    """A noun phrase, a verb in -ing, or "being" with an adjective."""
    known = tokens[-1] in word_class("count") or tokens[-1] in word_class("mass")
    if is_adjectival(tokens) and not known:
        return f"being {' '.join(tokens)}"
    noun = _noun(tokens)
    if noun is not None:
        return noun
    return _doing(tokens)


def _doing(tokens: list[str]) -> str | None:
    """A verb in -ing and its objects."""
    first, rest = tokens[0], tokens[1:]
    if is_gerund(first):
        return with_objects(first, rest)
    return with_objects(gerund(first), rest) if is_verb(first) and not is_ambiguous(tokens) else None


def _do(tokens: list[str]) -> str | None:
    return with_objects(tokens[0], tokens[1:]) if is_verb(tokens[0]) else None


def _act(tokens: list[str]) -> str | None:
    return with_objects(tokens[0], tokens[1:], yours=False) if is_verb(tokens[0]) else None


def _adj(tokens: list[str]) -> str | None:
    """An adjective, alone or with what qualifies it: "hard for beginners", "messy to eat"."""
    degrees = [token for token in tokens if token in _DEGREES]
    bare = tokens[len(degrees) :]
    if tokens[: len(degrees)] != degrees:
        return None
    cut = next((place for place, token in enumerate(bare) if token in LINKS and token not in {"and", "or"}), len(bare))
    qualities, rest = bare[:cut], bare[cut:]
    if not is_adjectival(qualities):
        return None
    said = " ".join([*degrees, *qualities])
    if not rest:
        return said
    if rest[0] == "to" and len(rest) > 1 and is_verb(rest[1]):
        return with_objects(f"{said} to {rest[1]}", rest[2:])
    return with_objects(said, rest)


def _done(tokens: list[str]) -> str | None:
    """A past participle and what goes with it: "sheared in spring", "eased by gentle walk"."""
    start = 1 if tokens[0].endswith("ly") and len(tokens) > 1 else 0
    if not is_participle(tokens[start]):
        return None
    return with_objects(" ".join(tokens[: start + 1]), tokens[start + 1 :], yours=False)


_FORMS: dict[Form, Callable[[list[str]], str | None]] = {
    "noun": _noun,
    "thing": _thing,
    "doing": _doing,
    "do": _do,
    "act": _act,
    "adj": _adj,
    "done": _done,
}

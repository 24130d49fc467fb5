"""English verbs inside concepts: whether a concept is something that one does, and its other forms."""

from __future__ import annotations

import functools
import re
from importlib import resources

_VOWELS = "aeiou"
_PARTICLE = re.compile(r"^(?:not |never |always |often |usually )+")
_DOUBLED = re.compile(r"^[^aeiou]*[aeiou][bdgklmnprt]$")
"""One syllable that ends in a short vowel and one consonant: its consonant is doubled ("stopped")."""
_DOUBLED_TOO = frozenset({"admit", "begin", "commit", "forget", "prefer", "propel", "program", "transfer", "transmit"})
_NOT_DOUBLED = frozenset({"fix", "mix", "wax", "row", "sew", "show", "bow", "play"})


@functools.lru_cache(maxsize=1)
def _verbs() -> tuple[dict[str, str], frozenset[str]]:
    """Base forms with their irregular participles ("" for a regular one), and those that are as often a thing."""
    participles: dict[str, str] = {}
    things = set()
    file = resources.files("dialore") / "data" / "verbs.en.txt"
    for line in file.read_text(encoding="utf-8").splitlines():
        for entry in () if line.startswith("#") else line.split():
            base, _, participle = entry.partition(":")
            verb = base.removesuffix("*")
            participles[verb] = participle
            if verb != base:
                things.add(verb)
    return participles, frozenset(things)


@functools.lru_cache(maxsize=65536)
def is_doing(concept: str) -> bool:
    """Whether a concept is a verb phrase in its base form: "eat breakfast", "relax", but not "exercise"."""
    first, _, rest = _PARTICLE.sub("", concept.lower()).partition(" ")
    verbs, things = _verbs()
    return first in verbs and (bool(rest) or first not in things)


@functools.lru_cache(maxsize=65536)
def gerund(concept: str) -> str:
    """A verb phrase as a thing: "eat breakfast" becomes "eating breakfast"; anything else stays."""
    if not is_doing(concept):
        return concept
    lead, verb, rest = _parts(concept)
    if verb.endswith("ie"):
        made = verb[:-2] + "ying"
    elif verb.endswith("e") and not verb.endswith(("ee", "oe", "ye")) and verb != "be":
        made = verb[:-1] + "ing"
    else:
        made = _doubled(verb) + "ing"
    return lead + made + rest


@functools.lru_cache(maxsize=65536)
def passive(concept: str) -> str:
    """A verb phrase as what is done to something: "play on ice" becomes "played on ice"; anything else stays."""
    lead, verb, rest = _parts(concept)
    irregular = _verbs()[0].get(verb)
    if irregular is None:
        return concept
    if irregular:
        return lead + irregular + rest
    if verb.endswith("e"):
        made = verb + "d"
    elif verb.endswith("y") and verb[-2:-1] not in _VOWELS:
        made = verb[:-1] + "ied"
    else:
        made = _doubled(verb) + "ed"
    return lead + made + rest


def _parts(concept: str) -> tuple[str, str, str]:
    """What stands before the verb, the verb, and what stands after it, spaces included."""
    match = _PARTICLE.match(concept.lower())
    start = match.end() if match else 0
    verb, space, rest = concept[start:].partition(" ")
    return concept[:start], verb.lower(), space + rest


def _doubled(verb: str) -> str:
    again = verb in _DOUBLED_TOO or (_DOUBLED.match(verb) is not None and verb not in _NOT_DOUBLED)
    return verb + verb[-1] if again else verb

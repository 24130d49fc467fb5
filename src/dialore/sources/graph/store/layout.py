"""How a graph lies on disk: one LMDB file, read through memory maps, with the changes made since at its end.

| table | key | value |
|---|---|---|
| `meta` | `meta` | JSON: format, name, languages, counts, relations, provenances, embedder |
| `meta` | `relations` | float32 (relations, dimension): each relation's words as an unnormalised sum |
| `meta` | `parts`, `scales` | int8 (parts, dimension), float32 (parts,): sums of the parts that concepts are made of |
| `meta` | `numbers` | uint32 (parts,): the parts' numbers in the embedder |
| `meta` | `made`, `ends` | the parts of each concept, one's after the other's, and where each one's end |
| `names` | concept id | the concept as it is written |
| `ids` | normal form | id of the concept with that normal form |
| `keys` | stems of the content lemmas | ids of the concepts with those stems; none for one that is its own stems |
| `out`, `in` | concept id | the concept's facts as head, as tail: records of EDGE, the heaviest first |

Vectors of a static embedding are linear: a concept's is the sum of its parts', a fact's that of its concepts' and its
relation's, and a fact's length is kept with it. So a graph keeps the vectors of some ten thousand parts rather than of
a million concepts, and a question is multiplied with each part once. What follows LMDB's last page is the journal of
changes (see `journal`).
"""

from __future__ import annotations

import functools
import hashlib
import struct
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import BaseModel

from dialore.text import content_words, is_chinese, lemma, stem, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.text import Language

FORMAT = 4
TABLES = (b"meta", b"names", b"ids", b"keys", b"out", b"in")
INTEGER_TABLES = frozenset({b"names", b"out", b"in"})
MAX_RELATIONS = 4096
"""Relations of a graph: 12 bits of the number that tells facts apart."""
MAX_PROVENANCES = 65536
"""Provenances of a graph: the 16 bits that a record has for them."""
MAX_KEY = 500
"""LMDB's keys end at 511 bytes; longer ones are hashed."""

EDGE = np.dtype([("other", "<u4"), ("relation", "<u2"), ("provenance", "<u2"), ("weight", "<f4"), ("norm", "<f4")])
"""A fact as one of its concepts keeps it."""
CHANGE = np.dtype(
    [
        ("head", "<u4"),
        ("tail", "<u4"),
        ("relation", "<u2"),
        ("provenance", "<u2"),
        ("weight", "<f4"),
        ("norm", "<f4"),
    ]
)
"""A fact that a change has set; one of length 0 is deleted."""


class GraphMeta(BaseModel):
    """What a graph file says of itself.

    Attributes:
        format: version of the layout.
        name: the graph's name, carried by each of its facts.
        languages: languages of its concepts.
        concepts: how many concepts; those that lost their facts to changes keep their numbers.
        facts: how many facts, duplicates merged.
        relations: relation names by number.
        provenances: provenances by number.
        embedder: spec of the embedder that made the vectors; empty where there are none.
        embedder_fingerprint: its fingerprint.
        dimension: components of a vector.
        fingerprint: hash of all facts and weights, in whatever order; runs keep it.
    """

    kind: Literal["dialore graph"] = "dialore graph"
    format: int = FORMAT
    name: str
    languages: list[str]
    concepts: int
    facts: int
    relations: list[str]
    provenances: list[str]
    embedder: str = ""
    embedder_fingerprint: str = ""
    dimension: int = 0
    fingerprint: str = ""


def concept_key(name: str) -> str:
    """The stem key of a concept, by its own language; empty for one of punctuation alone."""
    language: Language = "zh" if is_chinese(name) else "en"
    return stem_key(phrase_tokens(name, language), language)


def id_key(number: int) -> bytes:
    """A concept's id as an integer key."""
    return struct.pack("=I", number)


def text_key(text: str) -> bytes:
    """A text as a key, hashed where it is too long."""
    encoded = text.encode()
    return encoded if len(encoded) <= MAX_KEY else b"\0" + hashlib.blake2b(encoded, digest_size=32).digest()


def stem_key(tokens: Sequence[str], language: Language) -> str:
    """What a phrase's content words have in common whatever their inflection: the stems of their lemmas.

    Lemmas join "ate" and "eat", stems "wedding" and "wed".
    """
    return "".join(tokens) if language == "zh" else " ".join(map(_root, tokens))


@functools.lru_cache(maxsize=1 << 20)  # a graph of a million concepts is made of about half as many words
def _root(word: str) -> str:
    return stem(lemma(word, "en"))


def phrase_tokens(phrase: str, language: Language) -> list[str]:
    """The content words of a phrase; all of its words where it has only function words."""
    return content_words(phrase, language) or words(phrase, language)

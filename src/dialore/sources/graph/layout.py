"""How a graph lies on disk: one LMDB file, read through memory maps.

| table | key | value |
|---|---|---|
| `meta` | `meta` | JSON: format, name, languages, counts, relations, provenances, embedder |
| `meta` | `relations` | float32 (relations, dimension): each relation's words as an unnormalised sum |
| `meta` | `vectors`, `scales` | int8 (concepts, dimension) and float32 (concepts,): each concept's unnormalised sum |
| `names` | concept id | the concept as it is written |
| `ids` | normal form | id of the concept with that normal form |
| `keys` | stems of the content lemmas | ids of the concepts with those stems |
| `out`, `in` | concept id | the concept's facts as head, as tail: records of EDGE, the heaviest first |

Vectors of a static embedding are linear, so a fact's vector is the sum of its parts' and its length is kept with it.
"""

from __future__ import annotations

import functools
import hashlib
import struct
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import BaseModel

from dialore.text import content_words, lemma, stem, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.text import Language

FORMAT = 2
TABLES = (b"meta", b"names", b"ids", b"keys", b"out", b"in")
INTEGER_TABLES = frozenset({b"names", b"out", b"in"})
MAX_RELATIONS = 4096
"""Relations of a graph: 12 bits of the number that tells facts apart."""
MAX_PROVENANCES = 65536
"""Provenances of a graph: the 16 bits that a record has for them."""
MAX_KEY = 500
"""LMDB's keys end at 511 bytes; longer ones are hashed."""

EDGE = np.dtype([("other", "<u4"), ("relation", "<u2"), ("provenance", "<u2"), ("weight", "<f4"), ("norm", "<f4")])


class GraphMeta(BaseModel):
    """What a graph file says of itself.

    Attributes:
        format: version of the layout.
        name: the graph's name, carried by each of its facts.
        languages: languages of its concepts.
        concepts: how many concepts.
        facts: how many facts, duplicates merged.
        relations: relation names by number.
        provenances: provenances by number.
        embedder: spec of the embedder that made the vectors; empty where there are none.
        embedder_fingerprint: its fingerprint.
        dimension: components of a vector.
        fingerprint: hash of all facts and weights; runs keep it.
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


@functools.lru_cache(maxsize=1 << 18)
def _root(word: str) -> str:
    return stem(lemma(word, "en"))


def phrase_tokens(phrase: str, language: Language) -> list[str]:
    """The content words of a phrase; all of its words where it has only function words."""
    return content_words(phrase, language) or words(phrase, language)

"""A graph of ConceptNet's shape, the same on every machine: many concepts of few facts, a few of very many."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from dialore.knowledge import Fact
from dialore.retrieval.graph.relations import RELATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

HUB = 50_000
"""Facts of a hub in a graph of FULL facts; fewer in proportion in a smaller one."""
FULL = 3_300_000
HUBS = 3
_CONCEPTS = 1_200_000
_SIZES = (0.35, 0.40, 0.17, 0.08)
"""Shares of concepts of one, two, three and four words."""
_INVENTED = 0.25
"""Share of words that no vocabulary holds, as names of people, plants and places are."""
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
_CHUNK = 100_000
"""Rows that are Python objects at a time."""
_WEIGHTS = np.array([1.0, 1.0, 1.0, 1.0, 2.0, 2.828, 0.5], np.float32)


@dataclass(frozen=True, slots=True)
class ShapedGraph:
    """A generated graph as columns, each fact once; concepts 0 to HUBS - 1 are the hubs."""

    names: list[str]
    relations: list[str]
    head: NDArray[np.uint32]
    relation: NDArray[np.uint16]
    tail: NDArray[np.uint32]
    weight: NDArray[np.float32]

    def facts(self) -> Iterator[Fact]:
        """Yield the facts, one by one."""
        names, relations = self.names, self.relations
        columns = (self.head, self.relation, self.tail, self.weight)
        for start in range(0, len(self.head), _CHUNK):
            some = (column[start : start + _CHUNK].tolist() for column in columns)
            for head, relation, tail, weight in zip(*some, strict=True):
                yield Fact(names[head], relations[relation], names[tail], weight, "generated")

    def degrees(self) -> NDArray[np.int64]:
        """Return each concept's number of facts."""
        ends = (self.head, self.tail)
        return sum(np.bincount(end, minlength=len(self.names)) for end in ends)  # type: ignore[return-value]


def shaped_graph(facts: int, seed: int = 0) -> ShapedGraph:
    """Return a graph of about that many facts; every concept has one at least."""
    rng = np.random.default_rng(seed)
    concepts = max(HUBS + 1, facts * _CONCEPTS // FULL)
    hub = max(1, facts * HUB // FULL)
    relations = [name for name, relation in RELATIONS.items() if relation.informative]
    # Degrees fall as a power of the rank; the shift keeps the first ranks below the hubs.
    ranks = np.arange(concepts, dtype=np.float64)
    rising = np.cumsum((ranks + 30) ** -0.75)
    rising /= rising[-1]
    order = rng.permutation(np.arange(HUBS, concepts, dtype=np.uint32))
    ordered = np.concatenate([order[:1], order, order])[:concepts]
    hub_ends = np.repeat(np.arange(HUBS, dtype=np.uint32), hub)
    loose = max(0, facts - concepts - len(hub_ends))
    one = np.concatenate([hub_ends, np.arange(concepts, dtype=np.uint32), _sampled(rng, rising, ordered, loose)])
    others = rng.integers(HUBS, concepts, len(hub_ends), dtype=np.uint32)
    other = np.concatenate([others, _sampled(rng, rising, ordered, concepts + loose)])
    turned = rng.random(len(one)) < 0.5
    head, tail = np.where(turned, other, one), np.where(turned, one, other)
    shares = 1 / (np.arange(len(relations)) + 1.0)
    relation = rng.choice(len(relations), len(head), p=shares / shares.sum()).astype(np.uint16)
    _, first = np.unique(
        (head.astype(np.uint64) << np.uint64(38)) | (tail.astype(np.uint64) << np.uint64(12)) | relation,
        return_index=True,
    )
    kept = np.sort(first)
    weight = rng.choice(_WEIGHTS, len(head))
    return ShapedGraph(_names(rng, concepts), relations, head[kept], relation[kept], tail[kept], weight[kept])


def _sampled(
    rng: np.random.Generator, rising: NDArray[np.float64], ordered: NDArray[np.uint32], count: int
) -> NDArray[np.uint32]:
    return ordered[np.minimum(np.searchsorted(rising, rng.random(count)), len(ordered) - 1)]


def known_words() -> list[str]:
    """Whole words of the shipped embedder's vocabulary."""
    text = (files("dialore") / "data" / "embedding" / "english.tokenizer.json").read_text(encoding="utf-8")
    vocabulary = json.loads(text)["model"]["vocab"]
    return [word for word in vocabulary if len(word) > 2 and word.isascii() and word.isalpha()]


def _names(rng: np.random.Generator, count: int) -> list[str]:
    """Different names, of words of a vocabulary and words that are in none."""
    known = known_words()
    shares = 1 / (np.arange(len(known)) + 100.0)
    sizes = rng.choice(np.arange(1, 5), count, p=_SIZES)
    total = int(sizes.sum())
    places = rng.choice(len(known), total, p=shares / shares.sum())
    invented = rng.random(total) < _INVENTED
    syllables = rng.integers(0, len(_SYLLABLES), (total, 4))
    lengths = rng.integers(2, 5, total)
    columns = (places, invented, syllables, lengths)

    def spelled() -> Iterator[str]:
        for start in range(0, total, _CHUNK):
            some = (column[start : start + _CHUNK].tolist() for column in columns)
            for place, new, picked, length in zip(*some, strict=True):
                yield "".join(_SYLLABLES[syllable] for syllable in picked[:length]) if new else known[place]

    words = spelled()
    taken: dict[str, None] = {}
    for number, size in enumerate(sizes.tolist()):
        name = " ".join(next(words) for _ in range(size))
        while name in taken:
            name += " " + "".join(_SYLLABLES[(number // 70**place) % 70] for place in range(4))
        taken[name] = None
    return list(taken)

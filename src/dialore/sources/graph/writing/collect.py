"""Facts on their way into a graph, as numbers."""

from __future__ import annotations

import hashlib
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.errors import GraphError
from dialore.sources.graph.store.layout import MAX_PROVENANCES, MAX_RELATIONS
from dialore.text import normalise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dialore.knowledge import Fact


class Collector:
    """Facts as they stream in, as numbers: 16 bytes a fact, and each concept's name once."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.number_of: dict[str, int] = {}
        self.relations: dict[str, int] = {}
        self.provenances: dict[str, int] = {}
        self.columns = {"head": array("I"), "relation": array("H"), "tail": array("I"), "provenance": array("H")}
        self.weights = array("f")

    def concept(self, name: str) -> int:
        """The number of a concept; raises GraphError for a blank one."""
        number = self.number_of.get(name)  # most names are in normal form already
        if number is None:
            form = normalise(name)
            if not form:
                raise GraphError(f"a fact's concept is blank: {name!r}", mend="name the head and tail of every fact")
            number = self.number_of.get(form)
            if number is None:
                number = self.number_of[form] = len(self.names)
                self.names.append(name)
        return number

    def add(self, fact: Fact) -> None:
        """Take a fact in; raises GraphError as `concept`, and for too many relations or provenances."""
        columns = self.columns
        columns["head"].append(self.concept(fact.head))
        columns["relation"].append(numbered(self.relations, fact.relation, "relations", MAX_RELATIONS))
        columns["tail"].append(self.concept(fact.tail))
        columns["provenance"].append(numbered(self.provenances, fact.provenance, "provenances", MAX_PROVENANCES))
        self.weights.append(fact.weight)

    def merged(self) -> tuple[dict[str, NDArray[Any]], int]:
        """The columns with each fact once, its heaviest mention kept, and how many were merged away."""
        head, relation, tail, provenance = (
            np.frombuffer(self.columns[name], dtype) if len(self.columns[name]) else np.empty(0, dtype)
            for name, dtype in (("head", "u4"), ("relation", "u2"), ("tail", "u4"), ("provenance", "u2"))
        )
        weight = np.frombuffer(self.weights, "f4") if len(self.weights) else np.empty(0, "f4")
        # The heaviest first within a fact, so that the first of each run is the one to keep.
        order = np.lexsort((np.arange(len(head)), -weight, tail, relation, head))
        ordered = np.stack([head[order], relation[order].astype("u4"), tail[order]])
        new = np.ones(len(order), bool)
        new[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
        kept = order[new]
        columns = {
            "head": head[kept],
            "relation": relation[kept],
            "tail": tail[kept],
            "provenance": provenance[kept],
            "weight": weight[kept],
        }
        return columns, len(head) - len(kept)


def numbered(numbers: dict[str, int], name: str, kind: str, limit: int) -> int:
    """The number of a name, the next one for a new name; raises GraphError past the limit."""
    number = numbers.setdefault(name, len(numbers))
    if number >= limit:
        raise GraphError(f"the facts have more than {limit:,} {kind}", mend="is it the right file, and its columns?")
    return number


def name_hashes(names: Sequence[str]) -> NDArray[np.uint64]:
    """(n,): a hash of each name, the same in every process."""
    digests = b"".join(hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names)
    return np.frombuffer(digests, "<u8")


def fact_hashes(
    head: NDArray[np.uint64], relation: NDArray[np.uint64], tail: NDArray[np.uint64], weight: NDArray[np.float32]
) -> int:
    """The sum of a hash of each fact: it knows no order, and a fact is taken out by subtracting its own.

    Args:
        head: hashes of the heads' names.
        relation: hashes of the relations' names.
        tail: hashes of the tails' names.
        weight: the weights.

    Returns:
        A number of 64 bits.
    """
    mixed = _mix(head)
    for values in (relation, tail, weight.astype("<f4").view("<u4").astype(np.uint64)):
        mixed = _mix(mixed ^ (values + np.uint64(0x9E3779B97F4A7C15)))
    return int(mixed.sum(dtype=np.uint64))


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele et al., 2014): each bit of the input changes half of the output's."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))

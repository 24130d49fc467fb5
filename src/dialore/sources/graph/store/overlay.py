"""A graph's changes since it was built, in memory: what its tables say less what was deleted, and what is new."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from dialore.sources.graph.store.layout import CHANGE, EDGE
from dialore.text import normalise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dialore.sources.graph.store.journal import Record

Side = tuple[bytes, int]
"""A table and a concept: the facts that it has as head (`out`) or as tail (`in`)."""


@dataclass(frozen=True)
class _Sides:
    """All changes in order of one of their ends, so that a concept's stand together."""

    changes: NDArray[np.void]
    own: Literal["head", "tail"]
    other: Literal["head", "tail"]

    @classmethod
    def of(cls, changes: NDArray[np.void], own: Literal["head", "tail"], other: Literal["head", "tail"]) -> _Sides:
        return cls(changes[np.argsort(changes[own], kind="stable")], own, other)

    @cached_property
    def _ends(self) -> NDArray[np.uint32]:
        return np.ascontiguousarray(self.changes[self.own])

    @cached_property
    def concepts(self) -> frozenset[int]:
        """Concepts whose facts on this side were changed."""
        return frozenset(np.unique(self._ends).tolist())

    def records(self, concept: int) -> NDArray[np.void]:
        """A concept's changed facts; a deleted one's length is 0."""
        first, last = np.searchsorted(self._ends, [concept, concept + 1])
        own = self.changes[first:last]
        records = np.empty(len(own), EDGE)
        records["other"] = own[self.other]
        for name in ("relation", "provenance", "weight", "norm"):
            records[name] = own[name]
        return records


@dataclass(frozen=True)
class Overlay:
    """All changes up to one record. Nothing of it ever changes but what is remembered in `merged`.

    Attributes:
        first: the number of the first new concept.
        names: new concepts.
        ids: numbers of the new concepts by normal form.
        keys: numbers of the new concepts by stem key.
        changes: each changed fact once, as it is now.
        merged: the facts of sides that were asked for, as they are now.
    """

    first: int
    names: list[str] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)
    keys: dict[str, list[int]] = field(default_factory=dict)
    changes: NDArray[np.void] = field(default_factory=lambda: np.empty(0, CHANGE))
    merged: dict[Side, NDArray[np.void]] = field(default_factory=dict)

    def after(self, changes: Sequence[Record]) -> Overlay:
        """With more records."""
        names, ids, keys = [*self.names], {**self.ids}, {**self.keys}
        for record in changes:
            for name, key in zip(record.names, record.keys, strict=True):
                number = self.first + len(names)
                ids[normalise(name)] = number
                if key:
                    keys[key] = [*keys.get(key, ()), number]
                names.append(name)
        new = np.concatenate([record.arrays["changes"] for record in changes])
        every = np.concatenate([self.changes, new])
        # Of several changes of one fact the last one counts: stable order keeps it last.
        order = np.lexsort((every["relation"], every["tail"], every["head"]))
        ordered = every[order]
        last = np.ones(len(ordered), np.bool_)
        last[:-1] = False
        for name in ("head", "tail", "relation"):
            last[:-1] |= ordered[name][1:] != ordered[name][:-1]
        touched = {b"out": set(new["head"].tolist()), b"in": set(new["tail"].tolist())}
        merged = {side: found for side, found in list(self.merged.items()) if side[1] not in touched[side[0]]}
        return Overlay(self.first, names, ids, keys, ordered[last], merged)

    @cached_property
    def _sides(self) -> dict[bytes, _Sides]:
        return {b"out": _Sides.of(self.changes, "head", "tail"), b"in": _Sides.of(self.changes, "tail", "head")}

    def __contains__(self, side: Side) -> bool:
        """Whether a side is another than it was built."""
        return side[1] in self._sides[side[0]].concepts

    @property
    def count(self) -> int:
        """How many sides are others than they were built."""
        return sum(len(sides.concepts) for sides in self._sides.values())

    def records(self, side: Side, built: NDArray[np.void]) -> NDArray[np.void]:
        """The facts of one side of a concept, the heaviest first, given those that it was built with."""
        found = self.merged.get(side)
        if found is None:
            changed = self._sides[side[0]].records(side[1])
            built = built[~np.isin(_keys(built), _keys(changed))]
            both = np.concatenate([built, changed[changed["norm"] > 0]])
            found = both[np.lexsort((both["other"], both["relation"], -both["weight"]))]
            self.merged[side] = found
        return found


def _keys(records: NDArray[np.void]) -> NDArray[np.uint64]:
    keys: NDArray[np.uint64] = (records["other"].astype(np.uint64) << np.uint64(16)) | records["relation"]
    return keys

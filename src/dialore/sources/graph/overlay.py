"""A graph's changes since it was built, in memory: what its tables say less what was deleted, and what is new."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.sources.graph.layout import EDGE
from dialore.text import normalise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dialore.sources.graph.journal import Record

Side = tuple[bytes, int]
"""A table and a concept: the facts that it has as head (`out`) or as tail (`in`)."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """All changes up to one record. Nothing of it ever changes but what is remembered in `merged`.

    Attributes:
        first: the number of the first new concept.
        names: new concepts.
        ids: numbers of the new concepts by normal form.
        keys: numbers of the new concepts by stem key.
        sides: what changed on each side of each concept: by other end and relation, the newest record.
        merged: the facts of sides that were asked for, as they are now.
    """

    first: int
    names: list[str] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)
    keys: dict[str, list[int]] = field(default_factory=dict)
    sides: dict[Side, dict[tuple[int, int], NDArray[np.void]]] = field(default_factory=dict)
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
        sides, merged = {**self.sides}, {**self.merged}
        fresh: set[Side] = set()
        for change in (change for record in changes for change in record.arrays["changes"]):
            ends = int(change["head"]), int(change["tail"])
            for table, own, other in ((b"out", ends[0], ends[1]), (b"in", ends[1], ends[0])):
                side = (table, own)
                if side not in fresh:
                    fresh.add(side)
                    sides[side] = {**sides.get(side, {})}
                    merged.pop(side, None)
                sides[side][other, int(change["relation"])] = _edge(change, other)
        return Overlay(self.first, names, ids, keys, sides, merged)

    def records(self, side: Side, built: NDArray[np.void]) -> NDArray[np.void]:
        """The facts of one side of a concept, the heaviest first, given those that it was built with."""
        found = self.merged.get(side)
        if found is None:
            changed = self.sides[side]
            if len(built):
                known = np.array([(other << 16) | relation for other, relation in changed], np.uint64)
                own = (built["other"].astype(np.uint64) << np.uint64(16)) | built["relation"]
                built = built[~np.isin(own, known)]
            there = [record for record in changed.values() if record["norm"] > 0]
            both = np.concatenate([built, np.array(there, EDGE)])
            found = both[np.lexsort((both["other"], both["relation"], -both["weight"]))]
            self.merged[side] = found
        return found


def _edge(change: np.void, other: int) -> NDArray[np.void]:
    edge: Any = np.zeros((), EDGE)
    edge["other"] = other
    for name in ("relation", "provenance", "weight", "norm"):
        edge[name] = change[name]
    return edge  # type: ignore[no-any-return]

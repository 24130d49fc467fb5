"""What a change of facts comes to: the record that makes it of the graph as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.errors import GraphError
from dialore.sources.graph.store.embed import relation_sums
from dialore.sources.graph.store.journal import Record
from dialore.sources.graph.store.layout import CHANGE, EDGE, MAX_PROVENANCES, MAX_RELATIONS, concept_key
from dialore.sources.graph.store.vectors import fact_norms, in_a_row, quantised
from dialore.sources.graph.writing.collect import fact_hashes, name_hashes
from dialore.text import is_chinese, normalise

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dialore.knowledge import Fact
    from dialore.sources.graph.store.embed import LinearEmbedder
    from dialore.sources.graph.store.version import GraphVersion

Key = tuple[int, int, int]
Value = tuple[float, int]
_ALL = (1 << 64) - 1


class Plan:
    """Changes to one version of a graph, as numbers.

    Args:
        version: the graph.
    """

    def __init__(self, version: GraphVersion) -> None:
        self.counts = dict.fromkeys(("added", "updated", "deleted", "unchanged", "missing"), 0)
        self._version = version
        self._meta = version.meta
        self._relations = {name: number for number, name in enumerate(self._meta.relations)}
        self._provenances = {name: number for number, name in enumerate(self._meta.provenances)}
        self._names: list[str] = []
        self._new: dict[str, int] = {}
        self._known: dict[Key, Value | None] = {}
        self._now: dict[Key, Value | None] = {}

    # --- what is asked for

    def add(self, fact: Fact) -> None:
        """Have the fact; the heavier one where it is there."""
        key = self._concept(fact.head), self._relation(fact.relation), self._concept(fact.tail)
        found = self._value(key)
        if found is not None and found[0] >= np.float32(fact.weight):
            self.counts["unchanged"] += 1
            return
        self.counts["added" if found is None else "updated"] += 1
        self._now[key] = self._wanted(fact)

    def update(self, fact: Fact) -> None:
        """Give a fact that is there this weight and provenance."""
        key = self._key(fact)
        found = self._value(key) if key else None
        if key is None or found is None:
            self.counts["missing"] += 1
            return
        wanted = self._wanted(fact)
        self.counts["unchanged" if found == wanted else "updated"] += 1
        self._now[key] = wanted

    def delete(self, fact: Fact) -> None:
        """Have the fact no more."""
        key = self._key(fact)
        if key is None or self._value(key) is None:
            self.counts["missing"] += 1
            return
        self.counts["deleted"] += 1
        self._now[key] = None

    def _wanted(self, fact: Fact) -> Value:
        if not np.isfinite(fact.weight):
            raise GraphError(f"the weight of {fact.triple} is not a number", mend="e.g. 1.0")
        provenance = self._provenances.setdefault(fact.provenance, len(self._provenances))
        if provenance >= MAX_PROVENANCES:
            raise GraphError(f"the graph would have more than {MAX_PROVENANCES:,} provenances", mend="name fewer")
        return float(np.float32(fact.weight)), provenance

    def _concept(self, name: str) -> int:
        form = normalise(name)
        if not form:
            raise GraphError(f"a fact's concept is blank: {name!r}", mend="name the head and tail of every fact")
        found = self._number(form)
        if found is None:
            found = self._new[form] = self._meta.concepts + len(self._names)
            self._names.append(name)
        return found

    def _number(self, form: str) -> int | None:
        found = self._new.get(form)
        return found if found is not None else self._version.any_concept(form)

    def _relation(self, name: str) -> int:
        number = self._relations.setdefault(name, len(self._relations))
        if number >= MAX_RELATIONS:
            raise GraphError(f"the graph would have more than {MAX_RELATIONS:,} relations", mend="name fewer")
        return number

    def _key(self, fact: Fact) -> Key | None:
        head, tail = self._number(normalise(fact.head)), self._number(normalise(fact.tail))
        relation = self._relations.get(fact.relation)
        return None if head is None or tail is None or relation is None else (head, relation, tail)

    def _value(self, key: Key) -> Value | None:
        """A fact's weight and provenance as they are by now; None where it is not there."""
        if key in self._now:
            return self._now[key]
        if key not in self._known:
            head, relation, tail = key
            # The side of fewer facts: a hub's is long to search.
            sides = [np.frombuffer(self._version.side(*side), EDGE) for side in ((b"out", head), (b"in", tail))]
            records, other = min(zip(sides, (tail, head), strict=True), key=lambda side: len(side[0]))
            rows = np.flatnonzero((records["other"] == other) & (records["relation"] == relation))
            found = records[rows[0]] if len(rows) else None
            self._known[key] = None if found is None else (float(found["weight"]), int(found["provenance"]))
        return self._known[key]

    # --- what it comes to

    def record(self, embedder: Callable[[], LinearEmbedder | None]) -> Record | None:
        """The record that makes the changes; None where there are none.

        Args:
            embedder: gives the embedder of the graph's vectors, asked for only where a fact is new.
        """
        changed = {key: value for key, value in self._now.items() if value != self._value_before(key)}
        if not changed:
            return None
        changes = np.zeros(len(changed), CHANGE)
        for place, (key, value) in enumerate(changed.items()):
            changes["head"][place], changes["relation"][place], changes["tail"][place] = key
            if value is not None:
                changes["weight"][place], changes["provenance"][place] = value
        kept = np.array([value is not None for value in changed.values()])
        arrays = self._vectors(changes, kept, embedder() if kept.any() else None)
        names = self._names if kept.any() else []  # else they are of facts that were added and deleted again
        before = sum(self._value_before(key) is not None for key in changed)
        languages = {*self._meta.languages, *("zh" if is_chinese(name) else "en" for name in names)}
        return Record(
            facts=self._meta.facts + int(kept.sum()) - before,
            fingerprint=self._fingerprint(changed),
            names=names,
            keys=[concept_key(name) for name in names],
            relations=list(self._relations)[len(self._meta.relations) :],
            provenances=list(self._provenances)[len(self._meta.provenances) :],
            languages=sorted(languages),
            arrays={"changes": changes, **arrays},
        )

    def _value_before(self, key: Key) -> Value | None:
        if key not in self._known:
            self._value(key)
        return self._known.get(key)

    def _fingerprint(self, changed: dict[Key, Value | None]) -> str:
        total = int(self._meta.fingerprint, 16)
        before = {key: value for key in changed if (value := self._value_before(key)) is not None}
        after = {key: value for key, value in changed.items() if value is not None}
        for sign, facts in ((-1, before), (1, after)):
            if facts:
                total += sign * self._hashes(facts)
        return f"{total & _ALL:016x}"

    def _hashes(self, facts: dict[Key, Value]) -> int:
        relations = list(self._relations)
        heads, kinds, tails = (
            name_hashes([named(key[place]) for key in facts])
            for place, named in ((0, self._name), (1, relations.__getitem__), (2, self._name))
        )
        return fact_hashes(heads, kinds, tails, np.array([weight for weight, _ in facts.values()], np.float32))

    def _name(self, number: int) -> str:
        new = number - self._meta.concepts
        return self._names[new] if new >= 0 else self._version.concept(number)

    def _vectors(
        self, changes: NDArray[np.void], kept: NDArray[np.bool_], embedder: LinearEmbedder | None
    ) -> dict[str, NDArray[Any]]:
        """Arrays of the new parts, concepts and relations; the changes are given the facts' lengths."""
        if embedder is None:
            changes["norm"][kept] = 1
            return {}
        version = self._version
        made = [parts.astype(np.int64) for parts in embedder.parts(self._names)]
        numbers = {number: place for place, number in enumerate(version.numbers.tolist()) if place}
        unknown = sorted({part for parts in made for part in parts.tolist() if part not in numbers})
        numbers |= {part: len(version.vectors.rows) + place for place, part in enumerate(unknown)}
        rows, scales = quantised(embedder.part_sums(np.array(unknown, np.int64)))
        renumbered = [np.array([numbers[part] for part in parts.tolist()], np.int64) for parts in made]
        flat, ends = in_a_row(renumbered)
        vectors = version.vectors.extended(renumbered, rows, scales)
        new_relations = relation_sums(list(self._relations)[len(self._meta.relations) :], embedder)
        relations = np.concatenate([version.relation_vectors, new_relations])
        facts = changes[kept]
        changes["norm"][kept] = fact_norms(facts["head"], facts["relation"], facts["tail"], vectors.sums, relations)
        counts = np.diff(ends, prepend=np.uint32(0))
        return {
            "parts": rows,
            "scales": scales,
            "numbers": np.array(unknown, np.uint32),
            "made": flat,
            "counts": counts,
            "relations": new_relations,
        }

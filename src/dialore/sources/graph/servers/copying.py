"""Facts on their way to a server: merged as a graph file's are, then in batches of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dialore.errors import GraphError
from dialore.sources.graph.servers.remote import key_text
from dialore.sources.graph.store.layout import GraphMeta, concept_key
from dialore.sources.graph.writing.collect import Collector, fact_hashes, name_hashes
from dialore.text import is_chinese

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from dialore.knowledge import Fact

    Step = Callable[[str, int, int], None]

BATCH = 4096


class ConceptRow(NamedTuple):
    """A concept as it is written to a server; `stems` is None for one of punctuation alone."""

    id: int
    name: str
    form: str
    stems: str | None
    degree: int


class FactRow(NamedTuple):
    """A fact as it is written to a server: its ends, relation and provenance by number."""

    head: int
    relation: int
    tail: int
    weight: float
    provenance: int
    head_name: str
    tail_name: str


class MergedFacts:
    """Facts merged and numbered.

    Args:
        facts: the facts; of duplicates the heaviest weight is kept.
        name: the graph's name.
        layout: the version of the server's tables.

    Raises:
        GraphError: no facts, or one that cannot be kept; or as the facts' reader raises.
    """

    def __init__(self, facts: Iterable[Fact], name: str, layout: int) -> None:
        collector = Collector()
        for fact in facts:
            _check(fact)
            collector.add(fact)
        if not collector.names:
            raise GraphError("no facts to make a graph of", mend="check the file and --language")
        self._names, self._forms = collector.names, list(collector.number_of)
        self._columns, _ = collector.merged()
        relations = list(collector.relations)
        self.meta = GraphMeta(
            format=layout,
            name=name,
            languages=sorted({"zh" if is_chinese(concept) else "en" for concept in collector.names}),
            concepts=len(collector.names),
            facts=len(self._columns["head"]),
            relations=relations,
            provenances=list(collector.provenances),
            fingerprint=_fingerprint(collector.names, relations, self._columns),
        )

    def concepts(self, step: Step) -> Iterator[list[ConceptRow]]:
        """Every concept, by id."""
        total = self.meta.concepts
        ends = (self._columns[end] for end in ("head", "tail"))
        degrees = sum(np.bincount(end, minlength=total) for end in ends)
        for start in range(0, total, BATCH):
            end = min(start + BATCH, total)
            names, forms = self._names[start:end], self._forms[start:end]
            keys = (key_text(key) if (key := concept_key(name)) else None for name in names)
            found = degrees[start:end].tolist()  # type: ignore[index]
            yield list(map(ConceptRow, range(start, end), names, map(key_text, forms), keys, found))
            step("copying concepts", end, total)

    def facts(self, step: Step) -> Iterator[list[FactRow]]:
        """Every fact, by head, the heaviest of each first."""
        columns, total = self._columns, self.meta.facts
        order = np.lexsort((columns["tail"], columns["relation"], -columns["weight"], columns["head"]))
        for start in range(0, total, BATCH):
            rows = order[start : start + BATCH]
            heads, relations, tails, weights, provenances = (
                columns[name][rows].tolist() for name in ("head", "relation", "tail", "weight", "provenance")
            )
            names = (map(self._names.__getitem__, ends) for ends in (heads, tails))
            yield list(map(FactRow, heads, relations, tails, weights, provenances, *names))
            step("copying facts", start + len(rows), total)


def _check(fact: Fact) -> None:
    for text in (fact.head, fact.relation, fact.tail, fact.provenance):
        if "\0" in text:
            raise GraphError(f"a fact has a NUL character: {text!r}", mend="take it out; servers' texts cannot hold it")


def _fingerprint(names: list[str], relations: list[str], columns: dict[str, NDArray[Any]]) -> str:
    concepts, kinds = name_hashes(names), name_hashes(relations)
    ends = (concepts[columns["head"]], kinds[columns["relation"]], concepts[columns["tail"]])
    return f"{fact_hashes(*ends, columns['weight']):016x}"

"""Commonsense knowledge for dialogues that bring none: facts between history and reply, found by hard matching."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dialore.response import Demands
from dialore.sources.samples.sample import Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.sources.graph.linking import Link
    from dialore.sources.graph.source import Retrieval
    from dialore.text import Language

FACTS = 3
"""Facts of a sample at most, the best-ranked ones."""


class MatchedGraph(Protocol):
    """What hard matching asks of a graph."""

    @property
    def name(self) -> str:
        """The graph's name."""
        ...

    def mentions_in(self, texts: Sequence[str], language: Language) -> list[Link]:
        """Concepts that texts mention."""
        ...

    def retrieve(self, demands: Demands, dialogue: Dialogue, top: int = 50) -> Retrieval:
        """Facts between and around concepts."""
        ...


def matched_facts(dialogue: Dialogue, graph: MatchedGraph, top: int = FACTS) -> list[Knowledge]:
    """The facts that a dialogue's reference draws from its history, by hard matching (Zhou et al., ACL 2022).

    One end of a fact is said in the history, the other in the reference and not before.

    Args:
        dialogue: a history with its reference.
        graph: the commonsense graph, which ranks the facts by history and reference.
        top: facts at most.
    """
    if not dialogue.reference:
        return []
    before = [link.name for link in graph.mentions_in(dialogue.texts, dialogue.language)]
    said = [link.name for link in graph.mentions_in([dialogue.reference], dialogue.language)]
    new = [name for name in said if name not in set(before)]
    if not before or not new:
        return []
    whole = dialogue.followed_by(dialogue.responder, dialogue.reference)
    return graph.retrieve(Demands(explicit=before, extended=new), whole, top).foreseen[:top]


def aligned_samples(dialogues: Iterable[Dialogue], graph: MatchedGraph, top: int = FACTS) -> Iterator[Sample]:
    """Samples whose knowledge is the facts matched in a graph (DCRAG, Appendix A.1.1); those without are left out."""
    for dialogue in dialogues:
        facts = matched_facts(dialogue, graph, top)
        sample = Sample.of_dialogue(dialogue, facts_line(facts)) if facts else None
        if sample is not None:
            yield sample


def facts_line(facts: Sequence[Knowledge]) -> str:
    """Facts as one line: `(head, relation, tail); (head, relation, tail)`."""
    return "; ".join(fact.triple for fact in facts)

"""The commonsense graph as a source of knowledge: demands in, ranked facts out (DCRAG, Section 3.3)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np

from dialore.knowledge import Fact, Knowledge
from dialore.sources.graph.linking import Link, Linker, best_links
from dialore.sources.graph.relations import verbalise
from dialore.sources.graph.store import Edges, GraphStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Literal

    from numpy.typing import NDArray

    from dialore.dialogue import Dialogue
    from dialore.response import Demands
    from dialore.retrieval.embedding import Embedder

_DIGITS = 4
"""Cosines are rounded before they are compared, so that machines whose last bits differ rank alike."""
_REMEMBERED = 20_000


@dataclass(frozen=True, slots=True)
class Retrieval:
    """What the graph holds for a dialogue's demands.

    Attributes:
        foreseen: facts between a query and a topic, best first.
        unforeseen: facts of a query or a topic that are not foreseen, best first.
        links: how the demands were linked to concepts.
        unlinked: demands that no concept was found for.
        foreseen_found: how many foreseen facts there were before the cut.
        unforeseen_found: the same of the unforeseen.
    """

    foreseen: list[Knowledge] = field(default_factory=list)
    unforeseen: list[Knowledge] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    unlinked: list[str] = field(default_factory=list)
    foreseen_found: int = 0
    unforeseen_found: int = 0


class Graph:
    """A commonsense graph: links phrases, retrieves facts and ranks them by cosine with the dialogue history.

    Args:
        store: the facts.
        embedder: ranks them. Where it made the graph's vectors they are used as they are; any other embedder encodes
            the candidates' wording when it is asked.
    """

    def __init__(self, store: GraphStore, embedder: Embedder) -> None:
        self.store = store
        self.embedder = embedder
        self.linker = Linker(store)
        self._encoded: OrderedDict[str, NDArray[np.float32]] = OrderedDict()

    @classmethod
    def open(cls, path: Path, embedder: Embedder | None = None) -> Self:
        """Open a graph file; raises GraphError as GraphStore does."""
        from dialore.retrieval.embedding import load_embedder

        return cls(GraphStore(path), embedder or load_embedder())

    @property
    def name(self) -> str:
        """The graph's name."""
        return self.store.meta.name

    def close(self) -> None:
        """Close the file."""
        self.store.close()

    # --- retrieval

    def retrieve(self, demands: Demands, dialogue: Dialogue, top: int = 50) -> Retrieval:
        """Foreseen and unforeseen facts (DCRAG, Section 3.3).

        Foreseen: the head is a query and the tail a topic, or the reverse. Unforeseen: head or tail is either, less
        the foreseen. Each set is ranked by the cosine of fact and history and cut to the top.

        Args:
            demands: queries and topics.
            dialogue: whose history facts are ranked by.
            top: facts to keep of each set.
        """
        language = dialogue.language
        links = {phrase: self.linker.link(phrase, language) for phrase in (*demands.queries, *demands.topics)}
        query_links = best_links(links[phrase] for phrase in demands.queries)
        topic_links = best_links(links[phrase] for phrase in demands.topics)
        queries = [link.concept for link in query_links]
        topics = [link.concept for link in topic_links]
        edges = self.store.edges_of([*queries, *topics])
        between = edges.between(queries, topics)
        foreseen, unforeseen = np.flatnonzero(between), np.flatnonzero(~between)
        scores = self._scores(edges, dialogue)
        return Retrieval(
            foreseen=self._best(edges, scores, foreseen, dialogue, top, "foreseen"),
            unforeseen=self._best(edges, scores, unforeseen, dialogue, top, "unforeseen"),
            links=best_links([query_links, topic_links]),
            unlinked=[phrase for phrase, found in links.items() if not found],
            foreseen_found=len(foreseen),
            unforeseen_found=len(unforeseen),
        )

    def retrieve_queries(self, links: Sequence[Link], dialogue: Dialogue, top: int = 20) -> tuple[list[Knowledge], int]:
        """Facts whose head or tail is a linked query, ranked alike: what DCRAG's RAG baselines do (Section 4.1.2).

        Returns:
            The best facts, and how many there were before the cut.
        """
        edges = self.store.edges_of(link.concept for link in links)
        rows = np.arange(len(edges))
        return self._best(edges, self._scores(edges, dialogue), rows, dialogue, top, ""), len(edges)

    def link(self, phrases: Sequence[str], dialogue: Dialogue) -> list[Link]:
        """The concepts that phrases name, each once, by its best link."""
        return best_links(self.linker.link(phrase, dialogue.language) for phrase in phrases)

    def mentions(self, dialogue: Dialogue) -> list[Link]:
        """Every concept that the history mentions, in order of mention."""
        return self.linker.mentions(dialogue.texts, dialogue.language)

    def facts_of(self, name: str) -> list[Fact]:
        """Every fact of one concept, the heaviest first; empty where the graph does not have it."""
        concept = self.store.find(name)
        if concept is None:
            return []
        edges = self.store.edges_of([concept])
        return sorted((self.store.fact(edges, row) for row in range(len(edges))), key=lambda fact: -fact.weight)

    # --- ranking

    def _best(
        self,
        edges: Edges,
        scores: NDArray[np.float32],
        rows: NDArray[np.intp],
        dialogue: Dialogue,
        top: int,
        set_name: Literal["", "foreseen", "unforeseen"],
    ) -> list[Knowledge]:
        found = []
        for row in edges.best(scores, rows, top):
            fact = self.store.fact(edges, row)
            text = verbalise(fact, dialogue.language)
            found.append(Knowledge.of_fact(fact, text, round(float(scores[row]), _DIGITS), set_name))
        return found

    def _scores(self, edges: Edges, dialogue: Dialogue) -> NDArray[np.float32]:
        """Each fact's cosine with the history."""
        if not len(edges):
            return np.empty(0, np.float32)
        history = self.embedder.encode([dialogue.history])[0]
        own = self.store.meta.embedder_fingerprint == self.embedder.fingerprint
        cosines = self._cosines(edges, history) if own else self._encode_facts(edges, dialogue) @ history
        return np.round(cosines, _DIGITS) + np.float32(0)  # no negative zeros

    def _cosines(self, edges: Edges, history: NDArray[np.float32]) -> NDArray[np.float32]:
        """From the graph's own vectors: a fact's is the sum of its parts'."""
        asked = np.append(self.store.concept_products(edges.asked, history), np.float32(0))
        total: NDArray[np.float32] = (self.store.relation_vectors @ history)[edges.relation]
        for ends, places in ((edges.head, edges.head_place), (edges.tail, edges.tail_place)):
            total += asked[places]
            others = np.flatnonzero(places < 0)
            total[others] += self.store.concept_products(ends[others], history)
        return total / edges.norm

    def _encode_facts(self, edges: Edges, dialogue: Dialogue) -> NDArray[np.float32]:
        """(facts, dimension): encode the facts' wordings, remembering the latest."""
        texts = [verbalise(self.store.fact(edges, row), dialogue.language) for row in range(len(edges))]
        missing = [text for text in dict.fromkeys(texts) if text not in self._encoded]
        if missing:
            self._encoded.update(zip(missing, self.embedder.encode(missing), strict=True))
        rows = np.stack([self._encoded[text] for text in texts])
        while len(self._encoded) > _REMEMBERED:
            self._encoded.popitem(last=False)
        return rows

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
        queries = np.array([link.concept for link in query_links], np.uint32)
        topics = np.array([link.concept for link in topic_links], np.uint32)
        edges = self.store.edges_of(np.union1d(queries, topics).tolist())
        foreseen = (np.isin(edges.head, queries) & np.isin(edges.tail, topics)) | (
            np.isin(edges.head, topics) & np.isin(edges.tail, queries)
        )
        history = self._encode_history(dialogue)
        return Retrieval(
            foreseen=self._rank(edges.take(foreseen), history, dialogue, top, "foreseen"),
            unforeseen=self._rank(edges.take(~foreseen), history, dialogue, top, "unforeseen"),
            links=best_links([query_links, topic_links]),
            unlinked=[phrase for phrase, found in links.items() if not found],
            foreseen_found=int(foreseen.sum()),
            unforeseen_found=int((~foreseen).sum()),
        )

    def retrieve_queries(self, links: Sequence[Link], dialogue: Dialogue, top: int = 20) -> tuple[list[Knowledge], int]:
        """Facts whose head or tail is a linked query, ranked alike: what DCRAG's RAG baselines do (Section 4.1.2).

        Returns:
            The best facts, and how many there were before the cut.
        """
        edges = self.store.edges_of(sorted({link.concept for link in links}))
        return self._rank(edges, self._encode_history(dialogue), dialogue, top, ""), len(edges)

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

    def _encode_history(self, dialogue: Dialogue) -> NDArray[np.float32]:
        encoded: NDArray[np.float32] = self.embedder.encode([dialogue.history])[0]
        return encoded

    def _rank(
        self,
        edges: Edges,
        history: NDArray[np.float32],
        dialogue: Dialogue,
        top: int,
        set_name: Literal["", "foreseen", "unforeseen"],
    ) -> list[Knowledge]:
        if not len(edges):
            return []
        scores = np.round(self._cosines(edges, history, dialogue), _DIGITS) + 0.0
        # Rows lie in order of head, relation and tail, so a stable sort settles ties the same way everywhere.
        order = np.argsort(-scores, kind="stable")[:top]
        chosen = [(self.store.fact(edges, int(row)), float(scores[row])) for row in order]
        return [
            Knowledge.of_fact(fact, verbalise(fact, dialogue.language), round(score, _DIGITS), set_name)
            for fact, score in chosen
        ]

    def _cosines(self, edges: Edges, history: NDArray[np.float32], dialogue: Dialogue) -> NDArray[np.float32]:
        meta = self.store.meta
        if meta.embedder_fingerprint == self.embedder.fingerprint:
            concepts, place = np.unique(np.concatenate([edges.head, edges.tail]), return_inverse=True)
            products = self.store.concept_products(concepts, history)[place]
            relations = self.store.relation_vectors @ history
            count = len(edges)
            total: NDArray[np.float32] = products[:count] + products[count:] + relations[edges.relation]
            return total / edges.norm
        texts = [verbalise(self.store.fact(edges, row), dialogue.language) for row in range(len(edges))]
        cosines: NDArray[np.float32] = self._encode(texts) @ history
        return cosines

    def _encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode facts' wordings, remembering the latest."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._encoded]
        if missing:
            self._encoded.update(zip(missing, self.embedder.encode(missing), strict=True))
        rows = np.stack([self._encoded[text] for text in texts])
        while len(self._encoded) > _REMEMBERED:
            self._encoded.popitem(last=False)
        return rows

"""Knowledge: facts, passages and persona sentences, each with a stable id, a text, a source and a score."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, Field

from dialore.text import normalise

Source = Literal["graph", "documents", "persona", "web", "model"]
Kind = Literal["fact", "passage", "persona"]


def stable_id(kind: Kind, *parts: str) -> str:
    """An id that depends on the content alone: the same fact has it in every graph and on every machine."""
    digest = hashlib.blake2b("\t".join(parts).encode(), digest_size=6).hexdigest()
    return f"{kind}:{digest}"


@dataclass(frozen=True, slots=True)
class Fact:
    """One edge of a knowledge graph: `(head, relation, tail)`.

    Attributes:
        head: the concept the edge leaves.
        relation: the relation's name, as in ConceptNet ("UsedFor").
        tail: the concept the edge enters.
        weight: how sure the graph is of it; 1.0 where the graph does not say.
        provenance: where the graph has it from, e.g. a file or a ConceptNet data set.
        graph: the graph's name.
    """

    head: str
    relation: str
    tail: str
    weight: float = 1.0
    provenance: str = ""
    graph: str = field(default="", compare=False)

    @property
    def id(self) -> str:
        """A stable id of head, relation and tail, whatever their case."""
        return stable_id("fact", normalise(self.head), self.relation, normalise(self.tail))

    @property
    def triple(self) -> str:
        """The fact as DCRAG's prompts write it: `(head, relation, tail)`."""
        return f"({self.head}, {self.relation}, {self.tail})"


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of text with where it comes from."""

    text: str
    title: str = ""
    url: str = ""
    source: str = ""

    @property
    def id(self) -> str:
        """A stable id of url, title and text."""
        return stable_id("passage", self.url, self.title, self.text)


class Knowledge(BaseModel):
    """One piece of knowledge as a response was given it.

    Attributes:
        id: stable id of the content.
        kind: `fact`, `passage` or `persona`.
        text: the knowledge in words.
        source: where it was got from.
        score: what it was ranked by: for facts see `Ranking`, under `paper` the cosine with the dialogue history.
        used: whether the response draws on it.
        set: for DCRAG's facts `foreseen` or `unforeseen` (Section 3.3), else empty.
        detail: what the kind has besides: a fact's head, relation, tail, weight; a passage's title and url.
    """

    id: str
    kind: Kind
    text: str
    source: Source
    score: float = 0.0
    used: bool = False
    set: Literal["", "foreseen", "unforeseen"] = ""
    detail: dict[str, Any] = Field(default_factory=dict)

    @property
    def triple(self) -> str:
        """A fact's `(head, relation, tail)`; the text of anything else."""
        if self.kind != "fact":
            return self.text
        return f"({self.detail['head']}, {self.detail['relation']}, {self.detail['tail']})"

    @classmethod
    def of_fact(
        cls, fact: Fact, text: str, score: float, set_name: Literal["", "foreseen", "unforeseen"] = ""
    ) -> Knowledge:
        """A graph's fact as knowledge; `text` is its wording in the dialogue's language."""
        detail: dict[str, Any] = {"head": fact.head, "relation": fact.relation, "tail": fact.tail}
        detail |= {"weight": round(fact.weight, 4), "graph": fact.graph, "provenance": fact.provenance}
        return cls(id=fact.id, kind="fact", text=text, source="graph", score=score, set=set_name, detail=detail)

"""Knowledge: facts, passages and persona sentences, each with a stable id, a text, a source and a score."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from dialore.text import normalise

Source = str
"""A kind of source: of `dialore.sources.registry.KINDS` (`graph`, `documents`, `memory`, `web`, ...), or `model`."""
Kind = Literal["fact", "passage", "persona"]
GROUPS = "groups"
"""The metadata that names the groups which may read a passage."""


def stable_id(kind: Kind, *parts: str) -> str:
    """Return an id that depends on the content alone: the same fact has it in every graph and on every machine."""
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
        graph: the graph's name.
        provenance: where the graph has it from, e.g. a file or a ConceptNet data set.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    head: str
    relation: str
    tail: str
    weight: float = 1.0
    graph: str = field(default="", compare=False, kw_only=True)
    provenance: str = ""

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
    """A text with its location, as it is searched: a part of a file, a web page, or a text of the caller's own.

    Attributes:
        text: the text.
        title: the title of its document or page, and the headings above it, joined by " > ".
        url: its address.
        file: the file that it was read from.
        page: the page in that file; 0 if it has none.
        metadata: further fields, which searches can be filtered by.
        provenance: the collection that it is from, if it is not in a file; an index does not keep it.
    """

    text: str
    title: str = ""
    url: str = ""
    file: str = ""
    page: int = 0
    metadata: dict[str, Any] = field(default_factory=dict, hash=False)
    provenance: str = ""

    @property
    def id(self) -> str:
        """A stable id of url, title and text."""
        return stable_id("passage", self.url, self.title, self.text)

    @property
    def searched(self) -> str:
        """The text that it is found by: its title with it."""
        return f"{self.title}\n{self.text}" if self.title else self.text


class Knowledge(BaseModel):
    """One piece of knowledge as a response was given it: a fact, a passage or a sentence of a persona.

    Fields from `fact` on are written only if they have a value.

    Attributes:
        id: stable id of the content.
        kind: `fact`, `passage` or `persona`.
        text: the knowledge in words.
        source: where it was got from.
        score: what it was ranked by: for facts see `Ranking`, under `paper` the cosine with the dialogue history.
        probability: calibrated probability that it is of use; None where it was not computed.
        used: whether the response draws on it.
        set: for DCRAG's facts `foreseen` or `unforeseen` (Section 3.3), else empty.
        fact: the fact, its weight rounded; None for other kinds.
        title: the title of its document or page, and the headings above it, joined by " > ".
        url: its address.
        file: the file that it was read from.
        page: the page in that file; 0 if it has none.
        index: the document index, or the server, that holds it.
        provenance: where the source has it from.
        metadata: further fields of the user's own.
        persona: the persona sentence that owns it.
        documents: of a persona sentence, the documents that belong to it (SAFARI, Section 4.1).
        question: the question that it answers (EDIT).
        sentences: ids of the sentences that the answer was made of (EDIT).
        engine: the search engine that found it.
        page_error: why the web page could not be read; the text is then the engine's snippet.
        suspicious: whether sentences that command a model were taken out of it.
        said: by whom and when it was said, and until when it held, of a statement in memory.
        statement: the other fields of the statement, as a dialogue's `memory` has them.
    """

    model_config = ConfigDict(extra="forbid")

    id: str
    kind: Kind
    text: str
    source: Source
    score: float = 0.0
    probability: float | None = None
    used: bool = False
    set: Literal["", "foreseen", "unforeseen"] = ""
    fact: Fact | None = None
    title: str = ""
    url: str = ""
    file: str = ""
    page: int = 0
    index: str = ""
    provenance: str = ""
    metadata: dict[str, Any] = Field(default_factory=dict)
    persona: str = ""
    documents: list[str] = Field(default_factory=list)
    question: str = ""
    sentences: list[str] = Field(default_factory=list)
    engine: str = ""
    page_error: str = ""
    suspicious: bool = False
    said: str = ""
    statement: dict[str, Any] = Field(default_factory=dict)

    @property
    def triple(self) -> str:
        """A fact's `(head, relation, tail)`; the text of anything else."""
        return self.fact.triple if self.fact else self.text

    @property
    def searched(self) -> str:
        """The text that it is found by: its title with it."""
        return f"{self.title}\n{self.text}" if self.title else self.text

    @property
    def location(self) -> dict[str, str]:
        """Where to look it up, as far as known: `title`, the `section` in it, `file`, `page` and `url`."""
        title, _, section = self.title.partition(" > ")
        page = str(self.page or "")
        fields = {"title": title, "section": section, "file": self.file, "page": page, "url": self.url}
        return {name: value for name, value in fields.items() if value}

    @property
    def page_key(self) -> tuple[str, ...]:
        """A key that passages of one page share: their url, else their file and title, else the id."""
        if self.url:
            return (self.url,)
        if self.file or self.title:
            return (self.file, self.title)
        return (self.id,)

    @property
    def origin(self) -> str:
        """Where its source has it from, as far as known: a file, a graph, an index; else the source."""
        if self.fact:
            return self.fact.provenance or self.fact.graph or self.source
        return self.provenance or self.source

    @classmethod
    def of_fact(
        cls, fact: Fact, text: str, score: float, set_name: Literal["", "foreseen", "unforeseen"] = ""
    ) -> Knowledge:
        """Return a graph's fact as knowledge; `text` is its wording in the dialogue's language."""
        fact = replace(fact, weight=round(fact.weight, 4))
        return cls(id=fact.id, kind="fact", text=text, source="graph", score=score, set=set_name, fact=fact)

    @classmethod
    def of_passage(cls, passage: Passage, source: Source, score: float = 0.0, **fields: Any) -> Knowledge:  # noqa: ANN401
        """Return a passage as knowledge; `fields` are what its source knows besides."""
        return cls(
            id=passage.id,
            kind="passage",
            text=passage.text,
            source=source,
            score=score,
            title=passage.title,
            url=passage.url,
            file=passage.file,
            page=passage.page,
            provenance=passage.provenance,
            metadata=passage.metadata,
            **fields,
        )

    @model_serializer(mode="wrap")
    def _without_empty_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        return {name: value for name, value in fields.items() if value or name in _ALWAYS_WRITTEN}


_ALWAYS_WRITTEN = frozenset({"id", "kind", "text", "source", "score", "probability", "used", "set"})

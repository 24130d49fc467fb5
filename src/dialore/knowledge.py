"""Knowledge: facts, passages and persona sentences, each with a stable id, a text, a source and a score."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

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


class PersonaDetail(BaseModel):
    """The documents that belong to a sentence of a persona (SAFARI, Section 4.1)."""

    model_config = ConfigDict(extra="forbid")

    documents: list[str]


class PassageDetail(BaseModel):
    """Where a passage comes from. Further fields of the user's own are kept; empty ones are not written.

    Attributes:
        title: the title of its document or page, and the headings above it, joined by " > ".
        url: its address.
        file: the file that it was read from.
        page: the page in that file, or the name of the web page.
        index: the document index that holds it.
        persona: the persona sentence that owns it.
        provenance: where the source has it from.
        question: the question that it answers (EDIT).
        sentences: the sentences that the answer was made of (EDIT).
        engine: the search engine that found it.
        snippet: whether it is the engine's snippet, because the page could not be read.
        suspicious: whether sentences that command a model were taken out of it.
        page_error: why the page could not be read.
        said: by whom and when it was said, of a statement in memory.
        turn: the turn that it was said in.
        until: the day until which it held.
        statement: the other fields of the statement, as a dialogue's `memory` has them.
    """

    model_config = ConfigDict(extra="allow")

    title: str = ""
    url: str = ""
    file: str = ""
    page: int | str | None = None
    index: str = ""
    persona: str = ""
    provenance: str = ""
    question: str = ""
    sentences: list[str] | None = None
    engine: str = ""
    snippet: bool | None = None
    suspicious: bool | None = None
    page_error: str = ""
    said: str = ""
    turn: str = ""
    until: str = ""
    statement: dict[str, Any] | None = None

    @property
    def where(self) -> dict[str, str]:
        """Where to look it up, as far as known: `title`, the `section` in it, `file`, `page` and `url`."""
        title, _, section = self.title.partition(" > ")
        known = {"title": title, "section": section, "file": self.file, "page": str(self.page or ""), "url": self.url}
        return {name: value for name, value in known.items() if value}

    @model_serializer(mode="wrap")
    def _without_empty_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value is not None and value != ""}


Detail = Annotated[Fact | PersonaDetail | PassageDetail, Field(union_mode="left_to_right")]


class Knowledge(BaseModel):
    """One piece of knowledge as a response was given it.

    Attributes:
        id: stable id of the content.
        kind: `fact`, `passage` or `persona`.
        text: the knowledge in words.
        source: where it was got from.
        score: what it was ranked by: for facts see `Ranking`, under `paper` the cosine with the dialogue history.
        probability: calibrated probability that it is of use; None where it was not computed.
        used: whether the response draws on it.
        set: for DCRAG's facts `foreseen` or `unforeseen` (Section 3.3), else empty.
        detail: what the kind has besides; see `fact` and `passage`.
    """

    id: str
    kind: Kind
    text: str
    source: Source
    score: float = 0.0
    probability: float | None = None
    used: bool = False
    set: Literal["", "foreseen", "unforeseen"] = ""
    detail: Detail = Field(default_factory=PassageDetail)

    @property
    def triple(self) -> str:
        """A fact's `(head, relation, tail)`; the text of anything else."""
        return self.detail.triple if isinstance(self.detail, Fact) else self.text

    @property
    def fact(self) -> Fact:
        """A fact, its weight rounded; raises TypeError for anything else."""
        if isinstance(self.detail, Fact):
            return self.detail
        raise TypeError(f"{self.id} is no fact")

    @property
    def passage(self) -> PassageDetail:
        """Where a passage comes from; without any field for anything else."""
        return self.detail if isinstance(self.detail, PassageDetail) else PassageDetail()

    @property
    def searched(self) -> str:
        """The text that it is found by: its passage's title with it."""
        title = self.passage.title
        return f"{title}\n{self.text}" if title else self.text

    @property
    def page_key(self) -> tuple[str, ...]:
        """The mark that passages of one page share: their url, else their file and title; of neither, the id."""
        at = self.passage
        return (at.url,) if at.url else (at.file, at.title) if at.file or at.title else (self.id,)

    @property
    def origin(self) -> str:
        """Where its source has it from, as far as known: a file, a graph, an index; else the source."""
        detail = self.detail
        named = detail.graph if isinstance(detail, Fact) else ""
        return (detail.provenance if not isinstance(detail, PersonaDetail) else "") or named or self.source

    @classmethod
    def of_fact(
        cls, fact: Fact, text: str, score: float, set_name: Literal["", "foreseen", "unforeseen"] = ""
    ) -> Knowledge:
        """Return a graph's fact as knowledge; `text` is its wording in the dialogue's language."""
        weight = round(fact.weight, 4)
        detail = Fact(fact.head, fact.relation, fact.tail, weight, fact.provenance, graph=fact.graph)
        return cls(id=fact.id, kind="fact", text=text, source="graph", score=score, set=set_name, detail=detail)

    @classmethod
    def of_passage(cls, passage: Passage, source: Source, score: float = 0.0, **detail: object) -> Knowledge:
        """Return a passage as knowledge; `detail` is what else `PassageDetail` has."""
        where = {"title": passage.title, "url": passage.url, "provenance": passage.provenance}
        whole = PassageDetail.model_validate(where | detail)
        return cls(id=passage.id, kind="passage", text=passage.text, source=source, score=score, detail=whole)

"""The RAG baselines of DCRAG: T-RAG, which looks up every mentioned concept, and QP-RAG, which asks for queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dialore.methods.base import Draft, Grounds
from dialore.methods.checking import check_least
from dialore.methods.mending import mend_demands
from dialore.methods.outputs import Queries, ThoughtQueries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.methods.base import GraphSource
    from dialore.methods.stages import Stages
    from dialore.response import Demands
    from dialore.sources.graph.linking import Link


@dataclass(frozen=True, slots=True)
class TRag:
    """Traditional RAG: the concepts that the history mentions are the queries (DCRAG, Section 4.1.2).

    Attributes:
        graph: the commonsense graph.
        top: how many facts the response is given.
    """

    name: ClassVar[str] = "t-rag"
    paper: ClassVar[str] = "DCRAG (EMNLP 2024), Section 4.1.2 and Table 13"
    summary: ClassVar[str] = "facts of every concept that the history mentions"
    needs: ClassVar[tuple[str, ...]] = ("graph",)
    calls: ClassVar[str] = "1"
    stages: ClassVar[tuple[str, ...]] = ("t-rag/response-generation",)

    graph: GraphSource
    top: int = 20

    def __post_init__(self) -> None:
        """Check the option; raises InputError."""
        check_least("top", self.top, 1)

    async def ground(self, dialogue: Dialogue, stage: Stages) -> Grounds:
        """Look up every concept that the history mentions."""
        links = stage.did("concept-mentions", lambda: linked(lambda: self.graph.mentions(dialogue)))
        return Grounds(knowledge=retrieve_facts(self.graph, links, dialogue, stage, self.top))

    async def respond(self, dialogue: Dialogue, stage: Stages) -> Draft:
        """Ground, then write."""
        grounds = await self.ground(dialogue, stage)
        return Draft(await stage.write("t-rag/response-generation", facts=grounds.knowledge), grounds)


@dataclass(frozen=True, slots=True)
class QpRag:
    """Query production, then as T-RAG (DCRAG, Section 4.1.2 and Appendix A.1.1).

    Attributes:
        graph: the commonsense graph.
        top: how many facts the response is given.
        thoughts: whether queries are produced thought-then-generate, as in DCRAG's own prompt.
    """

    name: ClassVar[str] = "qp-rag"
    paper: ClassVar[str] = "DCRAG (EMNLP 2024), Section 4.1.2, Tables 13 and 14"
    summary: ClassVar[str] = "facts of the queries that the model makes"
    needs: ClassVar[tuple[str, ...]] = ("graph",)
    calls: ClassVar[str] = "2"
    stages: ClassVar[tuple[str, ...]] = ("dcrag/query-production", "t-rag/response-generation")

    graph: GraphSource
    top: int = 20
    thoughts: bool = True

    def __post_init__(self) -> None:
        """Check the option; raises InputError."""
        check_least("top", self.top, 1)

    async def ground(self, dialogue: Dialogue, stage: Stages) -> Grounds:
        """Ask for queries and look them up."""
        demands = await produce_queries(dialogue, stage, thoughts=self.thoughts)
        links = stage.did("query-linking", lambda: linked(lambda: self.graph.link(demands.queries, dialogue)))
        return Grounds(knowledge=retrieve_facts(self.graph, links, dialogue, stage, self.top), demands=demands)

    async def respond(self, dialogue: Dialogue, stage: Stages) -> Draft:
        """Ground, then write."""
        grounds = await self.ground(dialogue, stage)
        return Draft(await stage.write("t-rag/response-generation", facts=grounds.knowledge), grounds)


async def produce_queries(dialogue: Dialogue, stage: Stages, *, thoughts: bool) -> Demands:
    """Query Production (DCRAG, Section 3.2.1), mended. Where nothing parses, there are no queries."""
    shape: type[Queries | ThoughtQueries] = ThoughtQueries if thoughts else Queries
    nothing = shape.model_construct(explicit=[], implicit=[], explicit_thoughts="", implicit_thoughts="")
    produced = await stage.ask("dcrag/query-production", shape, nothing, thoughts=thoughts)
    return mended(produced.demands(), dialogue, stage, "query-mending")


def mended(demands: Demands, dialogue: Dialogue, stage: Stages, name: str) -> Demands:
    """Demands mended, as a stage of its own where there was something to mend."""
    right, notes = mend_demands(demands, dialogue)
    if notes:
        stage.did(name, lambda: (right, right.model_dump(exclude={"thoughts"}), notes))
    return right


def linked(work: Callable[[], Sequence[Link]]) -> tuple[Sequence[Link], dict[str, object], list[str]]:
    """Links to the graph's concepts, as the work of a traced stage."""
    links = work()
    return links, {"links": [f"{link.phrase} -> {link.name} ({link.how})" for link in links]}, []


def retrieve_facts(
    graph: GraphSource, links: Sequence[Link], dialogue: Dialogue, stage: Stages, top: int
) -> list[Knowledge]:
    """The best facts of the linked concepts, as a traced stage."""

    def work() -> tuple[list[Knowledge], dict[str, object], list[str]]:
        facts, found = graph.retrieve_queries(links, dialogue, top)
        return facts, {"graph": graph.name, "concepts": len(links), "found": found, "kept": len(facts)}, []

    return stage.did("fact-retrieval", work)

"""SCG-QP on a commonsense graph, as DCRAG's Table 1 has it: the queries of SCG-QP, all else as T-RAG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dialore.dialogue import Utterance
from dialore.methods.base import Draft, Grounds
from dialore.methods.checking import check_least
from dialore.methods.rag import linked, retrieve_facts
from dialore.methods.scg_qp_queries import QueryMaker

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.methods.base import GraphSource
    from dialore.methods.stages import Stages


@dataclass(frozen=True, slots=True)
class ScgQpGraph:
    """SCG-QP's queries looked up in a graph (DCRAG, Section 4.1.2 and Appendix A.1.1).

    A search query is a phrase or a question: the concepts that it mentions are the queries of the graph.

    Attributes:
        graph: the commonsense graph.
        top: how many facts the response is given.
        decision: decide first whether anything is to be looked up (`scg-qp`); off, as in the paper.
        topic_tracking: off: SCG-QP's Table 2, "W/O Topic Tracker".
        directive: off: SCG-QP's Table 1, "Flan T5 w/o Cosmo".
    """

    name: ClassVar[str] = "scg-qp-graph"
    paper: ClassVar[str] = "DCRAG (EMNLP 2024), Section 4.1.2; SCG-QP (Findings of EMNLP 2023), Section 2"
    summary: ClassVar[str] = "facts of the concepts in a query that a commonsense response directs"
    needs: ClassVar[tuple[str, ...]] = ("graph",)
    calls: ClassVar[str] = "4 (4 in a row)"
    stages: ClassVar[tuple[str, ...]] = (
        "scg-qp/search-decision",
        "scg-qp/topic-tracking",
        "scg-qp/commonsense-directive",
        "scg-qp/query-generation",
        "t-rag/response-generation",
    )

    graph: GraphSource
    top: int = 20
    decision: bool = False
    topic_tracking: bool = True
    directive: bool = True

    def __post_init__(self) -> None:
        """Check the number; raises InputError."""
        check_least("top", self.top, 1)

    async def ground(self, dialogue: Dialogue, stage: Stages) -> Grounds:
        """Make the query and look its concepts up."""
        maker = QueryMaker(decision=self.decision, topic_tracking=self.topic_tracking, directive=self.directive)
        wanted = await maker.make(dialogue, stage)
        if not wanted.query:
            return Grounds(demands=wanted.demands)
        query = Utterance(speaker=dialogue.responder, text=wanted.query)
        asked = dialogue.model_copy(update={"turns": (query,)})
        links = stage.did("query-linking", lambda: linked(lambda: self.graph.mentions(asked)))
        facts = retrieve_facts(self.graph, links, dialogue, stage, self.top)
        return Grounds(knowledge=facts, demands=wanted.demands)

    async def respond(self, dialogue: Dialogue, stage: Stages) -> Draft:
        """Ground, then write as T-RAG does."""
        grounds = await self.ground(dialogue, stage)
        return Draft(await stage.write("t-rag/response-generation", facts=grounds.knowledge), grounds)

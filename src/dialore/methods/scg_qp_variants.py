"""SCG-QP's queries on a commonsense graph (DCRAG's Table 1), and its baseline, a query from the dialogue alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from dialore.dialogue import Utterance
from dialore.errors import InputError
from dialore.methods.base import OURS, check_least
from dialore.methods.demands import link, retrieve_facts
from dialore.methods.scg_qp import QueryMaker, plain_query, read_query, says_no_search, search_web, shown
from dialore.prompts.history import plain_turns
from dialore.response import Demands, Grounding

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.methods.base import GraphSource
    from dialore.methods.stages import Stages
    from dialore.response import Response
    from dialore.sources.base import KnowledgeSource


@dataclass(frozen=True, slots=True)
class ScgQpGraph(QueryMaker):
    """SCG-QP's queries looked up in a graph (DCRAG, Section 4.1.2 and Appendix A.1.1).

    A search query is a phrase or a question: the concepts that it mentions are the queries of the graph.

    Attributes:
        graph: the commonsense graph.
        top: how many facts the response is given.
        decision: decide first whether anything is to be looked up (`scg-qp`); off, as in the paper.
        prompting: how prompts are worded: `paper` with the content of the papers', or `ours`.
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
    decision: bool = field(default=False, kw_only=True)
    prompting: str = field(default=OURS, kw_only=True)

    def __post_init__(self) -> None:
        """Check the number; raises InputError."""
        check_least("top", self.top, 1)

    async def ground(self, dialogue: Dialogue, stage: Stages) -> Grounding:
        """Make the query and look its concepts up."""
        wanted = await self.make_query(dialogue, stage)
        if not wanted.query:
            return Grounding(demands=wanted.demands)
        query = Utterance(speaker=dialogue.responder, text=wanted.query)
        asked = dialogue.model_copy(update={"turns": (query,)})
        links = link("query-linking", lambda: self.graph.mentions(asked), stage)
        facts = await retrieve_facts(self.graph, links, dialogue, stage, self.top)
        return Grounding(knowledge=facts, demands=wanted.demands)

    async def respond(self, dialogue: Dialogue, stage: Stages) -> Response:
        """Ground, then write as T-RAG does."""
        grounding = await self.ground(dialogue, stage)
        return grounding.response(await stage.write("t-rag/response-generation", facts=grounding.knowledge))


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """SCG-QP's baseline: a search query generator reads the dialogue, and search and response are as in `scg-qp`.

    A sequence-to-sequence model that was trained for it (`--stage-model query-generation=hf:NAME`) reads the turns'
    texts, one a line, and writes the query, or that nothing is to be searched; any other model is prompted.

    Attributes:
        web: web search.
        turns: the latest turns that a trained generator reads; 0 for all.
        candidates: passages of the search's pages that are reranked.
        passages: passages that the response is given.
        reranker: what reranks them, as in `scg-qp`.
    """

    name: ClassVar[str] = "search-query"
    paper: ClassVar[str] = "BlenderBot 3 (2022), Section 3, as used in SCG-QP (Findings of EMNLP 2023), Table 1"
    summary: ClassVar[str] = "a search query from the dialogue alone; the best passage grounds the response"
    needs: ClassVar[tuple[str, ...]] = ("web",)
    calls: ClassVar[str] = "2"
    stages: ClassVar[tuple[str, ...]] = ("search-query/query-generation", "scg-qp/response-generation")

    web: KnowledgeSource
    turns: int = 0
    candidates: int = 30
    passages: int = 1
    reranker: str = "fused"

    def __post_init__(self) -> None:
        """Check the numbers; raises InputError."""
        if self.candidates < 1 or self.passages < 1 or self.turns < 0:
            raise InputError(
                "search-query searches for at least one passage", mend="candidates=30, passages=1, turns=0"
            )

    async def ground(self, dialogue: Dialogue, stage: Stages) -> Grounding:
        """Make the query, search, rerank. Where no query can be read, the last turn's content words are it."""
        turns = plain_turns(dialogue)[-self.turns :]
        query = await stage.read("search-query/query-generation", _read, plain_query(dialogue.last.text), turns=turns)
        found = await search_web(self.web, query, stage, self.candidates, self.passages, self.reranker)
        return Grounding(knowledge=found, demands=Demands(implicit=[query] if query else []))

    async def respond(self, dialogue: Dialogue, stage: Stages) -> Response:
        """Ground, then write as SCG-QP does."""
        grounding = await self.ground(dialogue, stage)
        text = await stage.write(
            "scg-qp/response-generation",
            passages=shown(grounding.knowledge),
            searched=bool(grounding.demands and grounding.demands.implicit),
            new_topic=False,
            proposal="",
        )
        return grounding.response(text)


def _read(text: str) -> str | None:
    """The query, empty where the generator wants no search; None where it wrote no query."""
    return "" if says_no_search(text) else read_query(text)

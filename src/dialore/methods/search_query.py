"""Search by a query made of the dialogue alone, as BlenderBot makes it (Komeili et al., 2022; Shuster et al., 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dialore.errors import InputError
from dialore.methods.base import Draft, Grounds
from dialore.methods.scg_qp_outputs import plain_query, read_query, says_no_search
from dialore.methods.scg_qp_queries import plain_turns
from dialore.methods.scg_qp_search import as_data, search_web
from dialore.response import Demands

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.methods.stages import Stages
    from dialore.sources.base import KnowledgeSource


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """SCG-QP's baseline: a query generator reads the dialogue, and search and response are as in `scg-qp`.

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

    async def ground(self, dialogue: Dialogue, stage: Stages) -> Grounds:
        """Make the query, search, rerank. Where no query can be read, the last turn's content words are it."""
        turns = plain_turns(dialogue)[-self.turns :]
        query = await stage.read("search-query/query-generation", _read, plain_query(dialogue.last.text), turns=turns)
        found = await search_web(
            self.web,
            query,
            dialogue,
            stage,
            candidates=self.candidates,
            passages=self.passages,
            reranker=self.reranker,
        )
        return Grounds(knowledge=found, demands=Demands(implicit=[query] if query else []))

    async def respond(self, dialogue: Dialogue, stage: Stages) -> Draft:
        """Ground, then write as SCG-QP does."""
        grounds = await self.ground(dialogue, stage)
        text = await stage.write(
            "scg-qp/response-generation",
            passages=as_data(grounds.knowledge),
            searched=bool(grounds.demands and grounds.demands.implicit),
            new_topic=False,
            proposal="",
        )
        return Draft(text, grounds)


def _read(text: str) -> str | None:
    """The query, empty where the generator wants no search; None where it wrote no query."""
    return "" if says_no_search(text) else read_query(text)

"""SCG-QP: Social Commonsense-Guided search Query Generation (Reddy et al., Findings of EMNLP 2023), Section 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dialore.errors import InputError
from dialore.methods.base import Draft, Grounds
from dialore.methods.scg_qp_queries import QueryMaker, Wanted
from dialore.methods.scg_qp_search import as_data, search_web

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.methods.stages import Stages
    from dialore.sources.base import KnowledgeSource


@dataclass(frozen=True, slots=True)
class ScgQp:
    """What a friend would feel like saying next guides the web search where nobody asks for anything.

    The stages `topic-tracking`, `commonsense-directive` and `query-generation` have forms for models without chat, so
    that the paper's own may do them: Flan-T5 and Cosmo (`--stage-model commonsense-directive=hf:allenai/cosmo-xl`).

    Where this differs from the paper (its Limitations and Ethical Considerations): a search decision comes first, and a
    request for information is searched for as it is; there may be no current topic, and then a new one is proposed;
    personal data is redacted from queries and unsafe passages are left out by the web source; passages are declared to
    be data; where nothing is found, the response is written without.

    Attributes:
        web: web search.
        candidates: passages of the search's pages that are reranked.
        passages: passages that the response is given (Section 3.1: the best one).
        reranker: the paper's is `cross:cross-encoder/ms-marco-MiniLM-L-6-v2`; this one needs no extra.
        decision: off: every turn is taken as passive, as the paper's examples are.
        topic_tracking: off: Table 2, "W/O Topic Tracker".
        directive: off: Table 1, "Flan T5 w/o Cosmo".
        query: off: Table 1, "No Query".
    """

    name: ClassVar[str] = "scg-qp"
    paper: ClassVar[str] = "SCG-QP (Findings of EMNLP 2023), Section 2"
    summary: ClassVar[str] = "a commonsense response directs the web search; the best passage grounds the response"
    needs: ClassVar[tuple[str, ...]] = ("web",)
    calls: ClassVar[str] = "5 (4 in a row); 3 (2 in a row) where something is asked for or nothing to be searched"
    stages: ClassVar[tuple[str, ...]] = (
        "scg-qp/search-decision",
        "scg-qp/topic-tracking",
        "scg-qp/commonsense-directive",
        "scg-qp/query-generation",
        "scg-qp/response-generation",
    )

    web: KnowledgeSource
    candidates: int = 30
    passages: int = 1
    reranker: str = "fused"
    decision: bool = True
    topic_tracking: bool = True
    directive: bool = True
    query: bool = True

    def __post_init__(self) -> None:
        """Check the numbers; raises InputError."""
        if self.candidates < 1 or self.passages < 1:
            raise InputError(
                "scg-qp searches for at least one passage", mend="candidates=30, passages=1, or query=false"
            )

    async def ground(self, dialogue: Dialogue, stage: Stages) -> Grounds:
        """Make the query, search, rerank."""
        return (await self._ground(dialogue, stage))[0]

    async def respond(self, dialogue: Dialogue, stage: Stages) -> Draft:
        """Ground, then write from history and best passage."""
        grounds, wanted = await self._ground(dialogue, stage)
        text = await stage.write(
            "scg-qp/response-generation",
            passages=as_data(grounds.knowledge),
            searched=bool(wanted.query),
            new_topic=wanted.topic.absent,
            proposal=wanted.directive if wanted.topic.absent else "",
        )
        return Draft(text, grounds)

    async def _ground(self, dialogue: Dialogue, stage: Stages) -> tuple[Grounds, Wanted]:
        if not self.query:
            return Grounds(), Wanted()
        maker = QueryMaker(decision=self.decision, topic_tracking=self.topic_tracking, directive=self.directive)
        wanted = await maker.make(dialogue, stage)
        found = await self.search(wanted.query, dialogue, stage)
        return Grounds(knowledge=found, demands=wanted.demands), wanted

    async def search(self, query: str, dialogue: Dialogue, stage: Stages) -> list[Knowledge]:
        """Internet search and reranking (Section 3.1)."""
        return await search_web(
            self.web,
            query,
            dialogue,
            stage,
            candidates=self.candidates,
            passages=self.passages,
            reranker=self.reranker,
        )

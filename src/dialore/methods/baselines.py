"""Baselines: vanilla, T-RAG and QP-RAG of DCRAG's Table 1, and Cosmo (Kim et al., EMNLP 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dialore.methods.base import OURS, Method, check_least
from dialore.methods.demands import link, produce_queries, retrieve_facts
from dialore.prompts.history import plain_turns
from dialore.response import Grounding, Response

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.methods.base import AnyGraph
    from dialore.methods.stages import StageContext


@dataclass(frozen=True, slots=True)
class Vanilla(Method):
    """No knowledge: one call that writes the response.

    Attributes:
        prompt_variant: how prompts are worded: `paper` with the content of the paper's, or `ours`.
    """

    name: ClassVar[str] = "vanilla"
    paper: ClassVar[str] = "DCRAG (EMNLP 2024), Table 12"
    summary: ClassVar[str] = "the model answers from the dialogue history alone"
    calls: ClassVar[str] = "1"

    prompt_variant: str = OURS

    async def respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        """Write the response."""
        return Grounding().response(await stage.write("vanilla/response-generation"))


@dataclass(frozen=True, slots=True)
class TRag(Method):
    """Traditional RAG: the concepts that the history mentions are the queries (DCRAG, Section 4.1.2).

    Attributes:
        graph: the commonsense graph.
        top: how many facts the response is given.
        prompt_variant: as of `vanilla`; `paper` takes lists of entities as the model gives them (see `dcrag`).
    """

    name: ClassVar[str] = "t-rag"
    paper: ClassVar[str] = "DCRAG (EMNLP 2024), Section 4.1.2 and Table 13"
    summary: ClassVar[str] = "facts of every concept that the history mentions"
    required_sources: ClassVar[tuple[str, ...]] = ("graph",)
    calls: ClassVar[str] = "1"

    graph: AnyGraph
    top: int = 20
    prompt_variant: str = OURS

    def __post_init__(self) -> None:
        check_least(self, top=1)

    async def ground(self, dialogue: Dialogue, stage: StageContext) -> Grounding:
        """Look up every concept that the history mentions."""
        links = link("concept-mentions", lambda: self.graph.mentions(dialogue.texts), stage, summary=False)
        return Grounding(knowledge=await retrieve_facts(self.graph, links, dialogue, stage, self.top))

    async def respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        """Ground, then write."""
        grounding = await self.ground(dialogue, stage)
        return grounding.response(await stage.write("t-rag/response-generation", facts=grounding.knowledge))


@dataclass(frozen=True, slots=True)
class QpRag(TRag):
    """Query production, then as T-RAG (DCRAG, Section 4.1.2 and Appendix A.1.1).

    Attributes:
        thoughts: whether queries are produced thought-then-generate, as in DCRAG's own prompt.
    """

    name: ClassVar[str] = "qp-rag"
    paper: ClassVar[str] = "DCRAG (EMNLP 2024), Section 4.1.2, Tables 13 and 14"
    summary: ClassVar[str] = "facts of the queries that the model makes"
    calls: ClassVar[str] = "2"
    stages: ClassVar[tuple[str, ...]] = ("dcrag/query-production", "t-rag/response-generation")

    thoughts: bool = True

    async def ground(self, dialogue: Dialogue, stage: StageContext) -> Grounding:
        """Ask for queries and look them up."""
        demands = await produce_queries(dialogue, stage, thoughts=self.thoughts)
        links = link("query-linking", lambda: self.graph.link(demands.queries), stage)
        facts = await retrieve_facts(self.graph, links, dialogue, stage, self.top)
        return Grounding(knowledge=facts, demands=demands)


@dataclass(frozen=True, slots=True)
class Cosmo(Method):
    """A situation and an instruction for a role, then the turns (DCRAG, Appendix A.1.1).

    Cosmo itself (`--model hf:allenai/cosmo-xl`, 3B, English) reads `situation <sep> instruction <sep> turn <turn>
    turn`; any chat model gets the same in messages.
    """

    name: ClassVar[str] = "cosmo"
    paper: ClassVar[str] = "SODA (EMNLP 2023), as used in DCRAG (EMNLP 2024), Appendix A.1.1"
    summary: ClassVar[str] = "a dialogue model with social commonsense answers from situation, role and history"
    calls: ClassVar[str] = "1"

    async def respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        """Write the response."""
        text = await stage.write("cosmo/response-generation", turns=plain_turns(dialogue))
        return Grounding().response(text)

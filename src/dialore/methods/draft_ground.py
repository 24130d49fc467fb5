"""Draft, then ground: the response is written first, and knowledge is edited into it where that makes it better."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import BaseModel

from dialore.errors import InputError, StageError, is_fatal
from dialore.methods.base import check_least
from dialore.methods.dcrag import Dcrag, joined
from dialore.methods.demands import SelectedFacts, pick
from dialore.parallel import gather
from dialore.response import Demands, Grounding, Response
from dialore.text import normalise

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.methods.base import AnyGraph
    from dialore.methods.stages import Stages
    from dialore.sources.base import KnowledgeSource


class Preference(BaseModel):
    """Which of two versions of a turn is better: the first, the second, or neither."""

    better: Literal["A", "B", "same"]


@dataclass(frozen=True, slots=True)
class DraftGround:
    """Our own, beyond the papers: grounding from the start makes responses richer but less natural, so draft first.

    While `vanilla`'s prompt writes a draft, DCRAG's queries and topics are found; then they are revised, knowledge is
    retrieved and selected as in DCRAG, over every source there is; then a grounding edit puts at most one concrete
    piece of knowledge, or a better hook, into the draft, or keeps it word for word. A last choice between draft and
    edit is asked in both orders at once; the edit stands only where it is preferred and the other order does not
    object.

    Attributes:
        graph: the commonsense graph.
        documents: documents, searched too where there are any.
        persona: persona sentences, likewise.
        web: web search, likewise.
        facts: whether the graph is searched.
        top: facts kept of each set after ranking, as in DCRAG.
        limit: pieces selected at most of facts, and of passages.
        passages: pieces asked of each further source.
        thoughts: as in DCRAG.
        preference: ask for the last choice.
        patience: when streaming, seconds that a finished draft waits for the edit before it is sent as it is; 0 waits
            for the edit however long it takes, any other number as long as it says.
    """

    name: ClassVar[str] = "draft-ground"
    paper: ClassVar[str] = "our own, on DCRAG (EMNLP 2024), Section 3"
    summary: ClassVar[str] = "a draft first, then at most one piece of knowledge edited in where it helps"
    needs: ClassVar[tuple[str, ...]] = ("graph",)
    takes: ClassVar[tuple[str, ...]] = ("documents", "persona", "web")
    calls: ClassVar[str] = "9 (5 in a row; 7 and 4 without preference)"
    stages: ClassVar[tuple[str, ...]] = (
        "vanilla/response-generation",
        "dcrag/query-production",
        "dcrag/topic-planning",
        "dcrag/cross-revision",
        "dcrag/fact-selection",
        "draft-ground/passage-selection",
        "draft-ground/grounding-edit",
        "draft-ground/preference",
    )

    graph: AnyGraph
    documents: KnowledgeSource | None = None
    persona: KnowledgeSource | None = None
    web: KnowledgeSource | None = None
    facts: bool = True
    top: int = 50
    limit: int = 20
    passages: int = 10
    thoughts: bool = True
    preference: bool = True
    patience: float = 0.0

    def __post_init__(self) -> None:
        """Check that there is something to ground in; raises InputError."""
        check_least(self, top=1, limit=1, passages=1)
        if not (self.facts or self._further):
            raise InputError("draft-ground has no source", mend="leave facts on, or give documents, persona or web")

    @property
    def _further(self) -> list[KnowledgeSource]:
        return [source for source in (self.persona, self.documents, self.web) if source is not None]

    @property
    def _dcrag(self) -> Dcrag:
        return Dcrag(self.graph, top=self.top, limit=self.limit, thoughts=self.thoughts)

    async def ground(self, dialogue: Dialogue, stage: Stages) -> Grounding:
        """Demands as DCRAG finds them, and knowledge for them from every source."""
        dcrag = self._dcrag
        queries, topics = await gather(dcrag.produce_queries(dialogue, stage), dcrag.plan_topics(dialogue, stage))
        demands = await dcrag.revise(dialogue, joined(queries, topics), stage)
        facts, pieces = await gather(
            self._select_facts(dialogue, demands, stage), self._select_passages(dialogue, demands, stage)
        )
        return Grounding(knowledge=[*pieces, *facts], demands=demands)

    async def respond(self, dialogue: Dialogue, stage: Stages) -> Response:
        """Draft and ground at once, then edit."""
        started = stage.seconds
        asked = stage.text("vanilla/response-generation", suffix="draft", cites=(), on_text=stage.on_draft)
        drafting = asyncio.create_task(asked)
        grounding = asyncio.create_task(self._ground_and_edit(dialogue, drafting, stage))
        try:
            draft = await drafting
            patience = self.patience if stage.on_text is not None and self.patience > 0 else None
            try:
                result = await asyncio.wait_for(asyncio.shield(grounding), patience)
            except TimeoutError:
                waited = stage.seconds - started
                why = f"the edit was not there {waited:.1f} s after the start: the draft is sent"
                result = self._keep(draft, "patience", why, stage)
            except StageError as error:
                if is_fatal(error.cause):
                    raise
                result = self._keep(draft, "choice", f"grounding failed, the draft is sent: {error}", stage)
        finally:
            drafting.cancel()
            grounding.cancel()
            await asyncio.gather(drafting, grounding, return_exceptions=True)
        stage.send(result.text)
        result.draft = draft
        return result

    @staticmethod
    def _keep(draft: str, name: str, why: str, stage: Stages) -> Response:
        """The draft as the response, and why, as a stage of that name."""
        with stage.step(name) as step:
            step.output, step.notes = {"kept": "draft"}, [why]
        return Grounding().response(draft)

    async def _ground_and_edit(self, dialogue: Dialogue, drafting: asyncio.Task[str], stage: Stages) -> Response:
        grounds, draft = await gather(self.ground(dialogue, stage), asyncio.shield(drafting))
        if not draft.strip():
            return grounds.response(draft)
        edited = await stage.text(
            "draft-ground/grounding-edit",
            cites=grounds.knowledge,
            draft=draft,
            knowledge=grounds.knowledge,
            extended=(grounds.demands or Demands()).extended,
        )
        return grounds.response(await self._choose(draft, edited, stage))

    async def _choose(self, draft: str, edited: str, stage: Stages) -> str:
        """The edit or the draft, and why, in the trace."""
        votes: dict[str, str] = {}
        kept, why = edited, "the edit changes the draft"
        if not edited.strip() or normalise(edited) == normalise(draft):
            kept, why = draft, "the edit keeps the draft word for word"
        elif self.preference:
            votes = await self._preferred(draft, edited, stage)
            why = "the edit is preferred, and the other order does not object"
            if list(votes.values()).count("edit") <= list(votes.values()).count("draft"):
                kept, why = draft, "the edit is not preferred in both orders"
        with stage.step("choice") as step:
            step.output = {"kept": "draft" if kept is draft else "edit", "draft": draft, "edit": edited}
            if votes:
                step.output["votes"] = votes
            step.notes = [why]
        return kept

    async def _preferred(self, draft: str, edited: str, stage: Stages) -> dict[str, str]:
        """The preference in each order: the draft, the edit, or neither of them."""
        nothing = Preference(better="same")
        first, second = await gather(
            stage.ask("draft-ground/preference", Preference, nothing, suffix="draft-first", a=draft, b=edited),
            stage.ask("draft-ground/preference", Preference, nothing, suffix="edit-first", a=edited, b=draft),
        )
        return {
            "draft first": {"A": "draft", "B": "edit", "same": "no difference"}[first.better],
            "edit first": {"A": "edit", "B": "draft", "same": "no difference"}[second.better],
        }

    async def _select_facts(self, dialogue: Dialogue, demands: Demands, stage: Stages) -> list[Knowledge]:
        if not self.facts:
            return []
        dcrag = self._dcrag
        return await dcrag.select(await dcrag.retrieve(dialogue, demands, stage), stage)

    async def _select_passages(self, dialogue: Dialogue, demands: Demands, stage: Stages) -> list[Knowledge]:
        """Pieces of the further sources for the demands, those picked that are useful; all where nothing parses."""
        if not self._further:
            return []
        query = " ".join([dialogue.last.text, *demands.queries, *demands.topics])
        asked = [stage.search(f"{source.name}-search", source, query, self.passages) for source in self._further]
        pieces = [piece for found in await gather(*asked) for piece in found]
        if not pieces:
            return []
        ranked = SelectedFacts(selected=list(range(1, min(len(pieces), self.limit) + 1)))
        chosen = await stage.ask(
            "draft-ground/passage-selection", SelectedFacts, ranked, pieces=pieces, limit=self.limit
        )
        return pick("passage-mending", pieces, chosen.selected, stage)[: self.limit]

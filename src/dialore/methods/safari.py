"""SAFARI: a language model as planner of sources (Wang et al., Findings of EMNLP 2023), Sections 4.1 to 4.3."""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dialore.errors import InputError, UnknownNameError
from dialore.knowledge import Knowledge, stable_id
from dialore.methods.cleaning import as_data
from dialore.methods.safari_planning import Plan, gold_knowledge, gold_plan, mend_plan, read_plan
from dialore.parallel import gather
from dialore.prompts.history import render_history
from dialore.response import Grounding
from dialore.sources.declared import DeclaredSources, default_sources
from dialore.sources.dialogue_ranking import joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.dialogue import Dialogue
    from dialore.methods.stages import Stages
    from dialore.response import Response
    from dialore.sources.base import KnowledgeSource
    from dialore.sources.declared import DeclaredSource
    from dialore.sources.graph.several import Graphs
    from dialore.sources.graph.source import Graph
    from dialore.text import Language

_CHOICES = {
    "planning": ("model", "persona", "all", "gold"),
    "retrieval": ("found", "gold"),
    "broken": ("mend", "null"),
}


# Without slots: what is declared by default is worked out once, when it is first asked for.
@dataclass(frozen=True)
class Safari:
    """The model plans which sources the response needs and in which order, and answers from what they give.

    This is the unsupervised setting (Section 4.3); a model that was trained to plan (Section 4.2) is used by naming it
    for the stage `planning`, and one trained to assemble for `response-generation`. Sources are declared, any number,
    with descriptions and dependencies as a directed acyclic graph; undeclared, they are the paper's: persona ->
    documents, and what else is open.

    Where this differs from the paper: the plan is a JSON list, and the paper's own form is read too; a plan that breaks
    a dependency is mended, where the paper counts it as NULL (`broken`); by default sources are asked for the last turn
    and ranked by `DialogueRanker`, where the paper's retrievers get the whole context (`turns=0`) and are BM25 or
    trained (`retriever`); sources that do not depend on each other are asked at once.

    Attributes:
        sources: declared sources (`open_declared`).
        persona: persona sentences, where nothing is declared; without them, each dialogue's own.
        documents: a document index, planned over as `library`, where nothing is declared.
        graph: the commonsense graph, likewise; and where sources declare one without saying which.
        web: web search, likewise.
        planning: `model`; `persona`: always the persona ("- Planning*"); `all`: always every source, for the paper's
            two "- Planning**"; `gold`: as the data set says ("+ Ground Planning").
        demonstrations: examples before the dialogue: 0 (zero-shot) or 3 (in-context), in planning and assembling.
        broken: what becomes of a plan with a source whose dependencies it does not name: `mend`, or `null`, which
            leaves the source out (footnote 14).
        retrieval: `found`, or `gold`: what the data set says that the response stands on ("+ Ground Retrieval").
        top: pieces of each source that does not say (Section 5.1: 1; Table 8: 2, 3).
        turns: how many of the last turns make the query; 0: the whole context.
        retriever: ranks the persona and its documents where nothing is declared: `dialogue`, or a reranker's spec.
        dependency: off: "- Dependency"; no source is narrowed by another, and the planner sees none.
        use_documents: off: "- Documents"; sources of the kind `documents` are left out.
    """

    name: ClassVar[str] = "safari"
    paper: ClassVar[str] = "SAFARI (Findings of EMNLP 2023), Sections 4.1 to 4.3"
    summary: ClassVar[str] = "the model plans which sources to ask in which order, and answers from what they give"
    needs: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ("sources", "persona", "documents", "graph", "web")
    calls: ClassVar[str] = "2 (1 more for a source of the kind model)"
    stages: ClassVar[tuple[str, ...]] = ("safari/planning", "safari/model-knowledge", "safari/response-generation")

    sources: DeclaredSources | None = None
    persona: KnowledgeSource | None = None
    documents: KnowledgeSource | None = None
    graph: Graph | Graphs | None = None
    web: KnowledgeSource | None = None
    planning: str = "model"
    demonstrations: int = 0
    broken: str = "mend"
    retrieval: str = "found"
    top: int = 1
    turns: int = 1
    retriever: str = "dialogue"
    dependency: bool = True
    use_documents: bool = True

    def __post_init__(self) -> None:
        """Check the switches; raises InputError where one does not fit."""
        for option, known in _CHOICES.items():
            if getattr(self, option) not in known:
                raise UnknownNameError(f"{option} of safari", getattr(self, option), known)
        if self.top < 1 or self.turns < 0 or self.demonstrations < 0:
            raise InputError("safari takes top from 1, turns and demonstrations from 0", mend="top=1, turns=1")
        if not self.declared.entries:
            raise InputError("safari has no source left to plan over", mend="set use_documents=true, or declare more")
        if self.planning == "persona" and not self._always("persona"):
            raise InputError("planning=persona needs a source of the kind persona", mend="declare one")
        if self.demonstrations and not self._shown("en") and not self._shown("zh"):
            raise InputError(
                "no demonstration names declared sources alone",
                mend="add some to the declaration, or set demonstrations=0",
            )

    @functools.cached_property
    def declared(self) -> DeclaredSources:
        """The sources that are planned over."""
        if self.sources is not None:
            declared = self.sources
        else:
            opened = {"persona": self.persona, "documents": self.documents, "graph": self.graph, "web": self.web}
            declared = default_sources(opened, retriever=self.retriever)
        return declared if self.use_documents else declared.without("documents")

    async def ground(self, dialogue: Dialogue, stage: Stages) -> Grounding:
        """Planning and Retrieval (Section 4.2, Equations 1 and 2)."""
        return (await self._ground(dialogue, stage))[0]

    async def respond(self, dialogue: Dialogue, stage: Stages) -> Response:
        """Ground, then Assembling: the response from context, sources and what they gave (Equation 3, Table 3)."""
        grounding, names = await self._ground(dialogue, stage)
        text = await stage.write(
            "safari/response-generation",
            knowledge=[piece.model_copy(update={"text": titled_line(piece)}) for piece in grounding.knowledge],
            names=names,
            about_you=[entry.name.upper() for entry in self.declared.entries if entry.kind == "persona"],
            demonstrations=self._shown(dialogue.language),
        )
        return grounding.response(text)

    async def _ground(self, dialogue: Dialogue, stage: Stages) -> tuple[Grounding, dict[str, str]]:
        """Plan and knowledge, each piece once, and the name of each piece's source by its id."""
        plan = await self.plan(dialogue, stage)
        found = await self.retrieve(dialogue, plan, stage)
        pieces = {piece.id: piece for name in reversed(plan) for piece in found[name]}
        names = {piece.id: name.upper() for name in reversed(plan) for piece in found[name]}
        order = dict.fromkeys(piece.id for name in plan for piece in found[name])
        return Grounding(knowledge=[pieces[one] for one in order], plan=plan), names

    async def plan(self, dialogue: Dialogue, stage: Stages) -> list[str]:
        """Planning (Equation 1, Tables 2 and 12). Where nothing can be read, the plan is NULL."""
        if self.planning != "model":
            with stage.step("planning") as step:
                gold = self.planning == "gold"
                names = gold_plan(self._labels(dialogue), self.declared) if gold else self._always(self.planning)
                step.output = {"sources": names}
            return self._mended(names, stage) if gold else names
        made = await stage.ask(
            "safari/planning",
            Plan,
            Plan(sources=[]),
            salvage=lambda text: read_plan(text, self.declared),
            sources=[self._described(entry, dialogue) for entry in self.declared.entries],
            dependency=self.dependency and any(entry.depends_on for entry in self.declared.entries),
            demonstrations=self._shown(dialogue.language),
        )
        return self._mended(made.sources, stage)

    def _mended(self, names: Sequence[str], stage: Stages) -> list[str]:
        """A plan that can be followed, as a stage of its own where there was something to mend."""
        plan, notes = mend_plan(names, self.declared, dependency=self.dependency, drop=self.broken == "null")
        if notes:
            with stage.step("plan-mending") as step:
                step.output, step.notes, step.summary = {"sources": plan}, notes, f"Plan mended: {'; '.join(notes)}"
        return plan

    async def retrieve(self, dialogue: Dialogue, plan: Sequence[str], stage: Stages) -> dict[str, list[Knowledge]]:
        """Retrieval in plan order (Equation 2): a source waits for those that it depends on, and for no other."""
        tasks: dict[str, asyncio.Task[list[Knowledge]]] = {}
        for name in plan:
            entry = self.declared[name]
            before = [tasks[other] for other in entry.depends_on if other in tasks] if self.dependency else []
            tasks[name] = asyncio.create_task(self._ask_source(entry, before, dialogue, stage))
        return dict(zip(tasks, await gather(*tasks.values()), strict=True))

    async def _ask_source(
        self, entry: DeclaredSource, before: Sequence[asyncio.Task[list[Knowledge]]], dialogue: Dialogue, stage: Stages
    ) -> list[Knowledge]:
        preceding = [piece for found in await asyncio.gather(*before) for piece in found]
        name = f"retrieval-{entry.name}"
        if self.retrieval == "gold":
            with stage.step(name) as step:
                gold = gold_knowledge(self._labels(dialogue), entry)
                step.output = {"source": entry.name, "found": [piece.id for piece in gold]}
            return gold
        filters = entry.join == "filter" and self.dependency and bool(entry.depends_on)
        if filters and not preceding:
            with stage.step(name) as step:
                step.output = {"source": entry.name, "found": []}
                step.notes = [f"{' and '.join(entry.depends_on)} gave nothing to look under"]
            return []
        query = self._query(dialogue)
        if entry.join == "query" and preceding:
            query = " ".join([query, *(joined(piece.text) for piece in preceding)])
        if entry.source is None:
            return await self._ask_model(entry, query, preceding, stage)
        top = entry.top or self.top
        return (await stage.search(name, entry.source, query, top, preceding if filters else ()))[:top]

    async def _ask_model(
        self, entry: DeclaredSource, query: str, preceding: Sequence[Knowledge], stage: Stages
    ) -> list[Knowledge]:
        """The model's own knowledge as a source; it may know nothing."""
        text = await stage.text(
            "safari/model-knowledge",
            suffix=entry.name,
            query=query,
            knowledge=[titled_line(piece) for piece in preceding],
        )
        text = " ".join(text.split())
        if text.strip(" .。\"'").casefold() in {"", "none", "null", "无"}:
            return []
        return [Knowledge(id=stable_id("passage", "model", text), kind="passage", text=text, source="model")]

    def _query(self, dialogue: Dialogue) -> str:
        return " ".join(dialogue.texts[-self.turns :] if self.turns else dialogue.texts)

    def _always(self, which: str) -> list[str]:
        """The plan that is the same for every dialogue, with what its sources depend on."""
        entries = self.declared.entries
        if which == "persona":
            entries = tuple(entry for entry in entries if entry.kind == "persona")[:1]
        return mend_plan([entry.name for entry in entries], self.declared, dependency=self.dependency)[0]

    def _labels(self, dialogue: Dialogue) -> Dialogue:
        """The dialogue as gold labels are read from it: without those of documents where they are left out."""
        if self.use_documents or "documents" not in dialogue.sources:
            return dialogue
        kept = tuple(name for name in dialogue.sources if name != "documents")
        return dialogue.model_copy(update={"sources": kept})

    def _described(self, entry: DeclaredSource, dialogue: Dialogue) -> dict[str, object]:
        return {
            "name": entry.name.upper(),
            "description": entry.description[dialogue.language],
            "depends_on": [name.upper() for name in entry.depends_on] if self.dependency else [],
        }

    def _shown(self, language: Language) -> list[dict[str, object]]:
        """The demonstrations, as prompts have them; one that names a source which is not declared is left out."""
        given = self.declared.demonstrations.get(language, ()) if self.demonstrations else ()
        fitting = [one for one in given if all(self.declared.find(name) for name in one.plan)]
        return [
            {
                "history": render_history(one.dialogue),
                "last_turn": one.turns[-1],
                "plan": [name.upper() for name in one.plan],
                "knowledge": [(name.upper(), text) for name in one.plan for text in one.knowledge.get(name, ())],
                "response": one.response,
            }
            for one in fitting[: self.demonstrations]
        ]


def titled_line(piece: Knowledge) -> str:
    """A piece of knowledge on one line, with its title, that cannot close the marks which a prompt puts around it."""
    title = piece.passage.title
    return joined(as_data(f"({title}) {piece.text}" if title else piece.text, "knowledge"))

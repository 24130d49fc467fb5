"""DCRAG: Demands-Guided Collaborative RAG (Yu, Wu, Chen and Zhou, EMNLP 2024), Section 3."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dialore.errors import InputError
from dialore.methods.base import OURS, PAPER, Method, check_least
from dialore.methods.demands import (
    Revision,
    SelectedFacts,
    ThoughtRevision,
    ThoughtTopics,
    Topics,
    link,
    mended,
    mentions,
    produce_queries,
)
from dialore.parallel import gather
from dialore.response import Demands, Grounding, Response
from dialore.sources.graph import Retrieval

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.methods.base import AnyGraph
    from dialore.methods.stages import StageContext


@dataclass(frozen=True, slots=True)
class Dcrag(Method):
    """The model as collaborator: it says what is needed, the graph offers, the model selects and answers.

    As published: `prompt_variant=paper`, `keep_whole_sets=true`, `parallel_selection=false` and a graph whose ranking
    is `paper` (Section 3.3's cosine). What differs then: facts are selected by number, where Table 17 copies them; a
    set without facts is not asked about; the response is plain text, so that it streams, where Table 18 wraps it in
    JSON.

    By `ours`, the default, prompts ask for few entities, worded as graphs word them, and response generation has
    guidance of its own; entities are cut at 12 a list, and errors that need no model to be seen are mended (Appendix
    D). Response generation is shown the first stages' thoughts. The paper shows those of Cross Revision (Section 3.4),
    which say what was kept or removed; which serves better has not been measured.

    Attributes:
        top: facts kept of each set after ranking (Section 3.3: 50).
        limit: facts selected at most (Section 3.3: 20).
        thoughts: thought-then-generate (off: Table 3's "w/o TtG").
        query_production: off, with `cross_revision` off: "w/o QP+CR".
        topic_planning: off, with `cross_revision` off: "w/o TP+CR".
        cross_revision: off: "w/o CR". It needs both queries and topics.
        fact_retrieval: off, with `fact_selection` off: "w/o FR+FS".
        fact_selection: off: "w/o FS", the `limit` best-ranked facts are used as they are, foreseen ones first. The
            paper does not say how many it uses then; the RAG baselines of its Table 1 have as many.
        keep_whole_sets: take all of a set that is not larger than the limit, in the model's order (Table 17); off, what
            it finds useful of it.
        parallel_selection: ask for both selections at once, each for `limit` facts, and cut what is too much; off, the
            second is asked for what the first leaves, if anything (Section 3.3).
        fewer_steps: ask only where there is something to settle, which the paper leaves to further work (Limitations).
            Where the last two turns mention no concept, the response is written at once; Cross Revision is left out
            where there are no queries or no topics to set against each other, and the selection from a set that is not
            larger than the limit, all of which is taken as ranked.
    """

    name: ClassVar[str] = "dcrag"
    paper: ClassVar[str] = "DCRAG (EMNLP 2024), Section 3"
    summary: ClassVar[str] = "queries and topics guide a search of the graph; the model selects facts and answers"
    required_sources: ClassVar[tuple[str, ...]] = ("graph",)
    calls: ClassVar[str] = "6 (4 in a row)"
    stages: ClassVar[tuple[str, ...]] = (
        "dcrag/query-production",
        "dcrag/topic-planning",
        "dcrag/cross-revision",
        "dcrag/fact-selection",
        "dcrag/response-generation",
    )

    graph: AnyGraph
    top: int = 50
    limit: int = 20
    thoughts: bool = True
    query_production: bool = True
    topic_planning: bool = True
    cross_revision: bool = True
    fact_retrieval: bool = True
    fact_selection: bool = True
    keep_whole_sets: bool = False
    parallel_selection: bool = True
    fewer_steps: bool = False
    prompt_variant: str = OURS

    def __post_init__(self) -> None:
        check_least(self, top=1, limit=1)
        if not (self.query_production or self.topic_planning):
            raise InputError("dcrag without queries and topics has no demands", hint="leave one of them on")
        if self.cross_revision and not (self.query_production and self.topic_planning):
            raise InputError("dcrag's cross revision needs queries and topics", hint="set cross_revision=false too")
        if self.fact_selection and not self.fact_retrieval:
            raise InputError("dcrag cannot select facts without retrieval", hint="set fact_selection=false too")

    async def ground(self, dialogue: Dialogue, stage: StageContext) -> Grounding:
        """Knowledge Demands Identification and Demands-Guided Knowledge Retrieval (Sections 3.2 and 3.3)."""
        if self.fewer_steps and not link("mentions", lambda: mentions(self.graph, dialogue, 2), stage):
            return Grounding(demands=Demands())
        queries, topics = await gather(self.produce_queries(dialogue, stage), self.plan_topics(dialogue, stage))
        of_topics = {"maintained": topics.maintained, "extended": topics.extended}
        demands = queries.model_copy(update={**of_topics, "thoughts": queries.thoughts | topics.thoughts})
        demands = await self.revise(dialogue, demands, stage)
        retrieval = await self.retrieve(dialogue, demands, stage)
        facts = await self.select(retrieval, stage)
        return Grounding(knowledge=facts, demands=demands)

    async def respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        """Ground, then Response Generation from history, facts and demands (Section 3.4, Equation 8)."""
        grounding = await self.ground(dialogue, stage)
        text = await stage.write(
            "dcrag/response-generation",
            facts=grounding.knowledge,
            demands=(grounding.demands or Demands()).model_dump(),
            thoughts=self.thoughts,
            retrieval=any(traced.stage == "fact-retrieval" for traced in stage.trace),
        )
        return grounding.response(text)

    async def produce_queries(self, dialogue: Dialogue, stage: StageContext) -> Demands:
        """Query Production (Section 3.2.1, Equations 1 and 2)."""
        if not self.query_production:
            return Demands()
        return await produce_queries(dialogue, stage, thoughts=self.thoughts)

    async def plan_topics(self, dialogue: Dialogue, stage: StageContext) -> Demands:
        """Topic Planning (Section 3.2.2, Equations 3 and 4). Where nothing parses, there are no topics."""
        if not self.topic_planning:
            return Demands()
        shape = ThoughtTopics if self.thoughts else Topics
        planned = await stage.ask("dcrag/topic-planning", shape, shape.of(Demands()), thoughts=self.thoughts)
        return mended(planned.demands(), dialogue, stage, "topic-mending")

    async def revise(self, dialogue: Dialogue, demands: Demands, stage: StageContext) -> Demands:
        """Cross Revision (Section 3.2.3, Equations 5 and 6). Where nothing parses, the demands stay as they were."""
        if not self.cross_revision or (self.fewer_steps and not (demands.queries and demands.topics)):
            return demands
        shape = ThoughtRevision if self.thoughts else Revision
        revised = await stage.ask(
            "dcrag/cross-revision", shape, shape.of(demands), demands=demands.model_dump(), thoughts=self.thoughts
        )
        right = mended(revised.demands(), dialogue, stage, "revision-mending")
        if stage.prompt_variant == PAPER:
            return right
        thoughts = {kind: thought for kind, thought in demands.thoughts.items() if thought}
        return right.model_copy(update={"thoughts": right.thoughts | thoughts})

    async def retrieve(self, dialogue: Dialogue, demands: Demands, stage: StageContext) -> Retrieval:
        """Fact Retrieval: foreseen and unforeseen facts, each ranked and cut (Section 3.3)."""
        if not self.fact_retrieval:
            return Retrieval()
        with stage.step("fact-retrieval") as step:
            retrieved = await asyncio.to_thread(self.graph.retrieve, demands, dialogue, self.top)
            foreseen, unforeseen = retrieved.foreseen, retrieved.unforeseen
            step.output = {
                "graph": self.graph.name,
                "links": [f"{link.phrase} -> {link.name} ({link.how}, {link.score})" for link in retrieved.links],
                "foreseen": {"found": retrieved.foreseen_found, "kept": [fact.triple for fact in foreseen]},
                "unforeseen": {"found": retrieved.unforeseen_found, "kept": [fact.triple for fact in unforeseen]},
            }
            step.notes = [f"no concept for {entity!r}" for entity in retrieved.unlinked]
        return retrieved

    async def select(self, retrieval: Retrieval, stage: StageContext) -> list[Knowledge]:
        """Fact Selection: foreseen facts first, then unforeseen ones until there are enough (Equation 7)."""
        if not self.fact_selection:
            return [*retrieval.foreseen, *retrieval.unforeseen][: self.limit]
        if self.parallel_selection:
            foreseen, unforeseen = await gather(
                self._pick("foreseen", retrieval.foreseen, self.limit, stage),
                self._pick("unforeseen", retrieval.unforeseen, self.limit, stage),
            )
            return [*foreseen, *unforeseen][: self.limit]
        facts = await self._pick("foreseen", retrieval.foreseen, self.limit, stage)
        return facts + await self._pick("unforeseen", retrieval.unforeseen, self.limit - len(facts), stage)

    async def _pick(self, which: str, facts: list[Knowledge], limit: int, stage: StageContext) -> list[Knowledge]:
        """One selection. Nothing offered asks nothing; where nothing parses, the best-ranked facts are taken."""
        if not facts or not limit or (self.fewer_steps and len(facts) <= limit):
            return facts[:limit]
        ranked = SelectedFacts(selected=list(range(1, min(len(facts), limit) + 1)))
        chosen = await stage.ask("dcrag/fact-selection", SelectedFacts, ranked, suffix=which, facts=facts, limit=limit)
        numbers = dict.fromkeys(chosen.selected)
        picked = [facts[number - 1] for number in numbers if 1 <= number <= len(facts)]
        notes = [f"fact {number} was never offered: dropped" for number in numbers if not 1 <= number <= len(facts)]
        if len(numbers) < len(chosen.selected):
            notes.append("facts were named more than once: repeats dropped")
        if notes:
            with stage.step(f"selection-mending-{which}") as step:
                step.output, step.notes = {"kept": len(picked)}, notes
        if self.keep_whole_sets and len(facts) <= limit:
            picked += [fact for fact in facts if fact not in picked]
        return picked[:limit]

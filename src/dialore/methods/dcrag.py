"""DCRAG: Demands-Guided Collaborative RAG (Yu, Wu, Chen and Zhou, EMNLP 2024), Section 3; others take stages of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, Field, create_model

from dialore.errors import InputError
from dialore.methods.base import OURS, PAPER, Method, check_least
from dialore.parallel import gather
from dialore.response import Demands, Grounding, Response
from dialore.text import content_words, is_mentioned, light_words, normalise

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.methods.base import AnyGraph
    from dialore.methods.stages import StageContext
    from dialore.retrieval.linking.linker import Link
    from dialore.sources.graph import Retrieval

_MOST = 12  # entities taken of one list; a model that lists more has stopped choosing


# --- outputs; in thought-then-generate, thoughts stand before what they lead to


def _entities(value: Any) -> Any:  # noqa: ANN401 - what a model wrote
    if not isinstance(value, list):
        return value
    cleaned = (" ".join(str(item).split()).strip(" .,;，。；\"'“”") for item in value if item is not None)
    return list(dict.fromkeys(item for item in cleaned if item))


Entities = Annotated[list[str], BeforeValidator(_entities)]


class DemandsOutput(BaseModel):
    """Entities of some kinds, each kind with its thoughts where they are asked for."""

    @classmethod
    def of(cls, demands: Demands) -> Self:
        """Return the same demands in this shape."""
        kinds = demands.model_dump(exclude={"thoughts"})
        thoughts = {f"{kind}_thoughts": demands.thoughts.get(kind, "") for kind in kinds}
        return cls(**kinds, **thoughts)  # what it has no field for is left out

    def demands(self) -> Demands:
        """Return the same as demands."""
        kinds = {name: value for name, value in self if not name.endswith("_thoughts")}
        thoughts = {name.removesuffix("_thoughts"): thought for name, thought in self if name not in kinds}
        return Demands(**kinds, thoughts=thoughts)


def _shape(name: str, *kinds: str) -> type[DemandsOutput]:
    """Return lists of entities of these kinds; where the name says so, each after its thoughts."""
    fields: dict[str, Any] = {}
    for kind in kinds:
        fields |= {f"{kind}_thoughts": (str, ...)} if name.startswith("Thought") else {}
        fields[kind] = (Entities, ...)
    return create_model(name, __base__=DemandsOutput, **fields)


# Without thoughts and thought-then-generate: Query Production, Topic Planning and Cross Revision (Equations 1 to 6).
Queries, ThoughtQueries = (_shape(name, "explicit", "implicit") for name in ("Queries", "ThoughtQueries"))
Topics, ThoughtTopics = (_shape(name, "maintained", "extended") for name in ("Topics", "ThoughtTopics"))
Revision, ThoughtRevision = (
    _shape(name, "explicit", "implicit", "maintained", "extended") for name in ("Revision", "ThoughtRevision")
)


def _numbers(value: Any) -> Any:  # noqa: ANN401 - what a model wrote
    """Numbers of facts, also from "3", "[3]" and "[3]-(head, relation, tail)", the form of DCRAG's Table 17."""
    if not isinstance(value, list):
        return value
    matches = (re.match(r"\s*[\[(#]?(\d+)", item) if isinstance(item, str) else None for item in value)
    return [int(match[1]) if match else item for match, item in zip(matches, value, strict=True)]


class SelectedFacts(BaseModel):
    """Fact Selection: the numbers of the facts picked, the most useful first."""

    selected: Annotated[list[int], BeforeValidator(_numbers)] = Field(description="numbers of the picked facts")


# --- stages that other methods have, too


async def produce_queries(dialogue: Dialogue, stage: StageContext, *, thoughts: bool) -> Demands:
    """Query Production (DCRAG, Section 3.2.1), mended. Where nothing parses, there are no queries."""
    shape = ThoughtQueries if thoughts else Queries
    produced = await stage.ask("dcrag/query-production", shape, shape.of(Demands()), thoughts=thoughts)
    return _repair_demands(produced.demands(), dialogue, stage, "query-mending")


def _repair_demands(demands: Demands, dialogue: Dialogue, stage: StageContext, name: str) -> Demands:
    """Put each entity where the kinds' definitions put it, and cut long lists, with a note for each of both.

    An explicit query or maintained topic that the history does not mention becomes implicit or extended, an implicit
    query or extended topic that it mentions explicit or maintained (errors that are seen without a model: DCRAG,
    Appendix D, Tables 7 to 9). By the paper's prompts demands stay as they are.
    """
    if stage.prompt_variant == PAPER:
        return demands
    lists: dict[str, list[str]] = {"explicit": [], "implicit": [], "maintained": [], "extended": []}
    notes: list[str] = []
    for inside, outside in (("explicit", "implicit"), ("maintained", "extended")):
        for kind in (inside, outside):
            named = getattr(demands, kind)
            if len(named) > _MOST:
                notes.append(f"{kind}: {len(named)} entities, the first {_MOST} are kept")
            for entity in named[:_MOST]:
                right = inside if is_mentioned(entity, dialogue.texts, dialogue.language) else outside
                if right != kind:
                    where = "is in the history" if right == inside else "is not in the history"
                    notes.append(f"{kind} {entity!r} {where}: moved to {right}")
                lists[right].append(entity)
    for kind, entities in lists.items():  # each entity once, whatever its case
        lists[kind] = list({normalise(entity): entity for entity in reversed(entities)}.values())[::-1]
    if notes:
        with stage.step(name) as step:
            step.output, step.notes = dict(lists), notes
    return Demands(**lists, thoughts=demands.thoughts)


def link(name: str, work: Callable[[], list[Link]], stage: StageContext, *, summary: bool = True) -> list[Link]:
    """Links to the graph's concepts, as a stage of that name."""
    with stage.step(name) as step:
        links = work()
        shown = [f"{link.phrase} -> {link.name} ({link.how})" for link in links]
        step.output = {"links": shown}
        step.summary = f"Concepts: {'; '.join(shown)}" if shown and summary else ""
    return links


def mentions(graph: AnyGraph, dialogue: Dialogue, turns: int) -> list[Link]:
    """Return the concepts that the latest turns mention, without those that nearly every dialogue mentions."""
    light = light_words(dialogue.language)
    links = graph.mentions(dialogue.texts[-turns:])
    return [link for link in links if not light.issuperset(content_words(link.name, dialogue.language))]


async def retrieve_facts(
    graph: AnyGraph, links: Sequence[Link], dialogue: Dialogue, stage: StageContext, top: int
) -> list[Knowledge]:
    """Return the best facts of the linked concepts, as a stage."""
    with stage.step("fact-retrieval") as step:
        # Beside other dialogues: an embedder behind an endpoint takes its time.
        facts, count = await asyncio.to_thread(graph.retrieve_queries, links, dialogue, top)
        step.output = {"graph": graph.name, "concepts": len(links), "found": count, "kept": len(facts)}
    return facts


# --- the method


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
        fewer_steps: ask only where there is something to settle (Limitations): the response is written at once where
            the last two turns mention no concept; Cross Revision is left out where there are no queries or no topics,
            and the selection from a set that is not larger than the limit, all of which is taken as ranked.
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
        return _repair_demands(planned.demands(), dialogue, stage, "topic-mending")

    async def revise(self, dialogue: Dialogue, demands: Demands, stage: StageContext) -> Demands:
        """Cross Revision (Section 3.2.3, Equations 5 and 6). Where nothing parses, the demands stay as they were."""
        if not self.cross_revision or (self.fewer_steps and not (demands.queries and demands.topics)):
            return demands
        shape = ThoughtRevision if self.thoughts else Revision
        revised = await stage.ask(
            "dcrag/cross-revision", shape, shape.of(demands), demands=demands.model_dump(), thoughts=self.thoughts
        )
        right = _repair_demands(revised.demands(), dialogue, stage, "revision-mending")
        if stage.prompt_variant == PAPER:
            return right
        thoughts = {kind: thought for kind, thought in demands.thoughts.items() if thought}
        return right.model_copy(update={"thoughts": right.thoughts | thoughts})

    async def retrieve(self, dialogue: Dialogue, demands: Demands, stage: StageContext) -> Retrieval:
        """Fact Retrieval: foreseen and unforeseen facts, each ranked and cut (Section 3.3)."""
        from dialore.sources.graph import Retrieval  # loads the store of graphs, which most who import this need not

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
            sets = (("foreseen", retrieval.foreseen), ("unforeseen", retrieval.unforeseen))
            picked = await gather(*(self._pick(which, facts, self.limit, stage) for which, facts in sets))
            return [fact for facts in picked for fact in facts][: self.limit]
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

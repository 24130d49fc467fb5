"""Stages that several methods share: query production and the mending of demands, links and facts of the graph."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, Field, create_model

from dialore.methods.base import PAPER
from dialore.response import Demands
from dialore.text import content_words, is_mentioned, light_words, normalise

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.methods.base import AnyGraph
    from dialore.methods.stages import StageContext
    from dialore.retrieval.linking.linker import Link

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


# --- stages


async def produce_queries(dialogue: Dialogue, stage: StageContext, *, thoughts: bool) -> Demands:
    """Query Production (DCRAG, Section 3.2.1), mended. Where nothing parses, there are no queries."""
    shape = ThoughtQueries if thoughts else Queries
    produced = await stage.ask("dcrag/query-production", shape, shape.of(Demands()), thoughts=thoughts)
    return mended(produced.demands(), dialogue, stage, "query-mending")


def mended(demands: Demands, dialogue: Dialogue, stage: StageContext, name: str) -> Demands:
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

"""SCG-QP's queries: topic tracking, commonsense directive, query generation (Section 2), behind a search decision."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dialore.methods.scg_qp_outputs import SearchDecision, Topic, plain_query, read_query, read_topic
from dialore.parallel import gather
from dialore.response import Demands

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.methods.scg_qp_outputs import Kind
    from dialore.methods.stages import Stages

_SIGN = re.compile(r"<\s*(?:sep|turn)\s*>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be searched for, and what led to it.

    Attributes:
        query: the search query; empty where nothing is searched.
        kind: what kind of turn is to be answered.
        topic: the current topic.
        directive: the commonsense response that guides the query; empty where there is none.
    """

    query: str = ""
    kind: Kind = "passive"
    topic: Topic = field(default_factory=Topic)
    directive: str = ""

    @property
    def demands(self) -> Demands:
        """As demands: a request is an explicit query, what commonsense suggests an implicit one."""
        queries = [self.query] if self.query else []
        asked = self.kind == "information"
        return Demands(
            explicit=queries if asked else [],
            implicit=[] if asked else queries,
            maintained=[self.topic.name] if self.topic.name else [],
            thoughts={"implicit": self.directive} if self.directive else {},
        )


@dataclass(frozen=True, slots=True)
class QueryMaker:
    """Makes the search query of a dialogue.

    Attributes:
        decision: decide first what kind of turn is to be answered (beyond the paper; off: every turn is passive).
        topic_tracking: off: Table 2, "W/O Topic Tracker".
        directive: off: Table 1, "Flan T5 w/o Cosmo".
    """

    decision: bool = True
    topic_tracking: bool = True
    directive: bool = True

    async def make(self, dialogue: Dialogue, stage: Stages) -> Wanted:
        """Decide and track at once; then, where the turn asks for no particular thing, direct and generate."""
        decided, topic = await gather(self.decide(stage), self.track(stage))
        if decided.kind != "passive":
            topic = Topic(topic.name)  # who asks for something has a topic, named or not: none is to be proposed
        if decided.kind == "none":
            return Wanted(kind="none", topic=topic)
        if decided.kind == "information" and (request := read_query(decided.query)):
            return Wanted(request, "information", topic)
        directive = await self.direct(dialogue, decided.kind, topic, stage)
        query = await self.generate(dialogue, decided.kind, topic, directive, stage)
        return Wanted(query, decided.kind, topic, directive)

    async def decide(self, stage: Stages) -> SearchDecision:
        """Search Decision (Limitations). Where nothing parses, the turn is passive: the paper's own case."""
        passive = SearchDecision(kind="passive")
        return await stage.ask("scg-qp/search-decision", SearchDecision, passive) if self.decision else passive

    async def track(self, stage: Stages) -> Topic:
        """Fine-Grained Topic Tracking (Section 2.1). Where nothing can be read, the topic is left open."""
        return await stage.read("scg-qp/topic-tracking", read_topic, Topic()) if self.topic_tracking else Topic()

    async def direct(self, dialogue: Dialogue, kind: Kind, topic: Topic, stage: Stages) -> str:
        """Commonsense-Based Directive (Section 2.2); where there is no current topic, it proposes one.

        A request for information says itself what to look for: it needs none.
        """
        if not self.directive or kind == "information":
            return ""
        text = await stage.text(
            "scg-qp/commonsense-directive",
            topic=topic.name,
            new_topic=topic.absent,
            kind=kind,
            turns=plain_turns(dialogue),
            persona=[_plain(line) for line in dialogue.persona],
            interests=_interests(dialogue),
        )
        return " ".join(text.split())

    async def generate(self, dialogue: Dialogue, kind: Kind, topic: Topic, directive: str, stage: Stages) -> str:
        """Instruction-Driven Query Generation (Section 2.3). Where nothing can be read, the topic is searched for."""
        spare = topic.name or plain_query(directive if topic.absent else dialogue.last.text)
        return await stage.read(
            "scg-qp/query-generation", read_query, spare, topic=topic.name, directive=directive, kind=kind
        )


def plain_turns(dialogue: Dialogue) -> list[str]:
    """The turns' texts, a line each, oldest first, without the signs that part turns in Cosmo's input."""
    return [_plain(text) for text in dialogue.texts]


def _plain(text: str) -> str:
    return " ".join(_SIGN.sub(" ", text).split())


def _interests(dialogue: Dialogue) -> list[str]:
    """What data sets tell of the one who is answered, and a service of its user: `extra["user_persona"]`."""
    told = dialogue.extra.get("user_persona")
    return [_plain(line) for line in told if isinstance(line, str)] if isinstance(told, list | tuple) else []

"""SCG-QP: Social Commonsense-Guided search Query Generation (Reddy et al., Findings of EMNLP 2023), Section 2."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator

from dialore.llm.loose_json import candidates
from dialore.methods.base import OURS, PAPER, Switch, check_least
from dialore.methods.baselines import TRag
from dialore.methods.cleaning import as_data
from dialore.methods.dcrag import link, retrieve_facts
from dialore.parallel import gather
from dialore.prompts.history import plain_line, plain_turns
from dialore.response import Demands, Grounding, Response
from dialore.retrieval.reranking import load_reranker
from dialore.text import content_words, is_chinese
from dialore.trained import load_trained

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.methods.stages import StageContext
    from dialore.sources.base import KnowledgeSource

Kind = Literal["information", "opinion", "passive", "none"]

_TOPIC_WORDS, _TOPIC_CHARACTERS = 12, 30  # what is longer (in English, Chinese) is a sentence about the dialogue
_QUERY_WORDS, _QUERY_CHARACTERS = 40, 80
_EDGES = " \t.,;:!?。，、；：！？*`"
_BULLET = re.compile(r"\A(?:[-*•>]|\d{1,2}[.)、])\s+")
_LABEL = re.compile(
    r"(?i)\A(?:(?:the\s+)?(?:current\s+|search\s+|web\s+)?(?:topic|subject|query)(?:\s+is)?|search(?:\s+for)?|"
    r"(?:当前)?(?:话题|主题)|搜索词?|查询|检索词?)\s*[:：]\s*"
)
_QUOTED = re.compile(r"\"([^\"]*)\"|“([^“”]*)”|「([^「」]*)」|'([^']*)'")
_NO_TOPIC = re.compile(
    r"(?i)(?:there\s+is\s+|there's\s+)?(?:none|nothing|null|n/?a|unknown|"
    r"no(?:\s+(?:current|clear|specific|particular))?\s+(?:topic|subject))(?:\s+at\s+(?:the|this)\s+moment)?|"
    r"(?:暂时?|当前|现在)?(?:无|没有|不明|未知)(?:明确|具体)?的?(?:话题|主题)?"
)
# "__no_search__", "__do-not-search__" and "no_passages_used" are how trained search deciders put it.
_NO_SEARCH = re.compile(
    r"(?i)_*(?:no|not|none|n/?a|do[-_ ]not)(?:[-_ ](?:search|query|passages?)(?:[-_ ](?:used|needed))?)?_*|"
    r"无|没有|(?:不用|无需|不需要)搜索"
)
# SCG-QP's "instruction mismatch" (Section 3.4): a question to the other person, which no engine can answer.
_TO_THE_OTHER = re.compile(
    r"(?i)(?:(?:and|so|but|well|how|what|which|where|when|why|who)\b[\w\s,']{0,40}?\s)?"
    r"(?:do|did|have|are|were|would|will|can|could|had)\s+you\b|"
    r"你们?(?:有没有|是不是|喜欢|觉得|最近|平时|会不会|想不想|[去看吃玩听]过)"
)
_MARKS = ("passage", "passages")
_REMEMBERED = 3  # statements of a user's memory that the directive is shown
_KINDS: dict[tuple[str, ...], Kind] = {
    ("no", "无", "不搜索", "不需要"): "none",
    ("info", "信息"): "information",
    ("opinion", "看法", "意见"): "opinion",
    ("passive", "被动"): "passive",
}


# --- outputs


def _kind(value: Any) -> Any:  # noqa: ANN401 - what a model wrote
    """Return the kind in "Information", "information request" and "no search needed"."""
    if not isinstance(value, str):
        return value
    word = value.strip().lower()
    return next((kind for starts, kind in _KINDS.items() if word.startswith(starts)), word)


class SearchDecision(BaseModel):
    """The kind of turn to be answered; of a request for information, the request made self-contained."""

    kind: Annotated[Kind, BeforeValidator(_kind)]
    query: str = ""


@dataclass(frozen=True, slots=True)
class Topic:
    """The current topic of the dialogue; empty where it is not known, or `absent`, so that one may be proposed."""

    name: str = ""
    absent: bool = False


def read_topic(text: str) -> Topic | None:
    """Return the topic that a tracker wrote, or that there is none; None where what it wrote is no topic."""
    line = _first_line(text)
    if _NO_TOPIC.fullmatch(line):
        return Topic(absent=True)
    return Topic(line) if _says_something(line, _TOPIC_WORDS, _TOPIC_CHARACTERS) else None


def read_query(text: str) -> str | None:
    """Return the search query that a generator wrote; None where it is none: empty, or a passage."""
    line = _from_json(text) or _first_line(text)
    is_query = _says_something(line, _QUERY_WORDS, _QUERY_CHARACTERS) and not _NO_SEARCH.fullmatch(line)
    return line if is_query else None


def read_search(text: str) -> str | None:
    """As `read_query`; empty where the generator wants nothing searched, as BlenderBot's decision module may."""
    return "" if _NO_SEARCH.fullmatch(_first_line(text)) else read_query(text)


def _sendable(query: str, spare: str, stage: StageContext) -> str:
    """Return the query, or the spare one for a question to the other person, which the paper does send."""
    if stage.prompt_variant == PAPER or not _TO_THE_OTHER.match(query):
        return query
    with stage.step("query-mending") as step:
        step.output = {"dropped": query}
        step.notes = [f"a question to the other person, which no engine can answer; searched in its place: {spare}"]
    return spare


def plain_query(text: str) -> str:
    """Return a query made of a text's content words, where the model made none; empty where the text has none."""
    language: Literal["en", "zh"] = "zh" if is_chinese(text) else "en"
    return " ".join(list(dict.fromkeys(content_words(text, language)))[:10])


def _says_something(line: str, most_words: int, most_characters: int) -> bool:
    """Return whether a line holds a word, and no more than that of English or of Chinese."""
    is_short = len(line) <= most_characters if is_chinese(line) else len(line.split()) <= most_words
    return is_short and any(letter.isalnum() for letter in line)


def _from_json(text: str) -> str:
    objects = (value for value in candidates(text) if isinstance(value, dict))
    items = (item for value in objects for key, item in value.items() if "query" in str(key))
    return next((_bare(item) for item in items if isinstance(item, str) and item), "")


def _first_line(text: str) -> str:
    lines = (_bare(line) for line in text.splitlines())
    return next((line for line in lines if line), "")


def _bare(line: str) -> str:
    bare = _LABEL.sub("", _BULLET.sub("", line.strip()).strip("*`")).strip(_EDGES)
    quoted = _QUOTED.fullmatch(bare)
    inside = next((group for group in quoted.groups() if group is not None), "") if quoted else bare
    return " ".join(inside.strip(_EDGES).split())


# --- queries


@dataclass(frozen=True, slots=True)
class GuidedQuery:
    """The query to be searched for, if any, and what led to it: kind of turn, topic, and a commonsense response."""

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


_STAGES = ("search-decision", "topic-tracking", "commonsense-directive", "query-generation")
_QUERY_STAGES = tuple(f"scg-qp/{stage}" for stage in _STAGES)


@dataclass(frozen=True, kw_only=True)
class _QueryMaker:
    """A maker of search queries, for methods to stand on.

    Attributes:
        decision: off: every turn is taken as passive, as the paper's examples are; `trained:FOLDER`: what
            `dialore train decision` made decides without a call whether anything is searched for.
        topic_tracking: off: SCG-QP's Table 2, "W/O Topic Tracker".
        directive: off: SCG-QP's Table 1, "Flan T5 w/o Cosmo".
        memory: what the user said in earlier dialogues; the directive is shown the nearest (Section 4, future work).
        persona: let the directive know what is known of both persons, memory included; off, as in the paper, "w/o
            Cosmo" leaves out the directive alone.
        prompt_variant: `paper`: prompts with the paper's content, the same for all models, and queries sent as written.
    """

    memory: KnowledgeSource | None = None
    decision: Switch = True
    topic_tracking: bool = True
    directive: bool = True
    persona: bool = True
    prompt_variant: str = OURS

    def __post_init__(self) -> None:
        if isinstance(self.decision, str):
            load_trained(self.decision, "decision")

    async def make_query(self, dialogue: Dialogue, stage: StageContext) -> GuidedQuery:
        """Decide and track at once; then, where the turn asks for no particular thing, direct and generate."""
        decided, topic = await gather(self.decide(stage), self.track(stage))
        if decided.kind != "passive":
            topic = Topic(topic.name)  # who asks for something has a topic, named or not: none is to be proposed
        if decided.kind == "none":
            return GuidedQuery(kind="none", topic=topic)
        if decided.kind == "information" and (request := read_query(decided.query)):
            return GuidedQuery(request, "information", topic)
        directive = await self.direct(dialogue, decided.kind, topic, stage)
        query = await self.generate(dialogue, decided.kind, topic, directive, stage)
        return GuidedQuery(query, decided.kind, topic, directive)

    async def decide(self, stage: StageContext) -> SearchDecision:
        """Search Decision (Limitations). Where nothing parses, the turn is passive: the paper's own case."""
        passive = SearchDecision(kind="passive")
        if not self.decision:
            return passive
        if isinstance(self.decision, str):
            with stage.step("search-decision") as step:
                searches, chance = load_trained(self.decision, "decision").decide(stage.dialogue)
                decided = passive if searches else SearchDecision(kind="none")
                step.output = {**decided.model_dump(), "probability": round(chance, 4)}
            return decided
        return await stage.ask("scg-qp/search-decision", SearchDecision, passive, summary="Turn: {0.kind}")

    async def track(self, stage: StageContext) -> Topic:
        """Fine-Grained Topic Tracking (Section 2.1). Where nothing can be read, the topic is left open."""
        if not self.topic_tracking:
            return Topic()
        return await stage.read("scg-qp/topic-tracking", read_topic, Topic(), summary="Topic: {}")

    async def direct(self, dialogue: Dialogue, kind: Kind, topic: Topic, stage: StageContext) -> str:
        """Commonsense-Based Directive (Section 2.2); it may propose a topic. A request for information needs none."""
        if not self.directive or kind == "information":
            return ""
        # The persona of the user, where a data set or the service gives one.
        given = dialogue.extra.get("user_persona") if self.persona else None
        told = given if isinstance(given, list | tuple) else ()
        interests = [plain_line(line) for line in told if isinstance(line, str)]
        if self.persona and self.memory is not None:
            statements = await stage.search("memory", self.memory, dialogue.last.text, _REMEMBERED)
            interests += [plain_line(piece.text) for piece in statements]
        text = await stage.text(
            "scg-qp/commonsense-directive",
            summary="Directive: {}",
            topic=topic.name,
            new_topic=topic.absent,
            kind=kind,
            turns=plain_turns(dialogue),
            persona=[plain_line(line) for line in dialogue.persona] if self.persona else [],
            interests=interests,
        )
        return " ".join(text.split())

    async def generate(self, dialogue: Dialogue, kind: Kind, topic: Topic, directive: str, stage: StageContext) -> str:
        """Instruction-Driven Query Generation (Section 2.3). Where nothing can be read, the topic is searched for."""
        spare = topic.name or plain_query(directive if topic.absent else dialogue.last.text)
        given: dict[str, Any] = {"topic": topic.name, "directive": directive, "kind": kind}
        query = await stage.read("scg-qp/query-generation", read_query, spare, summary="Query: {}", **given)
        return _sendable(query, spare, stage)


# --- the web


@dataclass(frozen=True, kw_only=True)
class WebGrounded(ABC):
    """A searcher that asks the web one query and writes from what answers it best (Section 3.1).

    Attributes:
        candidates: passages of the search's pages that are reranked.
        passages: passages that the response is given (Section 3.1: the best one).
        reranker: the paper's is `cross:cross-encoder/ms-marco-MiniLM-L-6-v2`; this one needs no extra.
    """

    web: KnowledgeSource
    candidates: int = 30
    passages: int = 1
    reranker: str = "fused"

    def __post_init__(self) -> None:
        check_least(self, candidates=1, passages=1)

    @abstractmethod
    async def make_query(self, dialogue: Dialogue, stage: StageContext) -> GuidedQuery:
        """Make the query that is searched for."""

    async def ground(self, dialogue: Dialogue, stage: StageContext) -> Grounding:
        """Make the query, search, rerank."""
        return await self._search(await self.make_query(dialogue, stage), stage)

    async def respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        """Ground, then write from history and best passage."""
        wanted = await self.make_query(dialogue, stage)
        grounding = await self._search(wanted, stage)
        text = await stage.write(
            "scg-qp/response-generation",
            passages=prompt_passages(grounding.knowledge),
            searched=bool(wanted.query),
            new_topic=wanted.topic.absent,
            proposal=wanted.directive if wanted.topic.absent else "",
        )
        return grounding.response(text)

    async def _search(self, wanted: GuidedQuery, stage: StageContext) -> Grounding:
        query = wanted.query
        pages: list[Knowledge] = []
        kept: list[Knowledge] = []
        if query:
            pages = await stage.search("web-search", self.web, query, self.candidates, summary="Searched: {}")
        if pages:
            texts = [passage.searched for passage in pages]
            with stage.step("reranking") as step:
                order = await asyncio.to_thread(
                    lambda: load_reranker(self.reranker).rerank(query, texts, self.passages)
                )
                kept = [pages[row].model_copy(update={"score": round(score, 4)}) for row, score in order]
                chosen = [{"id": piece.id, "score": piece.score, "from": _page_of(piece)} for piece in kept]
                step.output = {"reranker": self.reranker, "candidates": len(pages), "kept": chosen}
        return Grounding(knowledge=kept, demands=wanted.demands)


def _page_of(piece: Knowledge) -> str:
    """Return the name of the page that a passage comes from: its title, else its site; empty where neither is known."""
    title = " ".join(piece.title.split())
    site = re.sub(r"\A\w+://(?:www\.)?|[/?#].*\Z", "", piece.url)
    return f"{title} ({site})" if title and site else title or site


def prompt_passages(passages: Sequence[Knowledge]) -> list[Knowledge]:
    """Return passages as they stand in a prompt: on one line, unable to close the marks around them.

    Their title is the name of their page.
    """
    given = []
    for piece in passages:
        fields = {"text": as_data(piece.text, *_MARKS), "title": as_data(_page_of(piece), *_MARKS)}
        given.append(piece.model_copy(update=fields))
    return given


# --- the methods


@dataclass(frozen=True, kw_only=True)
class ScgQp(_QueryMaker, WebGrounded):
    """A commonsense response guides the web search where the user asks for nothing in particular.

    The stages `topic-tracking`, `commonsense-directive` and `query-generation` have forms for models without chat, so
    that the paper's own may do them: Flan-T5 and Cosmo
    (`--set model.stages.commonsense-directive=hf:allenai/cosmo-xl`).

    The paper's setting is `prompt_variant=paper`, `decision=false`, `persona=false`. Where this differs from it (after
    its Limitations and Ethical Considerations): a search decision comes first, and a request for information is
    searched for as it is; there may be no current topic, and then a new one is proposed; questions to the other person
    are no queries; passages are declared to be data. In both settings the web source redacts personal data from queries
    and leaves unsafe passages out, and where nothing is found, the response is written without.

    Attributes:
        query: off: Table 1, "No Query".
    """

    name: ClassVar[str] = "scg-qp"
    paper: ClassVar[str] = "SCG-QP (Findings of EMNLP 2023), Section 2"
    summary: ClassVar[str] = "a commonsense response directs the web search; the best passage grounds the response"
    required_sources: ClassVar[tuple[str, ...]] = ("web",)
    optional_sources: ClassVar[tuple[str, ...]] = ("memory",)
    calls: ClassVar[str] = "5 (4 in a row); 3 (2 in a row) where something is asked for or nothing to be searched"
    stages: ClassVar[tuple[str, ...]] = (*_QUERY_STAGES, "scg-qp/response-generation")

    query: bool = True

    def __post_init__(self) -> None:
        _QueryMaker.__post_init__(self)
        WebGrounded.__post_init__(self)

    async def make_query(self, dialogue: Dialogue, stage: StageContext) -> GuidedQuery:
        """Return the guided query; none where it is switched off."""
        return await _QueryMaker.make_query(self, dialogue, stage) if self.query else GuidedQuery(kind="none")


@dataclass(frozen=True, kw_only=True)
class SearchQuery(WebGrounded):
    """SCG-QP's baseline: a search query generator reads the dialogue, and search and response are as in `scg-qp`.

    A sequence-to-sequence model that was trained for it (`--set model.stages.query-generation=hf:NAME`) reads
    the turns' texts, one a line, and writes the query, or that nothing is to be searched; any other model is prompted.

    Attributes:
        turns: the latest turns that a trained generator reads; 0 for all.
        prompt_variant: as in `scg-qp`.
    """

    name: ClassVar[str] = "search-query"
    paper: ClassVar[str] = "BlenderBot 3 (2022), Section 3, as used in SCG-QP (Findings of EMNLP 2023), Table 1"
    summary: ClassVar[str] = "a search query from the dialogue alone; the best passage grounds the response"
    required_sources: ClassVar[tuple[str, ...]] = ("web",)
    calls: ClassVar[str] = "2"
    stages: ClassVar[tuple[str, ...]] = ("search-query/query-generation", "scg-qp/response-generation")

    turns: int = 0
    prompt_variant: str = OURS

    def __post_init__(self) -> None:
        WebGrounded.__post_init__(self)
        check_least(self, turns=0)

    async def make_query(self, dialogue: Dialogue, stage: StageContext) -> GuidedQuery:
        """Return the generator's query. Where none can be read, the last turn's content words are it."""
        turns, spare = plain_turns(dialogue)[-self.turns :], plain_query(dialogue.last.text)
        query = await stage.read("search-query/query-generation", read_search, spare, turns=turns)
        return GuidedQuery(_sendable(query, spare, stage))


@dataclass(frozen=True)
class ScgQpGraph(_QueryMaker, TRag):
    """SCG-QP's queries looked up in a graph, then as T-RAG (DCRAG, Section 4.1.2 and Appendix A.1.1).

    A search query is a phrase or a question: the concepts that it mentions are the queries of the graph.

    Attributes:
        decision: decide first whether anything is to be looked up (`scg-qp`); off, as in the paper.
    """

    name: ClassVar[str] = "scg-qp-graph"
    paper: ClassVar[str] = "DCRAG (EMNLP 2024), Section 4.1.2; SCG-QP (Findings of EMNLP 2023), Section 2"
    summary: ClassVar[str] = "facts of the concepts in a query that a commonsense response directs"
    optional_sources: ClassVar[tuple[str, ...]] = ("memory",)
    calls: ClassVar[str] = "4 (4 in a row)"
    stages: ClassVar[tuple[str, ...]] = (*_QUERY_STAGES, "t-rag/response-generation")

    decision: Switch = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        _QueryMaker.__post_init__(self)
        TRag.__post_init__(self)

    async def ground(self, dialogue: Dialogue, stage: StageContext) -> Grounding:
        """Make the query and look its concepts up."""
        wanted = await self.make_query(dialogue, stage)
        if not wanted.query:
            return Grounding(demands=wanted.demands)
        links = link("query-linking", lambda: self.graph.mentions([wanted.query]), stage)
        facts = await retrieve_facts(self.graph, links, dialogue, stage, self.top)
        return Grounding(knowledge=facts, demands=wanted.demands)

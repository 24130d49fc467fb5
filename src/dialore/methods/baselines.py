"""Baselines: those of DCRAG's Table 1 and MSDP's Table 3, passages in the prompt, and an answer without a model."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dialore.errors import DialoreError, StageError, WindowError
from dialore.methods.base import OURS, PAPER, Method, OverSources, check_least, check_word
from dialore.methods.cleaning import clean_response, prompt_line
from dialore.methods.dcrag import link, mentions, produce_queries, retrieve_facts
from dialore.methods.few_shot import TOPICS, topic_of
from dialore.methods.selection import has_asked_back
from dialore.parallel import gather
from dialore.prompts.history import Block, on_one_line, plain_turns
from dialore.response import Citation, Demands, Grounding, Response, failed_sources
from dialore.retrieval.fusion import reciprocal_ranks
from dialore.retrieval.reranking import load_reranker
from dialore.sources.base import list_knowledge
from dialore.sources.declared import DeclaredSources, default_sources
from dialore.text import HAN, Language, is_chinese, is_mentioned, light_words, split_sentences, stop_words, words

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.methods.base import AnyGraph
    from dialore.methods.stages import StageContext

_LONGEST_CHINESE = 4  # characters of a word that decoding is steered to
_WORD = re.compile(rf"[{HAN}]|[^\W{HAN}]+")
_PASSAGES = ("documents", "memory", "web")
_TOO_MUCH = "take rag, which retrieves, or name fewer documents; the bound is the option words"
_FOUND = {"en": "From what was found: ", "zh": "找到的知识："}
_NOTHING = {"en": "Nothing was found for this dialogue.", "zh": "没有找到与这段对话有关的知识。"}
_FAILED = {"en": " Some sources could not be asked: {}.", "zh": "有些来源无法访问：{}。"}
_SMALL_TALK = {
    "en": "Ask me something, and I look it up: without a language model I cannot chat.",
    "zh": "请向我提问，我会查找知识：没有语言模型，我无法闲聊。",
}
_COURTESIES = {
    "en": re.compile(
        r"\b(?:hi|hiya|hello|hey|thanks|thank you|cheers|bye|goodbye|ok|okay|great|fine|welcome|nice|good|sorry"
        r"|see you|how are you)\b"
    ),
    "zh": re.compile("大家好|你好|您好|嗨|哈喽|[早上下午晚]{2}好|早安|晚安|多?谢谢?|感谢|再见|拜拜|好的|不客气|没关系"),
}
_FILLERS = {
    "en": re.compile(
        r"\b(?:please|morning|afternoon|evening|night|sounds?|you|you're|very|much|so|a|lot|for|your|the|help|to|meet"
        r"|later|there|doing|today|that's|and)\b|\W"
    ),
    "zh": re.compile(r"非常|十分|[早好行吗你您呀啊了吧]|\W"),
}


# --- of papers


@dataclass(frozen=True, slots=True)
class Vanilla(Method):
    """No knowledge: one call that writes the response."""

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
        top: how many facts the response is given.
        prompt_variant: as of `vanilla`; `paper` also queries every n-gram of the history that is a concept of the
            graph, stop words and overlaps included, where `ours` queries the longest concepts of content words.
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
        find = self.graph.ngrams if self.prompt_variant == PAPER else self.graph.mentions
        links = link("concept-mentions", lambda: find(dialogue.texts), stage, summary=False)
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
        prompt_variant: as of `vanilla`; `paper` takes lists of entities as the model gives them (see `dcrag`).
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


@dataclass(frozen=True, slots=True)
class Pplm(Method):
    """A local dialogue model answers, steered towards a bag of words from the graph (Dathathri et al., ICLR 2020).

    The bag: the words of the topic, or of the concepts that the history mentions where there is none, then the one-word
    concepts beside them in the graph, those of the best-ranked facts first. It is a part of the request
    (`Request.steering`), which a model run here follows and an endpoint refuses. MSDP uses DialoGPT-medium: `--model
    hf:microsoft/DialoGPT-medium`.

    Attributes:
        topic: `chosen`, `checked` or `none`, as in `msdp-kg`.
        facts: how many facts are looked through for words.
        words: how many words the bag has at most.
        iterations: gradient steps for each token; 0: the model unsteered.
        step_size: of a gradient step.
        gamma: exponent of the gradient's norm that a step is divided by.
        kl_scale: weight of the Kullback-Leibler term.
        gm_scale: share of the steered distribution in the geometric mean with the plain one.
        window: how many of the latest positions are moved; 0 for all.
        top_k: tokens that are left to choose from; 0 for all. MSDP takes the likeliest (Section 3.6): its prompt's
            temperature is 0.
        separator: what stands between the turns of the prompt and at its end: DialoGPT's end-of-text token.
        turns: last turns of the history in the prompt; 0 for all.
    """

    name: ClassVar[str] = "pplm"
    paper: ClassVar[str] = "PPLM (ICLR 2020), as in MSDP, Section 3.3 and Table 3"
    summary: ClassVar[str] = "a local model, steered towards words of the graph while it writes"
    required_sources: ClassVar[tuple[str, ...]] = ("graph",)
    calls: ClassVar[str] = "1 (a local model)"

    graph: AnyGraph
    topic: str = "chosen"
    facts: int = 100
    words: int = 50
    iterations: int = 3
    step_size: float = 0.03
    gamma: float = 1.5
    kl_scale: float = 0.01
    gm_scale: float = 0.99
    window: int = 5
    top_k: int = 10
    separator: str = "<|endoftext|>"
    turns: int = 0

    def __post_init__(self) -> None:
        check_word("topic", self.topic, TOPICS)
        check_least(self, facts=0, words=0, turns=0)

    async def ground(self, dialogue: Dialogue, stage: StageContext) -> Grounding:
        """Return the facts that the bag is taken from."""
        return Grounding(knowledge=self._bag(dialogue, stage)[1])

    async def respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        """Fill the bag, then write, steered by it."""
        bag, facts = self._bag(dialogue, stage)
        settings = ("iterations", "step_size", "gamma", "kl_scale", "gm_scale", "window", "top_k")
        text = await stage.write(
            "pplm/response-generation",
            texts=[" ".join(text.split()) for text in dialogue.texts[-self.turns :]],
            separator=Block(self.separator),
            steering={"words": bag, **{name: getattr(self, name) for name in settings}},
        )
        return Grounding(knowledge=facts).response(text)

    def _bag(self, dialogue: Dialogue, stage: StageContext) -> tuple[list[str], list[Knowledge]]:
        with stage.step("bag-of-words") as step:
            topic = topic_of(dialogue, self.topic)
            links = self.graph.link([topic]) if topic else []
            links = links or self.graph.mentions(dialogue.texts)
            facts, count = self.graph.retrieve_queries(links, dialogue, self.facts)
            bag_facts = [item.fact for item in facts if item.fact]
            ends = (end for fact in bag_facts for end in (fact.head, fact.tail))
            phrases = (*(link.name for link in links), *ends)
            bag = one_word_names(phrases, dialogue.language)[: self.words]
            step.output = {"graph": self.graph.name, "facts": count, "bag": bag}
            if not bag:
                step.notes = ["the graph has no word for this dialogue: the text is not steered"]
        return bag, facts


def one_word_names(names: Iterable[str], language: Language) -> list[str]:
    """Return the names that are one content word of the language, each once, in order."""
    idle = stop_words(language) | light_words(language)
    single: dict[str, None] = {}
    for name in names:
        if (language == "zh") != is_chinese(name):
            continue
        cut = words(name, language) if language == "en" else [name.strip()]
        if len(cut) == 1 and cut[0] not in idle and (language == "en" or len(cut[0]) <= _LONGEST_CHINESE):
            single[cut[0]] = None
    return list(single)


# --- passages in the prompt: retrieved ones, or all of them


@dataclass(frozen=True)
class Rag(OverSources):
    """Retrieve, then answer: what most chat services over documents do, and the baseline to beat.

    One query, the last turn rewritten so that it stands alone, goes to every source of documents and to the web, the
    persona's documents among them; their rankings are fused by reciprocal ranks. The graph is asked only where these
    give nothing. The persona stands in the prompt in full. A dialogue of one turn is not rewritten: its turn stands
    alone.

    Attributes:
        top: how many passages the response is given.
        rewrite: have the model rewrite the last turn; off, it is the query as it stands.
        clarify: ask back where a question may mean several things that were found and whose answers differ.
        strict: answer from the sources alone, and say what they hold where they do not hold what is asked.
    """

    name: ClassVar[str] = "rag"
    paper: ClassVar[str] = "our own, a baseline: retrieval-augmented generation as it is usually done"
    summary: ClassVar[str] = "the best passages for the last turn, rewritten to stand alone, and an answer from them"
    calls: ClassVar[str] = "2 (1 without rewrite, or where there is nothing to rewrite)"

    top: int = 5
    rewrite: bool = True
    clarify: bool = False
    strict: bool = False

    def __post_init__(self) -> None:
        check_least(self, top=1)

    @functools.cached_property
    def declared(self) -> DeclaredSources:
        """The sources that are declared, or all that are open."""
        return self.sources or default_sources(self.opened, retriever="fused")

    async def ground(self, dialogue: Dialogue, stage: StageContext) -> Grounding:
        """Return the best passages for one query, then the persona's sentences."""
        query = dialogue.last.text
        if self.rewrite and len(dialogue.turns) > 1:
            rewritten = await stage.text("rag/query-rewriting", summary="Query: {}")
            query = clean_response(" ".join(rewritten.split()), ()) or query
        passages = await self._search(_PASSAGES, query, stage) or await self._search(("graph",), query, stage)
        return Grounding(knowledge=[*passages, *_persona(self.declared, dialogue)])

    async def respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        """Ground, then write."""
        grounding = await self.ground(dialogue, stage)
        may_ask = self.clarify and not has_asked_back(dialogue)
        shown = _knowledge_lines(grounding.knowledge)
        text = await stage.write("rag/response-generation", **shown, may_ask=may_ask, strict=self.strict)
        return grounding.response(text)

    async def _search(self, kinds: Sequence[str], query: str, stage: StageContext) -> list[Knowledge]:
        """Return the best pieces of all sources of some kinds, asked at once."""
        searches = []
        for entry in self.declared.entries:
            if entry.kind in kinds and entry.source is not None:
                top = entry.top or self.top
                searches.append(stage.search(f"retrieval-{entry.name}", entry.source, query, top))
        rankings = [pieces for pieces in await gather(*searches) if pieces]
        if len(rankings) == 1:
            return rankings[0][: self.top]
        by_id = {piece.id: piece for pieces in rankings for piece in pieces}
        fused = reciprocal_ranks([[piece.id for piece in pieces] for pieces in rankings])[: self.top]
        return [by_id[name].model_copy(update={"score": round(score, 6)}) for name, score in fused]


@dataclass(frozen=True)
class FullContext(OverSources):
    """No retrieval: the persona and every document of the dialogue and of the index in one prompt, while they fit.

    What cannot be listed (the web, a graph) cannot be given whole, and is an error.

    Attributes:
        words: how many words of documents are sent at most, a Chinese character counted as one; the default is about
            80,000 tokens. More is an error, as is what the model's window does not hold.
        truncate: leave out what comes first, of memory the oldest, until the rest fits.
    """

    name: ClassVar[str] = "full-context"
    paper: ClassVar[str] = "our own, a baseline for models with a long window"
    summary: ClassVar[str] = "the persona and all documents in one prompt, while they fit"
    optional_sources: ClassVar[tuple[str, ...]] = ("sources", "persona", "memory", "documents")
    calls: ClassVar[str] = "1"

    words: int = 60_000
    truncate: bool = False

    def __post_init__(self) -> None:
        check_least(self, words=1)

    async def ground(self, dialogue: Dialogue, stage: StageContext) -> Grounding:
        """Everything there is, each text once, until it is too much."""
        pieces: dict[str, Knowledge] = {}
        words = left_out = 0
        with stage.step("listing") as step:
            for entry in self.declared.entries:
                for piece in () if entry.kind == "persona" else list_knowledge(entry.source, dialogue):
                    if pieces.setdefault(piece.text, piece) is piece:
                        words += len(_WORD.findall(piece.text))
                    while words > self.words:
                        if not self.truncate:
                            message = f"the documents have more than {self.words:,} words"
                            raise DialoreError(message, hint=_TOO_MUCH)
                        words -= len(_WORD.findall(pieces.pop(next(iter(pieces))).text))
                        left_out += 1
            step.output = {"passages": len(pieces), "words": words, "left_out": left_out}
        return Grounding(knowledge=[*pieces.values(), *_persona(self.declared, dialogue)])

    async def respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        """List, then write."""
        grounding = await self.ground(dialogue, stage)
        try:
            text = await stage.write("full-context/response-generation", **_knowledge_lines(grounding.knowledge))
        except StageError as error:
            if not isinstance(error.cause, WindowError):
                raise
            cause = DialoreError(error.cause.message, hint=_TOO_MUCH)
            raise StageError(error.stage, error.dialogue_id, cause) from error
        return grounding.response(text)


def _persona(declared: DeclaredSources, dialogue: Dialogue) -> list[Knowledge]:
    sources = [entry.source for entry in declared.entries if entry.kind == "persona"]
    return [piece for source in sources for piece in list_knowledge(source, dialogue)]


def _knowledge_lines(knowledge: Sequence[Knowledge]) -> dict[str, Any]:
    """Return the knowledge as prompts have it: passages, numbered where they are cited, and the persona."""
    passages = [piece for piece in knowledge if piece.kind != "persona"]
    return {
        "passages": [piece.model_copy(update={"text": prompt_line(piece)}) for piece in passages],
        "persona": [prompt_line(piece) for piece in knowledge if piece.kind == "persona"],
    }


# --- without a language model


@dataclass(frozen=True)
class Lexical(OverSources):
    """The response quotes the best-fitting piece of knowledge, and says so: a fact as a sentence, or one of a passage.

    It shows what other methods would have to go by, and stands in for them where no language model is set. Its demands
    are concepts: those that the latest turns mention are the queries, those of the last turn the topics. Facts of them
    and pieces of every other source are ranked by the cosine of their embeddings with the last two turns. The response
    quotes and cites the best that says something new.

    Attributes:
        top: pieces asked of each source.
        turns: the latest turns whose concepts are looked up.
    """

    name: ClassVar[str] = "lexical"
    paper: ClassVar[str] = "our own, an extractive baseline"
    summary: ClassVar[str] = "no model: knowledge of the concepts mentioned, its best piece quoted as the response"
    optional_sources: ClassVar[tuple[str, ...]] = ("graph", "documents", "persona", "memory", "web")
    calls: ClassVar[str] = "0"
    stages: ClassVar[tuple[str, ...]] = ()

    top: int = 20
    turns: int = 3

    def __post_init__(self) -> None:
        check_least(self, top=1, turns=1)

    async def ground(self, dialogue: Dialogue, stage: StageContext) -> Grounding:
        """Look up what is mentioned, search every other source, rank all of it together."""
        demands = Demands()
        facts: list[Knowledge] = []
        if (graph := self.graph) is not None:
            language = dialogue.language
            own = (
                _FOUND[language],
                _NOTHING[language],
                _SMALL_TALK[language],
            )  # what this method said itself in a chat
            others = tuple(turn for turn in dialogue.turns if not turn.text.startswith(own))
            latest = dialogue.model_copy(update={"turns": others})
            links = link("concept-mentions", lambda: mentions(graph, latest, self.turns), stage)
            text = dialogue.last.text
            last = [concept.name for concept in links if is_mentioned(concept.phrase, [text], language)]
            demands = Demands(explicit=[concept.name for concept in links], maintained=last)
            facts = await retrieve_facts(graph, links, dialogue, stage, self.top)
        further = [source for source in (self.persona, self.memory, self.documents, self.web) if source is not None]
        query = dialogue.last.text
        passages = await gather(*(stage.search(f"{source.name}-search", source, query, self.top) for source in further))
        pieces = [*facts, *(piece for result in passages for piece in result)]
        with stage.step("ranking") as step:
            order = load_reranker().rerank(" ".join(dialogue.texts[-2:]), [piece.text for piece in pieces], len(pieces))
            ranked = [pieces[row].model_copy(update={"score": round(score, 4)}) for row, score in order]
            step.output = {"ranked": [{"id": piece.id, "score": piece.score} for piece in ranked]}
        return Grounding(knowledge=ranked, demands=demands)

    async def respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        """Ground, then quote the first piece that says something new, of a passage the sentence nearest to the turn.

        Small talk is answered without a search.
        """
        if _is_small_talk(dialogue.last.text, dialogue.language):
            stage.send(_SMALL_TALK[dialogue.language])
            return Grounding().response(_SMALL_TALK[dialogue.language])
        grounding = await self.ground(dialogue, stage)
        new = next((piece for piece in grounding.knowledge if not _is_said(piece, dialogue)), None)
        text, cited = _NOTHING[dialogue.language], []
        if failed := failed_sources(stage.trace):
            separator = "，" if dialogue.language == "zh" else ", "
            text += _FAILED[dialogue.language].format(separator.join(failed))
        if new is not None:
            lead, quoted = _FOUND[dialogue.language], on_one_line(new.text)
            if new.kind == "passage" and len(sentences := split_sentences(new.text)) > 1:
                nearest = load_reranker().rerank(dialogue.last.text, sentences, 1)[0][0]
                quoted = " ".join(sentences[nearest].split())
            text = lead + quoted
            cited = [Citation(start=len(lead), end=len(text), knowledge=new.id)]
        stage.send(text)
        return grounding.response(text, cited)


def _is_small_talk(text: str, language: Language) -> bool:
    """Return whether a turn is greeting, thanks or farewell alone: nothing is to be looked up for it."""
    rest, courtesies = _COURTESIES[language].subn(" ", text.lower())
    return courtesies > 0 and not _FILLERS[language].sub("", rest)


def _is_said(piece: Knowledge, dialogue: Dialogue) -> bool:
    parts = [piece.fact.head, piece.fact.tail] if piece.fact else [piece.text]
    return all(is_mentioned(part, dialogue.texts, dialogue.language) for part in parts)

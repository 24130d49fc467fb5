"""Baselines: vanilla, T-RAG, QP-RAG and Cosmo (Kim et al., EMNLP 2023) of DCRAG's Table 1, PPLM of MSDP's Table 3."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dialore.methods.base import OURS, Method, check_least, check_word
from dialore.methods.demands import link, produce_queries, retrieve_facts
from dialore.methods.few_shot import TOPICS, topic_of
from dialore.prompts.history import plain_turns
from dialore.response import Grounding, Response
from dialore.text import Language, is_chinese, light_words, stop_words, words

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.methods.base import AnyGraph
    from dialore.methods.stages import StageContext
_LONGEST_CHINESE = 4


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
            separator=self.separator,
            steering={"words": bag, **{name: getattr(self, name) for name in settings}},
        )
        return Grounding(knowledge=facts).response(text)

    def _bag(self, dialogue: Dialogue, stage: StageContext) -> tuple[list[str], list[Knowledge]]:
        with stage.step("bag-of-words") as step:
            topic = topic_of(dialogue, self.topic)
            links = self.graph.link([topic]) if topic else []
            links = links or self.graph.mentions(dialogue.texts)
            facts, count = self.graph.retrieve_queries(links, dialogue, self.facts)
            ends = (end for given in facts for end in (given.fact.head, given.fact.tail))
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

"""MSDP: Multi-Stage Dialogue Prompting (Liu et al., Findings of ACL 2022), Section 2 and Appendices A and I."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from dialore.errors import InputError
from dialore.knowledge import Fact, Knowledge, Passage
from dialore.methods.base import OURS, PAPER, Method, check_least, check_word
from dialore.methods.few_shot import TOPICS, Sample, SampleDatabase, context_text, topic_of, turns_by_side
from dialore.response import Grounding, Response, StageTrace
from dialore.retrieval.graph.relations import verbalise
from dialore.sources.base import KnowledgeSource, rank_by

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.methods.stages import StageContext
    from dialore.text import Language

LEADS = ("System replies:", "系统回复：", "System:", "系统：", "=>", "⇒")
"""Words that stand before a response in the prompts, and that chat models repeat."""
_TRIPLE = re.compile(r"[(（]([^,，()（）]+)[,，]([^,，()（）]+)[,，]([^()（）]+)[)）]")
_MOST = 5  # facts taken of one answer; samples have three at most


@dataclass(frozen=True)
class MsdpKg(Method):
    """The knowledge generator alone (Section 2.1; MSDP-KG of Tables 1, 2 and 5): the model writes the knowledge.

    Its response is the generated knowledge itself, as Table 1 scores it against the gold knowledge.

    Where the paper is silent this follows its authors' released code: the most similar sample stands last, beside the
    dialogue, and samples are those of `fit`. Without a topic the pattern is `( last turn ) => knowledge`, as in DCRAG's
    use of MSDP.

    Attributes:
        documents: a base of sentences, for `retrieved`.
        selection: `query`, the samples nearest to topic and history (Section 2.1); `perplexity`, those of the lowest
            perplexity (Appendix A); `random` (Table 8). The last two are of the whole base. `released` is what the
            authors' code does for WoW (unseen) and WoI, `released-seen` for WoW (seen): where the base has not the
            topic, the least similar.
        shots: samples of the knowledge generator (Section 3.6: 10).
        seed: of random selections.
        topic: `chosen`, the dialogue's, else the query that was searched for its reply; `checked`, as the released code
            takes it, the query, else the title of the reply's gold knowledge, which is known in data sets alone and
            tells what the reply will be about; `none`, "w/o topic" (Tables 5 and 6): neither prompts nor encodings
            have topics.
        fit: samples of the dialogue's own topic, where the base has it; else short sentences that name their topics
            (see `is_fit`), one of each topic. Off: Section 2.1 alone, the most similar ones of the whole base.
        query_turns: last turns of the history in the query of `retrieved`; 0 for all.
        retrieved: the sentence of `documents` that is nearest to topic and history stands in for knowledge that is
            generated: the baseline of Table 1, there with DPR (Section 3.2).
        prompt_variant: `paper`: prompts are the pattern alone, without an instruction; models that continue text get
            the same in both settings. `supervised`: what models that `dialore train generator` made were trained on,
            without samples: the baselines FKG and FCM (Sections 3.2 and 3.3).
    """

    name: ClassVar[str] = "msdp-kg"
    paper: ClassVar[str] = "MSDP (Findings of ACL 2022), Section 2.1"
    summary: ClassVar[str] = "the model writes the knowledge after similar samples; the knowledge is the answer"
    required_sources: ClassVar[tuple[str, ...]] = ("samples",)
    optional_sources: ClassVar[tuple[str, ...]] = ("documents",)
    calls: ClassVar[str] = "1"
    forms: ClassVar[tuple[str, ...]] = ("supervised",)
    stages: ClassVar[tuple[str, ...]] = ("msdp/knowledge-generation",)

    samples: SampleDatabase
    documents: KnowledgeSource | None = None
    selection: str = "query"
    shots: int = 10
    seed: int = 0
    topic: str = "chosen"
    fit: bool = True
    retrieved: bool = False
    query_turns: int = 3
    prompt_variant: str = OURS

    def __post_init__(self) -> None:
        check_word("selection", self.selection, ("query", "perplexity", "random", "released", "released-seen"))
        check_word("topic", self.topic, TOPICS)
        check_least(self, shots=0, query_turns=0)
        if self.retrieved and self.documents is None:
            raise InputError("knowledge that is retrieved needs documents", hint="set sources.documents")

    async def ground(self, dialogue: Dialogue, stage: StageContext) -> Grounding:
        """Sample selection and knowledge generation (Section 2.1): one sentence, none where it cannot be read."""
        topic = topic_of(dialogue, self.topic)
        if self.retrieved and self.documents is not None:
            query = context_text(topic, turns_by_side(dialogue), self.query_turns)
            base = rank_by(self.documents, "dense")
            return Grounding(knowledge=await stage.search("knowledge-retrieval", base, query, 1))
        # Off the loop: other dialogues' calls go on while a large base is searched.
        samples = await asyncio.to_thread(self.select, dialogue, stage)
        shown = prompt_variables(samples, dialogue, topic)
        text = await stage.read("msdp/knowledge-generation", read_line, "", summary="Knowledge written: {}", **shown)
        return Grounding(knowledge=[Knowledge.of_passage(Passage(text, topic), "model")] if text else [])

    async def respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        """Generate knowledge, which is the answer too."""
        grounding = await self.ground(dialogue, stage)
        text = " ".join(piece.text for piece in grounding.knowledge)
        stage.send(text)
        return grounding.response(text)

    def select(self, dialogue: Dialogue, stage: StageContext) -> list[Sample]:
        """Return the samples in the order of the prompt: the nearest stands last, beside the dialogue."""
        scores: list[float] = []
        with stage.step("knowledge-samples") as step:
            if self.selection in {"query", "released", "released-seen"}:
                if self.selection == "query":
                    nearest = self.samples.nearest(dialogue, self.shots, topic=self.topic, fit=self.fit)
                else:
                    seen = self.selection == "released-seen"
                    nearest = self.samples.released(dialogue, self.shots, topic=self.topic, seen=seen)
                samples, scores = [sample for sample, _ in nearest][::-1], [score for _, score in nearest][::-1]
            elif self.selection == "perplexity":
                samples = self.samples.clearest(dialogue, self.shots)
            else:
                samples = self.samples.sampled(dialogue, self.shots, self.seed, answered=False)
            _record(step, self.samples, samples, self.shots, dialogue)
            step.summary = f"Samples: {len(samples)}"
            if scores:
                step.output["scores"] = [round(score, 4) for score in scores]
                step.summary += f", the last {samples[-1].id} ({scores[-1]:.2f})"
        return samples


@dataclass(frozen=True)
class DialogueGenerator:
    """The dialogue generator (Section 2.2): the response after samples, the same for every dialogue.

    Attributes:
        response_selection: `overlap`, at random among the samples whose response overlaps its knowledge; `random`,
            among all (Table 6's "w/ random" has both selections random).
        response_shots: samples of the dialogue generator (Section 3.6: 20).
        least: the least overlap of a sample's response with its knowledge (Section 2.2: 0.6).
        most: the most (Section 2.2: 0.9).
        covered: the least share of the knowledge that its response holds (released code: 0.8).
        seed: of random selections.
        topic: as in `msdp-kg`; "none" is "w/o topic" (Table 6).
        format: how topic, history, knowledge and response are joined (Table 14): 3, the paper's; 2, knowledge before
            history; 1, without connecting words.
        turns: last turns of each history that the dialogue generator is shown; 0 for all.
        prompt_variant: as in `msdp-kg`.
        response_prompt_variant: the same of the dialogue generator alone; empty: as `prompt_variant`. With
            `supervised` a trained generator responds from knowledge that is prompted for: "FCM w/ MSDP-KG" (Tables 3, 9
            and 11).
    """

    samples: SampleDatabase
    response_selection: str = "overlap"
    response_shots: int = 20
    least: float = 0.6
    most: float = 0.9
    covered: float = 0.0
    seed: int = 0
    topic: str = "chosen"
    format: int = 3
    turns: int = 3
    prompt_variant: str = OURS
    response_prompt_variant: str = ""

    def __post_init__(self) -> None:
        check_word("format", str(self.format), ("1", "2", "3"))
        check_word("topic", self.topic, TOPICS)
        variants = ("", OURS, PAPER, "released", *MsdpKg.forms)
        check_word("response_prompt_variant", self.response_prompt_variant, variants)
        check_word("response_selection", self.response_selection, ("overlap", "random"))
        check_least(self, response_shots=0, turns=0)
        if not 0 <= self.least <= self.most <= 1:
            raise InputError(f"an overlap from {self.least} to {self.most} is none", hint="0 <= least <= most <= 1")

    def select_for_response(self, dialogue: Dialogue, stage: StageContext) -> list[Sample]:
        """Return the samples, in the order in which they were sampled."""
        with stage.step("response-samples") as step:
            bounds = (self.least, self.most) if self.response_selection == "overlap" else None
            samples = self.samples.sampled(
                dialogue, self.response_shots, self.seed, bounds, covered=self.covered if bounds else 0.0
            )
            _record(step, self.samples, samples, self.response_shots, dialogue)
        return samples

    async def write(
        self, prompt: str, samples: Sequence[Sample], dialogue: Dialogue, stage: StageContext, knowledge: str = ""
    ) -> str:
        """Response generation, from history and knowledge after the samples."""
        if variant := self.response_prompt_variant:
            stage.prompt_variant = "" if variant == OURS else variant
        shown = prompt_variables(samples, dialogue, topic_of(dialogue, self.topic), knowledge, self.turns)
        return await stage.write(prompt, leads=LEADS, format=self.format, **shown)


@dataclass(frozen=True)
class Msdp(DialogueGenerator, MsdpKg):
    """Knowledge is generated, then the response from history and knowledge, each after samples (Section 2).

    The paper's setting is `prompt_variant=paper` and `topic=checked`. Where this differs from it: histories keep their
    last `turns` turns. Knowledge that comes out unreadable is left out of the last prompt, which is then SSDP's.
    """

    name: ClassVar[str] = "msdp"
    paper: ClassVar[str] = "MSDP (Findings of ACL 2022), Section 2"
    summary: ClassVar[str] = "the model writes the knowledge, then the response from it, each after samples"
    calls: ClassVar[str] = "2 (2 in a row)"
    stages: ClassVar[tuple[str, ...]] = ("msdp/knowledge-generation", "msdp/response-generation")

    def __post_init__(self) -> None:
        MsdpKg.__post_init__(self)
        DialogueGenerator.__post_init__(self)

    async def respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        """Ground, then response generation (Section 2.2)."""
        samples = self.select_for_response(dialogue, stage)
        grounding = await self.ground(dialogue, stage)
        known = " ".join(piece.text for piece in grounding.knowledge)
        return grounding.response(await self.write("msdp/response-generation", samples, dialogue, stage, known))


@dataclass(frozen=True)
class Ssdp(DialogueGenerator, Method):
    """Single-stage prompting (Section 4.3, Table 7): MSDP's dialogue generator and its samples, without knowledge."""

    name: ClassVar[str] = "ssdp"
    paper: ClassVar[str] = "MSDP (Findings of ACL 2022), Section 4.3 and Table 7"
    summary: ClassVar[str] = "the model answers after samples, without any knowledge"
    required_sources: ClassVar[tuple[str, ...]] = ("samples",)
    calls: ClassVar[str] = "1"

    async def respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        """Write the response."""
        samples = self.select_for_response(dialogue, stage)
        return Grounding().response(await self.write("ssdp/response-generation", samples, dialogue, stage))


@dataclass(frozen=True, slots=True)
class MsdpDcrag(Method):
    """MSDP as DCRAG runs it for its Table 1: commonsense facts, then the response, after the same ten similar samples.

    The base is built of histories and responses whose facts were found by hard matching: `dialore samples build OUT
    FILE --align-graph GRAPH`; the paper's encoder is `--embedder st:paraphrase-multilingual-mpnet-base-v2`.

    By `prompt_variant=paper` both prompts are MSDP's own, the patterns alone; such dialogues have no topics, so the
    first is `( last turn ) => facts`. By `ours` an instruction stands before them.

    Where the paper is silent: a sample has up to three facts, and the nearest stands last.

    Attributes:
        shots: samples of both generators (Appendix A.1.1: 10).
        turns: last turns of each history that the dialogue generator is shown; 0 for all.
    """

    name: ClassVar[str] = "msdp-dcrag"
    paper: ClassVar[str] = "DCRAG (EMNLP 2024), Appendix A.1.1, after MSDP"
    summary: ClassVar[str] = "the model writes commonsense facts, then the response, each after similar samples"
    required_sources: ClassVar[tuple[str, ...]] = ("samples",)
    calls: ClassVar[str] = "2 (2 in a row)"

    samples: SampleDatabase
    shots: int = 10
    turns: int = 0
    prompt_variant: str = OURS

    def __post_init__(self) -> None:
        check_least(self, shots=0, turns=0)

    async def ground(self, dialogue: Dialogue, stage: StageContext) -> Grounding:
        """Sample selection and knowledge generation."""
        return (await self._ground(dialogue, stage))[0]

    async def respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        """Ground, then response generation after the same samples."""
        grounding, samples = await self._ground(dialogue, stage)
        known = "; ".join(piece.triple for piece in grounding.knowledge)
        shown = prompt_variables(samples, dialogue, "", known, self.turns)
        return grounding.response(await stage.write("msdp-dcrag/response-generation", leads=LEADS, **shown))

    async def _ground(self, dialogue: Dialogue, stage: StageContext) -> tuple[Grounding, list[Sample]]:
        generator = MsdpKg(self.samples, shots=self.shots, topic="none", fit=False)
        samples = await asyncio.to_thread(generator.select, dialogue, stage)
        shown = prompt_variables(samples, dialogue, "")
        line = await stage.read(
            "msdp-dcrag/knowledge-generation", read_line, "", summary="Knowledge written: {}", **shown
        )
        return Grounding(knowledge=read_facts(line, dialogue.language)), samples


def prompt_variables(
    samples: Sequence[Sample], dialogue: Dialogue, topic: str, knowledge: str = "", turns: int = 0
) -> dict[str, Any]:
    """Return samples, and the dialogue in the form of one, whose response is to be written, as prompts are given them.

    Where the dialogue has no topic the samples lose theirs, so that all follow one pattern. So many last turns of each
    history are kept; 0 for all.
    """
    history = turns_by_side(dialogue)[-turns:]
    shown = [replace(sample, topic=sample.topic if topic else "", turns=sample.turns[-turns:]) for sample in samples]
    return {"samples": shown, "current": Sample(dialogue.id, dialogue.language, topic, history, knowledge, "")}


def _record(
    step: StageTrace, samples: SampleDatabase, found: Sequence[Sample], wanted: int, dialogue: Dialogue
) -> None:
    step.output = {"samples": samples.name, "found": [sample.id for sample in found]}
    if len(found) < wanted:
        step.notes = [f"only {len(found)} of {wanted} samples are there for {dialogue.language}"]


def read_line(text: str) -> str | None:
    """Return the sentence in what a model wrote: its first line (Section 2.1), without the beginning of a pattern."""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    for arrow in ("=>", "⇒"):
        first = first.rpartition(arrow)[2].strip()
    return first or None


def read_facts(line: str, language: Language) -> list[Knowledge]:
    """Return the facts in a line that a model wrote, `(head, relation, tail); ...`; a line without any is a passage."""
    facts: dict[str, Knowledge] = {}
    for triple in _TRIPLE.findall(line):
        head, relation, tail = map(str.strip, triple)
        fact = Fact(head, relation, tail, provenance="model")
        made = Knowledge.of_fact(fact, verbalise(fact, language), 0.0)
        facts.setdefault(made.id, made.model_copy(update={"source": "model"}))
    if facts:
        return list(facts.values())[:_MOST]
    return [Knowledge.of_passage(Passage(line), "model")] if line else []

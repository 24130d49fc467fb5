"""MSDP: Multi-Stage Dialogue Prompting (Liu et al., Findings of ACL 2022), Section 2 and Appendices A and I."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dialore.knowledge import Fact, Knowledge, Passage, PassageDetail
from dialore.methods.base import check_least, check_word
from dialore.methods.msdp_samples import KnowledgeShots, ResponseShots, current, prompted
from dialore.response import Grounding
from dialore.sources.graph.relations import verbalise

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.methods.msdp_samples import SampleSource
    from dialore.methods.stages import Stages
    from dialore.response import Response
    from dialore.sources.samples.sample import Sample
    from dialore.text import Language

FORMATS = (1, 2, 3)
LEADS = ("System replies:", "系统回复：", "System:", "系统：", "=>", "⇒")
"""Words that stand before a response in the prompts, and that chat models repeat."""
_TRIPLE = re.compile(r"[(（]\s*([^,，()（）]+?)\s*[,，]\s*([^,，()（）]+?)\s*[,，]\s*([^()（）]+?)\s*[)）]")
_MOST = 5
"""Facts taken of one answer; samples have three at most."""


@dataclass(frozen=True, slots=True)
class MsdpKg:
    """The knowledge generator alone (Section 2.1; MSDP-KG of Tables 1, 2 and 5): the model writes the knowledge.

    Its response is the generated knowledge itself, as Table 1 scores it against the gold knowledge.

    Where the paper is silent this follows its authors' released code: the most similar sample stands last, beside the
    dialogue, and samples are those of `fit`. Without a topic (the dialogue's own, else the query that was searched for
    its reply) the pattern is `( last turn ) => knowledge`, as in Table 5's "w/o topic" and DCRAG's use of MSDP.

    Attributes:
        samples: the sample base.
        selection: `query`, the samples nearest to topic and history (Section 2.1); `perplexity`, those of the lowest
            perplexity (Appendix A); `random` (Table 8).
        shots: how many samples (Section 3.6: 10).
        seed: of the random selection.
        topic: off: "w/o topic" (Table 5).
        fit: only samples whose knowledge is a short sentence that names its topic (see `is_fit`).
    """

    name: ClassVar[str] = "msdp-kg"
    paper: ClassVar[str] = "MSDP (Findings of ACL 2022), Section 2.1"
    summary: ClassVar[str] = "the model writes the knowledge after similar samples; the knowledge is the answer"
    needs: ClassVar[tuple[str, ...]] = ("samples",)
    calls: ClassVar[str] = "1"
    stages: ClassVar[tuple[str, ...]] = ("msdp/knowledge-generation",)

    samples: SampleSource
    selection: str = "query"
    shots: int = 10
    seed: int = 0
    topic: bool = True
    fit: bool = True

    def __post_init__(self) -> None:
        """Check the options; raises InputError."""
        _knowledge_shots(self)

    async def ground(self, dialogue: Dialogue, stage: Stages) -> Grounding:
        """Generate knowledge."""
        return Grounding(knowledge=await generate_knowledge(self.samples, _knowledge_shots(self), dialogue, stage))

    async def respond(self, dialogue: Dialogue, stage: Stages) -> Response:
        """Generate knowledge, which is the answer too."""
        grounding = await self.ground(dialogue, stage)
        text = " ".join(piece.text for piece in grounding.knowledge)
        stage.send(text)
        return grounding.response(text)


@dataclass(frozen=True, slots=True)
class Msdp:
    """Knowledge is generated, then the response from history and knowledge, each after samples (Section 2).

    Where this differs from the paper: histories keep their last `turns` turns. Knowledge that comes out unreadable is
    left out of the last prompt, which is then SSDP's.

    Attributes:
        samples: the sample base.
        selection: of the knowledge generator's samples: `query`, the samples nearest to topic and history (Section
            2.1); `perplexity`, those of the lowest perplexity (Appendix A); `random` (Table 8).
        shots: samples of the knowledge generator (Section 3.6: 10).
        response_selection: `overlap`, at random among the samples whose response overlaps its knowledge; `random`,
            among all (Table 6's "w/ random" has both selections random).
        response_shots: samples of the dialogue generator (Section 3.6: 20).
        least: the least overlap of a sample's response with its knowledge (Section 2.2: 0.6).
        most: the most (Section 2.2: 0.9).
        seed: of both random selections.
        topic: off: "w/o topic" (Tables 5 and 6).
        fit: only samples for knowledge whose knowledge is a short sentence that names its topic (see `is_fit`).
        format: how topic, history, knowledge and response are joined (Table 14): 3, the paper's; 2, knowledge before
            history; 1, without connecting words.
        turns: last turns of each history that the dialogue generator is shown; 0 for all.
    """

    name: ClassVar[str] = "msdp"
    paper: ClassVar[str] = "MSDP (Findings of ACL 2022), Section 2"
    summary: ClassVar[str] = "the model writes the knowledge, then the response from it, each after samples"
    needs: ClassVar[tuple[str, ...]] = ("samples",)
    calls: ClassVar[str] = "2 (2 in a row)"
    stages: ClassVar[tuple[str, ...]] = ("msdp/knowledge-generation", "msdp/response-generation")

    samples: SampleSource
    selection: str = "query"
    shots: int = 10
    response_selection: str = "overlap"
    response_shots: int = 20
    least: float = 0.6
    most: float = 0.9
    seed: int = 0
    topic: bool = True
    fit: bool = True
    format: int = 3
    turns: int = 3

    def __post_init__(self) -> None:
        """Check the options; raises InputError."""
        _knowledge_shots(self)
        _response_shots(self)

    async def ground(self, dialogue: Dialogue, stage: Stages) -> Grounding:
        """Knowledge generation (Section 2.1)."""
        return Grounding(knowledge=await generate_knowledge(self.samples, _knowledge_shots(self), dialogue, stage))

    async def respond(self, dialogue: Dialogue, stage: Stages) -> Response:
        """Ground, then response generation (Section 2.2)."""
        samples = _response_shots(self).select(self.samples, dialogue, stage)
        grounding = await self.ground(dialogue, stage)
        known = " ".join(piece.text for piece in grounding.knowledge)
        return grounding.response(await _write(self, "msdp/response-generation", samples, dialogue, stage, known))


@dataclass(frozen=True, slots=True)
class Ssdp:
    """Single-stage prompting (Section 4.3, Table 7): MSDP's dialogue generator and its samples, without knowledge.

    Attributes:
        samples: the sample base.
        response_selection: `overlap`, at random among the samples whose response overlaps its knowledge; `random`,
            among all.
        response_shots: samples (Section 3.6: 20).
        least: the least overlap of a sample's response with its knowledge (Section 2.2: 0.6).
        most: the most (Section 2.2: 0.9).
        seed: of the random selection.
        topic: off: prompts have no topics.
        format: how topic, history and response are joined (Table 14): see `msdp`.
        turns: last turns of each history that the model is shown; 0 for all.
    """

    name: ClassVar[str] = "ssdp"
    paper: ClassVar[str] = "MSDP (Findings of ACL 2022), Section 4.3 and Table 7"
    summary: ClassVar[str] = "the model answers after samples, without any knowledge"
    needs: ClassVar[tuple[str, ...]] = ("samples",)
    calls: ClassVar[str] = "1"
    stages: ClassVar[tuple[str, ...]] = ("ssdp/response-generation",)

    samples: SampleSource
    response_selection: str = "overlap"
    response_shots: int = 20
    least: float = 0.6
    most: float = 0.9
    seed: int = 0
    topic: bool = True
    format: int = 3
    turns: int = 3

    def __post_init__(self) -> None:
        """Check the options; raises InputError."""
        _response_shots(self)

    async def ground(self, dialogue: Dialogue, stage: Stages) -> Grounding:
        """Nothing is looked up."""
        return Grounding()

    async def respond(self, dialogue: Dialogue, stage: Stages) -> Response:
        """Write the response."""
        samples = _response_shots(self).select(self.samples, dialogue, stage)
        return Grounding().response(await _write(self, "ssdp/response-generation", samples, dialogue, stage))


@dataclass(frozen=True, slots=True)
class MsdpDcrag:
    """MSDP as DCRAG runs it for its Table 1: commonsense facts, then the response, after the same ten similar samples.

    The base is built of histories and responses whose facts were found by hard matching: `dialore samples build OUT
    FILE --align-graph GRAPH`. Both prompts are MSDP's; such dialogues have no topics, so the first is
    `( last turn ) => facts`.

    Where the paper is silent: a sample has up to three facts, and the nearest stands last.

    Attributes:
        samples: the sample base.
        shots: samples of both generators (Appendix A.1.1: 10).
        turns: last turns of each history that the dialogue generator is shown; 0 for all.
    """

    name: ClassVar[str] = "msdp-dcrag"
    paper: ClassVar[str] = "DCRAG (EMNLP 2024), Appendix A.1.1, after MSDP"
    summary: ClassVar[str] = "the model writes commonsense facts, then the response, each after similar samples"
    needs: ClassVar[tuple[str, ...]] = ("samples",)
    calls: ClassVar[str] = "2 (2 in a row)"
    stages: ClassVar[tuple[str, ...]] = ("msdp-dcrag/knowledge-generation", "msdp-dcrag/response-generation")

    samples: SampleSource
    shots: int = 10
    turns: int = 0

    def __post_init__(self) -> None:
        """Check the options; raises InputError."""
        check_least("turns", self.turns, 0)
        self._shots()

    async def ground(self, dialogue: Dialogue, stage: Stages) -> Grounding:
        """Sample selection and knowledge generation."""
        return (await self._ground(dialogue, stage))[0]

    async def respond(self, dialogue: Dialogue, stage: Stages) -> Response:
        """Ground, then response generation after the same samples."""
        grounding, samples = await self._ground(dialogue, stage)
        known = "; ".join(piece.triple for piece in grounding.knowledge)
        now = current(dialogue, topic=False, knowledge=known)
        text = await stage.write("msdp-dcrag/response-generation", leads=LEADS, **prompted(samples, now, self.turns))
        return grounding.response(text)

    async def _ground(self, dialogue: Dialogue, stage: Stages) -> tuple[Grounding, list[Sample]]:
        samples = await asyncio.to_thread(self._shots().select, self.samples, dialogue, stage)
        now = current(dialogue, topic=False)
        line = await stage.read(
            "msdp-dcrag/knowledge-generation", read_line, "", summary="Knowledge written: {}", **prompted(samples, now)
        )
        return Grounding(knowledge=read_facts(line, dialogue.language)), samples

    def _shots(self) -> KnowledgeShots:
        return KnowledgeShots("query", self.shots, 0, topic=False, fit=False)


async def generate_knowledge(
    samples: SampleSource, shots: KnowledgeShots, dialogue: Dialogue, stage: Stages
) -> list[Knowledge]:
    """Sample selection and knowledge generation (Section 2.1): one sentence, or nothing where it cannot be read."""
    # Off the loop: other dialogues' calls go on while a large base is searched.
    selected = await asyncio.to_thread(shots.select, samples, dialogue, stage)
    now = current(dialogue, topic=shots.topic)
    text = await stage.read(
        "msdp/knowledge-generation", read_line, "", summary="Knowledge written: {}", **prompted(selected, now)
    )
    return [generated(text, now.topic)] if text else []


def read_line(text: str) -> str | None:
    """The sentence in what a model wrote: its first line (Section 2.1), without the beginning of a pattern."""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    for arrow in ("=>", "⇒"):
        first = first.rpartition(arrow)[2].strip()
    return first or None


def generated(text: str, topic: str) -> Knowledge:
    """Knowledge that the model wrote."""
    passage = Passage(text=text, title=topic, source="model")
    return Knowledge(id=passage.id, kind="passage", text=text, source="model", detail=PassageDetail(title=topic))


def read_facts(line: str, language: Language) -> list[Knowledge]:
    """The facts in a line that a model wrote, `(head, relation, tail); ...`; a line without any is a passage."""
    found: dict[str, Knowledge] = {}
    for head, relation, tail in _TRIPLE.findall(line):
        fact = Fact(head, relation, tail, provenance="model")
        made = Knowledge.of_fact(fact, verbalise(fact, language), 0.0)
        found.setdefault(made.id, made.model_copy(update={"source": "model"}))
    if found:
        return list(found.values())[:_MOST]
    return [generated(line, "")] if line else []


def _knowledge_shots(method: MsdpKg | Msdp) -> KnowledgeShots:
    return KnowledgeShots(method.selection, method.shots, method.seed, method.topic, method.fit)


def _response_shots(method: Msdp | Ssdp) -> ResponseShots:
    check_word("format", str(method.format), [str(known) for known in FORMATS])
    check_least("turns", method.turns, 0)
    return ResponseShots(method.response_selection, method.response_shots, method.seed, method.least, method.most)


async def _write(
    method: Msdp | Ssdp, prompt: str, samples: list[Sample], dialogue: Dialogue, stage: Stages, knowledge: str = ""
) -> str:
    now = current(dialogue, topic=method.topic, knowledge=knowledge)
    return await stage.write(prompt, leads=LEADS, format=method.format, **prompted(samples, now, method.turns))

"""MSDP as DCRAG runs it for its Table 1: samples of commonsense facts, by sentence embedding (Appendix A.1.1)."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dialore.knowledge import Fact, Knowledge
from dialore.methods.base import Draft, Grounds
from dialore.methods.checking import check_least
from dialore.methods.msdp import LEADS, generated, read_line
from dialore.methods.msdp_samples import KnowledgeShots, current, prompted
from dialore.sources.graph.relations import verbalise

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.methods.msdp_samples import SampleSource
    from dialore.methods.stages import Stages
    from dialore.sources.samples.sample import Sample
    from dialore.text import Language

_TRIPLE = re.compile(r"[(（]\s*([^,，()（）]+?)\s*[,，]\s*([^,，()（）]+?)\s*[,，]\s*([^()（）]+?)\s*[)）]")
_MOST = 5
"""Facts taken of one answer; samples have three at most."""


@dataclass(frozen=True, slots=True)
class MsdpDcrag:
    """The model writes commonsense facts, then the response from them, each after the same ten similar samples.

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

    async def ground(self, dialogue: Dialogue, stage: Stages) -> Grounds:
        """Sample selection and knowledge generation."""
        return (await self._ground(dialogue, stage))[0]

    async def respond(self, dialogue: Dialogue, stage: Stages) -> Draft:
        """Ground, then response generation after the same samples."""
        grounds, samples = await self._ground(dialogue, stage)
        known = "; ".join(piece.triple for piece in grounds.knowledge)
        now = current(dialogue, topic=False, knowledge=known)
        text = await stage.write("msdp-dcrag/response-generation", leads=LEADS, **prompted(samples, now, self.turns))
        return Draft(text, grounds)

    async def _ground(self, dialogue: Dialogue, stage: Stages) -> tuple[Grounds, list[Sample]]:
        samples = await asyncio.to_thread(self._shots().select, self.samples, dialogue, stage)
        now = current(dialogue, topic=False)
        line = await stage.read("msdp-dcrag/knowledge-generation", read_line, "", **prompted(samples, now))
        return Grounds(knowledge=read_facts(line, dialogue.language)), samples

    def _shots(self) -> KnowledgeShots:
        return KnowledgeShots("query", self.shots, 0, topic=False, fit=False)


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

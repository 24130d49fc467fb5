"""Cosmo: a model trained on commonsense-grounded dialogues answers alone (Kim et al., EMNLP 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dialore.methods.base import Draft, Grounds
from dialore.methods.scg_qp_queries import plain_turns

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.methods.stages import Stages


@dataclass(frozen=True, slots=True)
class Cosmo:
    """A situation and an instruction for a role, then the turns (DCRAG, Appendix A.1.1).

    Cosmo itself (`--model hf:allenai/cosmo-xl`, 3B, English) reads `situation <sep> instruction <sep> turn <turn>
    turn`; any chat model is told the same in messages.
    """

    name: ClassVar[str] = "cosmo"
    paper: ClassVar[str] = "SODA (EMNLP 2023), as used in DCRAG (EMNLP 2024), Appendix A.1.1"
    summary: ClassVar[str] = "a dialogue model with social commonsense answers from situation, role and history"
    needs: ClassVar[tuple[str, ...]] = ()
    calls: ClassVar[str] = "1"
    stages: ClassVar[tuple[str, ...]] = ("cosmo/response-generation",)

    async def ground(self, dialogue: Dialogue, stage: Stages) -> Grounds:
        """Nothing is looked up."""
        return Grounds()

    async def respond(self, dialogue: Dialogue, stage: Stages) -> Draft:
        """Write the response."""
        return Draft(await stage.write("cosmo/response-generation", turns=plain_turns(dialogue)))

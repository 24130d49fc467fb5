"""Vanilla: the response from the dialogue history alone (DCRAG, Appendix A.1.1 and Table 12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dialore.methods.base import Draft, Grounds

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.methods.stages import Stages


@dataclass(frozen=True, slots=True)
class Vanilla:
    """No knowledge: one call that writes the response."""

    name: ClassVar[str] = "vanilla"
    paper: ClassVar[str] = "DCRAG (EMNLP 2024), Table 12"
    summary: ClassVar[str] = "the model answers from the dialogue history alone"
    needs: ClassVar[tuple[str, ...]] = ()
    calls: ClassVar[str] = "1"
    stages: ClassVar[tuple[str, ...]] = ("vanilla/response-generation",)

    async def ground(self, dialogue: Dialogue, stage: Stages) -> Grounds:
        """Nothing is looked up."""
        return Grounds()

    async def respond(self, dialogue: Dialogue, stage: Stages) -> Draft:
        """Write the response."""
        return Draft(await stage.write("vanilla/response-generation"))

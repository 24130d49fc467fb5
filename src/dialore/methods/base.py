"""What a method is: a dialogue in, a draft of the response out, by stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.methods.stages import Stages
    from dialore.response import Demands
    from dialore.sources.graph.linking import Link
    from dialore.sources.graph.source import Retrieval


@dataclass(slots=True)
class Grounds:
    """What a method found before it writes: demands and knowledge, the best first."""

    knowledge: list[Knowledge] = field(default_factory=list)
    demands: Demands | None = None
    plan: list[str] | None = None


@dataclass(slots=True)
class Draft:
    """What a method made of a dialogue; the agent makes a Response of it."""

    text: str
    grounds: Grounds = field(default_factory=Grounds)


@runtime_checkable
class Method(Protocol):
    """One published system or baseline.

    Class attributes say what it is for `dialore methods`: its name, paper, summary, the sources it needs, and how many
    model calls it makes. Dataclass fields are its hyper-parameters and switches, and its sources by their names. A
    method that can do with or without a source names it in a further class attribute `takes: tuple[str, ...]`, and
    gives the field the default None. The prompts of its stages, in order, stand in `stages: tuple[str, ...]`; without
    it they are those of the folder of prompts that is called as the method.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    summary: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    calls: ClassVar[str]

    async def ground(self, dialogue: Dialogue, stage: Stages) -> Grounds:
        """Find what the response needs to know, and stop there."""
        ...

    async def respond(self, dialogue: Dialogue, stage: Stages) -> Draft:
        """Answer the dialogue's last turn."""
        ...


class GraphSource(Protocol):
    """What methods ask of the commonsense graph."""

    @property
    def name(self) -> str:
        """The graph's name."""
        ...

    def retrieve(self, demands: Demands, dialogue: Dialogue, top: int = 50) -> Retrieval:
        """Foreseen and unforeseen facts for demands."""
        ...

    def retrieve_queries(self, links: Sequence[Link], dialogue: Dialogue, top: int = 20) -> tuple[list[Knowledge], int]:
        """Facts of the linked concepts."""
        ...

    def mentions(self, dialogue: Dialogue) -> list[Link]:
        """Concepts that the history mentions."""
        ...

    def link(self, phrases: Sequence[str], dialogue: Dialogue) -> list[Link]:
        """Concepts that phrases name."""
        ...

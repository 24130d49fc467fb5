"""The protocols of a method and of the graph that methods search, and checks of methods' options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from dialore.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.knowledge import Knowledge
    from dialore.methods.stages import Stages
    from dialore.response import Demands, Grounding, Response
    from dialore.sources.graph.linking import Link
    from dialore.sources.graph.source import Retrieval


PAPER, OURS = "paper", "ours"
"""How a method's prompts are worded: with the content that its paper gives them, or better."""


@runtime_checkable
class Method(Protocol):
    """One published system or baseline.

    Class attributes describe it for `dialore methods`: its name, paper, summary, the sources it needs, and how many
    model calls it makes. Dataclass fields are its hyper-parameters and switches, and its sources by their names. A
    method that can do with or without a source names it in a further class attribute `takes: tuple[str, ...]`, and
    gives the field the default None. The prompts of its stages, in order, stand in `stages: tuple[str, ...]`; without
    it they are those of the folder of prompts that is called as the method.

    A method that has a `paper` setting of its prompts has the field `prompting: str = OURS`: `paper` asks by
    `<method>/<stage>.paper.<language>.md` in place of `<method>/<stage>.<language>.md`, wherever there is such a file.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    summary: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    calls: ClassVar[str]

    async def ground(self, dialogue: Dialogue, stage: Stages) -> Grounding:
        """Find the knowledge for the response, and stop there: `Grounding(knowledge=..., demands=...)`."""
        ...

    async def respond(self, dialogue: Dialogue, stage: Stages) -> Response:
        """Answer the dialogue's last turn: `grounding.response(text)`."""
        ...


class GraphSource(Protocol):
    """The commonsense graph as methods use it."""

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

    def mentions(self, texts: Sequence[str]) -> list[Link]:
        """Concepts that texts mention."""
        ...

    def link(self, phrases: Sequence[str]) -> list[Link]:
        """Concepts that phrases name."""
        ...


def form_of(method: Method) -> str:
    """The form of a method's prompts by its option `prompting`; raises UnknownNameError where that is no such word."""
    prompting = getattr(method, "prompting", OURS)
    check_word("prompting", prompting, (PAPER, OURS))
    return "" if prompting == OURS else prompting


def check_word(option: str, value: str, known: Sequence[str]) -> None:
    """Raise UnknownNameError where an option's value is none of those that are known."""
    if value not in known:
        raise UnknownNameError(f"value of {option}", value, known)


def check_least(option: str, value: int, least: int) -> None:
    """Raise InputError where an option's value is too small."""
    if value < least:
        raise InputError(f"{option} must be at least {least}, not {value}")

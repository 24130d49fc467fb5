"""The protocol of a method, the sources that methods share, and checks of methods' options."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Protocol

from pydantic import Field

from dialore.errors import InputError, UnknownNameError
from dialore.response import Grounding
from dialore.sources.declared import DeclaredSources, default_sources

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.methods.stages import StageContext
    from dialore.response import Response
    from dialore.sources.base import KnowledgeSource
    from dialore.sources.graph import Graph, MultiGraph

    AnyGraph = Graph | MultiGraph

PAPER, OURS = "paper", "ours"  # how a method's prompts are worded: with the content of its paper's, or better
# On, off, or `trained:FOLDER`: a stage that a trained part can take over.
Switch = Annotated[bool | str, Field(union_mode="left_to_right")]


class Method(Protocol):
    """One published system or baseline.

    Class attributes describe it for `dialore methods`: its name, paper, summary, the sources it needs, and how many
    model calls it makes. Dataclass fields are its hyper-parameters and switches, and its sources by their names. A
    method that can do with or without a source names it in a further class attribute, `optional_sources`, and gives
    the field the default None. The prompts of its stages, in order, stand in `stages: tuple[str, ...]`; without
    it they are those of the folder of prompts that is called as the method.

    A method whose responses always cite by number has a class attribute `cites`, which is True.

    A method that has a `paper` setting of its prompts has the field `prompt_variant: str = OURS`: `paper` asks by
    `<method>/<stage>.paper.<language>.md` in place of `<method>/<stage>.<language>.md`, wherever there is such a file.
    Further settings of that kind stand in a class attribute `forms`.

    Attributes:
        prompt_variant: how prompts are worded: `paper` with the content of the paper's, or `ours`.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    summary: ClassVar[str]
    required_sources: ClassVar[tuple[str, ...]] = ()
    calls: ClassVar[str]

    async def ground(self, dialogue: Dialogue, stage: StageContext) -> Grounding:
        """Find the knowledge for the response, and stop there; a subclass without this looks nothing up."""
        return Grounding()

    async def respond(self, dialogue: Dialogue, stage: StageContext) -> Response:
        """Answer the dialogue's last turn: `grounding.response(text)`."""
        ...


# Without slots: what is declared by default is worked out once, when it is first asked for.
@dataclass(frozen=True)
class OverSources(Method):
    """A method over the sources that are declared, or all that are open; it is given those of `optional_sources`.

    Attributes:
        sources: declared sources (`open_declared`).
        persona: persona sentences, where nothing is declared; without them, each dialogue's own.
        memory: what the user said of themselves in earlier dialogues, likewise: each dialogue's own, or a file's.
        documents: a document index, where nothing is declared.
        graph: the commonsense graph, likewise; and where sources declare one without saying which.
        web: web search, likewise.
    """

    optional_sources: ClassVar[tuple[str, ...]] = ("sources", "persona", "memory", "documents", "graph", "web")

    sources: DeclaredSources | None = None
    persona: KnowledgeSource | None = None
    memory: KnowledgeSource | None = None
    documents: KnowledgeSource | None = None
    graph: AnyGraph | None = None
    web: KnowledgeSource | None = None

    @functools.cached_property
    def declared(self) -> DeclaredSources:
        """The sources that are declared, or all that are open."""
        return self.sources or default_sources(self.opened)

    @property
    def opened(self) -> dict[str, object]:
        """The open sources by name; None for those that are not open."""
        return {name: getattr(self, name) for name in OverSources.optional_sources if name != "sources"}


def steps_of(method: Method) -> int:
    """Return how many calls a method makes in a row at most, by what it says of them; 0 where it does not."""
    calls = getattr(method, "calls", "")
    match = re.search(r"(\d{1,3})(?: in a row| steps)", calls) or re.match(r"(\d+)", calls)
    return int(match[1]) if match else 0


def prompt_variant_of(method: Method) -> str:
    """Return the variant of a method's prompts as prompt files have it: "" for ours; raise UnknownNameError."""
    variant = getattr(method, "prompt_variant", OURS)
    check_word("prompt_variant", variant, (PAPER, OURS, *getattr(method, "forms", ())))
    return "" if variant == OURS else variant


def check_word(option: str, value: str, known: Sequence[str]) -> None:
    """Raise UnknownNameError where an option's value is none of those that are known."""
    if value not in known:
        raise UnknownNameError(f"value of {option}", value, known)


def check_least(method: object, **least: int) -> None:
    """Raise InputError where the value of an option that is named is too small."""
    for option, smallest in least.items():
        if (value := getattr(method, option)) < smallest:
            name = getattr(method, "name", "the method")
            raise InputError(f"option {option} of {name} must be at least {smallest}, not {value}")

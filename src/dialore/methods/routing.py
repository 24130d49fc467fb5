"""Some stages done by other models than the rest: a small local model for one, the chat model for the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dialore.llm.model import OnText
    from dialore.methods.stages import Responder, StageAnswer, StageCall

T = TypeVar("T", bound=BaseModel)


class RoutedResponder:
    """Sends each stage to the responder that is named for it, every other stage to the main one.

    Args:
        main: does what nobody else is named for.
        stages: responders by the stage's name without a suffix, e.g. `commonsense-directive`, or by
            `<method>/<stage>`, which wins.
    """

    def __init__(self, main: Responder, stages: Mapping[str, Responder]) -> None:
        self.main = main
        self.stages = dict(stages)

    @property
    def name(self) -> str:
        """The name of the main responder: it writes the response."""
        return self.main.name

    def named_for(self, prompt: str) -> Responder:
        """Who does the stage of a prompt `<method>/<stage>`."""
        return self.stages.get(prompt) or self.stages.get(prompt.rpartition("/")[2]) or self.main

    async def answer(self, call: StageCall[T], on_text: OnText | None = None) -> StageAnswer[T]:
        """Have the stage done by whoever is named for it; raises as that one does."""
        responder = self.named_for(call.prompt)
        answer = await responder.answer(call, on_text)
        answer.by = answer.by or responder.name
        return answer

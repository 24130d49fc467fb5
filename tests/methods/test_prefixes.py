"""The history as messages: what a server has read of a conversation it need not read again at the next turn."""

from __future__ import annotations

import pytest

from dialore.agent import Agent
from dialore.dialogue import Dialogue
from dialore.knowledge import Passage
from dialore.llm.model import Completion
from dialore.methods.registry import create_method
from dialore.methods.stage_runner import LLMRunner
from dialore.prompts.library import PromptLibrary
from dialore.sources.in_memory import InMemoryPassages
from dialore.sources.persona import PersonaSource

TURNS = ["Hi there!", "Hello.", "When does the mill open?", "At nine.", "Thank you!"]
SOURCES = {
    "documents": InMemoryPassages(
        [Passage("The mill opens at nine.", "Mill"), Passage("The bakery has rye bread.", "Bakery")]
    ),
    "persona": PersonaSource({"I bake bread.": ()}),
}


class Keeping:
    """A model that says little, and keeps what it was asked."""

    name = "keeping"

    def __init__(self):
        self.asked = []

    async def complete(self, request, on_token=None):
        self.asked.append(request)
        return Completion(text="{}" if request.output_schema else "I see.", model=self.name)

    async def close(self):
        pass


async def written(method: str, turns: list[str], options: dict[str, object]) -> list[tuple[str, str]]:
    """The messages that asked for the response."""
    takes = {name: SOURCES[name] for name in ("documents", "persona") if method != "vanilla"}
    model = Keeping()
    agent = Agent(create_method(method, takes, options), LLMRunner(model, PromptLibrary()), cite=True)
    response = await agent.respond(Dialogue(id="mill", turns=turns))
    assert response.status == "ok"
    requests = [each for each in model.asked if each.output_schema is None and "rewriting" not in each.prompt]
    return [(message.role, message.content) for message in requests[-1].messages]


@pytest.mark.parametrize(
    ("method", "options"),
    [("vanilla", {}), ("rag", {}), ("full-context", {}), ("safari", {}), ("weave", {})],
)
async def test_the_prompt_of_a_turn_begins_with_all_that_the_last_one_said_before_its_message(method, options):
    first, second, third = [await written(method, TURNS[:count], options) for count in (1, 3, 5)]
    assert second[: len(first) - 1] == first[:-1]
    assert third[: len(second) - 1] == second[:-1]
    assert [role for role, _ in third] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert [content for _, content in third[1:-1]] == TURNS[:-1]
    assert TURNS[-1] in third[-1][1]

"""What the tests of SCG-QP and its baselines share: a web of a few passages, dialogues, a model's answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dialore.dialogue import Dialogue
from dialore.knowledge import Knowledge, Passage
from dialore.methods.base import prompt_variant_of
from dialore.methods.registry import create_method
from dialore.methods.stage_runner import LLMRunner
from dialore.methods.stages import StageContext
from dialore.prompts.library import PromptLibrary

if TYPE_CHECKING:
    from dialore.errors import SourceError

DECISION, TOPIC, DIRECTIVE = "search-decision", "topic-tracking", "commonsense-directive"
QUERY, RESPONSE = "query-generation", "response-generation"

PASSAGES = [
    Passage("The farmhouse of the film stood in North Carolina.", "Filming locations", "https://example.org/places"),
    Passage(
        "Critics praised The Conjuring for its slow dread; its reviews are among the best of any horror film.",
        "The Conjuring: reviews",
        "https://www.example.org/reviews?page=1",
    ),
    Passage("Carrots were first grown in Central Asia.", "Carrot", "https://example.org/carrot"),
]
ANSWERS = {
    DECISION: {"kind": "passive", "query": ""},
    TOPIC: "The Conjuring",
    DIRECTIVE: "Friend: I heard that its reviews are split!",
    QUERY: "The Conjuring critics reviews",
    RESPONSE: "Friend: Critics praised its slow dread, did you feel it too?",
}
ENGLISH = Dialogue(
    id="film",
    language="en",
    turns=["Hi! Seen anything good?", "Not lately, you?", "I watched The Conjuring   last\nnight."],
    persona=("I love old films.",),
    extra={"user_persona": ["I live near a cinema."]},
)
CHINESE = Dialogue(
    id="电影",
    language="zh",
    turns=["最近看什么好片子了吗？", "还没有，你呢？", "昨晚看了《流浪地球》。"],
    persona=("我喜欢科幻片。",),
)


def piece(passage: Passage, score: float = 0.0) -> Knowledge:
    """A passage as the web source gives it."""
    return Knowledge.of_passage(passage, "web", score)


@dataclass
class Web:
    """Gives the same passages whatever is asked, or fails."""

    passages: list[Passage] = field(default_factory=lambda: list(PASSAGES))
    error: SourceError | None = None
    queries: list[tuple[str, int]] = field(default_factory=list)
    name: str = "web"
    kind: str = "web"

    async def search(self, query, dialogue, top=10, scope=()):
        self.queries.append((query, top))
        if self.error is not None:
            raise self.error
        return [piece(passage) for passage in self.passages][:top]

    def close(self):
        pass


async def respond(name, model, dialogue, sources, *, cite=False, **options):
    """Run a method: its draft, and its stages."""
    method = create_method(name, sources, options)
    stages = StageContext(
        LLMRunner(model, PromptLibrary()), name, dialogue, cite=cite, prompt_variant=prompt_variant_of(method)
    )
    return await method.respond(dialogue, stages), stages


def traced(stages, name):
    """The trace of a stage."""
    return next(each for each in stages.trace if each.stage == name)

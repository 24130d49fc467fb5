"""A scripted model and a small graph, for seeing what a method asks and does with the answers."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

import pytest

from dialore.dialogue import Dialogue
from dialore.knowledge import Fact
from dialore.llm.model import Completion, Request, Usage
from dialore.methods.base import prompt_variant_of
from dialore.methods.registry import create_method
from dialore.methods.stage_runner import LLMRunner
from dialore.methods.stages import StageContext
from dialore.prompts.library import PromptLibrary
from dialore.retrieval.embedding import load_embedder
from dialore.retrieval.graph.writing import build_graph
from dialore.sources.graph import open_graph

FACTS = [
    Fact("sore throat", "CausesDesire", "drink warm tea"),
    Fact("honey", "UsedFor", "sore throat"),
    Fact("sore throat", "IsA", "symptom"),
    Fact("cold", "Causes", "sore throat"),
    Fact("job interview", "HasPrerequisite", "suit"),
    Fact("job interview", "Causes", "nervousness"),
    Fact("nervousness", "Causes", "dry mouth"),
    Fact("warm tea", "MadeOf", "water"),
    Fact("lemon", "HasProperty", "sour"),
    Fact("tea", "HasContext", "breakfast"),
]
ANSWERS = {
    "query-production": {
        "explicit_thoughts": "The throat matters.",
        "explicit": ["sore throat", "job interview", "medicine"],
        "implicit_thoughts": "They are nervous.",
        "implicit": ["nervousness"],
    },
    "topic-planning": {
        "maintained_thoughts": "Stay with the throat.",
        "maintained": ["sore throat"],
        "extended_thoughts": "Offer a remedy.",
        "extended": ["honey", "drink warm tea", "job interview"],
    },
    "cross-revision": {
        "explicit_thoughts": "Keep.",
        "explicit": ["sore throat", "job interview"],
        "implicit_thoughts": "Keep.",
        "implicit": ["nervousness"],
        "maintained_thoughts": "Keep.",
        "maintained": ["sore throat"],
        "extended_thoughts": "Keep.",
        "extended": ["honey", "drink warm tea", "dry mouth"],
    },
    "fact-selection-foreseen": {"selected": [1, 2]},
    "fact-selection-unforeseen": {"selected": [1]},
    "response-generation": "Friend: Try honey for that sore throat!",
}


@dataclass
class ScriptedModel:
    """Answers by stage, and keeps what it was asked and when calls were under way."""

    answers: dict[str, object] = field(default_factory=lambda: dict(ANSWERS))
    name: str = "scripted"
    asked: list[Request] = field(default_factory=list)
    steps: list[set[str]] = field(default_factory=list)
    _under_way: set[str] = field(default_factory=set)

    async def complete(self, request: Request, on_token=None) -> Completion:
        stage = request.label.removesuffix("/repair").rsplit("/", 1)[-1]
        self.asked.append(request)
        self._under_way.add(stage)
        await asyncio.sleep(0.01)
        self.steps.append(set(self._under_way))
        self._under_way.discard(stage)
        answer = self.answers[stage]
        if isinstance(answer, Exception):
            raise answer
        text = answer if isinstance(answer, str) else json.dumps(answer)
        if on_token is not None:
            on_token(text)
        return Completion(text=text, model=self.name, usage=Usage(calls=1, prompt_tokens=10, completion_tokens=5))

    async def close(self) -> None:
        pass

    @property
    def stages(self) -> list[str]:
        return [request.label.rsplit("/", 1)[-1] for request in self.asked]


@pytest.fixture(scope="session")
def small_graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("graph") / "small.graph"
    embedder = load_embedder()
    build_graph(FACTS, path, name="small", embedder=embedder)
    graph = open_graph(path, embedder=embedder)
    yield graph
    graph.close()


@pytest.fixture
def dialogue():
    turns = ["How are you?", "Not great, I have a job interview tomorrow.", "And now I've got a sore throat."]
    return Dialogue(id="d1", turns=turns)


@pytest.fixture
def model():
    return ScriptedModel()


@pytest.fixture
def run(small_graph, dialogue, model):
    """Run a method over the scripted model: its draft and its stages."""

    async def go(name: str, **options):
        method = create_method(name, {"graph": small_graph}, options)
        stages = StageContext(
            LLMRunner(model, PromptLibrary()), name, dialogue, prompt_variant=prompt_variant_of(method)
        )
        return await method.respond(dialogue, stages), stages

    return go

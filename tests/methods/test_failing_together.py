"""What runs at once stops together: no call goes on behind a response that has failed or that nobody reads."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from dialore.dialogue import Dialogue
from dialore.errors import BudgetError, InputError, ModelError, SourceError, StageError
from dialore.knowledge import Passage
from dialore.methods.registry import create_method
from dialore.methods.stage_runner import LLMRunner
from dialore.methods.stages import StageContext
from dialore.parallel import gather
from dialore.prompts.library import PromptLibrary
from dialore.session import create_agent
from dialore.sources.in_memory import InMemoryPassages
from tests.methods.conftest import ScriptedModel
from tests.methods.scg_qp_world import ANSWERS, DECISION, ENGLISH, TOPIC, Web


@dataclass
class Slow(ScriptedModel):
    """The scripted model; the stages in `slow` take long, and tell when they are stopped."""

    slow: tuple[str, ...] = ()
    stopped: list[str] = field(default_factory=list)

    async def complete(self, request, on_token=None):
        stage = request.label.rsplit("/", 1)[-1]
        if stage in self.slow:
            if on_token is not None:
                on_token("Well, ")
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                await asyncio.sleep(0.02)  # a connection takes a moment to close
                self.stopped.append(stage)
                raise
        return await super().complete(request, on_token)


# A method, the stage that fails, and the one that is under way beside it.
BESIDE = {
    "scg-qp": (DECISION, TOPIC),
    "dcrag": ("query-production", "topic-planning"),
    "dcrag selection": ("fact-selection-foreseen", "fact-selection-unforeseen"),
    "edit": ("model-answer-1", "model-answer-2"),
}
MORE = {
    "question-generation": "Why does honey help?\nWhat is a cold?",
}


@pytest.mark.parametrize(("name", "failing", "beside"), [(name, *stages) for name, stages in BESIDE.items()])
async def test_what_is_under_way_beside_a_failure_is_stopped_before_the_response_is_there(
    small_graph, dialogue, name, failing, beside
):
    model = Slow(slow=(beside,))
    model.answers |= {**ANSWERS, **MORE} if name == "scg-qp" else MORE
    model.answers[failing] = BudgetError("the budget is spent")
    stages = StageContext(LLMRunner(model, PromptLibrary()), name, ENGLISH if name == "scg-qp" else dialogue)
    sources = {"web": Web()} if name == "scg-qp" else {"graph": small_graph}
    method = create_method(name.split()[0], sources)
    with pytest.raises(StageError, match="budget is spent"):
        await method.respond(stages.dialogue, stages)
    assert model.stopped == [beside]
    traced = next(each for each in stages.trace if each.stage == beside)
    assert (traced.outcome, traced.error) == ("failed", "stopped before it was done")


async def test_a_stream_that_is_left_has_stopped_its_calls_when_it_is_closed(small_graph, dialogue):
    model = Slow(slow=("response-generation",))
    agent = create_agent("dcrag", model=model, graph=small_graph)
    stream = agent.stream(dialogue)
    assert await anext(stream) == "Well,"
    await stream.aclose()
    assert model.stopped == ["response-generation"]


async def test_at_once_gives_what_each_gives_in_order():
    async def later(value, seconds):
        await asyncio.sleep(seconds)
        return value

    assert await gather(later("a", 0.02), later(2, 0)) == ("a", 2)
    assert await gather() == ()


# What every dialogue would meet ends the run; what another may not meet leaves a response.
HOPELESS = [
    BudgetError("the budget is spent"),
    ModelError("the endpoint refuses the key", configuration=True),
    InputError("no such prompt"),
]


class Refusing:
    """An embedder behind an endpoint that fails."""

    name, fingerprint, dimension = "endpoint:refusing", "x", 8

    def __init__(self, error):
        self.error = error

    def encode(self, texts):
        raise self.error


def shelf(error):
    from dialore.retrieval.reranking import dense_reranker

    return InMemoryPassages([Passage("Honey soothes a sore throat.")], retriever=dense_reranker(Refusing(error)))


@pytest.mark.parametrize("error", [ModelError("the embedder answered 500", status=500), SourceError("it is down")])
async def test_a_source_whose_embedder_fails_is_gone_on_without(error):
    dialogue = Dialogue(id="d1", turns=["My throat hurts."])
    agent = create_agent("safari", model=ScriptedModel(), sources={"documents": shelf(error)})
    agent.stage_runner.model.answers |= {"planning": {"sources": ["LIBRARY"]}, "response-generation": "Oh dear."}
    response = await agent.respond(dialogue)
    assert (response.status, response.text) == ("ok", "Oh dear.")
    traced = next(each for each in response.trace if each.stage == "retrieval-library")
    assert traced.outcome == "failed"
    assert error.message in traced.error


@pytest.mark.parametrize("error", HOPELESS, ids=lambda error: type(error).__name__)
async def test_a_source_that_fails_for_every_dialogue_ends_the_run(error):
    stages = StageContext(LLMRunner(ScriptedModel(), PromptLibrary()), "safari", Dialogue(id="d1", turns=["Hi."]))
    with pytest.raises(StageError) as raised:
        await stages.search("retrieval", shelf(error), "throat", 3)
    assert raised.value.cause is error
    assert stages.trace[0].outcome == "failed"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(("pplm", {option: -1}) for option in ("facts", "words", "turns")),
        *(("dcrag", {option: 0}) for option in ("top", "limit")),
        ("scg-qp-graph", {"top": 0}),
    ],
)
def test_numbers_that_mean_nothing_are_refused_before_anything_is_asked(small_graph, name, options):
    with pytest.raises(InputError, match=next(iter(options))):
        create_method(name, {"graph": small_graph}, options)

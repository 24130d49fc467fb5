"""The agent against a real endpoint that misbehaves: what fails is recorded, and nothing is lost."""

from __future__ import annotations

import asyncio
import time

import pytest

from dialore.dialogue import Dialogue
from dialore.errors import InputError, ModelError, UnknownNameError
from dialore.session import Session, create_agent
from dialore.settings import ModelSettings
from dialore.sources.graph import Graph
from tests.llm.server import say, status
from tests.methods.conftest import ScriptedModel, small_graph  # noqa: F401 - a fixture

DIALOGUES = [
    Dialogue(id=f"d{number}", turns=["Hi!", "Hello.", f"I have a sore throat, {number}."]) for number in range(6)
]


@pytest.fixture
def model():
    return ScriptedModel()


def agent_of(model, graph, method="dcrag", **options):
    given = graph if method != "vanilla" else None  # which has no use for one
    return create_agent(method, model=model, graph=given, options=options)


async def test_a_response_carries_its_grounds_and_trace(model, small_graph):  # noqa: F811
    response = await agent_of(model, small_graph).respond(DIALOGUES[0])
    assert (response.status, response.method, response.model) == ("ok", "dcrag", "scripted")
    assert response.text == "Try honey for that sore throat!"
    assert [item.triple for item in response.knowledge if item.used] == ["(honey, UsedFor, sore throat)"]
    assert response.usage.calls == 6
    assert response.usage.prompt_tokens == 60
    asked = [traced for traced in response.trace if traced.model == "scripted"]
    assert len(asked) == 6
    assert all(traced.prompt and traced.messages and traced.completion for traced in asked)
    starts = [traced.started for traced in response.trace]
    assert starts == sorted(starts)
    ends = max(traced.started + traced.seconds for traced in response.trace)
    assert response.queued_s + response.seconds >= ends - 1e-3


async def test_grounding_stops_before_the_response(model, small_graph):  # noqa: F811
    grounding = await agent_of(model, small_graph).ground(DIALOGUES[0])
    assert "response-generation" not in model.stages
    assert grounding.usage.calls == 5
    assert grounding.knowledge
    assert grounding.demands.queries


async def test_streaming_gives_pieces_and_then_the_response(model, small_graph):  # noqa: F811
    items = [item async for item in agent_of(model, small_graph).stream(DIALOGUES[0])]
    assert items[:-1] == ["Try honey for that sore throat!"]
    assert items[-1].text == "Try honey for that sore throat!"


async def test_listeners_may_be_async_and_are_awaited_in_order(model, small_graph):  # noqa: F811
    heard = []

    async def on_token(piece):
        await asyncio.sleep(0)
        heard.append(piece)

    async def on_stage(name):
        await asyncio.sleep(0)
        heard.append(str(name))

    response = await agent_of(model, small_graph).respond(DIALOGUES[0], on_token, on_stage)
    assert heard[-1] == response.text
    assert heard[-2] == "response-generation"
    heard.clear()
    response = agent_of(ScriptedModel(), small_graph).respond_sync(DIALOGUES[0], on_token)
    assert heard == [response.text]


async def test_what_an_async_listener_raises_is_raised(model):
    async def on_token(_piece):
        raise ValueError("the socket is closed")

    with pytest.raises(ValueError, match="socket"):
        await agent_of(model, None, "vanilla").respond(DIALOGUES[0], on_token)


def test_another_event_loop_than_that_of_asyncio_is_one_clear_line(model):
    agent = agent_of(model, None, "vanilla")
    calls = [agent.respond("Hi."), agent.ground("Hi."), anext(agent.stream("Hi.")), anext(agent.respond_all(["Hi."]))]
    for call in calls:
        with pytest.raises(InputError, match="asyncio"):
            call.__await__().send(None)


async def test_a_failed_dialogue_is_recorded_with_its_partial_trace(model, small_graph):  # noqa: F811
    model.answers["cross-revision"] = ModelError("the endpoint answered 500", hint="try again later", retryable=True)
    response = await agent_of(model, small_graph).respond(DIALOGUES[0])
    assert response.status == "failed"
    assert response.text == ""
    assert response.error == "stage cross-revision of dialogue d0: the endpoint answered 500 (try again later)"
    assert {traced.stage: traced.outcome for traced in response.trace}["cross-revision"] == "failed"
    assert {traced.stage for traced in response.trace} >= {"query-production", "topic-planning"}


async def test_an_empty_response_is_a_failure_and_no_empty_string(model, small_graph):  # noqa: F811
    model.answers["response-generation"] = "Friend:"
    response = await agent_of(model, small_graph).respond(DIALOGUES[0])
    assert response.status == "failed"
    assert "empty" in response.error


async def test_one_failure_of_a_batch_loses_nothing(small_graph):  # noqa: F811
    class FailsOnce(ScriptedModel):
        async def complete(self, request, on_token=None):
            if request.label.startswith("d3/"):
                raise ModelError("no luck")
            return await super().complete(request, on_token)

    agent = agent_of(FailsOnce(), small_graph, "vanilla")
    responses = {response.id: response async for response in agent.respond_all(DIALOGUES, concurrency=2)}
    assert set(responses) == {dialogue.id for dialogue in DIALOGUES}
    assert [name for name, response in responses.items() if response.status == "failed"] == ["d3"]


async def test_a_wrong_key_stops_a_batch_at_once(small_graph):  # noqa: F811
    class Refuses(ScriptedModel):
        async def complete(self, request, on_token=None):
            self.asked.append(request)
            raise ModelError("the endpoint refuses the key", hint="set DIALORE_API_KEY", configuration=True)

    model = Refuses()
    with pytest.raises(ModelError, match="refuses the key"):
        [response async for response in agent_of(model, small_graph, "vanilla").respond_all(DIALOGUES, concurrency=2)]
    assert len(model.asked) <= 2


async def test_whole_dialogues_run_at_once_up_to_the_limit(model, small_graph):  # noqa: F811
    agent = agent_of(model, small_graph, "vanilla")
    under_way = []
    original = agent.method.respond

    async def counted(dialogue, stage):
        under_way.append(dialogue.id)
        assert len(under_way) <= 3
        try:
            return await original(dialogue, stage)
        finally:
            under_way.remove(dialogue.id)

    agent.method = type("Counted", (), {"name": "vanilla", "respond": staticmethod(counted)})()
    assert len([response async for response in agent.respond_all(DIALOGUES, concurrency=3)]) == len(DIALOGUES)


async def test_no_model_means_the_method_lexical(small_graph):  # noqa: F811
    response = await create_agent("qp-rag", graph=small_graph).respond(DIALOGUES[0])
    assert (response.method, response.model) == ("lexical", "no model")
    with pytest.raises(UnknownNameError, match="did you mean qp-rag"):
        create_agent("qp-ragg", graph=small_graph)


def test_a_missing_prompt_folder_is_refused(model, small_graph, tmp_path):  # noqa: F811
    with pytest.raises(InputError, match="no such prompt folder"):
        create_agent("dcrag", model=model, graph=small_graph, prompts=tmp_path / "none")


def test_importing_dialore_loads_nothing_heavy():
    import subprocess
    import sys

    heavy = {"numpy", "pydantic", "openai", "aiohttp", "jinja2", "jieba", "simplemma", "torch", "typer"}
    code = f"import sys, dialore; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_it_opened_itself_is_closed_where_an_option_does_not_fit(model, small_graph, monkeypatch):  # noqa: F811
    closed: list[str] = []
    close = Graph.close
    monkeypatch.setattr(Graph, "close", lambda graph: (closed.append(graph.name), close(graph))[-1])
    with pytest.raises(InputError, match="option top of dcrag"):
        create_agent("dcrag", model=model, options={"top": "many"})
    assert len(closed) == 1
    with pytest.raises(InputError, match="option top of dcrag"):
        agent_of(model, small_graph, top="many")
    assert len(closed) == 1  # what was given is its owner's to close


async def test_a_response_does_not_count_what_it_waited_for_its_turn(model, small_graph):  # noqa: F811
    agent = agent_of(model, small_graph)
    method = agent.method

    class Late:
        name = method.name

        async def respond(self, dialogue, stage):
            await asyncio.sleep(0.2)
            return await method.respond(dialogue, stage)

    agent.method = Late()
    begun = time.perf_counter()
    response = await agent.respond(DIALOGUES[0])
    passed = time.perf_counter() - begun
    assert response.queued_s >= 0.19
    assert response.queued_s == min(traced.started for traced in response.trace)
    ends = max(traced.started + traced.seconds for traced in response.trace)
    assert ends <= response.seconds + response.queued_s + 0.001 <= passed + 0.002


LONG = Dialogue(id="long", turns=[f"Turn {number} is about tea and rain." for number in range(16)])


async def test_a_history_that_does_not_fit_loses_its_oldest_turns_and_says_so(faulty_server):
    def reply(asked):
        if sum(len(message["content"]) for message in asked.body["messages"]) > 500:
            return status(400, "This model's maximum context length is 128 tokens.")
        return say("Fine.")

    faulty_server.by_request = reply
    settings = ModelSettings(model="m", base_url=faulty_server.url, retries=0)
    async with Session() as bench:
        agent = bench.agent("vanilla", bench.models(settings))
        response = await agent.respond(LONG)
        assert (response.status, response.text) == ("ok", "Fine.")
        (step,) = [traced for traced in response.trace if traced.messages]
        assert any("oldest turns are left out" in note for note in step.notes)
        assert "Turn 15" in str(step.messages)
        assert "Turn 0 " not in str(step.messages)
        whole = bench.agent("vanilla", bench.models(settings.model_copy(update={"no_truncate": True})))
        assert "maximum context length" in (await whole.respond(LONG)).error


async def test_a_window_that_is_given_is_kept_to_before_anything_is_asked(faulty_server):
    faulty_server.say("Fine.")
    settings = ModelSettings(model="m", base_url=faulty_server.url, window=330)
    async with Session() as bench:
        response = await bench.agent("vanilla", bench.models(settings)).respond(LONG)
        assert response.text == "Fine."
        assert any("oldest turns are left out" in note for traced in response.trace for note in traced.notes)
        assert len(faulty_server.calls) == 1
        short = bench.agent("vanilla", bench.models(settings.model_copy(update={"window": 230})))
        assert "do not fit m's window of 230" in (await short.respond(LONG)).error

"""What every language model does, whatever it is."""

from __future__ import annotations

import asyncio
import json

import pytest

from dialore.llm.client import ModelClient
from dialore.llm.endpoint import Endpoint
from dialore.llm.model import Budget, LanguageModel
from dialore.llm.recording import Replay
from tests.llm.models import Scripted, ask, with_budget, with_cache, with_recording
from tests.llm.server import say

ANSWER = "an answer, 好的 and more"


def endpoint(server, folder):
    server.always = say(ANSWER)
    return Endpoint("m", server.url)


def replay(server, folder):
    line = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "text": ANSWER}
    return Replay([json.dumps(line)])


MODELS = {
    "endpoint": endpoint,
    "replay": replay,
    "sampled": lambda server, folder: ModelClient(Scripted(ANSWER, name="m"), sample=1),
    "budgeted": lambda server, folder: with_budget(Scripted(ANSWER, name="m"), Budget(10_000)),
    "cached": lambda server, folder: with_cache(Scripted(ANSWER, name="m"), folder / "cache"),
    "recorder": lambda server, folder: with_recording(Scripted(ANSWER, name="m"), folder / "recording"),
    "all of them": lambda server, folder: with_budget(
        with_recording(with_cache(endpoint(server, folder), folder / "cache"), folder / "recording"), Budget()
    ),
}


@pytest.fixture(params=MODELS)
async def model(request, faulty_server, tmp_path):
    made = MODELS[request.param](faulty_server, tmp_path)
    yield made
    await made.close()


async def test_it_is_a_language_model(model):
    assert isinstance(model, LanguageModel)
    assert model.name == "m"


async def test_it_answers(model):
    completion = await model.complete(ask())
    assert completion.text == ANSWER
    assert completion.model
    assert completion.usage.calls == 1
    assert completion.usage.prompt_tokens > 0
    assert completion.usage.completion_tokens > 0
    assert completion.finish_reason == "stop"
    assert not completion.prompt_changed


async def test_streamed_pieces_join_to_the_text(model):
    for _ in range(2):
        pieces: list[str] = []
        completion = await model.complete(ask(), pieces.append)
        assert "".join(pieces) == completion.text == ANSWER
        assert all(pieces)


async def test_what_on_text_raises_comes_out(model):
    def fail(_: str) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError):
        await model.complete(ask(), fail)
    assert (await model.complete(ask())).text == ANSWER


async def test_many_at_once(model):
    completions = await asyncio.gather(*[model.complete(ask()) for _ in range(30)])
    assert {completion.text for completion in completions} == {ANSWER}


async def test_it_works_on_after_a_cancelled_call(model):
    tasks = [asyncio.create_task(model.complete(ask())) for _ in range(5)]
    await asyncio.sleep(0)
    for task in tasks[:3]:
        task.cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [outcome.text for outcome in done[3:]] == [ANSWER] * 2
    assert (await model.complete(ask())).text == ANSWER


async def test_closing_twice_does_no_harm(model):
    await model.complete(ask())
    await model.close()
    await model.close()

"""A local model: a tiny random one, made on the spot."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import pytest

from dialore.errors import InputError, MissingExtraError, ModelError
from dialore.llm.local import LocalModel, TextStream, find_stop
from dialore.llm.model import Message, Request, Sampling
from dialore.llm.structured import output_schema
from dialore.methods.edit import Better
from tests.llm.local_checks import check_batched, check_pieces_join_to_the_text, check_stopped
from tests.llm.tiny_causal import make_tiny_causal, needs_torch

pytestmark = pytest.mark.filterwarnings("ignore")

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    make_tiny_causal(path)
    return path


@pytest.fixture
async def model(folder):
    made = LocalModel(str(folder))
    yield made
    await made.close()


def ask(text="green tea", **sampling) -> Request:
    return Request(
        messages=(Message(role="user", content=text),), sampling=Sampling(**{"max_tokens": 12, "seed": 5, **sampling})
    )


@needs_torch
async def test_it_answers_with_exact_usage(model, folder):
    from transformers import AutoTokenizer

    completion = await model.complete(ask())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert completion.text.strip()
    assert completion.usage.prompt_tokens == len(tokenizer("User: green tea\nAssistant:")["input_ids"])
    assert completion.usage.calls == 1
    assert not completion.estimated
    assert completion.seconds > 0
    if completion.finish_reason == "length":
        assert completion.usage.completion_tokens == 12


@needs_torch
async def test_seeds_and_temperature(model):
    same = [(await model.complete(ask(seed=3))).text for _ in range(2)]
    other = (await model.complete(ask(seed=4))).text
    greedy = [(await model.complete(ask(temperature=0, seed=seed))).text for seed in (1, 2)]
    assert same[0] == same[1] != other
    assert greedy[0] == greedy[1]


@needs_torch
async def test_streamed_pieces_join_to_the_text(model):
    await check_pieces_join_to_the_text(model, ask())


@needs_torch
async def test_stop_strings_cut_text_and_stream(model):
    whole = (await model.complete(ask(max_tokens=40))).text
    stop = whole[8:10]
    await check_stopped(model, ask(max_tokens=40, stop=(stop,)), stop, whole)


@needs_torch
async def test_requests_that_wait_are_batched(model):
    requests = [ask(text, seed=None, temperature=0) for text in ("green", "the river runs", "books and books and tea")]
    await check_batched(model, requests)


@needs_torch
async def test_what_on_text_raises_comes_out(model):
    def fail(_: str) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError):
        await model.complete(ask(), fail)
    assert (await model.complete(ask())).text


@needs_torch
async def test_a_cancelled_call_stops_early(model):
    await model.complete(ask())
    begun = asyncio.Event()
    task = asyncio.create_task(model.complete(ask(max_tokens=100), lambda _: begun.set()))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await model.complete(ask())).text


@needs_torch
async def test_a_prompt_that_is_too_long(model):
    with pytest.raises(ModelError, match="takes 160"):
        await model.complete(ask("tea " * 400))


@needs_torch
async def test_a_chat_template_is_used(model):
    tokenizer, _ = model._load()
    tokenizer.chat_template = TEMPLATE
    assert (await model.complete(ask())).usage.prompt_tokens == len(
        tokenizer("<user>green tea\n<assistant>")["input_ids"]
    )


@needs_torch
async def test_a_template_that_takes_nothing_is_a_clear_error(folder):
    made = LocalModel(str(folder))
    tokenizer, _ = made._load()
    tokenizer.chat_template = "{{ raise_exception('Conversations are not supported') }}"
    with pytest.raises(ModelError, match=r"failed to generate: Conversations are not supported"):
        await made.complete(ask())
    tokenizer.chat_template = None
    assert (await made.complete(ask())).text
    await made.close()


@needs_torch
async def test_a_model_that_cannot_be_loaded(tmp_path):
    with pytest.raises(InputError, match="cannot load the model"):
        await LocalModel(str(tmp_path / "none")).complete(ask())


async def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"\[local\]"):
        await LocalModel("some/model").complete(ask())


def test_the_first_stop_string():
    assert find_stop("one two END", ("END", "two")) == 4
    assert find_stop("one", ("x",)) == 3


class Letters:
    """A tokenizer whose tokens are code points."""

    def decode(self, tokens, **_):
        return "".join(map(chr, tokens))


class Tokens(list):
    def reshape(self, _):
        return self

    def tolist(self):
        return list(self)


@pytest.mark.parametrize(
    ("text", "stop", "passed"),
    [
        ("hello there", (), "hello there"),
        ("hello there", ("the",), "hello "),
        ("<think>no</think>yes END", ("END",), "yes "),
        ("almost EN", ("END",), "almost EN"),
    ],
)
async def test_stream_holds_back_stops_and_thoughts(text, stop, passed):
    pieces: list[str] = []
    stream = TextStream(Letters(), asyncio.get_running_loop(), pieces.append, stop)
    stream.put(Tokens([1, 2]))
    for letter in text:
        stream.put(Tokens([ord(letter)]))
    stream.end()
    await asyncio.sleep(0)
    assert "".join(pieces) == passed


@pytest.mark.skipif("DIALORE_TEST_GGUF" not in os.environ, reason="set DIALORE_TEST_GGUF to a file of real weights")
async def test_a_gguf_file_answers_together_and_keeps_to_a_schema():
    model = LocalModel(os.environ["DIALORE_TEST_GGUF"], batch=2)
    sampling = Sampling(temperature=0, max_tokens=40)
    schema = output_schema(Better)
    asked = [Message(role="user", content=f"Which is better, A or B? {why}") for why in ("A is red.", "B is blue.")]
    requests = [Request(messages=(each,), sampling=sampling, output_schema=schema) for each in asked]
    answers = await asyncio.gather(*map(model.complete, requests))
    assert {json.loads(answer.text).keys() == {"better"} for answer in answers} == {True}
    await model.close()

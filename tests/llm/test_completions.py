"""An endpoint spoken to by /completions, and local models made to continue plain text."""

from __future__ import annotations

import json

import pytest

from dialore.errors import ModelError, UnknownNameError
from dialore.llm.connection import connect
from dialore.llm.endpoint import Endpoint
from dialore.llm.local import LocalModel
from dialore.llm.model import Message, OutputSchema, Request, Sampling, Steering
from dialore.prompts.library import PromptLibrary
from tests.llm.server import answer, say, status
from tests.llm.tiny_causal import make_tiny_causal, needs_torch

RAW = "( I love tea ) Tea =>"
ASK = Request(
    messages=(Message(role="system", content="Be brief."), Message(role="user", content="Tea?")),
    sampling=Sampling(temperature=0, max_tokens=50, stop=("END",)),
    continuation=RAW,
    continuation_stop=("\n",),
)
PLAIN = ASK.model_copy(update={"continuation": None})


def body(text=" Tea is a drink.", finish="stop", usage=(7, 3)):
    made = {"object": "text_completion", "model": "base", "choices": [{"text": text, "finish_reason": finish}]}
    return made | ({"usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1]}} if usage else {})


def events(*texts):
    """A stream of completions, as servers send it."""

    def reply(handler):
        handler.head(200, "text/event-stream", {"Transfer-Encoding": "chunked"})
        for text in texts:
            chunk = {"object": "text_completion", "choices": [{"text": text, "finish_reason": None}]}
            handler.chunk(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        last = body("")
        handler.chunk(b"data: " + json.dumps(last).encode() + b"\n\ndata: [DONE]\n\n")
        handler.chunk(b"")

    return reply


@pytest.fixture
async def base(faulty_server):
    made = Endpoint("base", faulty_server.url, retries=1, api="completions")
    yield made
    await made.close()


async def test_the_raw_prompt_goes_out_as_it_is(base, faulty_server):
    faulty_server.reply(answer(body()))
    completion = await base.complete(ASK)
    assert completion.text == " Tea is a drink."
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (7, 3)
    asked = faulty_server.calls[0]
    assert asked.path == "/v1/completions"
    assert asked.body == {
        "model": "base",
        "prompt": RAW,
        "temperature": 0,
        "max_tokens": 50,
        "stop": ["END", "\n"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_messages_become_a_transcript_that_stops_where_the_other_speaks(base, faulty_server):
    faulty_server.reply(answer(body()))
    await base.complete(PLAIN)
    sent = faulty_server.calls[0].body
    assert sent["prompt"] == "System: Be brief.\nUser: Tea?\nAssistant:"
    assert sent["stop"] == ["END", "\nUser:"]


async def test_a_stream_is_passed_on_piece_by_piece(base, faulty_server):
    base.capabilities.unopened = False
    faulty_server.reply(events(" Tea", " is", " old."))
    pieces: list[str] = []
    completion = await base.complete(ASK, pieces.append)
    assert pieces == [" Tea", " is", " old."]
    assert completion.text == " Tea is old."
    assert completion.usage.completion_tokens == 3
    assert faulty_server.calls[0].body["stream"] is True


async def test_a_schema_is_left_to_the_prompt(base, faulty_server):
    faulty_server.reply(answer(body('{"a": 1}')))
    schema = OutputSchema(name="A", definition={"type": "object", "properties": {"a": {"type": "integer"}}})
    await base.complete(ASK.model_copy(update={"output_schema": schema}))
    assert "response_format" not in faulty_server.calls[0].body


async def test_retries_and_refused_parameters_are_as_with_chat(base, faulty_server):
    refusal = status(400, "Unsupported parameter: 'stop' is not supported with this model.", parameter="stop")
    faulty_server.reply(status(503), refusal, answer(body(" ok")))
    completion = await base.complete(ASK)
    assert completion.text == " ok"
    assert completion.usage.retries == 1
    assert "stop" in faulty_server.calls[1].body
    assert "stop" not in faulty_server.calls[2].body


@pytest.mark.parametrize(
    ("reply", "wanted"),
    [
        (status(404, "no such path"), "unknown model: 'base'"),
        (answer({"choices": [{"index": 0}]}), "without a message"),
        (answer(body("  ")), "empty text"),
        (answer({"choices": []}), "without choices"),
    ],
)
async def test_failures_are_one_clear_line(faulty_server, reply, wanted):
    faulty_server.always = reply
    model = Endpoint("base", faulty_server.url, retries=0, api="completions")
    with pytest.raises(ModelError, match=wanted):
        await model.complete(ASK)
    await model.close()


@pytest.mark.parametrize("api", ["chat", "completions"])
async def test_an_endpoint_refuses_to_be_steered(faulty_server, api):
    model = Endpoint("m", faulty_server.url, retries=3, api=api)
    with pytest.raises(ModelError, match="cannot be steered") as caught:
        await model.complete(ASK.model_copy(update={"steering": Steering(words=("tea",))}))
    assert caught.value.configuration
    assert not faulty_server.calls
    await model.close()


async def test_both_apis_share_a_cache_without_mixing_their_answers(faulty_server, tmp_path):
    faulty_server.reply(say("from chat"), answer(body(" from the base")))
    texts = []
    for api in ("chat", "completions", "chat", "completions"):
        model = connect("m", faulty_server.url, api=api, cache=tmp_path / "cache")
        texts.append((await model.complete(PLAIN)).text)
        await model.close()
    assert texts == ["from chat", " from the base"] * 2
    assert [asked.path for asked in faulty_server.calls] == ["/v1/chat/completions", "/v1/completions"]


async def test_a_chat_endpoint_gets_messages_and_keeps_its_line_breaks(faulty_server):
    faulty_server.reply(say("\nTea is old."))
    model = Endpoint("m", faulty_server.url)
    await model.complete(ASK)
    await model.close()
    sent = faulty_server.calls[0].body
    assert [message["content"] for message in sent["messages"]] == ["Be brief.", "Tea?"]
    assert sent["stop"] == ["END"]


def test_an_unknown_api_is_refused():
    with pytest.raises(UnknownNameError, match="did you mean completions"):
        connect("m", "http://127.0.0.1:1/v1", api="completion")


@needs_torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("api", ["chat", "completions"])
async def test_a_local_model_with_a_chat_template_continues_if_told_to(tmp_path, api):
    from transformers import AutoTokenizer

    make_tiny_causal(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    tokenizer.save_pretrained(tmp_path)
    model = connect(f"hf:{tmp_path}", api=api)
    short = ASK.model_copy(update={"sampling": Sampling(temperature=0, max_tokens=3)})
    completion = await model.complete(short)
    await model.close()
    sent = RAW if api == "completions" else "<system>Be brief.<user>Tea?"
    assert completion.usage.prompt_tokens == len(tokenizer(sent)["input_ids"])


def test_a_request_as_text_to_be_continued():
    assert (ASK.plain_text, ASK.plain_stop) == (RAW, ("END", "\n"))
    assert PLAIN.plain_text.endswith("Assistant:")
    assert PLAIN.plain_stop == ("END", "\nUser:")


@needs_torch
@pytest.mark.filterwarnings("ignore")
async def test_a_chat_template_wins_unless_the_request_is_steered(tmp_path):
    make_tiny_causal(tmp_path)
    model = LocalModel(str(tmp_path))
    tokenizer, _ = model._load()

    async def read(request):
        return (await model.complete(request)).usage.prompt_tokens

    short = ASK.model_copy(update={"sampling": Sampling(temperature=0, max_tokens=3)})
    steered = short.model_copy(update={"steering": Steering(words=("tea",))})
    raw = len(tokenizer(RAW)["input_ids"])
    assert await read(short) == raw
    tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    assert await read(short) == len(tokenizer("<system>Be brief.<user>Tea?")["input_ids"])
    assert await read(steered) == raw
    await model.close()


def test_a_prompt_file_gives_continuation_stops_and_steering(tmp_path):
    (tmp_path / "x").mkdir()
    text = (
        '---\nversion: 1\noutput: text\nstop: ["\\n"]\n---\n<!-- user -->\nSay {{ word }}\n'
        "<!-- continuation -->\n{{ word }} =>\n<!-- steering -->\nwords: [{{ word | tojson }}]\ntop_k: 4\n"
    )
    (tmp_path / "x" / "y.en.md").write_text(text, encoding="utf-8")
    rendered = PromptLibrary(tmp_path).get("x/y", "en").render({"word": 'a "b": c'})
    assert [message.content for message in rendered.messages] == ['Say a "b": c']
    assert (rendered.continuation, rendered.continuation_stop) == ('a "b": c =>', ("\n",))
    assert rendered.steering == Steering(words=('a "b": c',), top_k=4)


def test_an_api_that_is_not_known_is_refused(faulty_server):
    with pytest.raises(UnknownNameError, match="did you mean completions"):
        connect("m", faulty_server.url, api="completion")

"""What servers refuse, how they err, and what is found out of them once."""

from __future__ import annotations

import itertools
import json
import logging

import pytest

from dialore.errors import ModelError, ModelTimeoutError
from dialore.llm.capabilities import ServerCapabilities
from dialore.llm.endpoint import Endpoint
from dialore.llm.model import Message, OutputSchema, Request, Sampling
from dialore.llm.pacing import Retry
from tests.llm.server import FaultyServer, answer, chat, hang, raw, say, status, stream

USER = Message(role="user", content="When?")
ASK = Request(messages=(Message(role="system", content="Be kind."), USER), sampling=Sampling(max_tokens=100))
SCHEMA = OutputSchema(name="Plan", definition={"type": "object", "properties": {"a": {"type": "string"}}})
PLAN = ASK.model_copy(update={"output_schema": SCHEMA})
THOUGHTS = "Okay, the user asks. Let me see."


def endpoint(server: FaultyServer, **settings) -> Endpoint:
    model = Endpoint("m", server.url, "key", **{"timeout": 5, **settings})
    model.retry = Retry(settings.get("retries", 2), base=0.001)
    return model


async def ask(server: FaultyServer, request: Request = ASK, *, streamed: bool = False, **settings):
    """The text of an answer, as it was shown where it was streamed."""
    model = endpoint(server, **settings)
    pieces: list[str] = []
    try:
        completion = await model.complete(request, pieces.append if streamed else None)
    finally:
        await model.close()
    return "".join(pieces) if streamed else completion.text


async def failure(server: FaultyServer, request: Request = ASK, **settings) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(server, request, **settings)
    return caught.value


def refusing(test, reply):
    """A server that refuses the bodies for which `test` holds."""
    return lambda asked: reply if test(asked.body) else say("at eight")


def has_format(body) -> bool:
    return "response_format" in body


def event(**choice) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, **choice}]}).encode() + b"\n\n"


REFUSALS = {
    "in words, 500": status(500, "body.response_format.type: Input should be 'text'"),
    "in words, 404": status(404, "No endpoints found that support json_schema"),
    "within 200": answer({"error": {"message": "json_schema is not supported", "code": 400}}),
    "without words, 404": status(404, "No endpoints found that can handle the requested parameters"),
    "without words, 400": raw(b"", 400),
    "without words, 500": status(500, "Internal Server Error"),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_refused_schema_is_found_out_once(faulty_server, caplog, name):
    faulty_server.by_request = refusing(has_format, REFUSALS[name])
    assert await ask(faulty_server, PLAN) == "at eight"
    if name == "without words, 500":  # such a failure may pass, so it counts when it comes again
        assert await ask(faulty_server, PLAN) == "at eight"
    before = len(faulty_server.calls)
    assert await ask(faulty_server, PLAN) == "at eight"  # another endpoint of the same address and model
    assert len(faulty_server.calls) == before + 1
    assert "prompt alone" in caplog.text


async def test_passing_trouble_does_not_cost_the_schema(faulty_server):
    faulty_server.reply(status(500, "boom"))
    await ask(faulty_server, PLAN)
    assert all(has_format(asked.body) for asked in faulty_server.calls)
    faulty_server.reply(status(500, "boom"), status(500, "boom"))
    await ask(faulty_server, PLAN)
    assert has_format(faulty_server.calls[-1].body)  # it has been taken before


SYSTEMS = {
    "400": status(400, "System role not supported"),
    "500": status(500, "Value error: Jinja Exception: Only user and assistant roles are supported!"),
    "alternate": status(400, "Conversation roles must alternate user/assistant/user/assistant/..."),
    "developer": answer([{"error": {"code": 400, "message": "Developer instruction is not enabled for gemma"}}], 400),
}


@pytest.mark.parametrize("name", SYSTEMS)
async def test_a_system_message_that_is_refused_heads_the_users(faulty_server, caplog, name):
    faulty_server.by_request = refusing(lambda body: body["messages"][0]["role"] == "system", SYSTEMS[name])
    for _ in range(2):
        assert await ask(faulty_server) == "at eight"
    assert len(faulty_server.calls) == 3
    assert faulty_server.calls[-1].body["messages"] == [{"role": "user", "content": "Be kind.\n\nWhen?"}]
    assert "no system message" in caplog.text


async def test_roles_that_must_alternate_are_merged(faulty_server):
    def repeats(body) -> bool:
        roles = [message["role"] for message in body["messages"] if message["role"] != "system"]
        return roles[0] != "user" or any(one == other for one, other in itertools.pairwise(roles))

    refusal = status(400, "After the optional system message, conversation roles must alternate user/assistant")
    faulty_server.by_request = refusing(repeats, refusal)
    greeting = Message(role="assistant", content="Hello!")
    request = ASK.model_copy(update={"messages": (ASK.messages[0], greeting, USER, USER)})
    assert await ask(faulty_server, request) == "at eight"
    assert faulty_server.calls[-1].body["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "…"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "When?\n\nWhen?"},
    ]


async def test_a_highest_limit_is_kept_to(faulty_server):
    refusal = status(400, "max_tokens must be less than or equal to `64`, the maximum value for this model")
    faulty_server.by_request = refusing(lambda body: body["max_tokens"] > 64, refusal)
    assert await ask(faulty_server) == "at eight"
    assert faulty_server.calls[-1].body["max_tokens"] == 64


KEYS = {
    "401": status(401, "no"),
    "403": status(403, "no"),
    "400 in a list": answer([{"error": {"code": 400, "message": "API key not valid.", "status": "INVALID"}}], 400),
    "500": status(500, "Authentication failed"),
    "200": answer({"error": {"message": "Incorrect API key provided"}}),
    "200 with a code": answer({"error": {"message": "No auth credentials found", "code": 401}}),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", KEYS)
async def test_a_wrong_key_ends_a_run_however_it_is_said(faulty_server, name, streamed):
    faulty_server.always = KEYS[name]
    error = await failure(faulty_server, PLAN, streamed=streamed)
    assert error.configuration
    assert not error.retryable
    assert "model.api_key" in error.hint
    assert len(faulty_server.calls) == 1


async def test_a_refusal_for_a_day_ends_a_run_with_a_word(faulty_server):
    faulty_server.always = status(429, "daily limit", Retry_After="86400")
    error = await failure(faulty_server)
    assert "24 h" in error.message
    assert error.configuration
    assert len(faulty_server.calls) == 1


async def test_refusals_throughout_end_a_run(faulty_server):
    faulty_server.always = status(429, "slow down")
    error = await failure(faulty_server, retries=4)
    assert error.configuration
    assert error.tries == 5
    faulty_server.reply(say(), status(429, "slow down"))
    faulty_server.always = say()
    assert await ask(faulty_server, retries=4) == "hello"


ERRORS = {
    "in a choice": answer({"choices": [{"error": {"code": 502, "message": "upstream"}, "message": {"content": ""}}]}),
    "as the reason": answer(chat("The caf", finish="error")),
    "in a stream": stream(event(delta={"content": "The caf"}), event(error={"message": "gone"}, delta={}), finish=None),
    "as a stream's reason": stream("The caf", finish="error"),
}


@pytest.mark.parametrize("name", ERRORS)
async def test_an_error_in_an_answer_is_one(faulty_server, name):
    faulty_server.reply(ERRORS[name], say("at eight"))
    assert await ask(faulty_server) == "at eight"
    assert len(faulty_server.calls) == 2


@pytest.mark.parametrize("kind", ["application/json", "text/plain; charset=utf-8", "text/event-stream"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_what_an_answer_is_its_content_type_need_not_say(faulty_server, kind, streamed):
    events = b"\n\n: ping\n\n" + event(delta={"content": "at eight"}) + b"data: [DONE]\n\n"
    for body in (events, b"\n\n" + json.dumps(chat("at eight")).encode()):
        faulty_server.reply(raw(body, kind=kind))
        assert await ask(faulty_server, streamed=streamed) == "at eight"


async def test_a_character_split_over_two_pieces_is_whole(faulty_server):
    halves = [b'data: {"choices": [{"delta": {"content": "%s"}}]}\n\n' % half for half in (b"hi \\ud83d", b"\\ude00!")]
    faulty_server.reply(stream(*halves))
    assert await ask(faulty_server, streamed=True) == "hi \U0001f600!"


def test_streaming_is_paused_if_the_first_streams_all_break_off(monkeypatch):
    now = 1000.0
    monkeypatch.setattr("dialore.llm.capabilities.time.monotonic", lambda: now)
    never, once = ServerCapabilities(), ServerCapabilities()
    once.stream_ended(whole=True)
    for _ in range(3):
        assert never.streams
        never.stream_ended(whole=False)
        once.stream_ended(whole=False)
    assert not never.streams
    assert once.streams
    now += 600
    assert never.streams  # a model that was down does not end streaming until a restart
    never.stream_ended(whole=False)
    assert not never.streams
    now += 600
    never.stream_ended(whole=True)
    never.stream_ended(whole=False)
    assert never.streams


async def test_a_stream_that_breaks_off_ends_streaming_for_nobody_else(faulty_server):
    assert await ask(faulty_server, streamed=True) == "hello"
    for _ in range(4):
        faulty_server.reply(stream("at", finish=None, done=False))
        assert await ask(faulty_server) == "hello"
        assert "stream" not in faulty_server.calls[-1].body
        assert await ask(faulty_server, streamed=True) == "hello"
        assert "stream" in faulty_server.calls[-1].body


@pytest.mark.parametrize(
    "trouble", [status(500, "unexpected end of stream"), answer({"error": {"message": "unexpected stop of stream"}})]
)
async def test_trouble_inside_the_server_refuses_no_parameter(faulty_server, trouble):
    faulty_server.reply(trouble)
    assert await ask(faulty_server) == "hello"
    assert "stream" in faulty_server.calls[-1].body
    assert "temperature" in faulty_server.calls[-1].body


# --- thoughts


@pytest.mark.parametrize("close", ["</think>", "[/THINK]", "</reasoning>"])
async def test_thoughts_that_no_tag_opens_are_not_shown(faulty_server, close):
    pieces = [THOUGHTS, f"\n{close}\n\n", "At ", "eight."]
    faulty_server.always = stream(*[event(delta={"content": piece}) for piece in pieces])
    for streamed in (True, False, True):
        assert await ask(faulty_server, streamed=streamed) == "At eight."


async def test_an_answer_is_passed_on_at_once_where_thoughts_are_known_to_be_marked(faulty_server):
    faulty_server.always = stream(*[event(delta={"content": piece}) for piece in ("At ", "eight.")])
    model = endpoint(faulty_server)
    counts = []
    for _ in range(2):
        pieces: list[str] = []
        await model.complete(ASK, pieces.append)
        counts.append(len(pieces))
    assert counts == [1, 2]  # the first answer might have been thoughts
    await model.close()


def thinker(asked):
    """A model that thinks for 600 tokens before each answer."""
    if asked.body["max_tokens"] >= 700:
        return answer(chat("at eight", reasoning_content=THOUGHTS))
    return answer(chat("", finish="length", reasoning_content=THOUGHTS))


async def test_a_model_that_thinks_gets_tokens_for_it(faulty_server, caplog):
    faulty_server.by_request = thinker
    for _ in range(2):
        assert await ask(faulty_server) == "at eight"
    assert [asked.body["max_tokens"] for asked in faulty_server.calls] == [100, 4196, 4196]
    assert "model.thinking" in caplog.text


async def test_how_much_a_model_thinks_may_be_said(faulty_server):
    faulty_server.by_request = thinker
    assert await ask(faulty_server, thinking=600) == "at eight"
    assert len(faulty_server.calls) == 1
    error = await failure(faulty_server, thinking=0)
    assert "model.thinking" in error.hint
    assert not error.retryable


async def test_thoughts_alone_are_said_to_be(faulty_server):
    faulty_server.always = answer(chat(None, reasoning_content="At eight."))
    error = await failure(faulty_server)
    assert "thoughts alone (reasoning_content)" in error.message
    assert len(faulty_server.calls) == 1


async def test_thoughts_that_do_not_fit_the_window_are_cut_and_not_the_history(faulty_server):
    await ask(faulty_server)
    model = endpoint(faulty_server)
    model.capabilities.thoughts = 4096
    refusal = status(400, "maximum context length is 1500 tokens, you requested 4196")
    faulty_server.by_request = refusing(lambda body: body["max_tokens"] > 1400, refusal)
    assert (await model.complete(ASK)).text == "at eight"
    assert faulty_server.calls[-1].body["max_tokens"] == 1124
    await model.close()


# --- patience


async def test_silence_is_not_waited_for_twice(faulty_server):
    faulty_server.always = hang()
    error = await failure(faulty_server, timeout=0.2, retries=4)
    assert isinstance(error, ModelTimeoutError)
    assert (error.tries, len(faulty_server.calls)) == (1, 1)
    assert "model.timeout" in error.hint


async def test_a_model_that_is_loaded_is_waited_for(faulty_server, caplog, monkeypatch):
    monkeypatch.setattr("dialore.llm.pacing._LOADING_PAUSE", 0.01)
    loading = status(503, "Loading model")
    faulty_server.reply(*[loading] * 6, say("at eight"))
    with caplog.at_level(logging.WARNING):
        assert await ask(faulty_server, retries=0) == "at eight"
    assert caplog.text.count("being loaded") == 1
    assert endpoint(faulty_server).limiter.limit == 64


async def test_answers_are_streamed_inside_until_the_server_is_known_to_be_quick(faulty_server):
    model = endpoint(faulty_server)
    for _ in range(2):
        await model.complete(ASK)
    assert ["stream" in asked.body for asked in faulty_server.calls] == [True, False]
    model.capabilities.slowest = 4.0  # of a time-out of 5 s
    await model.complete(ASK)
    assert "stream" in faulty_server.calls[-1].body
    await model.close()

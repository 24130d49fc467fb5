"""The endpoint against a server that misbehaves in every way we know of."""

from __future__ import annotations

import asyncio
import email.utils
import json
import logging
import time

import pytest

from dialore.errors import InputError, ModelError, ModelTimeoutError
from dialore.llm.endpoint import Endpoint, list_models
from dialore.llm.http import HttpClient
from dialore.llm.model import Message, OutputSchema, Request, Sampling
from dialore.llm.pacing import Retry
from tests.llm.server import (
    FaultyServer,
    answer,
    chat,
    drop,
    endless_body,
    endless_stream,
    event,
    garbage,
    half_body,
    hang,
    html,
    raw,
    say,
    status,
    stream,
)

KEY = "secret-4f9a1c77"
ASK = Request(messages=(Message(role="user", content="Hi there"),))
WITH_SCHEMA = ASK.model_copy(
    update={
        "output_schema": OutputSchema(
            name="Plan", definition={"type": "object", "properties": {"a": {"type": "string", "default": ""}}}
        )
    }
)


def endpoint(server: FaultyServer, **settings) -> Endpoint:
    return Endpoint("m", server.url, KEY, **{"retries": 0, "timeout": 5, **settings})


async def ask(server: FaultyServer, request: Request = ASK, *, streamed: bool = False, max_bytes=10**7, **settings):
    model = endpoint(server, **settings)
    model.http.max_bytes = max_bytes
    pieces: list[str] = []
    try:
        return await model.complete(request, pieces.append if streamed else None), pieces
    finally:
        await model.close()


async def failure(server: FaultyServer, *, streamed: bool = False, **settings) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(server, streamed=streamed, **settings)
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("streamed", [False, True])
async def test_good_answer(faulty_server, streamed):
    faulty_server.say("a good answer")
    sampling = Sampling(temperature=0.2, top_p=0.9, max_tokens=50, stop=("END",), seed=3)
    completion, pieces = await ask(faulty_server, ASK.model_copy(update={"sampling": sampling}), streamed=streamed)
    assert completion.text == "a good answer"
    assert completion.model == "served-model"
    assert (completion.usage.calls, completion.usage.prompt_tokens, completion.usage.completion_tokens) == (1, 7, 3)
    assert completion.seconds > 0
    assert not completion.estimated
    assert pieces == (["a ", "good ", "answer"] if streamed else [])
    asked = faulty_server.calls[0]
    assert asked.headers["Authorization"] == f"Bearer {KEY}"
    body = asked.body
    assert body["messages"] == [{"role": "user", "content": "Hi there"}]
    assert (body["temperature"], body["top_p"], body["max_tokens"], body["stop"], body["seed"]) == (
        0.2,
        0.9,
        50,
        ["END"],
        3,
    )


@pytest.mark.parametrize("streamed", [False, True])
async def test_usage_is_estimated_where_the_server_gives_none(faulty_server, streamed):
    faulty_server.reply(say("你好 hello you", usage=None))
    completion, _ = await ask(faulty_server, streamed=streamed)
    assert completion.estimated
    assert completion.usage.completion_tokens == 4
    assert completion.usage.prompt_tokens == 2


FAULTS = {
    "401": (status(401, f"Incorrect API key provided: {KEY}"), "401", False, True),
    "403": (status(403, "forbidden"), "403", False, True),
    "400": (status(400, "messages too odd"), "messages too odd", False, False),
    "context": (status(400, "maximum context length is 10 tokens"), "context length", False, False),
    "context, as 500": (status(500, "Requested tokens (9) exceed context window of 4"), "context window", False, False),
    "a deadline": (status(500, "context deadline exceeded"), "deadline", True, False),
    "quota": (status(429, "exceeded your quota", "insufficient_quota"), "quota", False, True),
    "500": (status(500, "boom\nwith a second line"), "500 Internal Server Error: boom with", True, False),
    "502": (html(502), "502 Bad Gateway", True, False),
    "503": (raw(b"", 503), "503", True, False),
    "redirect": (raw(b"", 308, Location="http://127.0.0.1:9/v1?key=x"), "308", False, True),
    "page": (html(), "web page", False, True),
    "empty body": (raw(b""), "empty body", True, False),
    "half JSON": (raw(b'{"choices": [{"mess'), "broken JSON", True, False),
    "deep JSON": (raw(b"[" * 200_000), "broken JSON", True, False),
    "not UTF-8": (raw(b'{"choices": "\xff\xfe"}'), "broken JSON", True, False),
    "other JSON": (answer([1, 2]), "JSON of another kind", True, False),
    "no choices": (answer({"id": "x"}), "without choices", True, False),
    "choices empty": (answer({"choices": []}), "without choices", True, False),
    "choices null": (answer({"choices": [None]}), "without choices", True, False),
    "no message": (answer({"choices": [{"index": 0}]}), "without a message", True, False),
    "empty text": (answer(chat("")), "empty text", True, False),
    "null text": (answer(chat(None)), "empty text", True, False),
    "blank text": (answer(chat(" \n")), "empty text", True, False),
    "only thoughts": (answer(chat("<think>hm hm", finish="length")), "all its tokens", False, False),
    "error in 200": (answer({"error": {"message": "model overloaded"}}), "model overloaded", True, False),
    "content filter": (answer(chat("", finish="content_filter")), "content filter", False, False),
    "refusal": (answer(chat(None, refusal="I will not")), "I will not", False, False),
    "dropped": (drop(), "broke the connection", True, False),
    "half body": (half_body(), "broke the connection", True, False),
    "not HTTP": (garbage(), "HTTP", True, False),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", FAULTS)
async def test_faults(faulty_server, name, streamed):
    reply, words, retryable, configuration = FAULTS[name]
    faulty_server.always = reply
    error = await failure(faulty_server, streamed=streamed)
    assert words in error.message
    assert (error.retryable, error.configuration) == (retryable, configuration)
    assert "key=x" not in str(error)


async def test_a_page_from_an_endpoint_that_has_worked_is_passing_trouble(faulty_server):
    model = endpoint(faulty_server)
    await model.complete(ASK)
    faulty_server.reply(html())
    with pytest.raises(ModelError) as caught:
        await model.complete(ASK)
    assert caught.value.retryable
    await model.close()


async def test_retry_after_as_seconds_and_as_date(faulty_server):
    later = email.utils.formatdate(time.time() + 30, usegmt=True)
    for value, low, high in (("7", 7, 7), (later, 25, 31), ("soon", None, None)):
        faulty_server.reply(status(429, "slow down", Retry_After=value))
        error = await failure(faulty_server)
        assert error.retryable
        assert error.status == 429
        assert error.retry_after is None if low is None else low <= error.retry_after <= high


async def test_unknown_model_names_the_nearest(faulty_server):
    faulty_server.models = ["llama-3-8b", "qwen-2"]
    faulty_server.reply(status(404, "The model does not exist"))
    model = Endpoint("lama-3-8b", faulty_server.url, retries=3)
    with pytest.raises(ModelError, match="did you mean llama-3-8b") as caught:
        await model.complete(ASK)
    assert caught.value.configuration
    assert len(faulty_server.calls) == 1
    await model.close()


async def test_wrong_path_names_the_right_one(faulty_server):
    model = Endpoint("served-model", faulty_server.root, retries=0)
    with pytest.raises(ModelError, match=f"the base URL should be {faulty_server.url}"):
        await model.complete(ASK)
    await model.close()


async def test_nothing_listens_there():
    model = Endpoint("m", "http://127.0.0.1:1/v1", retries=0)
    with pytest.raises(ModelError, match=r"nothing listens at http://127\.0\.0\.1:1/v1") as caught:
        await model.complete(ASK)
    assert caught.value.retryable
    await model.close()


async def test_no_such_host():
    model = Endpoint("m", "http://user:hidden@no-such-host.invalid/v1", retries=0)
    with pytest.raises(ModelError, match=r"no-such-host\.invalid/\S+ is not known") as caught:
        await model.complete(ASK)
    assert "hidden" not in str(caught.value) + repr(model)
    await model.close()


async def test_https_where_http_is_spoken(faulty_server):
    model = Endpoint("m", faulty_server.url.replace("http:", "https:"), retries=0)
    with pytest.raises(ModelError, match="no secure connection") as caught:
        await model.complete(ASK)
    assert caught.value.configuration
    await model.close()


@pytest.mark.parametrize("streamed", [False, True])
async def test_time_out(faulty_server, streamed):
    faulty_server.reply(hang())
    error = await failure(faulty_server, streamed=streamed, timeout=0.2)
    assert isinstance(error, ModelTimeoutError)
    assert not error.retryable
    assert "was silent for 0.2 s" in error.message
    assert "model.timeout" in error.hint


async def test_an_endless_body_is_cut_off(faulty_server):
    faulty_server.reply(endless_body())
    error = await failure(faulty_server, max_bytes=1_000_000)
    assert "more than 1,000,000 bytes" in error.message


async def test_an_endless_stream_is_cut_off_by_size(faulty_server):
    faulty_server.reply(endless_stream())
    error = await failure(faulty_server, streamed=True, max_bytes=100_000)
    assert "more than 100,000 bytes" in error.message


async def test_an_endless_stream_is_cut_off_by_tokens(faulty_server, monkeypatch):
    monkeypatch.setattr("dialore.llm.endpoint.THOUGHTS", 0)
    faulty_server.reply(endless_stream())
    brief = ASK.model_copy(update={"sampling": Sampling(max_tokens=10)})
    with pytest.raises(ModelError, match="far beyond"):
        await ask(faulty_server, brief, streamed=True)


async def test_a_deadline_is_noticed_while_one_chunk_holds_many_events(faulty_server):
    class OneChunk:
        def __init__(self):
            self.content = self
            self.chunks = [b"data: {}\n\n" * 2000]

        async def readany(self):  # as aiohttp's: data that is there already is returned without a pause
            return self.chunks.pop() if self.chunks else b""

    read = 0

    async def read_all(client):
        nonlocal read
        async for _ in client.events(OneChunk()):
            time.sleep(0.001)  # the work that each event makes
            read += 1

    async with HttpClient(faulty_server.url).once() as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(read_all(client), 0.1)
    assert read < 2000


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_that_flows_is_not_cut_off(faulty_server, streamed):
    faulty_server.reply(stream(*["word "] * 6, pause=0.1))
    completion, _ = await ask(faulty_server, streamed=streamed, timeout=0.4)
    assert completion.text.split() == ["word"] * 6


async def test_silence_within_an_answer_ends_it(faulty_server):
    faulty_server.reply(stream("one ", "two ", pause=30))
    started = time.monotonic()
    assert isinstance(await failure(faulty_server, timeout=0.3), ModelTimeoutError)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("finish", [None, "stop"])
async def test_a_stream_without_done(faulty_server, finish):
    faulty_server.reply(stream("one ", "two", finish=finish, done=False))
    if finish is None:
        assert "broke off in the middle" in (await failure(faulty_server, streamed=True)).message
    else:
        completion, _ = await ask(faulty_server, streamed=True)
        assert completion.text == "one two"


async def test_a_stream_that_breaks_off(faulty_server):
    faulty_server.reply(stream("one ", cut=True), say("never asked for"))
    error = await failure(faulty_server, streamed=True, retries=3)
    assert error.retryable
    assert len(faulty_server.calls) == 1  # a piece was passed on, so no other try


async def test_a_stream_that_breaks_before_its_first_piece_is_tried_again(faulty_server):
    faulty_server.reply(stream(cut=True), say("at last"))
    completion, pieces = await ask(faulty_server, streamed=True, retries=1)
    assert (completion.text, "".join(pieces), completion.usage.retries) == ("at last", "at last", 1)


async def test_a_stream_that_stays_open_after_its_end(faulty_server):
    faulty_server.reply(stream("one", linger=20))
    started = time.monotonic()
    completion, _ = await ask(faulty_server, streamed=True)
    assert completion.text == "one"
    assert time.monotonic() - started < 10


async def test_an_error_within_a_stream(faulty_server):
    faulty_server.reply(stream("one ", b'data: {"error": {"message": "out of memory"}}\n\n'))
    assert "out of memory" in (await failure(faulty_server, streamed=True)).message


async def test_a_kept_connection_that_was_closed_meanwhile_is_opened_anew(faulty_server):
    def say_and_close(handler):
        say("one")(handler)
        handler.close_connection = True  # without having said so

    faulty_server.reply(say_and_close, say("two"))
    model = endpoint(faulty_server, retries=0)
    assert [(await model.complete(ASK)).text for _ in range(2)] == ["one", "two"]
    await model.close()


async def test_events_split_anywhere(faulty_server):
    whole = event("你好，") + event("世界").replace(b"\n\n", b"\r\n\r\n") + b"event: x\r\ndata:[DONE]\n\n"
    faulty_server.reply(stream(*[whole[place : place + 1] for place in range(len(whole))], event(None, finish="stop")))
    completion, pieces = await ask(faulty_server, streamed=True, timeout=10)
    assert pieces == ["你好，", "世界"]
    assert completion.text == "你好，世界"


async def test_a_server_that_does_not_stream(faulty_server):
    faulty_server.reply(answer(chat("all at once")))
    completion, pieces = await ask(faulty_server, streamed=True)
    assert pieces == ["all at once"]
    assert completion.text == "all at once"


@pytest.mark.parametrize("streamed", [False, True])
async def test_length_is_kept(faulty_server, streamed):
    faulty_server.reply(say("cut off", finish="length"))
    completion, _ = await ask(faulty_server, streamed=streamed)
    assert (completion.text, completion.finish_reason) == ("cut off", "length")


@pytest.mark.parametrize("streamed", [False, True])
async def test_thoughts_are_stripped(faulty_server, streamed):
    faulty_server.reply(say("\n<think>first this, then <b> that</think>\n\nThe answer </think> here"))
    completion, pieces = await ask(faulty_server, streamed=streamed)
    assert completion.text == "The answer </think> here"
    assert "".join(pieces) == (completion.text if streamed else "")


async def test_thoughts_without_their_opening_tag(faulty_server):
    faulty_server.reply(answer(chat("hm, well</think>\n\nYes.")))
    assert (await ask(faulty_server))[0].text == "Yes."


async def test_text_in_parts_and_half_a_character(faulty_server):
    faulty_server.reply(
        raw(b'{"choices": [{"message": {"content": [{"type": "text", "text": "a\\ud83d"}, {"text": "b"}]}}]}')
    )
    completion, _ = await ask(faulty_server)
    assert completion.text == "a\ufffdb"
    completion.text.encode()


@pytest.mark.parametrize(("said", "sent"), [("naïve 你好 \u2028", "naïve 你好 \u2028"), ("a\ud83d", "a?")])
async def test_any_text_can_be_sent(faulty_server, said, sent):
    await ask(faulty_server, Request(messages=(Message(role="user", content=said),)))
    assert faulty_server.calls[0].body["messages"] == [{"role": "user", "content": sent}]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
async def test_an_answer_in_any_encoding_of_json(faulty_server, encoding):
    faulty_server.reply(raw(json.dumps(chat("你好, naïve"), ensure_ascii=False).encode(encoding)))
    assert (await ask(faulty_server))[0].text == "你好, naïve"


async def test_schema_is_sent_in_its_strict_form(faulty_server):
    await ask(faulty_server, WITH_SCHEMA)
    assert faulty_server.calls[0].body["response_format"] == {
        "type": "json_schema",
        "json_schema": {
            "name": "Plan",
            "strict": True,
            "schema": {
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "additionalProperties": False,
                "required": ["a"],
            },
        },
    }


async def test_response_format_steps_down_and_remembers(faulty_server):
    def refuse(asked):
        kind = (asked.body.get("response_format") or {}).get("type")
        return status(400, f"'response_format.type' {kind} is not supported") if kind else say()

    faulty_server.by_request = refuse
    model = endpoint(faulty_server)
    await asyncio.gather(*[model.complete(WITH_SCHEMA) for _ in range(5)])
    before = len(faulty_server.calls)
    await model.complete(WITH_SCHEMA)
    kinds = [(asked.body.get("response_format") or {}).get("type") for asked in faulty_server.calls]
    assert {"json_schema", "json_object", None} == set(kinds)
    assert len(kinds) == before + 1
    assert kinds[-1] is None
    await model.close()


async def test_json_object_is_kept_where_it_is_taken(faulty_server):
    faulty_server.reply(status(422, "json_schema is unknown here"))
    model = endpoint(faulty_server)
    await model.complete(WITH_SCHEMA)
    await model.complete(WITH_SCHEMA)
    assert [asked.body["response_format"]["type"] for asked in faulty_server.calls] == [
        "json_schema",
        "json_object",
        "json_object",
    ]
    await model.close()


async def test_refused_parameters_are_learnt(faulty_server, caplog):
    def refuse(asked):
        if "max_tokens" in asked.body:
            return status(
                400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", parameter="max_tokens"
            )
        if "temperature" in asked.body:
            return status(
                400, "'temperature' does not support 0.7; only the default (1)", "unsupported_value", "temperature"
            )
        return say()

    faulty_server.by_request = refuse
    model = endpoint(faulty_server)
    with caplog.at_level(logging.WARNING):
        await model.complete(ASK)
        await model.complete(ASK)
    assert len(faulty_server.calls) == 4
    assert faulty_server.calls[-1].body["max_completion_tokens"] == 1024
    assert "temperature" in caplog.text
    assert KEY not in caplog.text
    await model.close()


async def test_a_parameter_out_of_range_is_not_dropped(faulty_server):
    faulty_server.always = status(400, "temperature must be between 0 and 2")
    error = await failure(faulty_server)
    assert "between 0 and 2" in error.message
    assert len(faulty_server.calls) == 1


async def test_stream_options_are_dropped_where_refused(faulty_server):
    faulty_server.reply(status(400, "Unrecognized request argument: stream_options"))
    completion, _ = await ask(faulty_server, streamed=True)
    assert completion.text == "hello"
    assert "stream_options" not in faulty_server.calls[1].body


async def test_a_server_that_refuses_for_ever_is_given_up(faulty_server):
    faulty_server.always = status(400, "Use max_completion_tokens; response_format, temperature not supported")
    assert not (await failure(faulty_server)).retryable
    assert len(faulty_server.calls) < 10


async def test_retries_are_counted(faulty_server):
    faulty_server.reply(status(503, retry_after_ms="1"), status(429, retry_after_ms="1"), say("ok"))
    model = endpoint(faulty_server, retries=2)
    model.retry = Retry(2, base=0.001)
    completion = await model.complete(ASK)
    assert (completion.text, completion.usage.retries) == ("ok", 2)
    await model.close()


async def test_models(faulty_server):
    faulty_server.models = ["a", "b"]
    model = endpoint(faulty_server)
    assert await list_models(model.http) == ["a", "b"]
    await model.close()


def test_one_endpoint_serves_several_loops_in_turn(faulty_server):
    model = endpoint(faulty_server)

    async def once() -> str:
        completion = await model.complete(ASK)
        await model.close()
        return completion.text

    assert [asyncio.run(once()), asyncio.run(once())] == ["hello", "hello"]


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x/v1", "http://", "http://a b/v1", "http://h:99999/v1"])
def test_bad_address(url):
    with pytest.raises(InputError, match="not an endpoint's address"):
        Endpoint("m", url)


@pytest.mark.parametrize("key", ["abc\ndef", "密钥", "abc\x00"])
def test_bad_key_is_not_shown(key):
    with pytest.raises(InputError) as caught:
        Endpoint("m", "http://h/v1", key)
    assert key not in str(caught.value)


def test_address_in_one_form():
    assert Endpoint("m", " http://h:1/v1/chat/completions/ ").http.base_url == "http://h:1/v1"

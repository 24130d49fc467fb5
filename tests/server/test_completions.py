"""OpenAI's chat completions, asked by OpenAI's own package and by plain HTTP."""

from __future__ import annotations

import json

import pytest

from dialore.server.wire import split_system
from tests.server.conftest import DRAFT, Scripted, need

openai = pytest.importorskip("openai")
HANDBOOK = "Dogs are welcome on the terrace, and there is always a bowl of water."
ASK = [{"role": "user", "content": "May I bring my dog?"}]


@pytest.fixture
def client():
    made = []

    def connect(running, key="none"):
        made.append(openai.OpenAI(base_url=f"{running.url}/v1", api_key=key, max_retries=0))
        return made[-1]

    yield connect
    for each in made:
        each.close()


@pytest.fixture
def cafe(serving):
    running = serving(
        Scripted("Dogs are welcome on the terrace [1]. Bring yours!", needs=[need("dogs on the terrace")], pause=0.05)
    )
    made = running.http.post(
        "/v1/knowledge/documents", json={"text": HANDBOOK, "title": "Café > Dogs", "url": "https://cafe.example/dogs"}
    )
    assert made.status_code == 201, made.text
    return running


def test_an_answer_has_citations_with_their_places(cafe, client):
    made = client(cafe).chat.completions.create(model="dialore", messages=ASK)
    [choice] = made.choices
    assert choice.message.content == "Dogs are welcome on the terrace. Bring yours!"
    assert (choice.finish_reason, choice.message.role) == ("stop", "assistant")
    assert made.usage.total_tokens == made.usage.prompt_tokens + made.usage.completion_tokens > 200
    grounding = choice.message.model_extra["grounding"]
    [cited] = grounding["citations"]
    assert (cited["title"], cited["section"], cited["url"]) == ("Café", "Dogs", "https://cafe.example/dogs")
    assert choice.message.content[cited["start"] : cited["end"]] == "Dogs are welcome on the terrace"
    assert cited["text"] == HANDBOOK
    assert grounding["demands"]["explicit"] == ["dogs on the terrace"]
    trace = cafe.http.get(f"/v1/traces/{grounding['trace']}").json()
    assert {"needs", "draft", "first-look-library"} <= {stage["stage"] for stage in trace["trace"]}


def test_a_stream_is_the_same_text_with_stages_and_the_grounding_last(cafe, client):
    chunks = list(
        client(cafe).chat.completions.create(
            model="dialore", messages=ASK, stream=True, stream_options={"include_usage": True}
        )
    )
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == "Dogs are welcome on the terrace. Bring yours!"
    assert len([piece for piece in pieces if piece]) > 3
    stages = [chunk.model_extra["stage"] for chunk in chunks if "stage" in chunk.model_extra]
    assert stages[0] in {"needs", "persona"}
    assert stages[-1] in {"draft", "selection"}
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    [grounding] = [chunk.model_extra["grounding"] for chunk in chunks if "grounding" in chunk.model_extra]
    assert grounding["citations"][0]["text"] == HANDBOOK
    assert chunks[-1].usage.completion_tokens > 0


def test_the_streaming_helper_of_the_package_reads_it_too(cafe, client):
    with client(cafe).chat.completions.stream(model="dialore", messages=ASK) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        assert stream.get_final_completion().choices[0].message.content == text


def test_where_nothing_is_needed_the_draft_streams_without_a_rewrite(serving):
    running = serving(Scripted())
    with running.http.stream(
        "POST", "/v1/chat/completions", json={"messages": [{"role": "user", "content": "Hi!"}], "stream": True}
    ) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    chunks = [json.loads(line[6:]) for line in lines[:-1]]
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks) == DRAFT
    assert "write" not in {chunk.get("stage") for chunk in chunks}


def test_a_stream_tells_steps_and_the_draft_and_that_it_goes_on_in_silence(serving, monkeypatch):
    monkeypatch.setattr("dialore.server.completions._SILENCE", 0.02)
    running = serving(Scripted("Welcome there. [1]", needs=[need("dogs on the terrace")], pause=0.1))
    running.http.post("/v1/knowledge/files", files={"file": ("cafe.md", b"Dogs are welcome on the terrace.")})
    asked = {"messages": [{"role": "user", "content": "Good morning."}], "stream": True}
    with running.http.stream("POST", "/v1/chat/completions", json=asked) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert ": still at work" in lines
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    steps = {chunk["stage"]: (chunk["step"], chunk["steps"]) for chunk in chunks if "stage" in chunk}
    assert steps["draft"] == steps["needs"] == (1, 2)
    assert steps["write"] == (2, 2)
    assert "".join(chunk.get("draft", "") for chunk in chunks) == "Welcome there."
    first_text = next(place for place, each in enumerate(chunks) if each["choices"][0]["delta"].get("content"))
    assert all("draft" not in chunk for chunk in chunks[first_text:])


def test_where_no_method_is_named_there_is_another_to_compare_with(serving):
    data = serving().http.get("/v1/models").json()["data"]
    methods = {"dialore": "weave", "dialore/rag": "rag"}
    assert {each["id"]: each["method"] for each in data} == methods


def test_each_agent_is_a_model(serving, client):
    given = {"agents": {"bee": {"method": "vanilla", "persona": ["I keep bees."]}}, "method": ["weave", "dcrag"]}
    running = serving(Scripted(), **given)
    names = [model.id for model in client(running).models.list()]
    assert names == ["dialore", "dialore/dcrag", "dialore/bee"]
    bee = client(running).models.retrieve("dialore/bee")
    assert (bee.id, bee.model_extra["method"]) == ("dialore/bee", "vanilla")
    made = client(running).chat.completions.create(model="dialore/bee", messages=ASK)
    assert made.choices[0].message.model_extra["grounding"]["method"] == "vanilla"
    with pytest.raises(openai.NotFoundError, match="did you mean dialore/bee"):
        client(running).chat.completions.create(model="dialore/been", messages=ASK)


def test_system_messages_become_persona_and_instructions_of_the_writing_stages(serving):
    running = serving(Scripted(), sources={"graph": "starter"})
    system = "You are Bob, a barista in Leeds.\nYou must answer in one sentence. Your name is Bob."
    running.http.post(
        "/v1/chat/completions", json={"messages": [{"role": "system", "content": system}, *ASK], "temperature": 0.3}
    )
    draft, needs = running.model.prompt("draft"), running.model.prompt("needs")
    assert "- I am Bob, a barista in Leeds." in draft
    assert "- You must answer in one sentence." in draft
    assert "You must answer in one sentence." not in needs
    assert "I am Bob" in needs


@pytest.mark.parametrize(
    ("said", "persona", "instructions"),
    [
        ("You are a helpful assistant.", ["I am a helpful assistant."], []),
        ("You are to answer briefly.", [], ["You are to answer briefly."]),
        ("You're Ada. You love your garden.", ["I am Ada."], ["You love your garden."]),
        ("You are not allowed to swear.", [], ["You are not allowed to swear."]),
        ("I want short answers.", [], ["I want short answers."]),
        ("- I'm from Leeds.\n- Be kind.", ["I'm from Leeds."], ["Be kind."]),
        ("You are Ada, and your name is known.", ["I am Ada, and my name is known."], []),
        ("你是小李。你喜欢喝茶。回答要简短。", ["我是小李。"], ["你喜欢喝茶。", "回答要简短。"]),
        ("", [], []),
    ],
)
def test_how_a_system_message_is_read(said, persona, instructions):
    assert split_system([said]) == (tuple(persona), tuple(instructions))


def test_sampling_reaches_the_stages_that_write_and_no_others(serving):
    running = serving(Scripted(needs=[{"what": "x", "source": "graph", "query": "dog", "asked": True}]))
    running.say(temperature=0.0, max_tokens=33, stop=["END"], seed=7)
    by_stage = {each.label.rpartition("/")[2]: each.sampling for each in running.model.requests}
    for stage in ("draft", "write"):
        said = by_stage[stage]
        assert (said.temperature, said.max_tokens, said.stop, said.seed) == (0.0, 33, ("END",), 7)
    assert by_stage["needs"].max_tokens > 33


REFUSED = [
    ({"n": 2}, "n"),
    ({"temperature": 3}, "temperature"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 10**6}, "max_tokens"),
    ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"logprobs": True}, "logprobs"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "assistant", "content": "Hi"}]}, "messages"),
    ({"messages": [{"role": "tool", "content": "Hi"}]}, "messages.0.role"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages.0"),
]


@pytest.mark.parametrize(("given", "param"), REFUSED)
def test_what_is_not_supported_is_an_error_in_openais_shape(serving, given, param):
    answer = serving().say(**given)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"].startswith(param)


def test_what_only_tunes_is_passed_over(serving):
    further = {
        "presence_penalty": 1,
        "logit_bias": {"1": 2},
        "service_tier": "auto",
        "metadata": {"a": "b"},
        "tools": [],
    }
    assert serving().say(**further).status_code == 200


def test_a_stage_that_fails_is_an_error_also_in_mid_stream(serving, client):
    class Failing(Scripted):
        async def complete(self, request, on_text=None):
            from dialore.errors import ModelError

            raise ModelError("http://10.0.0.1/secret is down")

    running = serving(Failing())
    plain = running.say()
    assert plain.status_code == 502
    assert plain.json()["error"]["type"] == "server_error"
    assert "10.0.0.1" not in plain.text
    with pytest.raises(openai.APIError, match="failed"):
        list(client(running).chat.completions.create(model="dialore", messages=ASK, stream=True))


def test_without_a_model_it_shows_what_was_found(serving):
    running = serving()
    running.app.state.service.agents._connect = lambda _settings, _name: None
    running.app.state.service.agents.open()
    assert "honey" in running.say("I have a cold and want honey.").json()["choices"][0]["message"]["content"]


def test_the_user_and_the_length_of_the_history(serving):
    running = serving(server={"max_messages": 3, "max_characters": 100})
    assert running.say(user="ada").status_code == 200
    long = running.say("word " * 30)
    assert (long.status_code, long.json()["error"]["code"]) == (400, "context_length_exceeded")
    many = running.say(messages=[*ASK, {"role": "assistant", "content": "No."}] * 2 + ASK)
    assert many.json()["error"]["code"] == "context_length_exceeded"

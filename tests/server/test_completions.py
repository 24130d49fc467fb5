"""OpenAI's chat completions, asked by OpenAI's own package and by plain HTTP."""

from __future__ import annotations

import json

import pytest

from dialore.retrieval.documents.indexing import build_documents
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
    monkeypatch.setattr("dialore.server.service._SILENCE_S", 0.02)
    model = Scripted("Welcome there. [1]", needs=[need("Dogs are welcome on the terrace.")])
    running = serving(model)
    running.http.post("/v1/knowledge/files", files={"file": ("cafe.md", b"Dogs are welcome on the terrace.")})
    asked = {"messages": [{"role": "user", "content": "I am new here, good morning."}], "stream": True}
    running.http.post("/v1/chat/completions", json={**asked, "stream": False})  # loads the embedder
    model.pause = 0.15
    with running.http.stream("POST", "/v1/chat/completions", json=asked) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert ": still at work" in lines
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    steps = {chunk["stage"]: (chunk["step"], chunk["steps"]) for chunk in chunks if "stage" in chunk}
    assert steps["draft"] == steps["needs"] == (1, 2)
    assert steps["write"] == (2, 2)
    assert "".join(chunk.get("draft", "") for chunk in chunks) == "Welcome there. [1]"
    first_text = next(place for place, each in enumerate(chunks) if each["choices"][0]["delta"].get("content"))
    assert all("draft" not in chunk for chunk in chunks[first_text:])


def test_where_no_method_is_named_there_is_another_to_compare_with(serving):
    data = serving().http.get("/v1/models").json()["data"]
    methods = {"dialore": "weave", "dialore/rag": "rag"}
    assert {each["id"]: each["method"] for each in data} == methods


def test_without_a_model_its_methods_are_one(serving):
    running = serving(model={"model": "lexical"})
    assert [each["id"] for each in running.http.get("/v1/models").json()["data"]] == ["dialore"]
    asked = {"model": "dialore/rag", "messages": ASK}
    assert running.http.post("/v1/chat/completions", json=asked).status_code == 200


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


def test_system_messages_reach_the_writing_stages_as_they_are_and_persona_is_a_field(serving):
    running = serving(Scripted(), sources={"graph": "starter"})
    system = (
        "You are Bob's bot, v. 2.0. Reply so:\n1. Title\n2. Body\n<context>\nI am a bat, said Mr. Hill.\n</context>"
    )
    body = {"messages": [{"role": "system", "content": system}, *ASK], "persona": ["I keep bees."], "temperature": 0.3}
    running.http.post("/v1/chat/completions", json=body)
    draft, needs = running.model.prompt("draft"), running.model.prompt("needs")
    assert system in draft
    assert "said Mr. Hill" not in needs
    assert "I am a bat" not in needs
    for prompt in (draft, needs):
        assert "I keep bees." in prompt


OLD = [
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "See?"}]},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]},
    {"role": "tool", "content": "42", "tool_call_id": "1"},
    {"role": "user", "content": ""},
    {"role": "assistant", "content": "Nice."},
]


def test_what_is_no_text_is_passed_over_in_earlier_turns_with_a_note(serving):
    running = serving()
    for path, name in (("chat/completions", "messages"), ("ground", "messages")):
        answer = running.http.post(f"/v1/{path}", json={name: [*OLD, *ASK]}).json()
        grounding = answer["choices"][0]["message"]["grounding"] if "choices" in answer else answer
        told = " ".join(grounding["notes"])
        assert all(what in told for what in ("image_url", "a tool's result", "no text"))
    assert "See?" in running.model.prompt("draft")
    assert "42" not in running.model.prompt("draft")


@pytest.mark.parametrize("last", [OLD[0], OLD[2], OLD[3], {"role": "user", "content": [{"type": "input_audio"}]}])
def test_what_is_no_text_is_refused_in_the_last_turn_in_one_sentence(serving, last):
    answer = serving().http.post("/v1/chat/completions", json={"messages": [*ASK, last]})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["message"].startswith("the last message has ")
    assert error["param"] == "messages.1"


@pytest.mark.parametrize(
    "given",
    [
        dict.fromkeys(("stream", "user", "model", "stop", "tools", "persona", "metadata", "max_tokens")),
        {"stream": None, "stream_options": {"include_usage": None}},
        {"max_tokens": -1},
        {"max_tokens": 10**6},
        {"top_p": 0},
        {"stop": [""]},
        {"stop": ""},
        {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "auto"},
        {"functions": [{"name": "f"}]},
    ],
)
def test_what_clients_always_send_is_answered(serving, given):
    assert serving().say(**given).status_code == 200


def test_more_tokens_than_allowed_are_as_many_as_allowed(serving):
    running = serving(server={"max_tokens": 99})
    running.say(max_tokens=5000, top_p=0)
    sampled = next(each.sampling for each in running.model.requests if each.label.endswith("/draft"))
    assert (sampled.max_tokens, sampled.temperature, sampled.top_p) == (99, 0.0, None)


def test_head_is_get_without_a_body(serving):
    running = serving()
    for path in ("/", "/healthz", "/v1/models"):
        head, got = running.http.head(path), running.http.get(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == got.headers["content-length"]


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
    ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"logprobs": True}, "logprobs"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "assistant", "content": "Hi"}]}, "messages"),
    ({"messages": [{"role": "tool", "content": "Hi"}]}, "messages.0"),
    ({"messages": [{"role": "nobody", "content": "Hi"}]}, "messages.0.role"),
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
        async def complete(self, request, on_token=None):
            from dialore.errors import ModelError

            raise ModelError("http://10.0.0.1/secret is down")

    running = serving(Failing())
    plain = running.say()
    assert plain.status_code == 502
    assert plain.json()["error"]["type"] == "server_error"
    assert "10.0.0.1" not in plain.text
    with pytest.raises(openai.APIError, match="is down"):
        list(client(running).chat.completions.create(model="dialore", messages=ASK, stream=True))


def test_without_a_model_it_shows_what_was_found(serving):
    running = serving()
    running.app.state.service.agents._connect = lambda _settings, _name: None
    running.app.state.service.agents.open()
    assert "honey" in running.say("I have a cold and want honey.").json()["choices"][0]["message"]["content"]


def test_the_user_and_the_length_of_the_history(serving, monkeypatch):
    monkeypatch.setattr("dialore.server.service.MAX_MESSAGES", 3)
    running = serving(server={"max_characters": 100})
    assert running.say(user="ada").status_code == 200
    long = running.say("word " * 30)
    assert (long.status_code, long.json()["error"]["code"]) == (400, "context_length_exceeded")
    many = running.say(messages=[*ASK, {"role": "assistant", "content": "No."}] * 2 + ASK)
    assert many.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("sources", "agent", "strict"),
    [
        ({"documents": ["docs.index"]}, {}, True),
        ({"documents": ["docs.index"]}, {"options": {"strict": False}}, False),
        ({"documents": ["docs.index"]}, {"persona": ["I am a gardener."]}, False),
        ({"documents": ["docs.index"], "graph": ["starter"]}, {}, False),
    ],
    ids=["documents alone", "switched off", "a persona", "a graph"],
)
def test_documents_alone_bind_responses_to_them(serving, tmp_path, monkeypatch, sources, agent, strict):
    monkeypatch.chdir(tmp_path)
    build_documents("docs.index", texts=["The ferry leaves at nine."])
    running = serving(sources=sources, agents={"desk": {"method": "weave", **agent}})
    reply = running.say("When does the ferry leave?", model="dialore/desk")
    assert reply.status_code == 200, reply.text
    assert ("common knowledge" not in running.model.prompt("draft")) == strict

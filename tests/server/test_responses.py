"""OpenAI's Responses API, asked by OpenAI's own package."""

from __future__ import annotations

import pytest

from tests.server.conftest import DRAFT, Scripted

openai = pytest.importorskip("openai")


@pytest.fixture
def asked(serving):
    running = serving(Scripted())
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client:
        yield running, client.responses


def test_a_response_is_text_with_its_grounding(asked):
    running, responses = asked
    made = responses.create(model="dialore", input="Hello", instructions="You are Bob. Be brief.", max_output_tokens=50)
    assert (made.output_text, made.status) == (DRAFT, "completed")
    assert made.usage.total_tokens == made.usage.input_tokens + made.usage.output_tokens > 0
    assert made.model_extra["grounding"]["method"] == "weave"
    assert "\nYou are Bob. Be brief.\n" in running.model.prompt("draft")
    [draft] = [each for each in running.model.requests if each.label.endswith("/draft")]
    assert draft.sampling.max_tokens == 50


def test_a_stream_has_the_events_of_the_api(asked):
    messages = [
        {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]},
        {"role": "user", "content": "May I bring my dog?"},
    ]
    events = list(asked[1].create(model="dialore", input=messages, stream=True))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == DRAFT
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    assert events[-1].response.output_text == DRAFT
    with asked[1].stream(model="dialore", input="Hello") as stream:
        assert stream.get_final_response().output_text == DRAFT


@pytest.mark.parametrize(
    "given",
    [
        {"previous_response_id": "resp_1"},
        {"background": True},
        {"text": {"format": {"type": "json_object"}}},
        {"prompt": {"id": "x"}},
    ],
)
def test_what_goes_beyond_text_is_refused(asked, given):
    with pytest.raises(openai.BadRequestError):
        asked[1].create(model="dialore", input="Hello", **given)


def test_a_stream_of_a_model_that_is_none_is_refused_by_its_status(serving):
    made = serving().http.post("/v1/responses", json={"model": "dialore/nobody", "input": "Hello", "stream": True})
    assert (made.status_code, made.json()["error"]["code"]) == (404, "model_not_found")

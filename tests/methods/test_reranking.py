"""Tests of `rerank`: the order of what sources find, by a reranker or by the language model."""

from __future__ import annotations

import json

import pytest

from dialore.dialogue import Dialogue
from dialore.errors import InputError, ModelError
from dialore.llm.model import Completion, Usage
from dialore.session import Models, Session
from dialore.sources.in_memory import InMemoryPassages

PASSAGES = [
    "The ferry to Stonnick leaves at ten from pier three.",
    "The ferry is painted blue, and its ferry bell is of brass: a ferry as ferries were.",
    "Dogs travel free on the ferry.",
]
TALK = Dialogue(id="ferry", turns=["Which colour is the ferry?"])


class Model:
    """Names these passages, or fails; keeps what it was asked."""

    name = "scripted"

    def __init__(self, best):
        self.best, self.asked = best, {}

    async def complete(self, request, on_token=None):
        stage = request.label.rsplit("/", 1)[-1]
        self.asked[stage] = request
        if stage.startswith("reranking") and isinstance(self.best, Exception):
            raise self.best
        text = json.dumps({"best": self.best}) if stage.startswith("reranking") else "It is blue."
        return Completion(text=text, model=self.name, usage=Usage(calls=1, prompt_tokens=10, completion_tokens=5))

    async def close(self):
        pass


async def given(rerank, model, **options):
    given = {"documents": InMemoryPassages(PASSAGES, retriever="bm25")}
    session = Session({"rerank": rerank}, given)
    response = await session.agent("rag", Models(model), options).respond(TALK)
    return [PASSAGES.index(piece.text) for piece in response.knowledge], response


@pytest.mark.parametrize(("best", "order"), [([3, 1], [2, 0, 1]), ([2, 2, 9], [1, 0, 2]), ([], [0, 1, 2])])
async def test_the_model_puts_passages_in_order_and_what_it_leaves_out_stays_behind(best, order):
    found, _ = await given("", Model(best))
    model = Model([found.index(number - 1) + 1 if number <= 3 else number for number in best])
    reranked, response = await given("model", model)
    rest = [place for place in found if place not in order[: len(set(best) - {9})]]
    assert reranked == [*order[: len(set(best) - {9})], *rest]
    assert response.usage.calls == 2
    stage = next(name for name in model.asked if name.startswith("reranking"))
    assert all(passage in model.asked[stage].messages[-1].content for passage in PASSAGES)
    assert model.asked[stage].output_schema.definition["properties"]["best"]["items"]["maximum"] == len(PASSAGES)


async def test_more_is_found_than_is_asked_for():
    plain, _ = await given("", Model([]), top=1)
    reranked, response = await given("model", Model([1, 2, 3][::-1]), top=1)
    assert len(reranked) == 1
    assert reranked != plain
    assert max(len((step.output or {}).get("found", ())) for step in response.trace) == 3


async def test_a_reranker_puts_them_in_order_without_a_call():
    plain, _ = await given("", Model([]))
    reranked, response = await given("dense", Model([]))
    assert sorted(reranked) == sorted(plain)
    assert reranked[0] == 1  # by meaning, the one that tells the colour
    assert response.usage.calls == 1
    assert any(step.stage.startswith("reranking") for step in response.trace)


async def test_where_the_model_fails_the_order_stays():
    plain, _ = await given("", Model([]))
    reranked, response = await given("model", Model(ModelError("overloaded", hint="wait", retryable=True)))
    assert (reranked, response.status) == (plain, "ok")
    with pytest.raises(ModelError, match="wrong key"):
        await given("model", Model(ModelError("wrong key", hint="set another", configuration=True)))


async def test_an_unknown_reranker_is_said_at_once():
    with pytest.raises(InputError, match="reranker"):
        await given("crss:x", Model([]))


@pytest.mark.parametrize(("method", "model"), [("rag", None), ("vanilla", Model([])), ("dcrag", Model([]))])
def test_what_cannot_be_reranked_is_said(method, model):
    session = Session({"rerank": "model"})
    with pytest.raises(InputError, match="rerank"):
        session.check([method], Models(model))


async def test_lexical_beside_methods_that_ask_a_model_keeps_the_order():
    given = {"documents": InMemoryPassages(PASSAGES, retriever="bm25")}
    model = Model([3])
    response = await Session({"rerank": "model"}, given).agent("lexical", Models(model)).respond(TALK)
    assert response.knowledge
    assert not model.asked


async def test_where_a_reranker_fails_the_order_stays(monkeypatch):
    plain, _ = await given("", Model([]))

    class Down:
        def rerank(self, query, texts, top):
            raise ModelError("the server is down", hint="start it", retryable=True)

    monkeypatch.setattr("dialore.retrieval.reranking.load_reranker", lambda _: Down())
    reranked, response = await given("dense", Model([]))
    assert (reranked, response.status) == (plain, "ok")
    assert "the server is down" in next(s.error for s in response.trace if s.stage.startswith("reranking"))


async def test_a_persona_that_is_shown_whole_is_not_reranked():
    model = Model([1])
    dialogue = Dialogue(id="d", turns=["Hi! What do you like?"], persona=("I like tea.", "I have a boat."))
    response = await Session({"rerank": "model"}).agent("weave", Models(model), {"plan": "none"}).respond(dialogue)
    assert response.status == "ok"
    assert not [stage for stage in model.asked if stage.startswith("reranking")]


async def test_weave_shows_its_writer_the_reranked_order():
    given = {"documents": InMemoryPassages(PASSAGES, retriever="bm25")}
    orders = []
    for best in ([3, 2, 1], [2, 3, 1]):
        model = Model(best)
        agent = Session({"rerank": "model"}, given).agent("weave", Models(model), {"plan": "none", "threshold": 0.0})
        response = await agent.respond(TALK)
        assert response.status == "ok"
        orders.append([piece.text for piece in response.knowledge])
    assert orders[0][0] == orders[1][1]
    assert orders[0][1] == orders[1][0]

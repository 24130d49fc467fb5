"""Cosmo, the query generator alone, and SCG-QP's queries on the graph: the baselines around SCG-QP."""

from __future__ import annotations

import pytest

from dialore.errors import SourceError
from dialore.llm.local import LocalModel
from tests.llm.tiny_causal import needs_torch
from tests.methods.conftest import ScriptedModel
from tests.methods.scg_qp_world import (
    ANSWERS,
    CHINESE,
    DECISION,
    DIRECTIVE,
    ENGLISH,
    PASSAGES,
    QUERY,
    RESPONSE,
    TOPIC,
    Web,
    respond,
    traced,
)

COSMO_FORM = (
    "Two people are having a friendly open-domain conversation. It may be about anything, and there is no goal that "
    "the conversation has to reach. <sep> You are one of the two: first understand the dialogue history, then say the "
    "next turn of the dialogue. <sep> Hi! Seen anything good? <turn> Not lately, you? <turn> I watched The Conjuring "
    "last night."
)


@pytest.fixture
def model():
    return ScriptedModel(dict(ANSWERS))


async def test_cosmo_asks_once_in_its_own_form(model):
    response, _ = await respond("cosmo", model, ENGLISH, {})
    assert model.stages == [RESPONSE]
    assert model.asked[0].continuation == COSMO_FORM
    assert model.asked[0].sampling.temperature == 0.7  # DCRAG, Appendix A.1.1
    system = model.asked[0].messages[0].content
    assert system.startswith("Situation:")
    assert "\nRole:" in system
    assert response.text == "Critics praised its slow dread, did you feel it too?"
    assert response.knowledge == []


async def test_cosmo_in_chinese(model):
    await respond("cosmo", model, CHINESE, {})
    assert model.asked[0].continuation == (
        "两个人正在进行一场友好的开放域对话，话题不限，对话也没有必须达到的目标。 <sep> 你是其中一人："
        "先读懂对话历史，再说出对话的下一句。 <sep> "
        "最近看什么好片子了吗？ <turn> 还没有，你呢？ <turn> 昨晚看了《流浪地球》。"
    )


@needs_torch
@pytest.mark.filterwarnings("ignore")
async def test_a_local_sequence_to_sequence_model_answers_as_cosmo(tmp_path):
    import torch

    from tests.llm.test_seq2seq import _t5, _tokenizer

    tokenizer = _tokenizer()
    tokenizer.save_pretrained(tmp_path)
    torch.manual_seed(2)
    _t5(len(tokenizer)).save_pretrained(tmp_path)
    model = LocalModel(str(tmp_path))
    torch.manual_seed(4)
    response, stages = await respond("cosmo", model, ENGLISH, {})
    assert traced(stages, RESPONSE).usage.prompt_tokens == len(tokenizer(COSMO_FORM)["input_ids"])
    assert traced(stages, RESPONSE).model == str(tmp_path)
    assert response.text
    await model.close()


async def test_search_query_makes_its_query_from_the_dialogue_alone(model):
    web = Web()
    response, stages = await respond("search-query", model, ENGLISH, {"web": web})
    assert model.stages == [QUERY, RESPONSE]
    assert [each.stage for each in stages.trace] == [QUERY, "web-search", "reranking", RESPONSE]
    query = model.asked[0]
    assert query.continuation == "Hi! Seen anything good?\nNot lately, you?\nI watched The Conjuring last night."
    assert query.sampling.max_tokens == 40
    assert "topic" not in query.messages[-1].content
    assert web.queries == [("The Conjuring critics reviews", 30)]
    assert [found.id for found in response.knowledge] == [PASSAGES[1].id]
    assert PASSAGES[1].text in model.asked[1].messages[-1].content


async def test_search_query_reads_as_many_turns_as_its_generator_was_trained_on(model):
    await respond("search-query", model, ENGLISH, {"web": Web()}, turns=2)
    assert model.asked[0].continuation == "Not lately, you?\nI watched The Conjuring last night."


@pytest.mark.parametrize(
    ("written", "queries"),
    [("__no_search__", []), ("Do you like horror films?", [("watched conjuring last night", 30)])],
)
async def test_search_query_sends_no_question_to_the_other_person(model, written, queries):
    model.answers[QUERY] = written
    web = Web()
    response, stages = await respond("search-query", model, ENGLISH, {"web": web})
    assert web.queries == queries
    dropped = [step.output["dropped"] for step in stages.trace if step.stage == "query-mending"]
    assert dropped == ([written.rstrip("?")] if queries else [])
    assert response.text


async def test_search_query_with_an_engine_that_is_down(model):
    response, stages = await respond("search-query", model, ENGLISH, {"web": Web(error=SourceError("down"))})
    assert response.text
    assert traced(stages, "web-search").outcome == "failed"


async def test_scg_qp_on_the_graph_looks_up_what_the_query_mentions(model, small_graph, dialogue):
    model.answers |= {
        TOPIC: "sore throat",
        DIRECTIVE: "Some warm tea would do you good.",
        QUERY: "does honey help a sore throat",
    }
    response, stages = await respond("scg-qp-graph", model, dialogue, {"graph": small_graph})
    assert model.stages == [TOPIC, DIRECTIVE, QUERY, RESPONSE]
    assert [each.stage for each in stages.trace] == [
        TOPIC,
        DIRECTIVE,
        QUERY,
        "query-linking",
        "fact-retrieval",
        RESPONSE,
    ]
    triples = {fact.triple for fact in response.knowledge}
    assert "(honey, UsedFor, sore throat)" in triples
    assert "(sore throat, IsA, symptom)" in triples
    assert "(job interview, HasPrerequisite, suit)" not in triples  # in the history, not in the query
    assert all(triple in model.asked[-1].messages[-1].content for triple in triples)
    assert response.demands.implicit == ["does honey help a sore throat"]


async def test_scg_qp_on_the_graph_can_decide_that_nothing_is_looked_up(model, small_graph, dialogue):
    model.answers[DECISION] = {"kind": "none"}
    response, stages = await respond("scg-qp-graph", model, dialogue, {"graph": small_graph}, decision=True)
    assert response.knowledge == []
    assert "fact-retrieval" not in [each.stage for each in stages.trace]


GRAPH_SWITCHES = {
    "W/O Topic Tracker": ({"topic_tracking": False}, [DIRECTIVE, QUERY, RESPONSE]),
    "w/o Cosmo": ({"directive": False}, [TOPIC, QUERY, RESPONSE]),
}


@pytest.mark.parametrize(("options", "calls"), GRAPH_SWITCHES.values(), ids=GRAPH_SWITCHES)
async def test_switches_on_the_graph(model, small_graph, dialogue, options, calls):
    model.answers[QUERY] = "honey"
    response, _ = await respond("scg-qp-graph", model, dialogue, {"graph": small_graph}, **options)
    assert model.stages == calls
    assert [fact.triple for fact in response.knowledge] == ["(honey, UsedFor, sore throat)"]


async def test_facts_on_the_graph_are_cut(model, small_graph, dialogue):
    model.answers[QUERY] = "sore throat"
    response, _ = await respond("scg-qp-graph", model, dialogue, {"graph": small_graph}, top=2)
    assert len(response.knowledge) == 2

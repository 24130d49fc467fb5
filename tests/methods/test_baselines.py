"""The baselines of DCRAG's Table 1: what they look up and what they ask."""

from __future__ import annotations

import pytest

from dialore.errors import InputError, UnknownNameError
from dialore.methods.registry import create_method, method_class, method_names


async def test_vanilla_asks_once_and_is_given_nothing(run, model):
    response, _ = await run("vanilla")
    assert model.stages == ["response-generation"]
    assert response.knowledge == []
    assert response.text == "Try honey for that sore throat!"


async def test_t_rag_looks_up_every_mentioned_concept(run, model):
    response, stages = await run("t-rag")
    assert model.stages == ["response-generation"]
    triples = {fact.triple for fact in response.knowledge}
    assert "(cold, Causes, sore throat)" in triples  # a fact with the mention as its tail
    assert "(job interview, HasPrerequisite, suit)" in triples
    assert "(nervousness, Causes, dry mouth)" not in triples  # never mentioned
    assert [traced.stage for traced in stages.trace] == ["concept-mentions", "fact-retrieval", "response-generation"]
    assert all(triple in model.asked[0].messages[-1].content for triple in triples)


async def test_t_rag_links_ngrams_in_the_papers_variant_alone(run, monkeypatch):
    monkeypatch.setattr("dialore.sources.graph.Graph.ngrams", lambda self, texts: self.link(["lemon"]))
    paper, _ = await run("t-rag", prompt_variant="paper")
    ours, _ = await run("t-rag")
    assert {fact.triple for fact in paper.knowledge} == {"(lemon, HasProperty, sour)"}
    assert "(cold, Causes, sore throat)" in {fact.triple for fact in ours.knowledge}


async def test_qp_rag_looks_up_the_queries_alone(run, model):
    response, _ = await run("qp-rag")
    assert model.stages == ["query-production", "response-generation"]
    triples = {fact.triple for fact in response.knowledge}
    assert "(nervousness, Causes, dry mouth)" in triples  # an implicit query's fact
    assert "(lemon, HasProperty, sour)" not in triples


@pytest.mark.parametrize("name", ["t-rag", "qp-rag"])
async def test_facts_are_ranked_and_cut(run, name):
    response, _ = await run(name, top=3)
    scores = [fact.score for fact in response.knowledge]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)


def test_every_method_is_made_by_its_name(small_graph):
    for name in method_names():
        sources = dict.fromkeys(method_class(name).required_sources, small_graph)
        assert create_method(name, sources).name == name


def test_options_are_read_as_their_types(small_graph):
    method = create_method("dcrag", {"graph": small_graph}, {"thoughts": "false", "limit": "5"})
    assert (method.thoughts, method.limit) == (False, 5)


@pytest.mark.parametrize(
    ("name", "options", "wanted"),
    [
        ("dcragg", {}, "did you mean dcrag"),
        ("draft-ground", {}, "use weave"),
        ("dcrag", {"thought": False}, "did you mean thoughts"),
        ("dcrag", {"limit": "many"}, "not a whole number"),
    ],
)
def test_wrong_names_and_values_are_one_clear_error(small_graph, name, options, wanted):
    with pytest.raises((UnknownNameError, InputError), match=wanted):
        create_method(name, {"graph": small_graph}, options)


def test_a_method_that_needs_a_graph_says_so():
    with pytest.raises(InputError, match="needs the source graph"):
        create_method("dcrag", {})

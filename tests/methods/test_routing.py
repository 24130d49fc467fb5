"""Stages done by other models than the rest."""

from __future__ import annotations

import pytest

from dialore.session import create_agent
from tests.methods.conftest import ANSWERS, ScriptedModel


@pytest.mark.parametrize("named", ["topic-planning", "dcrag/topic-planning"])
async def test_a_stage_goes_to_the_model_that_is_named_for_it(small_graph, dialogue, named):
    main, other = ScriptedModel(), ScriptedModel(name="small")
    agent = create_agent("dcrag", model=main, graph=small_graph, stage_models={named: other})
    response = await agent.respond(dialogue)
    assert other.stages == ["topic-planning"]
    assert "topic-planning" not in main.stages
    assert response.model == "scripted"
    by = {traced.stage: traced.model for traced in response.trace}
    assert by["topic-planning"] == "small"
    assert by["query-production"] == by["response-generation"] == "scripted"


async def test_the_methods_own_name_wins_over_the_stages(small_graph, dialogue):
    any_of_that_name, dcrags = ScriptedModel(name="any"), ScriptedModel(name="dcrag's")
    models = {"response-generation": any_of_that_name, "dcrag/response-generation": dcrags}
    agent = create_agent("dcrag", model=ScriptedModel(), graph=small_graph, stage_models=models)
    await agent.respond(dialogue)
    assert dcrags.stages == ["response-generation"]
    assert any_of_that_name.stages == []


async def test_both_calls_of_one_stage_go_to_its_model(small_graph, dialogue):
    other = ScriptedModel(answers=dict(ANSWERS), name="selector")
    agent = create_agent("dcrag", model=ScriptedModel(), graph=small_graph, stage_models={"fact-selection": other})
    await agent.respond(dialogue)
    assert sorted(other.stages) == ["fact-selection-foreseen", "fact-selection-unforeseen"]


async def test_a_trace_adds_up_what_all_models_cost(small_graph, dialogue):
    agent = create_agent(
        "dcrag", model=ScriptedModel(), graph=small_graph, stage_models={"cross-revision": ScriptedModel(name="small")}
    )
    assert (await agent.respond(dialogue)).usage.calls == 6

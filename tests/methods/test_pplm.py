"""PPLM as in MSDP's Table 3: the bag from the graph, the steering in the request, a local model that follows it."""

from __future__ import annotations

import pytest

from dialore.agent import Agent
from dialore.dialogue import Dialogue
from dialore.errors import ModelError
from dialore.llm.endpoint import Endpoint
from dialore.llm.local import LocalModel
from dialore.methods.baselines import one_word_names
from dialore.methods.registry import create_method
from tests.llm.tiny_causal import make_tiny_causal, needs_torch

WRITES = "response-generation"


async def test_one_call_is_steered_towards_words_beside_the_historys_concepts(run, model):
    response, stages = await run("pplm")
    assert model.stages == [WRITES]
    bag = model.asked[0].steering.words
    assert {"nervousness", "symptom", "cold", "honey", "suit"} <= set(bag)
    assert "lemon" not in bag  # nothing to do with the dialogue
    assert all(" " not in word for word in bag)
    assert "(honey, UsedFor, sore throat)" in [fact.triple for fact in response.knowledge]
    assert [traced.stage for traced in stages.trace] == ["bag-of-words", WRITES]
    assert stages.trace[0].output["bag"] == list(bag)


async def test_the_topic_comes_first_where_there_is_one(small_graph, model, dialogue):
    about = dialogue.model_copy(update={"topic": "tea"})
    stages, method = stages_of(model, about), create_method("pplm", {"graph": small_graph})
    await method.respond(about, stages)
    assert model.asked[0].steering.words == ("tea", "breakfast")
    unknown = dialogue.model_copy(update={"topic": "zzyzx qqq"})
    await method.respond(unknown, stages_of(model, unknown))
    assert "honey" in model.asked[1].steering.words  # the history's concepts stand in


def stages_of(model, dialogue):
    from dialore.methods.stage_runner import LLMRunner
    from dialore.methods.stages import StageContext
    from dialore.prompts.library import PromptLibrary

    return StageContext(LLMRunner(model, PromptLibrary()), "pplm", dialogue)


async def test_the_settings_travel_with_the_request(run, model):
    await run("pplm")
    usual = model.asked[0].steering
    assert (usual.iterations, usual.step_size, usual.gamma, usual.kl_scale) == (3, 0.03, 1.5, 0.01)
    assert (usual.gm_scale, usual.window, usual.top_k) == (0.99, 5, 10)
    await run("pplm", iterations=1, step_size=0.5, gm_scale=0.9, kl_scale=0.2, gamma=1.0, window=0, top_k=0, words=2)
    other = model.asked[1].steering
    assert (other.iterations, other.step_size, other.gamma, other.kl_scale) == (1, 0.5, 1.0, 0.2)
    assert (other.gm_scale, other.window, other.top_k, len(other.words)) == (0.9, 0, 0, 2)


async def test_the_raw_prompt_is_dialogpts(run, model, dialogue):
    await run("pplm")
    assert model.asked[0].continuation == "".join(f"{text}<|endoftext|>" for text in dialogue.texts)
    assert model.asked[0].continuation_stop == ("\n",)
    assert model.asked[0].sampling.temperature == 0  # greedy (MSDP, Section 3.6)
    await run("pplm", separator="\n", turns=1)
    assert model.asked[1].continuation == f"{dialogue.last.text}\n"


async def test_a_graph_that_knows_nothing_leaves_the_text_unsteered(small_graph, model):
    nothing = Dialogue(id="n", turns=["Zzyzx qqq."])
    stages = stages_of(model, nothing)
    response = await create_method("pplm", {"graph": small_graph}).respond(nothing, stages)
    assert model.asked[0].steering.words == ()
    assert response.text
    assert stages.trace[0].notes == ["the graph has no word for this dialogue: the text is not steered"]


def test_words_of_the_bag():
    assert one_word_names(["tea", "green tea", "the", "Tea", "茶"], "en") == ["tea"]
    assert one_word_names(["茶", "tea", "的", "中华人民共和国"], "zh") == ["茶"]


async def test_an_endpoint_says_that_it_cannot(small_graph, dialogue, faulty_server):
    model = Endpoint("m", faulty_server.url)
    agent = Agent(create_method("pplm", {"graph": small_graph}), stages_of(model, dialogue).stage_runner)
    with pytest.raises(ModelError, match=r"run a model here: hf:"):
        await agent.respond(dialogue)
    assert not faulty_server.calls
    await model.close()


@needs_torch
@pytest.mark.filterwarnings("ignore")
async def test_a_local_model_says_more_of_the_bag(small_graph, dialogue, tmp_path):
    make_tiny_causal(tmp_path, kind="gpt2")
    model = LocalModel(str(tmp_path))
    about = dialogue.model_copy(update={"topic": "tea"})

    async def said(**options) -> int:
        method = create_method("pplm", {"graph": small_graph}, {"separator": "</s>", **options})
        stages = stages_of(Greedy(model), about)
        return (await method.respond(about, stages)).text.count("tea")

    hard = {"iterations": 10, "step_size": 1.0, "gamma": 1.0, "kl_scale": 0.0, "gm_scale": 1.0, "window": 0}
    assert await said(**hard) > await said(iterations=0)
    await model.close()


class Greedy:
    """A model that takes the likeliest tokens, and few."""

    def __init__(self, model) -> None:
        self.model, self.name = model, model.name

    async def complete(self, request, on_token=None):
        sampling = request.sampling.model_copy(update={"temperature": 0, "max_tokens": 12})
        return await self.model.complete(request.model_copy(update={"sampling": sampling}), on_token)

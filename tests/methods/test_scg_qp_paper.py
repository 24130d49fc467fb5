"""SCG-QP's paper setting: every prompt of Table 1's and Table 2's systems, and what they differ by."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dialore.experiments.config import read_config
from dialore.prompts.library import PromptLibrary
from dialore.sources.memory import MemorySource
from dialore.sources.statements import Statement
from tests.methods.conftest import ScriptedModel
from tests.methods.scg_qp_world import (
    ANSWERS,
    CHINESE,
    DIRECTIVE,
    ENGLISH,
    PASSAGES,
    QUERY,
    RESPONSE,
    TOPIC,
    Web,
    respond,
)

EXAMPLES = Path(__file__).parents[2] / "examples"
TABLE = {system.name: system for system in read_config(EXAMPLES / "scg-qp" / "table-1.yaml").systems}
NO_QUERY, BB3, WITHOUT = "No Query", "Blender Bot 3 style", "Flan T5 w/o Cosmo"
OURS, CHAT = "Ours (Zero-shot)", "ChatGPT (the run's model)"
TOPIC_LINE = "The conversation is about The Conjuring.\n"
REPLY = (
    "The reply could be: I heard that its reviews are split!\n\nRewrite this reply as a search query that finds "
    "information about The Conjuring to support it.\n"
)
INSTEAD = "\nWrite a search query that finds information about The Conjuring to continue this conversation.\n"


@pytest.fixture
def prompts():
    """Every prompt that a system asks by, its messages joined and its text to be continued, by stage."""

    async def render(system, dialogue=ENGLISH, **changes):
        model = ScriptedModel(dict(ANSWERS))
        options = {**system.options, "reranker": "fused"} | changes
        await respond(system.method, model, dialogue, {"web": Web()}, **options)
        return {
            each.label.rsplit("/", 1)[-1]: (
                "\n\n".join(message.content for message in each.messages),
                each.continuation,
            )
            for each in model.asked
        }

    return render


async def test_the_systems_ask_what_the_paper_says(prompts):
    asked = {name: await prompts(system) for name, system in TABLE.items() if "our prompts" not in name}
    assert {name: list(found) for name, found in asked.items()} == {
        NO_QUERY: [RESPONSE],
        BB3: [QUERY, RESPONSE],
        WITHOUT: [TOPIC, QUERY, RESPONSE],
        OURS: [TOPIC, DIRECTIVE, QUERY, RESPONSE],
        CHAT: [TOPIC, DIRECTIVE, QUERY, RESPONSE],
    }
    # The same prompts whoever is asked (Section 3.1): ChatGPT's row is another model alone.
    assert asked[OURS] == asked[CHAT]
    assert TABLE[OURS].options == TABLE[CHAT].options
    assert TABLE[OURS].stages.keys() > TABLE[CHAT].stages.keys()


async def test_a_query_without_cosmo_lacks_the_directive_and_nothing_else(prompts):
    without, ours = await prompts(TABLE[WITHOUT]), await prompts(TABLE[OURS])
    assert without[TOPIC] == ours[TOPIC]
    for text, guided in zip(without[QUERY], ours[QUERY], strict=True):
        assert TOPIC_LINE + REPLY in guided
        assert text == guided.replace(TOPIC_LINE + REPLY, TOPIC_LINE + INSTEAD)


async def test_without_topic_tracker_no_prompt_knows_the_topic(prompts):
    """Table 2: the topic goes from the directive's and the query's prompt, and nothing else does."""
    found, ours = await prompts(TABLE[OURS], topic_tracking=False), await prompts(TABLE[OURS])
    assert list(found) == [DIRECTIVE, QUERY, RESPONSE]
    for text, guided in zip(found[QUERY], ours[QUERY], strict=True):
        assert text == guided.replace(TOPIC_LINE, "").replace(" about The Conjuring to", " to")
    assert found[DIRECTIVE][1].split(" <sep> ")[2:] == ours[DIRECTIVE][1].split(" <sep> ")[2:]
    assert found[RESPONSE] == ours[RESPONSE]


async def test_responses_differ_by_the_search_result_alone(prompts):
    """Section 3.1: one simple prompt for all; "No Query" has the dialogue, and no word about a result."""
    none, *others = [(await prompts(TABLE[name]))[RESPONSE] for name in (NO_QUERY, BB3, WITHOUT, OURS, CHAT)]
    assert len(set(others)) == 1
    result = f"Search result:\n{PASSAGES[1].text}\n\nWork this result into the turn.\n\n"
    assert result in others[0][0]
    assert none[0] == others[0][0].replace(result, "")


@pytest.mark.parametrize("dialogue", [ENGLISH, CHINESE], ids=["en", "zh"])
async def test_no_prompt_has_what_the_paper_has_not(prompts, dialogue):
    """No persona (of either person), no way out without a topic, no guards, no rules on length or style."""
    found = await prompts(TABLE[OURS], dialogue)
    whole = "\n".join(text for pair in found.values() for text in pair if text)
    for line in (*dialogue.persona, *dialogue.extra.get("user_persona", [])):
        assert line not in whole
    assert not re.search(r"none|sentences|words at most|at most|data and nothing|无。|不超过|资料，", whole.lower())
    # What a model without chat continues says the same as the messages do.
    for stage in (TOPIC, DIRECTIVE, QUERY):
        assert found[stage][1]
        assert "{{" not in found[stage][1]


async def test_past_conversations_guide_the_directive_in_our_setting_alone():
    """Section 4: future work takes up users' preferences from past conversations."""
    said = datetime(2026, 5, 1, tzinfo=UTC)
    memory = MemorySource([Statement(text="I saw every Conjuring film twice.", said=said)])
    for options, is_shown in (({}, True), (TABLE[OURS].options | {"reranker": "fused"}, False)):
        model = ScriptedModel(dict(ANSWERS))
        await respond("scg-qp", model, ENGLISH, {"web": Web(), "memory": memory}, **options)
        asked = {each.label.rsplit("/", 1)[-1]: each.messages[-1].content for each in model.asked}
        assert ("every Conjuring film" in asked[DIRECTIVE]) == is_shown
        assert all("every Conjuring film" not in text for stage, text in asked.items() if stage != DIRECTIVE)


async def test_the_persona_is_a_switch_of_our_setting(prompts):
    shown = (await prompts(TABLE[OURS], prompt_variant="ours", persona=True))[DIRECTIVE][0]
    hidden = (await prompts(TABLE[OURS], prompt_variant="ours", persona=False))[DIRECTIVE][0]
    assert "I live near a cinema." in shown
    assert "I love old films." in shown
    assert "I live near" not in hidden
    assert "I love old" not in hidden


def test_the_papers_sampling():
    """Section 3.1: nucleus sampling, P .9, temperature .7; 40 tokens for queries, 100 for responses."""
    library = PromptLibrary()
    tokens = {"scg-qp/query-generation": 40, "search-query/query-generation": 40, "scg-qp/response-generation": 100}
    for name, most in tokens.items():
        sampling = library.get(name, "en", "paper").front.sampling
        assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (0.7, 0.9, most)

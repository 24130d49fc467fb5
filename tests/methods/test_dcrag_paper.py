"""DCRAG's paper setting: what its prompts hold, and that its baselines differ from it by what the paper says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dialore.agent import Agent
from dialore.dialogue import Dialogue
from dialore.errors import UnknownNameError
from dialore.experiments.config import read_config
from dialore.methods.registry import create_method
from dialore.methods.stage_runner import LLMRunner
from dialore.prompts.library import PromptLibrary

AS_PUBLISHED = {"prompt_variant": "paper", "keep_whole_sets": True, "parallel_selection": False}
# What Tables 12 to 18 say, by stage of the prompt: facts and terms, not sentences.
EVERY = [
    "open-domain chit-chat",
    "between two people",
    "in English",
    "penalised",
    "Dialogue history:\nMe-1: How are you",
]
ANSWERS = ["one to three sentences", '"Friend"', '"Me"', "natural, coherent, engaging and informative", "latest turn"]
RETRIEVED = ["retrieval system", "irrelevant or noise", "own common sense", "(head entity, relation, tail entity)"]
RETRIEVED += ["lemons are sour", "(sunflower, IsA, flower)"]
KINDS = ["Explicit query entities", "Implicit query entities", "Maintained topic entities", "Extended topic entities"]
SAID = {
    "vanilla": {"response-generation": ANSWERS},
    "t-rag": {"response-generation": ANSWERS + RETRIEVED},
    "dcrag": {
        "query-production": ["step by step", "several sentences", *KINDS[:2], "nodes", "everyday world"],
        "topic-planning": ["step by step", "several sentences", *KINDS[2:], "it affects B", "scope", "everyday world"],
        "cross-revision": [
            "added, retained, revised or removed",
            *KINDS,
            "queries ought to be in the dialogue history",
        ],
        "fact-selection-foreseen": ["20", "rank them and name all of them", *RETRIEVED[:2], "[1] ("],
        "response-generation": ANSWERS + RETRIEVED + KINDS + ["may help you"],
    },
}
QP, TP, CR = "query-production", "topic-planning", "cross-revision"
FORESEEN, UNFORESEEN, RG = "fact-selection-foreseen", "fact-selection-unforeseen", "response-generation"


@pytest.fixture
def prompts(run, model):
    """The prompts of a method by stage: system and user message."""

    async def go(name, **options):
        model.asked.clear()
        await run(name, **options)
        found = {request.label.rsplit("/", 1)[-1]: request for request in model.asked}
        return {stage: [message.content for message in request.messages] for stage, request in found.items()}

    return go


@pytest.mark.parametrize("method", SAID)
async def test_what_tables_12_to_18_say_is_said(prompts, method):
    options = AS_PUBLISHED if method == "dcrag" else {"prompt_variant": "paper"}
    for stage, texts in (await prompts(method, **options)).items():
        whole = "\n".join(texts)
        lacking = [fact for fact in EVERY + SAID[method].get(stage, []) if fact not in whole]
        assert (stage, lacking) == (stage, [])
        # The turns bear numbers, the target's too: {"Dialogue Response": "Friend-{Target Turn Index}: ..."}.
        assert "\nFriend-2: Not great" in texts[1]
        assert texts[1].endswith("Friend-4:") == (stage == RG)
        # Only the prompts of the response are given the last turn by itself.
        assert texts[1].count("And now I've got a sore throat.") == (2 if stage == RG else 1)


@pytest.mark.parametrize("name", ["table-1-dailydialog", "table-1-diamante", "table-2", "figure-4"])
def test_msdp_is_run_as_appendix_a_1_1_says(name):
    path = Path(__file__).parents[2] / "examples" / "dcrag" / f"{name}.yaml"
    (row,) = (system for system in read_config(path).systems if system.method == "msdp-dcrag")
    assert row.options == {"prompt_variant": "paper"}
    assert create_method("msdp-dcrag", {"samples": object()}, row.options).shots == 10
    (built,) = (line for line in path.read_text("utf-8").splitlines() if "samples build" in line)
    assert built.endswith(" --embedder st:paraphrase-multilingual-mpnet-base-v2")
    assert "/train." in built
    assert "/valid." in built
    assert "--align-graph" in built


async def test_without_retrieval_nothing_speaks_of_retrieval(prompts):
    found = await prompts("dcrag", **AS_PUBLISHED, fact_retrieval=False, fact_selection=False)
    whole = "\n".join(found[RG])
    assert not re.search("retriev|nowledge|none was found|IsA", whole)
    full = "\n".join((await prompts("dcrag", **AS_PUBLISHED))[RG])
    assert [line for line in lines(whole) if line not in lines(full)] == [
        "- Carry the conversation on with a response that is natural, coherent, engaging and informative, based on the "
        "dialogue history."
    ]
    assert all(kind in whole for kind in KINDS)  # it is as a chain of thought then (Section 4.3)


async def test_fewer_steps_where_little_is_needed(run, model, dialogue, small_graph):
    """Limitations: six steps; which of them a dialogue can do without is left to further work."""
    await run("dcrag", **AS_PUBLISHED)
    assert len(model.asked) == 6
    model.asked.clear()
    response, _ = await run("dcrag", **AS_PUBLISHED, fewer_steps=True)
    assert model.stages == [QP, TP, CR, RG]  # both sets fit the limit: all of them are taken
    assert len(response.knowledge) > 3
    model.asked.clear()
    await run("dcrag", **AS_PUBLISHED, fewer_steps=True, limit=4)
    assert model.stages == [QP, TP, CR, UNFORESEEN, RG]
    model.asked.clear()
    model.answers[TP] = {**model.answers[TP], "maintained": [], "extended": []}
    await run("dcrag", **AS_PUBLISHED, fewer_steps=True)
    assert CR not in model.stages
    model.asked.clear()
    method = create_method("dcrag", {"graph": small_graph}, {**AS_PUBLISHED, "fewer_steps": True})
    talk = dialogue.model_copy(update={"turns": (*dialogue.turns, *Dialogue(id="x", turns=["Bye!", "Bye!"]).turns)})
    response = await Agent(method, LLMRunner(model, PromptLibrary())).respond(talk)
    assert model.stages == [RG]
    assert response.text == "Try honey for that sore throat!"
    assert "nowledge" not in model.asked[0].messages[0].content


def lines(text):
    return [line for line in text.splitlines() if line]


async def test_the_response_prompts_differ_by_what_tables_12_13_and_18_say(prompts):
    paper = {"prompt_variant": "paper"}
    vanilla = (await prompts("vanilla", **paper))[RG]
    t_rag = (await prompts("t-rag", **paper))[RG]
    qp_rag = (await prompts("qp-rag", **paper))[RG]
    dcrag = (await prompts("dcrag", **AS_PUBLISHED))[RG]
    assert qp_rag[0] == t_rag[0]
    # Table 13 has of Table 12 all, and the knowledge: guidance on it, its criterion, and itself.
    more = [line for line in lines(t_rag[0]) if line not in lines(vanilla[0])]
    lost = [line for line in lines(vanilla[0]) if line not in lines(t_rag[0])]
    assert len(lost) == 1
    assert [lost[0].rstrip(".") in line and "knowledge" in line for line in more].count(True) == 1
    assert all("knowledge" in line or line == "Criteria:" or "It was brought up" in line for line in more)
    assert lines(t_rag[1])[: len(lines(vanilla[1])) - 2] == lines(vanilla[1])[:-2]
    assert lines(t_rag[1])[-2:] == lines(vanilla[1])[-2:]
    assert lines(t_rag[1])[len(lines(vanilla[1])) - 2] == "Contextual knowledge:"
    # Table 18 has all of Table 13, and the entities with the thoughts that led to them: one line of guidance, criteria.
    assert all(line in lines(dcrag[0]) for line in lines(t_rag[0]))
    kinds = ("Explicit query", "Implicit query", "Maintained topic", "Extended topic")
    more = [line for line in lines(dcrag[0]) if line not in lines(t_rag[0])]
    assert [line.split(" entities")[0] for line in more] == ["- The explicit query", *(f"- {kind}" for kind in kinds)]
    facts = re.compile(r"- \(.*\)$")
    more = [line for line in lines(dcrag[1]) if line not in lines(t_rag[1]) and not facts.match(line)]
    assert more == [
        line
        for kind, entities in zip(
            kinds,
            ("sore throat; job interview", "nervousness", "sore throat", "honey; drink warm tea; dry mouth"),
            strict=True,
        )
        for line in (f"Thoughts on {kind.lower()} entities: Keep.", f"{kind} entities: {entities}")
    ]


async def test_query_production_is_the_same_in_qp_rag(prompts):
    qp_rag, dcrag = await prompts("qp-rag", prompt_variant="paper"), await prompts("dcrag", **AS_PUBLISHED)
    assert qp_rag[QP] == dcrag[QP]


async def test_every_stage_asks_for_what_the_paper_asks(prompts):
    found = await prompts("dcrag", **AS_PUBLISHED)
    assert list(found) == [QP, TP, CR, FORESEEN, UNFORESEEN, RG]
    for stage in (QP, TP, CR):
        assert not re.search(r"\b\d+ (?:to \d+|entities)|at most|one to four words", found[stage][0])
    assert "Thoughts on implicit query entities: They are nervous." in found[CR][1]  # T of Equation 5
    without = await prompts("dcrag", **AS_PUBLISHED, thoughts=False)
    assert not any("houghts" in text or "step by step" in text for texts in without.values() for text in texts)


async def test_chinese_dialogues_are_asked_about_in_english_as_the_paper_does(small_graph, model):
    method = create_method("dcrag", {"graph": small_graph}, AS_PUBLISHED)
    agent = Agent(method, LLMRunner(model, PromptLibrary()))
    await agent.respond(Dialogue(id="z", language="zh", turns=["你好", "我嗓子疼。"]))
    assert {"in Chinese" in request.messages[0].content for request in model.asked} == {True}
    for request in model.asked:  # the sides are called in English too
        assert request.messages[1].content.startswith("Dialogue history:\nFriend-1: 你好\nMe-2: 我嗓子疼。")


async def test_entities_are_taken_as_the_model_gives_them(run, model):
    many = [f"thing {number}" for number in range(20)]
    model.answers[CR] = {**model.answers[CR], "explicit": many}
    response, stages = await run("dcrag", **AS_PUBLISHED)
    assert response.demands.explicit == many
    assert not [traced.stage for traced in stages.trace if traced.stage.endswith("mending")]
    response, stages = await run("dcrag")
    assert response.demands.explicit == []  # not said in the history: the first 12 are implicit queries
    assert response.demands.implicit == [*many[:12], "nervousness"]
    notes = next(traced.notes for traced in stages.trace if traced.stage == "revision-mending")
    assert notes[0] == "explicit: 20 entities, the first 12 are kept"


async def test_a_set_smaller_than_the_limit_is_taken_whole_in_the_models_order(run, model):
    model.answers[FORESEEN] = {"selected": [3]}
    model.answers[UNFORESEEN] = {"selected": [2, 1]}
    whole, _ = await run("dcrag", **AS_PUBLISHED)
    offered, _ = await run("dcrag", fact_selection=False)
    foreseen = [fact.id for fact in offered.knowledge if fact.set == "foreseen"]
    unforeseen = [fact.id for fact in offered.knowledge if fact.set == "unforeseen"]
    ranked = [foreseen[2], *foreseen[:2], unforeseen[1], unforeseen[0], *unforeseen[2:]]
    assert [fact.id for fact in whole.knowledge] == ranked
    chosen, _ = await run("dcrag")
    assert len(chosen.knowledge) == 3


async def test_in_turn_the_second_selection_is_asked_for_what_is_left(prompts):
    found = await prompts("dcrag", prompt_variant="paper", parallel_selection=False, limit=4)
    assert "select the 4 most useful" in found[FORESEEN][0]
    assert "select the 2 most useful" in found[UNFORESEEN][0]


@pytest.mark.parametrize(("prompt_variant", "thought"), [("paper", "Keep."), ("ours", "They are nervous.")])
async def test_the_thoughts_that_response_generation_is_shown(prompts, prompt_variant, thought):
    shown = (await prompts("dcrag", prompt_variant=prompt_variant))[RG][-1]
    assert ("Keep." in shown) == (thought == "Keep.")
    assert ("They are nervous." in shown) == (thought != "Keep.")


def test_no_other_prompting_is_taken(small_graph, model):
    method = create_method("dcrag", {"graph": small_graph}, {"prompt_variant": "papre"})
    with pytest.raises(UnknownNameError, match="did you mean paper"):
        Agent(method, LLMRunner(model, PromptLibrary()))

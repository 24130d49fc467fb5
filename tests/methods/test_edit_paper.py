"""EDIT's paper setting: every prompt of its tables' systems, and what they differ by; its questions as responses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dialore.agent import Agent
from dialore.dialogue import Dialogue
from dialore.experiments.config import read_config
from dialore.methods.registry import create_method
from dialore.methods.stage_runner import LLMRunner
from dialore.prompts.library import PromptLibrary
from tests.methods.test_edit import QUESTIONS, Asked, Base, prompt_of

FILES = Path(__file__).parents[2] / "examples" / "edit"
TABLE = {system.name: system for system in read_config(FILES / "table-2-wow.yaml").systems}
TURNS = {
    "en": ["How are you?", "Not great, I have a job interview tomorrow.", "And now I've got a sore throat."],
    "zh": ["你好吗？", "不太好，我明天有面试。", "现在嗓子也疼了。"],
}
CHATGPT, EDIT = "ChatGPT (the run's model)", "EDIT (the run's model)"


async def asked_by(system, language="en", **answers):
    model = Asked(**answers)
    method = create_method(system.method, {"documents": Base()}, system.options)
    agent = Agent(method, LLMRunner(model, PromptLibrary()))
    response = await agent.respond(Dialogue(id="d", turns=TURNS[language], language=language))
    return {stage: prompt_of(model, stage) for stage in model.requests}, response


def kinds(prompts):
    return sorted({re.sub(r"-\d$", "", stage) for stage in prompts})


async def test_each_row_of_tables_2_and_3_asks_what_the_paper_says():
    found = {name: kinds((await asked_by(system))[0]) for name, system in TABLE.items() if "our prompts" not in name}
    both = ["question-generation", "response-generation"]
    assert found == {
        CHATGPT: ["response-generation"],
        EDIT: sorted([*both, "model-answer", "base-answer", "answer-choice"]),
        "-w/o KB's Answer": sorted([*both, "model-answer"]),
        "-w/o ChatGPT's Answer": sorted([*both, "base-answer"]),
    }


async def test_the_ablations_ask_the_same_prompts_less_those_they_leave_out():
    whole, _ = await asked_by(TABLE[EDIT], answer_choice='{"better": "A"}')
    for name, own, text in (("-w/o KB's Answer", "model", "Model"), ("-w/o ChatGPT's Answer", "base", "Base")):
        found, _ = await asked_by(TABLE[name])
        for stage, prompt in found.items():
            if stage != "response-generation":
                assert prompt == whole[stage]
        assert kinds(found) == sorted([f"{own}-answer", "question-generation", "response-generation"])
        swapped = whole["response-generation"].replace("Model on", f"{text} on")
        assert found["response-generation"] == swapped


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_the_model_alone_gets_the_same_prompt_less_the_knowledge(language):
    answers = {"question_generation": "什么能润喉？\n怎样推迟面试？\n感冒多久好？"} if language == "zh" else {}
    alone, _ = await asked_by(TABLE[CHATGPT], language)
    whole, response = await asked_by(TABLE[EDIT], language, **answers)
    given = "\n".join(f"- {piece.text}" for piece in response.knowledge)
    head, use = {"en": ("Knowledge", "Use this knowledge for the turn."), "zh": ("知识", "写这句话时用上这些知识。")}[
        language
    ]
    block = f"{head}{'：' if language == 'zh' else ':'}\n{given}\n\n{use}\n\n"
    assert block in whole["response-generation"]
    assert alone["response-generation"] == whole["response-generation"].replace(block, "")


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_no_prompt_has_what_the_paper_has_not(language):
    """No cap of sentences, no judgement of what fits, no way out, no guards; the model's answer stands first."""
    answers = {"question_generation": "什么能润喉？\n怎样推迟面试？"} if language == "zh" else {}
    found, _ = await asked_by(TABLE[EDIT], language, **answers)
    whole = "\n".join(found.values())
    assert not re.search(r"three|two at most|NONE|leave out|are data|三句|最多|只写一个字|资料", whole)
    choice = found["answer-choice-1"]
    assert choice.index("Model on 1") < choice.index("Base on 1")
    assert all(f"- ({'Throat'}) {text}" in found["base-answer-1"] for text in Base().sentences)


def test_the_papers_response_may_be_as_long_as_table_6():
    sampling = PromptLibrary().get("edit/response-generation", "en", "paper").front.sampling
    assert sampling.max_tokens >= 300  # eight sentences, 110 words, in Table 6


@pytest.mark.parametrize(
    ("options", "written", "response"),
    [
        ({}, "\n".join(f"{n}. {text}" for n, text in enumerate([*QUESTIONS, "Why?"], 1)), "\n".join(QUESTIONS)),
        ({"questions": 0, "trained": True}, " ".join([*QUESTIONS, "Why so?"]), "\n".join([*QUESTIONS, "Why so?"])),
        ({}, "I would rather not.", "I would rather not."),
    ],
)
async def test_questions_may_be_the_response(options, written, response):
    model, sent = Asked(question_generation=written), []
    agent = Agent(create_method("edit-questions", {}, options), LLMRunner(model, PromptLibrary()))
    dialogue = Dialogue(id="d", turns=TURNS["en"])
    found = await agent.respond(dialogue, on_token=sent.append)
    assert (found.text, sent, model.calls) == (response, [response], ["question-generation"])
    assert (await agent.ground(dialogue)).knowledge == []
    text = model.requests["question-generation"].continuation
    assert (TURNS["en"][-1] == text.rsplit(": ", 1)[-1]) == bool(options)  # a trained generator reads the context alone

"""SAFARI's `paper` setting: prompts as in Tables 2, 3 and 12, and rows that differ by what they are called alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dialore.experiments.config import read_config
from dialore.methods.registry import create_method
from dialore.session import create_agent
from dialore.sources.declared import default_sources
from tests.methods.conftest import ScriptedModel
from tests.methods.test_safari import PERSONA, Recorded, dialogue_of, respond, whole

EXAMPLES = Path(__file__).parents[2] / "examples" / "safari"
# Those of the supervised files as their headers say that any model runs them: `-o prompt_variant=paper`.
SYSTEMS = {
    f"{path.stem}: {system.title}": system.options | {"prompt_variant": "paper"}
    for path in sorted(EXAMPLES.glob("*.yaml"))
    for system in read_config(path).systems
    if system.options.get("prompt_variant") in {"paper", "supervised"}
}
ZERO_SHOT = SYSTEMS["table-7: SAFARI"]
HOME = "I live in Trier."
GOLD = {
    "sources": ["persona", "documents"],
    "knowledge": [
        {"text": HOME, "source": "persona"},
        {"text": "Trier lies on the Moselle.", "source": "documents", "persona": HOME},
    ],
}
PLANNING = """\
There are knowledge bases that hold information:
PERSONA: {persona}
DOCUMENTS: {documents}
They depend on each other: DOCUMENTS is called with what PERSONA has given. Keep to this order of calls.

This is a dialogue between "Me" and "Friend":
{history}

Judge by the last turn of "Me" whether Friend's answer needs a call to any of these knowledge bases. If it does, write \
the names of those to be called, in the order of the calls. If it needs none, write NULL."""
ASSEMBLING = """\
This is a dialogue between "Me" and "Friend":
{history}

This knowledge was found in different knowledge bases:
{knowledge}

Play the part of Friend and answer, going by the dialogue and the given knowledge. The answer must be consistent with \
the given knowledge. If that is NULL, answer from the dialogue alone.
Friend:"""
HISTORY = "Me: Hello!\nFriend: Hi!\nMe: Is there a Roman gate where you live?"


async def prompts(language="en", plan="PERSONA, DOCUMENTS", sources=None, **options):
    """The prompts of one response by stage, and the response."""
    response, _, model = await respond(dialogue_of(language, **GOLD), plan=plan, **options | {"retriever": "bm25"})
    assert all(len(request.messages) == 1 and request.output_schema is None for request in model.asked)
    return {request.label.rpartition("/")[2]: whole(request) for request in model.asked}, response


def test_tables_7_and_8_and_half_of_4_and_6_are_of_trained_models():
    """Section 6: "based on ChatGLM under the supervised setting"; the first two rows of Tables 4 and 6."""
    for name, count in (("table-4-supervised", 2), ("table-6-supervised", 2), ("table-7", 1), ("table-8", 1)):
        config, text = read_config(EXAMPLES / f"{name}.yaml"), (EXAMPLES / f"{name}.yaml").read_text("utf-8")
        assert {system.options["prompt_variant"] for system in config.systems} == {"supervised"}
        assert {system.options["retriever"] for system in config.systems} == {"trained:models/dpr"}  # Section 5.3
        assert len(config.models) == count
        made = [
            f"--out {place.partition(':')[2]}\n" for place in (*(one.model for one in config.models), "t:models/dpr")
        ]
        assert all(one in text for one in made)


def test_every_table_has_its_rows():
    rows = {
        name: {key for key in SYSTEMS if key.startswith(name)} for name in ("table-4", "table-6", "table-7", "table-8")
    }
    assert {name: len(keys) for name, keys in rows.items()} == {"table-4": 3, "table-6": 5, "table-7": 8, "table-8": 3}
    common = ("plan_parser", "on_invalid_plan", "turns", "max_chars")
    answering = [options for name, options in SYSTEMS.items() if not name.startswith("table-5")]
    assert {tuple(options[name] for name in common) for options in answering} == {("substring", "null", 0, 128)}


async def test_the_zero_shot_prompts_word_for_word():
    asked, response = await prompts(**ZERO_SHOT)
    described = {entry.name: entry.description["en"] for entry in default_sources({}, paper=True).entries}
    assert asked["planning"] == PLANNING.format(**described, history=HISTORY)
    found = "\n".join(piece.text for piece in response.knowledge)
    assert asked["response-generation"] == ASSEMBLING.format(history=HISTORY, knowledge=found)
    asked, _ = await prompts(**ZERO_SHOT, plan="NULL")
    assert asked["response-generation"] == ASSEMBLING.format(history=HISTORY, knowledge="NULL")


# Table 12, and the release's prompt_cn.json.
TOLD = {
    "en": (["gender", "age", "place of origin", "hobbies", "personality"], ["place of origin"]),
    "zh": (["性别", "年龄", "籍贯", "爱好", "性格"], ["籍贯"]),
}
UNTOLD = {"en": "profession|job|work|family|band|book", "zh": "职业|工作|家人|乐队|书"}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("prompt_variant", ["paper", "supervised"])
def test_sources_are_described_by_the_content_of_table_12(language, prompt_variant):
    entries = create_method("safari", {}, {"prompt_variant": prompt_variant}).declared.entries
    assert [entry.name for entry in entries] == ["persona", "documents"]
    for entry, told in zip(entries, TOLD[language], strict=True):
        assert all(word in entry.description[language] for word in told)
        assert not re.search(UNTOLD[language], entry.description[language])


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_in_context_is_three_answered_prompts_before_the_same(language):
    zero, _ = await prompts(language, **ZERO_SHOT)
    shown, _ = await prompts(language, **SYSTEMS["table-4: In-context"])
    for stage, text in zero.items():
        before = shown[stage].removesuffix(text)
        assert before != shown[stage]
        blocks = before.split(text.splitlines()[0])[1:]
        assert len(blocks) == 3
        answers = [block.strip().splitlines()[-1] for block in blocks]
        if stage == "planning":
            assert answers == ["PERSONA, DOCUMENTS", "NULL", "PERSONA"]  # the order of the release
        else:
            given = default_sources({}).demonstrations[language]
            assert all(answer.endswith(f" {one.response}") for answer, one in zip(answers, given, strict=True))
        # All but history, knowledge and answer stands in the zero-shot prompt.
        instruction = max(text.splitlines(), key=len)
        assert all(block.count(instruction) == 1 for block in blocks)


# The pieces that each row gives where planner and gold plan say PERSONA, DOCUMENTS.
FOUND = [HOME, "The Porta Nigra is a Roman city gate in Trier."]
ROWS = {
    "+ Ground Planning": (False, FOUND),
    "+ Ground Retrieval": (True, [HOME, "Trier lies on the Moselle."]),
    "+ Ground P & R": (False, [HOME, "Trier lies on the Moselle."]),
    "- Dependency": (True, FOUND),
    "- Documents": (True, [HOME]),
    "- Planning*": (False, [HOME]),
    "- Planning**": (False, FOUND),
}


@pytest.mark.parametrize("row", ROWS)
async def test_a_row_of_table_7_differs_by_what_it_is_called(row):
    plans, pieces = ROWS[row]
    full, _ = await prompts(**ZERO_SHOT)
    asked, response = await prompts(**SYSTEMS[f"table-7: {row}"])
    assert response.plan == (["persona"] if row == "- Planning*" else ["persona", "documents"])
    assert asked.get("planning") == (full["planning"] if plans else None)
    assert [piece.text for piece in response.knowledge] == pieces
    assert asked["response-generation"] == ASSEMBLING.format(history=HISTORY, knowledge="\n".join(pieces))


@pytest.mark.parametrize("number", [1, 2])
async def test_a_row_of_table_8_differs_by_the_number_of_pieces(number):
    asked, response = await prompts(**SYSTEMS[f"table-8: {number}"])
    assert [piece.source for piece in response.knowledge] == ["persona"] * number + ["documents"] * number
    knowledge = "\n".join(piece.text for piece in response.knowledge)
    assert asked["response-generation"] == ASSEMBLING.format(history=HISTORY, knowledge=knowledge)


async def test_the_paper_plans_over_two_sources_whatever_else_is_open():
    opened = {"web": Recorded("web"), "documents": Recorded("documents")}
    assert create_method("safari", opened, {"prompt_variant": "paper"}).declared.names == ("persona", "documents")
    assert create_method("safari", opened).declared.names == ("persona", "documents", "library", "web")


async def test_chinese_says_the_same():
    asked, _ = await prompts("zh", **ZERO_SHOT)
    assert "DOCUMENTS 要用 PERSONA 的结果来调用。" in asked["planning"]
    assert asked["planning"].endswith("就写 NULL。")
    assert f"\n{list(PERSONA['zh'])[1].replace(' ', '')}\n" in asked["response-generation"]
    assert asked["response-generation"].endswith("朋友：")


async def test_knowledge_is_numbered_where_responses_cite():
    model = ScriptedModel({"planning": "PERSONA", "response-generation": "Friend: In Trier [1]."})
    agent = create_agent("safari", model=model, cite=True, options=ZERO_SHOT | {"retriever": "bm25"})
    response = await agent.respond(dialogue_of())
    assert response.text == "In Trier."
    assert len(response.citations) == 1
    assert f"\n[1] {response.knowledge[0].text}\n" in whole(model.asked[-1])

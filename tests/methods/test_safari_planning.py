"""SAFARI's planning: zero-shot and in-context, plans mended where they break a dependency, and read tolerantly."""

from __future__ import annotations

import pytest

from dialore.methods.registry import create_method
from dialore.methods.safari import mend_plan, read_plan
from dialore.methods.stage_runner import LLMRunner
from dialore.methods.stages import StageContext
from dialore.prompts.library import PromptLibrary
from dialore.sources.declared import DeclaredSource, DeclaredSources, default_sources, in_order
from tests.methods.conftest import ScriptedModel
from tests.methods.test_safari import TURNS, dialogue_of, prompt_of, respond


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("demonstrations", [0, 3])
async def test_zero_shot_and_in_context(language, demonstrations):
    _, _, model = await respond(dialogue_of(language), demonstrations=demonstrations)
    given = default_sources({}).demonstrations[language]
    planning, writing = (prompt_of(model, stage) for stage in ("planning", "response-generation"))
    for one in given:
        for request in (planning, writing):
            assert (one.turns[-1] in request.messages[0].content) == bool(demonstrations)
            assert (one.turns[-1] in request.continuation) == bool(demonstrations)
        assert (one.response in writing.messages[0].content) == bool(demonstrations)
    assert planning.messages[0].content.count('{"sources": ["PERSONA", "DOCUMENTS"]}') == (1 if demonstrations else 0)
    assert TURNS[language][-1] in planning.messages[1].content
    assert TURNS[language][-1] not in planning.messages[0].content


def declared(**depends_on):
    """Sources that exist by name alone."""
    described = {"en": "x", "zh": "x"}
    entries = [DeclaredSource(name, "model", described, None, on) for name, on in depends_on.items()]
    return DeclaredSources(in_order(entries))


CHAIN = declared(persona=(), documents=("persona",), notes=("documents",), web=())
MENDING = {
    "right": (["persona", "documents"], {}, ["persona", "documents"], []),
    "case": ([" Persona ", "DOCUMENTS"], {}, ["persona", "documents"], []),
    "wrong order": (
        ["documents", "persona"],
        {},
        ["persona", "documents"],
        ["'documents' depends on 'persona': asked"],
    ),
    "missing": (["documents"], {}, ["persona", "documents"], ["'documents' depends on 'persona': put before it"]),
    "missing, far": (["web", "notes"], {}, ["web", "persona", "documents", "notes"], ["'persona', 'documents': put"]),
    "missing, footnote 14": (["documents"], {"drop": True}, [], ["'persona', which is not planned: dropped"]),
    "wrong order, footnote 14": (
        ["documents", "persona"],
        {"drop": True},
        ["persona", "documents"],
        ["asked after it"],
    ),
    "one of two, footnote 14": (["web", "documents"], {"drop": True}, ["web"], ["not planned: dropped"]),
    "unknown": (["persona", "wiki"], {}, ["persona"], ["source 'wiki' is not declared: dropped"]),
    "repeat": (["persona", "PERSONA"], {}, ["persona"], ["'persona' was planned more than once"]),
    "nothing": ([], {}, [], []),
}


@pytest.mark.parametrize(("names", "how", "plan", "notes"), MENDING.values(), ids=MENDING)
def test_mending(names, how, plan, notes):
    mended, noted = mend_plan(names, CHAIN, **how)
    assert mended == plan
    assert len(noted) == len(notes)
    for note, wanted in zip(noted, notes, strict=True):
        assert wanted in note


async def test_a_mended_plan_is_traced():
    response, trace, _ = await respond(plan='{"sources": ["DOCUMENTS", "WIKI"]}')
    assert response.plan == ["persona", "documents"]
    assert [note.partition(":")[0] for note in trace["plan-mending"].notes] == [
        "source 'WIKI' is not declared",
        "source 'documents' depends on 'persona'",
    ]
    response, trace, _ = await respond(plan='{"sources": ["DOCUMENTS"]}', on_invalid_plan="null")
    assert response.plan == []


BOTH = ["persona", "documents"]
WRITTEN = {
    '```json\n{"sources": ["PERSONA"]}\n```': ["persona"],
    '["PERSONA", "DOCUMENTS"]': BOTH,
    '{"sources": "PERSONA, DOCUMENTS"}': BOTH,
    '{"sources": ["PERSONA DOCUMENTS"]}': BOTH,
    '{"sources": "PERSONA 然后 DOCUMENTS"}': BOTH,
    '{"sources": "NULL"}': [],
    '{"sources": ["NULL"]}': [],
    '{"sources": null}': [],
    '{"sources": []}': [],
    "PERSONA, DOCUMENTS": BOTH,
    "PERSONA DOCUMENTS": BOTH,  # as the authors' release trains and shows it
    "[SOURCE] PERSONA, DOCUMENTS [EOS]": BOTH,  # Section 4.2
    "[SOURCE] PERSONA DOCUMENTS [EOS][MIDDLE] 我是素食者 [EOM]系统：我不吃肉。": BOTH,
    "[SOURCE] NULL [EOS][MIDDLE]  [EOM]系统：你好！": [],
    "[NULL]": [],
    "[SOURCE] PERSONA": ["persona"],
    "Answer: PERSONA -> DOCUMENTS.": BOTH,
    "- PERSONA\n- DOCUMENTS": BOTH,
    "1. PERSONA\n2. DOCUMENTS": BOTH,
    "先后顺序：PERSONA，DOCUMENTS": BOTH,
    "NULL": [],
    # What open models wrote, by the paper's prompt: reasons after a blank line, sentences.
    "PERSONA\n\n因为用户问到了系统的籍贯。": ["persona"],
    "需要调用PERSONA和DOCUMENTS": BOTH,
    "The answer needs PERSONA.": ["persona"],
    "I would call PERSONA first, DOCUMENTS second": BOTH,
    "NULL\n\nPERSONA is not needed.": [],
}


@pytest.mark.parametrize(("written", "plan"), WRITTEN.items())
@pytest.mark.parametrize("prompt_variant", ["ours", "paper"])
async def test_plans_are_read_from_the_first_answer_in_every_form(written, plan, prompt_variant):
    response, trace, model = await respond(plan=written, prompt_variant=prompt_variant)
    assert response.plan == plan
    assert model.stages == ["planning", "response-generation"]
    assert trace["planning"].outcome == "ok"


@pytest.mark.parametrize(
    "written",
    [
        "There is no need for PERSONA here.",
        "不需要调用PERSONA",
        "无需 PERSONA，也无需 DOCUMENTS。",
        "I cannot say.",
        "PERSONA or nothing",
        "PERSONADOCUMENTS",
        "What PERSONA holds is this. The home town is asked for.",
        "",
    ],
)
@pytest.mark.parametrize(
    ("prompt_variant", "stages"),
    [("ours", ["planning", "repair", "response-generation"]), ("paper", ["planning", "response-generation"])],
)
async def test_what_is_no_plan_is_null(written, prompt_variant, stages):
    response, trace, model = await respond(plan=written, prompt_variant=prompt_variant)
    assert read_plan(written, CHAIN) is None
    assert (response.plan, response.text) == ([], "Here.")
    assert trace["planning"].outcome == "unparsed"
    assert model.stages == stages


async def test_the_repair_is_read_likewise():
    class Second(ScriptedModel):
        async def complete(self, request, on_token=None):
            if request.label.endswith("/repair"):
                self.answers["planning"] = "PERSONA DOCUMENTS"
            return await super().complete(request, on_token)

    dialogue = dialogue_of()
    model = Second({"planning": "Let me think.", "response-generation": "Here."})
    stages = StageContext(LLMRunner(model, PromptLibrary()), "safari", dialogue)
    response = await create_method("safari", {}).respond(dialogue, stages)
    assert response.plan == BOTH
    assert stages.trace[0].outcome == "repaired"


@pytest.mark.parametrize(
    ("written", "plan"),
    [
        ("There is no need for PERSONA here.", ["persona"]),
        ("First PERSONA. Then I would look into DOCUMENTS.", BOTH),
        # The release's `read_prompt_output` keeps what stands before a blank line, and looks for names in that.
        ("NULL\n\n用户：你是南方人吗\nPERSONA DOCUMENTS", []),
        ("\n\nPERSONA\n \nPERSONA DOCUMENTS", ["persona"]),
        ("需要调用PERSONA和DOCUMENTS", BOTH),
        ("DOCUMENTS", []),  # footnote 14
        ("persona", []),
        ("I cannot say.", []),
    ],
)
@pytest.mark.parametrize("prompt_variant", ["ours", "paper"])
async def test_the_authors_rule_finds_names_anywhere(written, plan, prompt_variant):
    response, trace, model = await respond(
        plan=written, prompt_variant=prompt_variant, plan_parser="substring", on_invalid_plan="null"
    )
    assert response.plan == plan
    assert (trace["planning"].outcome, model.stages) == ("ok", ["planning", "response-generation"])


def test_names_of_several_words_and_names_within_names():
    sources = declared(**{"user memory": (), "user": (), "user-memory": ()})
    for written, names in [
        ("USER MEMORY USER", ["USER MEMORY", "USER"]),
        ("user, User  Memory", ["user", "User  Memory"]),
        ("user-memory", ["user-memory"]),
    ]:
        assert read_plan(written, sources).sources == names
    assert read_plan("users", sources) is None


async def test_a_gold_plan_is_mended_too():
    gold = dialogue_of(sources=["documents", "persona", "documents"])
    response, trace, _ = await respond(gold, planning="gold")
    assert response.plan == ["persona", "documents"]
    assert [piece.source for piece in response.knowledge] == ["persona", "documents"]
    assert trace["planning"].output == {"sources": ["documents", "persona", "documents"]}
    assert len(trace["plan-mending"].notes) == 2

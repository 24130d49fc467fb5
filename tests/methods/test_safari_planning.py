"""SAFARI's planning: zero-shot and in-context, plans mended where they break a dependency, and read tolerantly."""

from __future__ import annotations

import pytest

from dialore.methods.safari_planning import Plan, mend_plan, read_plan
from dialore.sources.declared import DeclaredSource, DeclaredSources, default_sources, in_order
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


@pytest.mark.parametrize(("dependency", "told"), [(True, True), (False, False)])
async def test_the_planner_is_told_of_dependencies(dependency, told):
    _, _, model = await respond(dependency=dependency)
    request = prompt_of(model, "planning")
    for text in (request.messages[0].content, request.continuation):
        assert ("DOCUMENTS is asked only after PERSONA" in text) == told


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
    "without dependency": (["documents"], {"dependency": False}, ["documents"], []),
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
    response, trace, _ = await respond(plan='{"sources": ["DOCUMENTS"]}', broken="null")
    assert response.plan == []


@pytest.mark.parametrize(
    ("written", "plan"),
    [
        ('```json\n{"sources": ["PERSONA"]}\n```', ["persona"]),
        ('["PERSONA", "DOCUMENTS"]', ["persona", "documents"]),
        ('{"sources": "PERSONA, DOCUMENTS"}', ["persona", "documents"]),
        ('{"sources": "NULL"}', []),
        ('{"sources": ["NULL"]}', []),
        ('{"sources": null}', []),
        ("PERSONA, DOCUMENTS", ["persona", "documents"]),
        ("Answer: PERSONA -> DOCUMENTS.", ["persona", "documents"]),
        ("先后顺序：PERSONA，DOCUMENTS", ["persona", "documents"]),
        ("NULL", []),
    ],
)
async def test_plans_are_read_tolerantly(written, plan):
    response, trace, _ = await respond(plan=written)
    assert response.plan == plan
    assert [name.casefold() for name in trace["planning"].output["sources"]] == plan


@pytest.mark.parametrize("written", ["There is no need for PERSONA here.", "I cannot say.", "PERSONA or nothing"])
async def test_what_is_no_plan_is_null(written):
    response, trace, model = await respond(plan=written)
    assert read_plan(written, CHAIN) is None
    assert (response.plan, response.text) == ([], "Here.")
    assert trace["planning"].outcome == "unparsed"
    assert model.stages == ["planning", "repair", "response-generation"]


async def test_a_gold_plan_is_mended_too():
    gold = dialogue_of(sources=["documents", "persona", "documents"])
    response, trace, _ = await respond(gold, planning="gold")
    assert response.plan == ["persona", "documents"]
    assert [piece.source for piece in response.knowledge] == ["persona", "documents"]
    assert trace["planning"].output == {"sources": ["documents", "persona", "documents"]}
    assert len(trace["plan-mending"].notes) == 2


def test_a_plan_is_a_list_of_names():
    assert Plan(sources="PERSONA 然后 DOCUMENTS").sources == ["PERSONA", "DOCUMENTS"]
    assert Plan(sources=[{"name": "WEB"}, " `graph` ", None]).sources == ["WEB", "graph"]

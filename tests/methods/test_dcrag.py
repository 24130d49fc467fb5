"""DCRAG against its paper: which calls each ablation of Table 3 makes, in what order, and what is mended."""

from __future__ import annotations

import pytest

from dialore.errors import InputError, ModelError, StageError

QP, TP, CR = "query-production", "topic-planning", "cross-revision"
FORESEEN, UNFORESEEN, RG = "fact-selection-foreseen", "fact-selection-unforeseen", "response-generation"


async def test_the_whole_method_makes_six_calls_in_four_steps(run, model):
    await run("dcrag")
    assert sorted(model.stages) == sorted([QP, TP, CR, FORESEEN, UNFORESEEN, RG])
    # Which calls were under way when each ended: pairs that run at once, and nothing beside the others.
    together = [step for step in model.steps if len(step) == 2]
    assert together == [{QP, TP}, {FORESEEN, UNFORESEEN}]
    assert model.stages[2] == CR
    assert model.stages[-1] == RG


# Table 3, row by row: what each ablation leaves of the calls.
ABLATIONS = {
    "w/o FS": ({"fact_selection": False}, [QP, TP, CR, RG]),
    "w/o FR+FS": ({"fact_retrieval": False, "fact_selection": False}, [QP, TP, CR, RG]),
    "w/o QP+CR": ({"query_production": False, "cross_revision": False}, [TP, UNFORESEEN, RG]),
    "w/o TP+CR": ({"topic_planning": False, "cross_revision": False}, [QP, UNFORESEEN, RG]),
    "w/o CR": ({"cross_revision": False}, [QP, TP, FORESEEN, UNFORESEEN, RG]),
    "w/o TtG": ({"thoughts": False}, [QP, TP, CR, FORESEEN, UNFORESEEN, RG]),
}


@pytest.mark.parametrize(("options", "calls"), ABLATIONS.values(), ids=ABLATIONS)
async def test_each_ablation_changes_the_calls_as_the_paper_says(run, model, options, calls):
    response, _ = await run("dcrag", **options)
    assert sorted(model.stages) == sorted(calls)
    assert response.text == "Try honey for that sore throat!"


async def test_without_retrieval_there_are_no_facts_but_demands_stay(run, model):
    response, stages = await run("dcrag", fact_retrieval=False, fact_selection=False)
    assert response.knowledge == []
    assert response.demands.extended == ["honey", "drink warm tea", "dry mouth"]
    assert "fact-retrieval" not in [traced.stage for traced in stages.trace]
    assert "honey" in model.asked[-1].messages[-1].content


async def test_without_selection_the_best_ranked_are_used_foreseen_first(run, small_graph):
    response, _ = await run("dcrag", fact_selection=False, limit=4)
    sets = [fact.set for fact in response.knowledge]
    assert len(sets) == 4
    assert sets == sorted(sets)  # "foreseen" before "unforeseen"
    for name in ("foreseen", "unforeseen"):
        scores = [fact.score for fact in response.knowledge if fact.set == name]
        assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("thoughts", [True, False])
async def test_thought_then_generate(run, model, thoughts):
    response, _ = await run("dcrag", thoughts=thoughts)
    for request in model.asked:
        stage = request.label.rsplit("/", 1)[-1]
        whole = "\n".join(message.content for message in request.messages)
        if stage in (QP, TP, CR):
            assert ("_thoughts" in whole) == thoughts
            assert any("thoughts" in name for name in request.output_schema.definition["properties"]) == thoughts
        if stage in (CR, RG):
            assert ("They are nervous." in whole or "Keep." in whole) == thoughts
    assert bool(response.demands.thoughts) == thoughts


async def test_thoughts_stand_before_what_they_lead_to(run, model):
    await run("dcrag")
    for request in model.asked:
        if request.output_schema and request.label.endswith((QP, TP, CR)):
            names = list(request.output_schema.definition["properties"])
            for kind in ("explicit", "implicit", "maintained", "extended"):
                if kind in names:
                    assert names.index(f"{kind}_thoughts") < names.index(kind)


async def test_foreseen_facts_lie_between_queries_and_topics(run):
    response, _ = await run("dcrag", fact_selection=False)
    foreseen = {fact.triple for fact in response.knowledge if fact.set == "foreseen"}
    assert foreseen == {
        "(sore throat, CausesDesire, drink warm tea)",
        "(honey, UsedFor, sore throat)",
        "(nervousness, Causes, dry mouth)",
    }
    unforeseen = {fact.triple for fact in response.knowledge if fact.set == "unforeseen"}
    assert "(sore throat, IsA, symptom)" in unforeseen
    assert "(lemon, HasProperty, sour)" not in unforeseen


async def test_selection_takes_foreseen_facts_first_and_stops_at_the_limit(run, model):
    model.answers[FORESEEN] = {"selected": [2, 1]}
    model.answers[UNFORESEEN] = {"selected": [1, 2, 3]}
    response, _ = await run("dcrag", limit=3)
    assert [fact.set for fact in response.knowledge] == ["foreseen", "foreseen", "unforeseen"]


async def test_selecting_one_after_the_other_gives_the_same_facts(run, model):
    at_once, _ = await run("dcrag", limit=2, parallel_selection=True)
    calls = len(model.asked)
    in_turn, _ = await run("dcrag", limit=2, parallel_selection=False)
    assert [fact.id for fact in at_once.knowledge] == [fact.id for fact in in_turn.knowledge]
    # The foreseen facts fill the limit, so the second selection is not even asked for.
    assert len(model.asked) - calls == calls - 1


async def test_entities_of_the_wrong_kind_are_moved_and_traced(run, model):
    model.answers[CR] = {**model.answers[CR], "explicit": ["sore throat", "health"], "extended": ["honey", "interview"]}
    response, stages = await run("dcrag")
    demands = response.demands
    assert demands.explicit == ["sore throat"]
    assert "health" in demands.implicit
    assert "interview" in demands.maintained
    assert "interview" not in demands.extended
    notes = next(traced.notes for traced in stages.trace if traced.stage == "revision-mending")
    assert notes == [
        "explicit 'health' is not in the history: moved to implicit",
        "extended 'interview' is in the history: moved to maintained",
    ]
    mended = [traced.stage for traced in stages.trace if traced.stage.endswith("mending")]
    assert mended == ["query-mending", "topic-mending", "revision-mending"]


async def test_a_selected_fact_that_was_never_offered_is_dropped_and_traced(run, model):
    model.answers[FORESEEN] = {"selected": ["[1]-(sore throat, CausesDesire, drink warm tea)", 77, 1]}
    response, stages = await run("dcrag")
    notes = next(traced.notes for traced in stages.trace if traced.stage == "selection-mending-foreseen")
    assert notes == ["fact 77 was never offered: dropped", "facts were named more than once: repeats dropped"]
    assert sum(fact.set == "foreseen" for fact in response.knowledge) == 1


UNPARSED = {
    QP: lambda response: response.demands.explicit == ["sore throat", "job interview"],
    CR: lambda response: response.demands.extended == ["honey", "drink warm tea"],
    FORESEEN: lambda response: sum(fact.set == "foreseen" for fact in response.knowledge) == 3,
}


@pytest.mark.parametrize(("stage", "holds"), UNPARSED.items(), ids=UNPARSED)
async def test_an_answer_that_does_not_parse_falls_back_and_is_counted(run, model, stage, holds):
    model.answers[stage] = "I would rather talk about the weather."
    response, stages = await run("dcrag")
    traced = next(traced for traced in stages.trace if traced.stage == stage)
    assert traced.outcome == "unparsed"
    assert traced.usage.calls == 2  # the call and one repair turn
    assert any("fallback" in note for note in traced.notes)
    assert holds(response)


async def test_a_failing_stage_names_itself_and_the_dialogue_and_keeps_the_trace(run, model):
    model.answers[CR] = ModelError("the endpoint answered 500", hint="try again later", status=500)
    with pytest.raises(StageError) as caught:
        await run("dcrag")
    assert caught.value.stage == CR
    assert caught.value.dialogue_id == "d1"
    assert "500" in str(caught.value)
    assert "try again later" in str(caught.value)


async def test_a_graph_that_knows_nothing_leaves_the_selection_out(run, model):
    empty = {kind: ["zzyzx"] for kind in ("explicit", "implicit", "maintained", "extended")}
    model.answers[CR] = {**{f"{kind}_thoughts": "x" for kind in empty}, **empty}
    response, stages = await run("dcrag")
    assert FORESEEN not in model.stages
    assert UNFORESEEN not in model.stages
    assert response.knowledge == []
    notes = next(traced.notes for traced in stages.trace if traced.stage == "fact-retrieval")
    assert notes == ["no concept for 'zzyzx'"]


@pytest.mark.parametrize(
    "options",
    [
        {"query_production": False, "topic_planning": False, "cross_revision": False},
        {"query_production": False},
        {"fact_retrieval": False},
    ],
)
async def test_switches_that_do_not_go_together_are_refused(run, options):
    with pytest.raises(InputError):
        await run("dcrag", **options)

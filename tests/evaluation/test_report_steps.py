"""What the report's dialogue browser tells of how a response came about: plans, queries, questions, draft and edit."""

from __future__ import annotations

import pytest

from dialore.dialogue import Dialogue
from dialore.evaluation.report.browser import Browser, unpack
from dialore.evaluation.report.data import ScoredResponse
from dialore.knowledge import Knowledge
from dialore.response import Citation, Response, StageTrace


def did(stage, *, notes=(), **output):
    return StageTrace(stage=stage, output=output, notes=list(notes))


def browsed(*, dialogue=None, **response):
    """The index entry and the details of one response, as the page inflates them."""
    browser = Browser(["s"], ["d"], [], 5)
    told = Response(id="1", method="s", **({"text": "Hello."} | response))
    given = {"id": "1", "turns": ["Hi"]} | (dialogue or {})
    browser.add(0, ScoredResponse(Dialogue.model_validate(given), told))
    packed = browser.packed()
    (entry,) = unpack(packed["index"])["dialogues"]
    chunk = unpack(packed["chunk-0"])

    def whole(value):
        if isinstance(value, list):
            return [whole(item) for item in value]
        if isinstance(value, dict):
            return chunk["texts"][value["$"]] if set(value) == {"$"} else {k: whole(v) for k, v in value.items()}
        return value

    return entry, whole(chunk["items"][0])


@pytest.mark.parametrize(
    ("plan", "gold"), [(["persona", "documents"], ["persona"]), ([], []), (None, ["documents"]), (["persona"], None)]
)
def test_plan_and_gold_plan_tell_no_source_from_no_plan(plan, gold):
    entry, detail = browsed(plan=plan, dialogue={} if gold is None else {"sources": gold})
    assert detail["plan"] == (None if plan is None else [name.upper() for name in plan])
    assert entry["plan"] == (None if gold is None else [name.upper() for name in gold])


def test_queries_and_the_directive_in_the_order_of_the_method():
    trace = [
        did("search-decision", kind="passive", query=""),
        did("topic-tracking", text="bees"),
        did("commonsense-directive", text="Talk of honey."),
        did("query-generation", text="honey yield"),
        did("web-search", query="honey yield a hive", source="web"),
    ]
    told = browsed(trace=trace)[1]["steps"]["told"]
    assert told == [
        ["The turn", "asks for nothing"],
        ["Topic", "bees"],
        ["Directive", "Talk of honey."],
        ["Query", "honey yield a hive"],
        ["Searched in", "web"],
    ]


def test_a_query_that_goes_to_a_graph_is_told_with_its_concepts():
    trace = [did("query-generation", text="poke bowl"), did("query-linking", links=["poke -> poke (lemma)"])]
    told = browsed(trace=trace)[1]["steps"]["told"]
    assert told == [["Query", "poke bowl"], ["Concepts", "poke -> poke (lemma)"]]


def test_questions_with_the_answers_that_were_chosen_from():
    rows = [
        {"question": "Winter?", "by": "documents", "why": "it is the better of two"},
        {"question": "Ivy?", "by": "model", "why": "the model's is the only answer"},
        {"question": "Who?", "by": "model", "why": "nobody had an answer"},
    ]
    answers = {"model-answer-1": "They sleep.", "base-answer-1": "They shiver.", "model-answer-2": "Yes."}
    answers |= {"base-answer-2": "NONE", "model-answer-3": "None."}
    trace = [did(name, text=text) for name, text in answers.items()]
    trace += [did("answer-choice-1", better="A"), did("answer-integration", answers=rows)]
    assert browsed(trace=trace)[1]["steps"]["questions"] == [
        ["Winter?", [["the model's", "They sleep.", False], ["the base's", "They shiver.", True]]],
        ["Ivy?", [["the model's", "Yes.", True]]],
        ["Who?", []],
    ]


@pytest.mark.parametrize("kept", ["draft", "edit"])
def test_draft_and_edit_in_pieces(kept):
    choice = did("choice", kept=kept, draft="Have fun there!", edit="Have fun in Soho!", notes=["both orders agree"])
    votes = [did("preference-draft-first", better="B"), did("preference-edit-first", better="same")]
    before, after, which, why, said = browsed(trace=[choice, *votes])[1]["steps"]["versions"]
    assert [text for text, gone in before if gone] == ["there"]
    assert [text for text, come in after if come] == ["in Soho"]
    assert "".join(text for text, _ in after) == "Have fun in Soho!"
    assert (which, why) == (kept, "both orders agree")
    assert said == ["draft first: edit", "edit first: no difference"]


def test_an_edit_that_changes_nothing_has_no_pieces():
    choice = did("choice", kept="draft", draft="Have fun!", edit="Have fun!")
    assert browsed(trace=[choice])[1]["steps"]["versions"][1] == []


def test_a_response_without_such_stages_has_no_steps():
    assert browsed(trace=[did("response-generation", text="Hello.")])[1]["steps"] == {}


def test_citations_are_numbered_as_they_come():
    made = [Knowledge(id=f"k{n}", kind="passage", text=f"Fact {n}.", source="documents", score=1.0) for n in (1, 2)]
    cited = [Citation(start=7, end=13, knowledge="k1"), Citation(start=0, end=6, knowledge="k2")]
    detail = browsed(text="One is. Two is.", knowledge=made, citations=cited)[1]
    assert detail["parts"] == [["One is", [1]], [". Two i", [2]], ["s.", []]]
    assert [item[6] for item in detail["knowledge"]] == [2, 1]
